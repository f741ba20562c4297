"""When the engine is compiled."""

import os

from capsule_mt.engine import build


def test_it_is_compiled_if_it_is_missing_or_older_than_its_sources(tmp_path, monkeypatch):
    name = build.this_platform()
    library = tmp_path / build.TARGETS[name].library
    monkeypatch.setattr(build, "build", lambda *_: "compiled")
    assert build.current_library(name, tmp_path) == "compiled"
    library.touch()
    assert build.current_library(name, tmp_path) == library
    os.utime(library, (0, 0))
    assert build.current_library(name, tmp_path) == "compiled"


def test_the_command_compiles_always_or_only_what_has_changed(tmp_path, monkeypatch):
    compiled = []
    monkeypatch.setattr(build, "build", lambda *arguments: compiled.append(arguments))
    name = build.this_platform()
    (tmp_path / build.TARGETS[name].library).touch()
    for options in (["--if-changed"], []):
        monkeypatch.setattr("sys.argv", ["build.py", "--output", str(tmp_path), *options])
        build.main()
    assert compiled == [(name, tmp_path, "")]

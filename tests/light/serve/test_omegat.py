"""The script of examples/ for OmegaT, run by the command line of OmegaT 3.6 against our server."""

import shutil
import subprocess

import pytest

pytest.importorskip("fastapi")

from tests.conftest import GOLDEN
from tests.light.serve.fakes import Upper
from tests.light.serve.test_app import EN_DE
from tests.light.serve.test_page import served

EXAMPLE = GOLDEN.parents[1] / "examples" / "omegat_capsule_mt.groovy"
FOLDERS = ("source", "target", "tm", "glossary", "dictionary", "omegat")
PROJECT = """<?xml version="1.0" encoding="UTF-8" standalone="yes"?>
<omegat><project version="1.0">
<source_dir>__DEFAULT__</source_dir><target_dir>__DEFAULT__</target_dir><tm_dir>__DEFAULT__</tm_dir>
<glossary_dir>__DEFAULT__</glossary_dir><dictionary_dir>__DEFAULT__</dictionary_dir>
<source_lang>EN-US</source_lang><target_lang>DE</target_lang><sentence_seg>true</sentence_seg>
</project></omegat>
"""


@pytest.mark.slow
def test_the_script_translates_a_project(tmp_path):
    omegat = shutil.which("omegat") or pytest.skip("no omegat here: apt install omegat libgroovy-java")
    for folder in FOLDERS:
        (tmp_path / "project" / folder).mkdir(parents=True)
    (tmp_path / "project" / "omegat.project").write_text(PROJECT)
    (tmp_path / "project" / "source" / "a.txt").write_text("A red hat. It rains.\n")
    with served({EN_DE: Upper()}) as address:
        script = tmp_path / EXAMPLE.name
        script.write_text(EXAMPLE.read_text(encoding="utf-8").replace("http://127.0.0.1:5000", address))
        options = ("--mode=console-translate", f"--config-dir={tmp_path / 'settings'}", f"--script={script}")
        done = subprocess.run([omegat, "project", *options], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "2 segments translated" in done.stdout + done.stderr
    assert (tmp_path / "project" / "target" / "a.txt").read_text() == "A RED HAT. IT RAINS.\n"

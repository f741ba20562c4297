"""Hostile files in every kind: none ends its reader, and no reader of a stranger's bytes runs in the server."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import httpx

from capsule_mt.formats.registry import format_named, format_of
from tests.fuzz.cases import KINDS as MODEL_KINDS
from tests.fuzz.cases import application, sound_folder
from tests.hostile.builders import write_hostile
from tests.hostile.grammar import KINDS
from tests.hostile.parents import ReadInParentError, without_parsers
from tests.light.formats.files import FILES, content_of
from tests.light.formats.test_hostile import COLUMNS

ROOT = Path(__file__).parents[2]
NUM_CASES = 12  # of each kind; `python -m tests.hostile` runs 500
LOADED = """
import json, sys
from pathlib import Path
from capsule_mt.commands.loading import load_translator
from tests.hostile.parents import opened_before_the_sandbox
{before}
print(json.dumps(opened_before_the_sandbox(Path(sys.argv[1]), lambda folder: load_translator(folder, {{}}))))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_ends_its_reader(kind):
    command = [sys.executable, "-m", "tests.hostile", "--cases", str(NUM_CASES), "--kinds", kind]
    # in a process of its own, which can fork: one with torch has threads
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    counts = process.stdout.splitlines()[-1].removeprefix(f"{kind}: ").split(";")[0]
    assert sum(int(count.split()[0]) for count in counts.split(", ")) == NUM_CASES


# ---- uploads
async def upload(name: str, content: bytes) -> httpx.Response:
    form = {
        "source": "en",
        "target": "de",
        **({"column": COLUMNS[format_of(name)]} if format_of(name) in COLUMNS else {}),
    }
    transport = httpx.ASGITransport(app=application(), raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        return await client.post("/translate_file", data=form, files={"file": (name, content)})


def uploaded(name: str) -> httpx.Response:
    with without_parsers() as called:
        response = asyncio.run(upload(name, content_of(name)))
    assert called == []
    return response


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FILES))
def test_the_server_does_not_read_an_uploaded_file_itself(name):
    assert uploaded(name).status_code in (200, 400)


def test_it_would_show_if_it_did(monkeypatch):
    """A worker that answers in the server's process."""
    from capsule_mt.files.sandbox.child import Limits
    from capsule_mt.formats import child
    from capsule_mt.formats.worker import Worker

    def send(self, name, contents=(), **job):
        return child.answer({"name": name, **job}, list(contents), Limits(5.0, 1 << 30, 1 << 20, 1 << 20))

    monkeypatch.setattr(Worker, "_send", send)
    with pytest.raises(ReadInParentError, match=r"child\.answer was called"), without_parsers():
        asyncio.run(upload("a.md", b"a"))


def test_every_format_has_a_file():
    assert {format_of(name) for name in FILES} >= {"markdown", "docx", "csv", "po", "xliff"}
    assert all(format_named(format_of(name)) for name in FILES)


# ---- models
def opened_by_the_parent(folder, before=""):
    command = [sys.executable, "-c", LOADED.format(before=before), str(folder)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODEL_KINDS)
def test_the_server_opens_no_model_before_the_sandbox_has_loaded_it(kind):
    assert opened_by_the_parent(sound_folder(kind)) == []


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "builder"), [("pickle", "deep"), ("header", "brackets"), ("tokenizer", "brackets")])
def test_the_server_never_opens_a_hostile_model(kind, builder, tmp_path):
    write_hostile(kind, builder, 5000, tmp_path / "model")
    assert opened_by_the_parent(tmp_path / "model") == []


@pytest.mark.slow
def test_it_would_show_if_it_opened_one():
    unprobed = "from capsule_mt.models import probing\nprobing.probe = lambda folder, **options: None"
    assert "config.json" in opened_by_the_parent(sound_folder(), before=unprobed)

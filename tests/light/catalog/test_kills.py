"""Downloads and removals that are killed before each change of the cache: the next call ends as if none was."""

import gzip
import itertools
import shutil
import sys
from pathlib import Path

import pytest

from capsule_mt.catalog.entries import cache_folder
from capsule_mt.catalog.store import downloaded_models, remove_model, resolve
from tests.fixtures.kills import KILLS, is_killed
from tests.light.catalog.conftest import CONTENT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="forks")

SMALL = {kind: content[:2000] for kind, content in CONTENT.items()}
NEW = {kind: content[::-1] for kind, content in SMALL.items()}


@pytest.fixture
def registry(registry):
    publish(registry, SMALL)
    return registry


def publish(registry, content):
    registry.models["en-pt"].clear()
    registry.add("en-pt", content=content)
    registry.publish()
    (cache_folder() / "mozilla" / "models.json").unlink(missing_ok=True)


def files_of(folder):
    return {file.name: file.read_bytes() for file in Path(folder).iterdir()}


def kills(act, prepare=lambda: None):
    """Yield the number of each change after the process that acts was killed before it, in a cache of its own."""
    for number in itertools.count(1):
        shutil.rmtree(cache_folder(), ignore_errors=True)
        prepare()
        if not is_killed(act, number, cache_folder()):
            return
        yield number


@pytest.mark.slow
def test_a_download(registry):
    expected = files_of(resolve("en-pt"))
    for number in kills(lambda: resolve("en-pt")):
        assert files_of(resolve("en-pt")) == expected, number
    assert number >= KILLS["a download"]


@pytest.mark.slow
def test_a_download_after_an_older_version_of_the_model_was_interrupted(registry):
    def interrupt_old():
        publish(registry, SMALL)
        resolve("en-pt")
        (cache_folder() / "mozilla" / "en-pt").rename(cache_folder() / "mozilla" / "en-pt.partial")
        (cache_folder() / "mozilla" / "en-pt.partial" / ".version").write_text("old")
        publish(registry, NEW)

    interrupt_old()
    expected = files_of(resolve("en-pt"))
    for number in kills(lambda: resolve("en-pt"), interrupt_old):
        assert files_of(resolve("en-pt")) == expected, number


@pytest.mark.slow
def test_a_file_that_changed_since_its_download_broke_off(registry):
    """Of the vocabulary the registry has no digest: only the order of the writes keeps two versions apart."""
    path = "/bucket/models/en-pt/base-memory/exported/vocab.enpt.spm.gz"
    old, new = (gzip.compress(content["vocab"], mtime=0) for content in (SMALL, NEW))

    def interrupt_old():
        registry.hub.files[path] = old
        registry.hub.cut_next.append(("vocab.enpt.spm", 500))
        assert is_killed(lambda: resolve("en-pt"), after_the_cut, cache_folder())
        registry.hub.cut_next.clear()
        registry.hub.files[path] = new

    registry.hub.cut_next.append(("vocab.enpt.spm", 500))
    part = cache_folder() / "mozilla" / "en-pt.partial" / "vocab.enpt.spm.part"
    after_the_cut = next(number for number in kills(lambda: resolve("en-pt")) if part.exists() and part.stat().st_size)
    for number in kills(lambda: resolve("en-pt"), interrupt_old):
        assert files_of(resolve("en-pt"))["vocab.enpt.spm"] == NEW["vocab"], number


def test_a_removal(registry):
    expected = files_of(resolve("en-pt"))
    for number in kills(lambda: remove_model("en-pt"), lambda: resolve("en-pt")):
        listed = downloaded_models()
        assert [files_of(model.folder) for model in listed] in ([], [expected]), number  # as a whole or not at all
        assert files_of(resolve("en-pt")) == expected, number

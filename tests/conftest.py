"""Every test is offline, seeded, and on one thread for each of the two processes that run them."""

import os
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch
from filelock import FileLock

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def word_for_word(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the checkpoint of `tests/fixtures/word_for_word.py`, trained once for all test processes."""
    from tests.fixtures.word_for_word import train_word_for_word

    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "word_for_word"
    with FileLock(f"{folder}.lock"):
        if not (folder / "tokenizer.json").exists():  # which is saved last
            model, tokenizer = train_word_for_word()
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    return folder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A class of model checks runs each of its tests on every mix of settings in `mixes`."""
    if "mix" in metafunc.fixturenames and metafunc.cls is not None:
        mixes = metafunc.cls.mixes
        metafunc.parametrize("mix", list(mixes.values()), ids=list(mixes))

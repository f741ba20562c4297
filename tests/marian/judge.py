"""Marian itself (`pymarian` of PyPI): trains a variant in a second, and says how it scores and translates."""

import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

from capsule_mt.files.lock import lock_output
from capsule_mt.files.outputs import write_output
from capsule_mt.models.marian_yaml import read_vocabulary
from capsule_mt.models.sentencepiece import SentencePieceEncoder, read_sentencepiece
from tests.fixtures.marian_models import FOLDER
from tests.marian.variants import options_of

VERSION = "1.12.42"
VARIABLE = "CAPSULE_MT_PYMARIAN"  # the Python of an environment that has pymarian
UPDATES = "100u"
TRAINING = {
    "after": UPDATES,
    "mini-batch": "16",
    "maxi-batch": "10",
    "workspace": "300",
    "learn-rate": "0.006",
    "seed": "7",
    "cost-type": "ce-mean-words",
    "disp-freq": UPDATES,
}


class Judge:
    """Marian, installed once in the folder `cache`, which also keeps what it has made.

    The processes of a run share the folder: what one makes, the others wait for.
    """

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.python = os.environ.get(VARIABLE) or self._install()

    def _install(self) -> str:
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            pytest.skip(f"pymarian {VERSION} is for Linux on x86-64")
        environment, installed = self.cache / f"pymarian-{VERSION}", self.cache / f"pymarian-{VERSION}.installed"
        python = environment / "bin" / "python"
        with lock_output(installed, wait=True):
            if not installed.exists():
                venv.create(environment, with_pip=True, clear=True)
                command = [str(python), "-m", "pip", "install", "-q", f"pymarian=={VERSION}"]
                if subprocess.run(command, check=False).returncode:
                    pytest.skip(f"pip cannot install pymarian {VERSION} for Python {sys.version.split()[0]}")
                installed.touch()
        return str(python)

    def run(self, command: str, *arguments: object, stdin: Path | None = None) -> str:
        """Return what a command of Marian's prints."""
        text = stdin.read_text("utf-8") if stdin else ""
        threads = [] if command in ("vocab", "convert") else ["--cpu-threads", "1"]
        line = [self.python, "-m", "pymarian", command, *threads, *map(str, arguments)]
        ran = subprocess.run(line, input=text, capture_output=True, text=True, check=False, timeout=300)
        if "Try older architecture instead" in ran.stderr:
            pytest.skip(f"Marian does not {command} this model on a processor without AVX-512 or its VNNI")
        assert ran.returncode == 0, ran.stderr[-2000:]
        return ran.stdout

    def train(self, name: str) -> Path:
        """Return the folder of a trained variant, with its vocabularies."""
        options, vocabularies = options_of(name)
        described, description = self.cache / f"{name}.json", json.dumps([options, vocabularies, TRAINING])
        folder = self.cache / name
        with lock_output(described, wait=True):
            if not (described.exists() and described.read_text() == description):
                self._train(folder, options, vocabularies)
                described.write_text(description)
        return folder

    def _train(self, folder: Path, options: dict[str, str], vocabularies: list[str]) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for vocabulary in set(vocabularies):
            write_vocabulary(folder / vocabulary)
        texts = [
            write_text(folder, "train", side, vocabulary)
            for side, vocabulary in zip(("de", "en"), vocabularies, strict=True)
        ]
        arguments = [
            word for option, value in (options | TRAINING).items() for word in (f"--{option}", *value.split())
        ]
        paths = [folder / vocabulary for vocabulary in vocabularies]
        self.run("train", "-t", *texts, "-v", *paths, "-m", folder / "model.npz", *arguments)
        for leftover in folder.glob("model.npz.*"):
            leftover.unlink()
        if vocabularies[0] != vocabularies[1]:  # no name tells which is the source's
            (folder / "decoder.yml").write_text(f"vocabs: [{', '.join(vocabularies)}]\n")

    def scores(self, folder: Path, model: Path, vocabularies: list[str], text: str = "test") -> list[list[float]]:
        """Return the log-probabilities of the words of all pairs of a text of the fixtures."""
        paths = [folder / vocabulary for vocabulary in vocabularies]
        sides = [write_text(folder, text, side, paths[index].name) for index, side in enumerate(("de", "en"))]
        printed = self.run("score", "-m", model, "-v", *paths, "-w", 200, "--word-scores", "--quiet", "-t", *sides)
        lines = [line.split("WordScores=")[1] for line in printed.splitlines() if "WordScores=" in line]
        return [[float(score) for score in line.split()] for line in lines]

    def greedy(self, folder: Path, vocabularies: list[str]) -> list[tuple[str, int]]:
        """Return the greedy translations of all sources, and how many tokens each has."""
        paths = [folder / vocabulary for vocabulary in vocabularies]
        source = write_text(folder, "test", "de", vocabularies[0])
        arguments = (
            "-m",
            folder / "model.npz",
            "-v",
            *paths,
            "-w",
            200,
            "--n-best",
            "--word-scores",
            "--quiet",
            "-b",
            1,
        )
        lines = self.run("decode", *arguments, "--maxi-batch", 1, "--mini-batch", 1, stdin=source).splitlines()
        parts = [line.split(" ||| ") for line in lines]
        return [(text, len(scores.split("WordScores=")[1].split())) for _, text, scores, *_ in parts]


def write_vocabulary(file: Path) -> None:
    """Write a vocabulary of the fixtures, or one made of these."""
    if file.suffix == ".txt":
        numbers = read_vocabulary(str(FOLDER / "joint.yml"))
        file.write_text("".join(f"{token}\n" for token in sorted(numbers, key=lambda token: numbers[token])), "utf-8")
    else:
        shutil.copy(FOLDER / file.name, file)
    if file.suffix != ".spm":  # which does not cut text
        for name in ("source.spm", "target.spm"):
            shutil.copy(FOLDER / "joint.spm", file.parent / name)
        lines = "".join(f"  - {file.name}\n" for _ in range(2))
        (file.parent / "decoder.yml").write_text(f"models:\n  - model.npz\nvocabs:\n{lines}")


def write_text(folder: Path, name: str, side: str, vocabulary: str) -> Path:
    """Return a file with the sentences, cut into pieces if the vocabulary does not do so."""
    source = FOLDER / f"{name}.{side}"
    if vocabulary.endswith(".spm"):
        return source
    encoder, cut = SentencePieceEncoder(read_sentencepiece(str(FOLDER / "joint.spm"))), folder / f"{name}.{side}"
    lines = source.read_text("utf-8").splitlines()
    write_output(cut, "".join(" ".join(encoder.encode(line)[0]) + "\n" for line in lines))
    return cut


def normalises_keys_alone(options: dict[str, Any]) -> bool:
    """Whether `marian decode` errs: from the second step on, it forgets to normalise keys and values."""
    autoreg = options.get("transformer-decoder-autoreg", "self-attention")
    return bool(options.get("transformer-preprocess")) and autoreg == "self-attention"

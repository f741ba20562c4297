"""CTranslate2 itself (PyPI): builds and converts models, and says how it translates and scores with them."""

import atexit
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capsule_mt.files.lock import lock_output
from capsule_mt.models.sentencepiece import SentencePieceEncoder, read_sentencepiece
from tests.fixtures.marian_models import FOLDER

VERSION = "4.8.5"
VARIABLE = "CAPSULE_MT_CTRANSLATE2"  # a folder in which `pip install --target` has put it
PROCESS = Path(__file__).with_name("process.py")
SPM = FOLDER / "joint.spm"
LINES = [line for side in ("de", "en") for line in (FOLDER / f"train.{side}").read_text("utf-8").splitlines()]


class JudgeError(Exception):
    """CTranslate2 does not do a job, and says why, or its process has ended."""


class Judge:
    """CTranslate2, installed once in the folder `cache`. It runs in a process of its own, until a job ends that."""

    def __init__(self, cache: Path) -> None:
        self.site = Path(os.environ.get(VARIABLE) or self._install(cache))
        self._process: subprocess.Popen[str] | None = None

    def _install(self, cache: Path) -> Path:
        site = cache / f"ctranslate2-{VERSION}"
        installed = site.with_suffix(".installed")
        with lock_output(installed, wait=True):
            if not installed.exists():
                command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
                if subprocess.run([*command, f"ctranslate2=={VERSION}"], check=False).returncode:
                    pytest.skip(f"pip cannot install ctranslate2 {VERSION} for Python {sys.version.split()[0]}")
                installed.touch()
        return site

    def run(self, job: str, **arguments: Any) -> Any:
        """Return the result of a job of process.py."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"do": job, **arguments}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self._process = None
            raise JudgeError(f"CTranslate2 has ended with code {process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise JudgeError(answer["error"]) from RuntimeError(answer["traceback"])
        return answer["result"]

    def _start(self) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": str(self.site), "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, str(PROCESS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        atexit.register(process.kill)
        return process

    def build(self, folder: Path, tokens: list[str] | None = None, **variant: Any) -> Path:
        """Write the model of a variant, with the SentencePiece model that cuts its text."""
        arguments = {"spec": {}, "config": {}, **variant}
        self.run("build", folder=str(folder), pieces=pieces() if tokens is None else tokens, **arguments)
        shutil.copy(SPM, folder / "sentencepiece.model")
        return folder


def pieces() -> list[str]:
    """Return the pieces of the SentencePiece model, without its control pieces."""
    return [text for text in read_sentencepiece(str(SPM)).texts if text not in ("<unk>", "<s>", "</s>")]


def cut(lines: list[str], before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> list[list[str]]:
    """Return the pieces of lines, as users of CTranslate2 pass them on."""
    encoder = SentencePieceEncoder(read_sentencepiece(str(SPM)))
    return [[*before, *encoder.encode(line)[0], *after] for line in lines]

"""CTranslate2 itself (PyPI): builds and converts models, and says how it translates and scores with them."""

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


class Judge:
    """CTranslate2, installed once in the folder `cache`. It runs in a process of its own."""

    def __init__(self, cache: Path) -> None:
        self.site = Path(os.environ.get(VARIABLE) or self._install(cache))

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
        environment = {**os.environ, "PYTHONPATH": str(self.site), "OMP_NUM_THREADS": "1"}
        text = json.dumps({"do": job, **arguments})
        ran = subprocess.run(
            [sys.executable, str(PROCESS)], input=text, capture_output=True, text=True, check=False, env=environment
        )
        assert ran.returncode == 0, ran.stderr[-2000:]
        return json.loads(ran.stdout)

    def build(self, folder: Path, tokens: list[str] | None = None, **variant: Any) -> Path:
        """Write the model of a variant, with the SentencePiece model that cuts its text."""
        given = {"spec": {}, "config": {}, **variant}
        self.run("build", folder=str(folder), pieces=pieces() if tokens is None else tokens, **given)
        shutil.copy(SPM, folder / "sentencepiece.model")
        return folder


def pieces() -> list[str]:
    """Return the pieces of the SentencePiece model, without its control pieces."""
    return [text for text in read_sentencepiece(str(SPM)).texts if text not in ("<unk>", "<s>", "</s>")]


def cut(lines: list[str], before: tuple[str, ...] = (), after: tuple[str, ...] = ()) -> list[list[str]]:
    """Return the pieces of lines, as users of CTranslate2 pass them on."""
    encoder = SentencePieceEncoder(read_sentencepiece(str(SPM)))
    return [[*before, *encoder.encode(line)[0], *after] for line in lines]

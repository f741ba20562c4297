"""COMET by the program `comet-score` of unbabel-comet, as one of sacreBLEU's metrics.

Deviation: a program, not an import, as unbabel-comet 2.2 needs transformers below 5 and lives in another environment.
"""

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sacrebleu.metrics.base import Metric, Signature
from sacrebleu.metrics.base import Score as SacreScore

from hf_capsule_mt.evaluation.metrics import Score, check_parallel

PROGRAM = "comet-score"
CHECKPOINT = Path("checkpoints") / "model.ckpt"  # in the repositories of the hub
SCALE = 100  # as the tables of WMT have it
LINE_BREAKS = re.compile(r"[\r\n]+")


class CometSignature(Signature):
    """The model of a COMET score, and its scale."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        version = f"unbabel-comet {program_version(args['program'])}"
        self.info = {"nrefs": 1, "model": args["model"], "scale": SCALE, "version": version}


class Comet(Metric):
    """The mean of COMET's scores of sentences, times 100, with sacreBLEU's bootstrap and significance tests.

    Args:
        model: a name on the hub, a `.ckpt` file, or a folder with `checkpoints/model.ckpt`; the last two are read
            without a network if the tokenizer that `hparams.yaml` beside them names is in the cache.
        sources: the source of each sentence.
    """

    name = "comet"
    _SIGNATURE_TYPE = CometSignature

    def __init__(self, model: str, sources: Sequence[str]) -> None:
        super().__init__()
        self.program = find_program()
        self.checkpoint = find_checkpoint(model)
        self.model = model
        self.sources = list(sources)
        self._scored: dict[tuple[str, ...], list[float]] = {}

    def score(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Score:
        """Return the score of a test set with its signature."""
        result = self.corpus_score(list(hypotheses), [list(lines) for lines in references])
        return Score(self.name, float(result.score), str(self.get_signature()), f"COMET = {result.score:.2f}")

    def _extract_corpus_statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]] | None
    ) -> list[list[float]]:
        if references is None or len(references) != 1:
            raise ValueError(f"COMET takes one set of references, got {len(references or ())}")
        check_parallel(hypotheses, [self.sources, *references])
        self.num_refs = 1
        key = tuple(hypotheses)  # the significance tests ask several times
        if key not in self._scored:
            self._scored[key] = self._run(hypotheses, references[0])
        return [[score, 1] for score in self._scored[key]]

    def _compute_score_from_stats(self, stats: Sequence[float]) -> SacreScore:
        total, count = stats
        return SacreScore("COMET", SCALE * total / count)

    def _aggregate_and_compute(self, stats: Sequence[Sequence[float]]) -> SacreScore:
        return self._compute_score_from_stats([sum(column) for column in zip(*stats, strict=True)])

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[Any]:
        raise NotImplementedError("COMET scores all sentences at once")

    def _run(self, hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
        """Return the score of each sentence; the program shows its progress and its errors on stderr."""
        import torch

        with tempfile.TemporaryDirectory() as folder:
            command = [self.program, "--model", self.checkpoint, "--gpus", str(int(torch.cuda.is_available()))]
            for option, lines in (("-s", self.sources), ("-t", hypotheses), ("-r", references)):
                file = Path(folder) / f"lines{option}"
                file.write_text("".join(LINE_BREAKS.sub(" ", line) + "\n" for line in lines), encoding="utf-8")
                command += [option, str(file)]
            output = Path(folder) / "scores.json"
            command += ["--to_json", str(output), "--only_system"]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            if done.returncode or not output.exists():
                raise ValueError(f"{PROGRAM} --model {self.checkpoint} failed, code {done.returncode}: see above")
            (rows,) = json.loads(output.read_text(encoding="utf-8")).values()
        scores = [float(row["COMET"]) for row in rows]
        if len(scores) != len(hypotheses):
            raise ValueError(f"{PROGRAM} scored {len(scores)} of {len(hypotheses)} sentences")
        return scores


def find_program() -> str:
    """Return the path of `comet-score`; raise an error that says how to install it."""
    program = shutil.which(PROGRAM)
    if program is None:
        raise ImportError(
            f"no program {PROGRAM} on the PATH. unbabel-comet needs transformers below 5, so install it in an "
            "environment of its own: python -m venv comet && comet/bin/pip install unbabel-comet; "
            "export PATH=$PATH:$PWD/comet/bin"
        )
    return program


def program_version(program: str) -> str:
    """Return the version of unbabel-comet where the first line of the program names its Python, else "unknown"."""
    with open(program, "rb") as stream:
        python = stream.readline().removeprefix(b"#!").strip().decode(errors="replace")
    code = "from importlib.metadata import version; print(version('unbabel-comet'))"
    try:
        return subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, ValueError, subprocess.CalledProcessError):
        return "unknown"


def find_checkpoint(model: str) -> str:
    """Return the file of a model on the disk, or the name of one on the hub."""
    path = Path(model)
    if path.is_file():
        if path.suffix != ".ckpt":
            raise ValueError(f"{model}: a COMET model is a .ckpt file, or a folder with {CHECKPOINT}")
        return model
    if (path / CHECKPOINT).is_file():
        return str(path / CHECKPOINT)
    if path.exists() or re.fullmatch(r"[\w.-]+/[\w.-]+", model) is None or path.suffix == ".ckpt":
        raise ValueError(f"{model}: no COMET model (a .ckpt file, a folder with {CHECKPOINT}, a name on the hub)")
    return model

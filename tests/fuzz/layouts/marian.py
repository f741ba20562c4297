"""Folders for Marian, which is the judge: `pymarian`, in the Python that `CAPSULE_MT_PYMARIAN` names.

The models are those of tests/fixtures/marian, which Marian has trained; everything around the weights is drawn.
"""

import json
import os
import random
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from capsule_mt.models.sentencepiece import SentencePieceEncoder, joined_pieces, read_sentencepiece
from tests.fixtures.marian_models import FOLDER, SOURCES, oracle_of
from tests.fuzz.layouts.reading import Reading, read_by_us
from tests.marian.judge import VARIABLE

Case = dict[str, Any]
BASES = ("default", "two-spm", "yml", "ssru", "ssru-ln-proj", "aan", "gelu", "highway", "untied", "rnn-gru")
WEIGHTS = {"default": ("model.npz", "float32.bin")}
MODEL_NAMES = {
    ".npz": (
        *("model.npz", "model.deen.npz", "model.npz.best-bleu.npz", "best.npz"),
        "opus.spm32k-spm32k.transformer-align.model1.npz.best-perplexity.npz",
    ),
    ".bin": ("model.bin", "model.deen.intgemm.alphas.bin", "model-float32.bin"),
}
VOCABULARY_NAMES = {
    1: (("vocab.spm",), ("vocab.deen.spm",), ("joint.spm",), ("source.spm",), ("vocab.de.spm",)),
    2: (
        *(("srcvocab.deen.spm", "trgvocab.deen.spm"), ("vocab.de.spm", "vocab.en.spm"), ("source.spm", "target.spm")),
        *(("a.spm", "b.spm"), ("b.spm", "a.spm"), ("de.spm", "en.spm"), ("z_src.spm", "a_trg.spm")),
        *(("vocab.deu.spm", "vocab.eng.spm"), ("opus.src.spm", "opus.tgt.spm"), ("vocab1.spm", "vocab2.spm")),
    ),
}
NUMBERED_NAMES = ("vocab.yml", "opus.spm32k-spm32k.vocab.yml", "vocab.deen.yml")
TITLES = ("model", "de-en", "en-de", "deu-eng", "deen", "opus-2020-02-26", "student")
CONFIGURATIONS = ("config.yml", "decoder.yml", "config.intgemm8bitalpha.yml", "decoder.yaml", "model.npz.decoder.yml")
# of a configuration, with values of each; those of other programs than Marian are given to us alone
OPTIONS: dict[str, list[Any]] = {
    "beam-size": [1, 2, 6],
    "normalize": [0, 0.6, 1, 1.0],
    "word-penalty": [0, 0.0],
    "mini-batch": [1, 64],
    "maxi-batch": [1, 100],
    "maxi-batch-sort": ["src"],
    "workspace": [128],
    "max-length-factor": [1.5, 2, 3],
    "cpu-threads": [1],
    "quiet-translation": [True],
    "devices": [[0]],
    "allow-unk": [False],
    "skip-cost": [False],
    "seed": [1234],
    "log-level": ["off"],
}
OURS_ALONE = {"gemm-precision": ["int8shiftAlphaAll"], "ssplit-mode": ["paragraph"], "version": ["v1.9.0"]}
REFUSED: dict[str, list[Any]] = {"word-penalty": [0.5], "allow-unk": [True], "no-spm-encode": [True], "tsv": [True]}
EXTRA_FILES = {
    **dict.fromkeys(
        ("README.md", "LICENSE", "preprocess.sh", "train.log", "source.bpe", "model.npz.progress.yml"), ""
    ),
    **dict.fromkeys(("model.npz.optimizer.npz", "model.iter5000.npz", "model.npz.orig.npz", "lex.txt"), "not a model"),
    "metadata.json": '{"architecture": "tiny"}',
    "model_info.json": "{}",
}
TEXTS = [SOURCES[0], SOURCES[3], SOURCES[7]]
FACTOR = 3  # Marian's default of `max-length-factor`
RUNNER = """
import json, sys
from pymarian import Translator
for line in sys.stdin:
    options, texts = json.loads(line)
    try:
        lines = Translator(**options).translate(texts)
        print(json.dumps({"lines": lines}), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
"""


def make(generator: random.Random) -> Case:
    base = generator.choice(BASES)
    weights = generator.choice(WEIGHTS.get(base, ("model.npz",)))
    vocabularies = oracle_of(base)["vocabs"]
    num_vocabularies = len(set(vocabularies))
    names = generator.choice(VOCABULARY_NAMES[num_vocabularies])
    if base == "yml":
        names = (generator.choice(NUMBERED_NAMES),)
    options = {name: generator.choice(values) for name, values in OPTIONS.items() if generator.random() < 0.2}
    ours = {name: generator.choice(values) for name, values in OURS_ALONE.items() if generator.random() < 0.1}
    ours |= {name: generator.choice(values) for name, values in REFUSED.items() if generator.random() < 0.01}
    return {
        "family": "marian",
        "base": base,
        "weights": weights,
        "model": generator.choice(MODEL_NAMES[Path(weights).suffix]),
        "vocabularies": names,
        "title": generator.choice(TITLES),
        "configuration": generator.choice((None, *CONFIGURATIONS)),
        "options": options,
        "ours": ours,
        "named": [name for name in ("models", "vocabs") if generator.random() < 0.6],
        "paths": generator.choice(("relative", "bare", "of another machine", "dot")),
        "style": generator.choice(("flow", "block", "quoted", "comments")),
        "swapped": generator.random() < 0.1,
        "another model": generator.random() < 0.1,
        "another vocabulary": generator.random() < 0.1,
        "extra": generator.sample(sorted(EXTRA_FILES), generator.choice((0, 0, 1, 3))),
    }


def write(case: Case, folder: Path) -> None:
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / case["base"] / case["weights"], folder / case["model"])
    originals = list(dict.fromkeys(oracle_of(case["base"])["vocabs"]))
    for original, name in zip(originals, case["vocabularies"], strict=True):
        shutil.copy(FOLDER / original, folder / name)
    if case["base"] == "yml":
        for name in ("source.spm", "target.spm"):
            shutil.copy(FOLDER / "joint.spm", folder / name)
    for name in case["extra"]:
        (folder / name).write_text(EXTRA_FILES[name])
    if case["another model"]:
        shutil.copy(FOLDER / "gelu" / "model.npz", folder / "another.npz")
    if case["another vocabulary"]:
        shutil.copy(FOLDER / "mozilla.spm", folder / "another.spm")
    if case["configuration"] is not None:
        (folder / case["configuration"]).write_text(configuration_of(case))


def vocabularies_of(case: Case) -> list[str]:
    """Return the names of both vocabularies, in the order that a configuration gives them."""
    names = [case["vocabularies"][0], case["vocabularies"][-1]]
    return names[::-1] if case["swapped"] and "vocabs" in case["named"] and case["configuration"] else names


def configuration_of(case: Case) -> str:
    values: dict[str, Any] = case["options"] | case["ours"]
    prefix = {"relative": "", "bare": "", "dot": "./", "of another machine": "/home/someone/models/"}[case["paths"]]
    if case["paths"] == "relative":
        values |= {"relative-paths": True}
    files = {"models": [case["model"]], "vocabs": vocabularies_of(case)}
    values |= {name: [prefix + file for file in files[name]] for name in case["named"]}
    return "".join(_entry(name, value, case["style"]) for name, value in values.items())


def _entry(name: str, value: Any, style: str) -> str:
    def scalar(item: Any) -> str:
        text = str(item).lower() if isinstance(item, bool) else str(item)
        return f'"{text}"' if style == "quoted" and isinstance(item, str) else text

    comment = "  # as trained" if style == "comments" else ""
    if not isinstance(value, list):
        return f"{name}: {scalar(value)}{comment}\n"
    if style == "flow":
        return f"{name}: [{', '.join(map(scalar, value))}]\n"
    return f"{name}:{comment}\n" + "".join(f"  - {scalar(item)}\n" for item in value)


# ---- read it
def read_ours(case: Case, folder: Path) -> Reading:
    return read_by_us(folder, TEXTS)._replace(sources=[], targets=[])


class Judge:
    """A process of Marian, which is started again after a folder that ended it."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def read(self, options: dict[str, Any], texts: list[str]) -> list[str]:
        if self.process is None:
            command = [os.environ[VARIABLE], "-c", RUNNER]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([options, texts]) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.process = None
            raise ValueError("Marian has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise ValueError(answer["error"])
        return answer["lines"]


@cache
def judge() -> Judge:
    return Judge()


@cache
def encoder() -> SentencePieceEncoder:
    return SentencePieceEncoder(read_sentencepiece(str(FOLDER / "joint.spm")))


def read_theirs(case: Case, folder: Path) -> Reading:
    names = vocabularies_of(case)
    options = {"beam-size": 1, **(case["options"] if case["configuration"] is not None else {})}
    options = {name.replace("-", "_"): value for name, value in options.items() if value is not False}
    options |= {"models": str(folder / case["model"]), "vocabs": [str(folder / name) for name in names]}
    options |= {"quiet": True, "n_best": True, "word_scores": True, "cpu_threads": 1}
    has_numbers = case["base"] == "yml"
    texts = [" ".join(encoder().encode(text)[0]) for text in TEXTS] if has_numbers else TEXTS
    factor = min(options.get("max_length_factor", FACTOR), FACTOR)
    translations: list[Any] = []
    log_probs: list[Any] = []
    hypotheses = [line.split(" ||| ") for n_best in judge().read(options, texts) for line in n_best.splitlines()]
    best = {fields[0]: fields for fields in reversed(hypotheses)}  # the first of each text
    for index, text in enumerate(TEXTS):
        _, translation, scores, *_ = best[str(index)]
        numbers = [float(score) for score in scores.split("WordScores=")[1].split()]
        is_cut = len(numbers) >= int(factor * len(encoder().encode(text)[0]))  # by a limit that may be another one
        if has_numbers:
            translation = joined_pieces(translation.split())
        translations.append(None if is_cut else translation.strip())
        log_probs.append(None if is_cut else numbers)
    return Reading([], [], translations, log_probs)

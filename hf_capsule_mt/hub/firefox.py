"""Push a student of Firefox Translations: convert it, compare it with the original, describe it, send it."""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo

from capsule_mt.catalog.student import read_student, write_student_card
from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_marian import write_marian_folder
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from hf_capsule_mt.hub.pushing import check_repo_id, push
from hf_capsule_mt.loading import load_checkpoint

# English for every source language: tokens are compared, not translations
SENTENCES = (
    "The old man buys a red hat.",
    "Good morning, how are you today?",
    "Where is the nearest train station?",
    "She has lived in Berlin since 1998.",
    "Windows 10 needs 2 GB of memory.",
    "Albert Einstein (1879-1955) was a physicist.",
    "Please call +49 30 12345 before noon.",
    "The price rose by 3.5 % in March.",
    "I do not know what you mean.",
    "If it rains tomorrow, we will stay at home.",
    "The committee postponed its decision until the next meeting.",
    "“Who laughs?” asked the teacher.",
    "Water boils at 100 degrees.",
    "Click “Save” to keep your changes.",
    "My sister's children play in the garden.",
    "They had already left when the police arrived.",
    "No.",
    "The Amazon is the largest river in the world by volume of water.",
    "It was the best book that I read last year, and also the longest.",
    "Thank you very much for your help!",
)
MAX_TOKENS = 60  # of a translation that is compared
SCORE_TOLERANCE = 1e-3  # nats a token, between the engine and PyTorch or Marian
PYMARIAN = "CAPSULE_MT_PYMARIAN"  # the Python of an environment that has pymarian


class StudentCheckError(RuntimeError):
    """A converted student does not compute what the original does."""


def push_from_firefox(folder: str | os.PathLike[str], repo_id: str, *, private: bool | None = None) -> CommitInfo:
    """Convert the student in a folder of Mozilla's files, and push it once it translates as the original does.

    Args:
        repo_id: "owner/name". The repository is created if it does not exist.

    Raises:
        StudentCheckError: tokens or scores differ from the engine's, or scores from Marian's. Nothing was sent.
    """
    check_repo_id(repo_id)
    with tempfile.TemporaryDirectory() as checkpoint:
        write_student(folder, checkpoint)
        return push(checkpoint, repo_id, private=private)


def write_student(folder: str | os.PathLike[str], checkpoint: str | os.PathLike[str]) -> None:
    """Write the student in a folder of Mozilla's files as a checkpoint, with its card, after a comparison."""
    student = read_student(folder)
    write_huggingface(folder, checkpoint, languages=(student.source, student.target))
    write_student_card(student, checkpoint, check_student(folder, checkpoint))


@torch.no_grad()
def check_student(folder: str | os.PathLike[str], checkpoint: str | os.PathLike[str]) -> str:
    """Compare a converted student with its original; return what was compared, in words.

    The engine reads the original files, and transformers the checkpoint, both in float32.
    """
    original: Any = load_model(folder)
    model, tokenizer = load_checkpoint(checkpoint, dtype=torch.float32)
    ids = [original.tokenizer.encode(sentence).ids for sentence in SENTENCES]
    limits = [MAX_TOKENS] * len(ids)
    search = SearchOptions(limits=limits, suppress_tokens=original.generation["suppress_tokens"])
    translations = [list(hypotheses[0].ids) for hypotheses in original.decoder.translate(ids, search)]
    forced = original.decoder.force(ids, translations, Readings())
    for sentence, source, expected, reading in zip(SENTENCES, ids, translations, forced, strict=True):
        batch = tokenizer(sentence, return_tensors="pt")
        if (tokens := batch["input_ids"][0].tolist()) != source:
            raise StudentCheckError(f"{sentence!r}: the tokenizer writes {tokens}, and the original's {source}")
        settings = {"max_new_tokens": MAX_TOKENS, "num_beams": 1, "forced_eos_token_id": None}
        written = model.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **settings)[0, 1:]
        if written.tolist() != expected:
            raise StudentCheckError(f"{sentence!r}: transformers writes {written.tolist()}, and the engine {expected}")
        labels = torch.tensor([expected])
        log_probs = model(**batch, labels=labels).logits.log_softmax(-1).gather(-1, labels[..., None])[0, :, 0]
        _check_scores(sentence, log_probs.tolist(), reading.log_probs, "the engine")
    compared = f"the tokens of {len(SENTENCES)} English sentences are those that the engine reads from Mozilla's files"
    if python := _python_of_marian():
        pairs = list(zip(SENTENCES, map(original.tokenizer.decode, translations), strict=True))
        _compare_with_marian(python, checkpoint, pairs)
        return f"{compared}, and their scores are Marian's."
    return f"{compared}. Marian's scores were not compared: pymarian was not installed."


def _check_scores(sentence: str, scores: Any, expected: Any, judge: str) -> None:
    differences = [abs(score - other) for score, other in zip(scores, expected, strict=True)]
    if not max(differences, default=0.0) <= SCORE_TOLERANCE:
        raise StudentCheckError(
            f"{sentence!r}: a token's log-probability differs from that of {judge} by {max(differences):.2g}, "
            f"more than {SCORE_TOLERANCE}"
        )


def _python_of_marian() -> str | None:
    """Return the Python that has pymarian, if one is known."""
    return os.environ.get(PYMARIAN) or (sys.executable if find_spec("pymarian") else None)


def _compare_with_marian(python: str, checkpoint: str | os.PathLike[str], pairs: list[tuple[str, str]]) -> None:
    """Raise `StudentCheckError` unless Marian scores the tokens of each pair as the engine does.

    Marian reads the float32 weights of the checkpoint, converted back.
    """
    converted = load_model(checkpoint)
    with tempfile.TemporaryDirectory() as temporary:
        marian = Path(temporary, "marian")
        write_marian_folder(checkpoint, marian)
        vocabularies = sorted(map(str, marian.glob("*.spm")))
        files = [Path(temporary, side) for side in ("source", "target")]
        for file, texts in zip(files, zip(*pairs, strict=True), strict=True):
            file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        options = ["-m", marian / "model.npz", "-v", vocabularies[0], vocabularies[-1], "-t", *files]
        command = [python, "-m", "pymarian", "score", *options, "-w", "200", "--word-scores", "--quiet"]
        run = subprocess.run(
            [*map(str, command), "--cpu-threads", "1"], capture_output=True, text=True, check=False, timeout=600
        )
    if run.returncode != 0:
        raise StudentCheckError("\n".join(["Marian does not score the model:", *run.stderr.splitlines()[-4:]]))
    lines = [line.split("WordScores=")[1].split() for line in run.stdout.splitlines() if "WordScores=" in line]
    ids = [converted.tokenizer.encode(source).ids for source, _ in pairs]
    targets = [converted.tokenizer.encode_target(target) for _, target in pairs]
    forced: Any = converted.decoder.force(ids, targets, Readings())
    for (source, _), scores, reading in zip(pairs, lines, forced, strict=True):
        _check_scores(source, map(float, scores), reading.log_probs, "Marian")

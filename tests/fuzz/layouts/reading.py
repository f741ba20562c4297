"""What a program makes of a folder, and how two readings of it compare."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from capsule_mt import Translator
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings
from capsule_mt.models.weights import CheckpointError
from capsule_mt.translate.options import TranslationOptions

TOLERANCE = 2e-3  # of a log-probability: weights in float16 are multiplied in float32 by us


class Reading(NamedTuple):
    """What a program makes of a few texts.

    log_probs: of each token of the translation.

    A program that does not tell its tokens has empty lists; a translation that it has cut short is `None`.
    """

    sources: list[list[int]]
    targets: list[list[int]]
    texts: list[str]
    log_probs: list[list[float]]


class RefusedError(Exception):
    """A program does not read a folder, and says why."""


def read_by_us(
    folder: Path, texts: Sequence[str], languages: tuple[str | None, str | None] = (None, None), **search: object
) -> Reading:
    """Translate texts as a call would, but as whole texts and without a second search for faults.

    Raises:
        RefusedError: an error that names the folder, a file of it or an option. Other errors are findings.
    """
    try:
        translator = Translator.from_pretrained(folder)
        plan = translator.plan(
            TranslationOptions(
                scores=True,
                split_sentences=False,
                copy=False,
                src_lang=languages[0],
                tgt_lang=languages[1],
                generate_kwargs=search,
            ).checked()
        )
        sources = [plan.tokenizer.encode(text).ids for text in texts]
        decoder, end = plan.model.decoder, plan.model.end
        options = plan.search.for_batch([len(source) for source in sources], [[] for _ in sources], None)
        best = [hypotheses[0].ids for hypotheses in decoder.translate(sources, options)]
        forced = decoder.force(sources, best, Readings())
    except (CheckpointError, UnsupportedModelError, ValueError) as error:
        if str(folder) in str(error) or "`" in str(error):
            raise RefusedError(str(error).replace(str(folder), "FOLDER")) from None
        raise
    decoded = [plan.tokenizer.decode([token for token in ids if token != end]) for ids in best]
    return Reading(
        sources, [list(ids) for ids in best], decoded, [list(hypothesis.log_probs) for hypothesis in forced]
    )


def difference(ours: Reading, theirs: Reading) -> str:
    """Return how two readings differ; empty if they are equal."""
    for field in ("sources", "targets", "texts"):
        for index, (our, their) in enumerate(zip(getattr(ours, field), getattr(theirs, field), strict=True)):
            if their is not None and our != their:
                return f"{field} of text {index}: {our!r}, the original program has {their!r}"
    for index, (our, their) in enumerate(zip(ours.log_probs, theirs.log_probs, strict=True)):
        if their is None:
            continue
        distance = max((abs(left - right) for left, right in zip(our, their, strict=True)), default=0.0)
        if not distance <= TOLERANCE:
            return f"log-probabilities of text {index}: {distance:g} apart"
    return ""

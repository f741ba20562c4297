"""Fit the numbers of a judge: odds of words to what people marked, thresholds to human translations.

    python -m capsule_mt.coverage.calibration.judging ENCODER MARKED.tsv OUT.json --clean A=EN,DE --clean B=EN,PT

MARKED.tsv has the columns of HalOmi: `src_text` and `mt_text`, and these with <<<marks>>> around what was left out
(`omit_spans`) and made up (`hall_spans`). Each --clean names a domain, a file of sources and one of their human
translations, also as .gz; all are read in both directions. Lines joined by threes choose when sentences are exchanged.
"""

import argparse
import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from capsule_mt import __version__
from capsule_mt.files.digests import file_digest
from capsule_mt.files.reading import iterate_lines
from capsule_mt.judge.encoder import Encoder
from capsule_mt.judge.numbers import MAX_DEVIATIONS, WordOdds, read_odds, statistics_of
from capsule_mt.judge.witness import EVIDENCE, PairEvidence, Witness, WordEvidence

RIDGE = 2.0  # on standardised weights
NUM_STEPS = 60  # of Newton's method, which converges in ten
NUM_FOLDS = 10  # pairs are left out together, since their words are alike
FLAGGED = 0.002  # share of a domain's clean pairs above a threshold
JOINED = 3  # lines of a text of several sentences
LAYERS = (8, 12)
PROBES = (
    ("The ferry to the island leaves at noon.", "Die Fähre zur Insel fährt mittags ab."),
    ("The ferry to the island leaves at noon.", "Os preços do trigo subiram no outono."),
    ("What is the name of your sister?", "Der Vulkan brach im Mai aus."),
)
BATCH_SIZE = 32
MARK = re.compile("<<<|>>>")
Array = npt.NDArray[np.float64]
Bits = npt.NDArray[np.bool_]


class MarkedPair(NamedTuple):
    """A pair of texts, and the spans of characters that people marked as left out and as made up."""

    source: str
    target: str
    left_out: tuple[tuple[int, int], ...]
    made_up: tuple[tuple[int, int], ...]


def read_marked(file: str) -> list[MarkedPair]:
    rows = csv.DictReader(iterate_lines(file), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [marked_pair(row) for row in rows if row["src_text"].strip() and row["mt_text"].strip()]


def marked_pair(row: Mapping[str, str]) -> MarkedPair:
    return MarkedPair(row["src_text"], row["mt_text"], spans_in(row["omit_spans"]), spans_in(row["hall_spans"]))


def spans_in(text: str) -> tuple[tuple[int, int], ...]:
    """Return the spans between marks, as offsets into the text without them."""
    offsets, removed = [], 0
    for mark in MARK.finditer(text):
        offsets.append(mark.start() - removed)
        removed += len(mark[0])
    return tuple(zip(offsets[::2], offsets[1::2], strict=True))


def fit_odds(evidence: Array, labels: Bits, groups: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the odds of words, as numbers of a file.

    evidence: [words, kinds of evidence]. labels: whether people marked the word. groups: the word's pair.
    """
    scores = np.zeros(len(labels))
    for fold in range(NUM_FOLDS):
        held_out = groups % NUM_FOLDS == fold
        scores[held_out] = _score(evidence[held_out], _logistic(evidence[~held_out], labels[~held_out]))
    fitted = _logistic(evidence, labels)
    slope, intercept = _weights(scores[:, None], labels, 1e-3)
    return {name: list(map(float, fitted[name])) for name in ("means", "deviations", "weights")} | {
        "bias": float(fitted["bias"]),
        "slope": float(slope),
        "intercept": float(intercept),
        "words": len(labels),
        "marked": int(labels.sum()),
    }


def _logistic(evidence: Array, labels: Bits) -> dict[str, Any]:
    means, deviations = evidence.mean(0), evidence.std(0) + 1e-9
    *weights, bias = _weights(_standardised(evidence, means, deviations), labels, RIDGE)
    return {"means": means, "deviations": deviations, "weights": np.array(weights), "bias": bias}


def _standardised(evidence: Array, means: Array, deviations: Array) -> Array:
    return np.clip((evidence - means) / deviations, -MAX_DEVIATIONS, MAX_DEVIATIONS)


def _score(evidence: Array, fitted: Mapping[str, Any]) -> Array:
    standardised = _standardised(evidence, fitted["means"], fitted["deviations"])
    return np.asarray(standardised @ fitted["weights"] + fitted["bias"], np.float64)


def _weights(features: Array, labels: Bits, ridge: float) -> Array:
    """Return the weights and the bias of a logistic regression with a ridge, by Newton's method."""
    features = np.c_[features, np.ones(len(features))]
    penalty = np.r_[np.full(features.shape[1] - 1, ridge), 1e-6]
    weights = np.zeros(features.shape[1])
    for _ in range(NUM_STEPS):
        probabilities = 1 / (1 + np.exp(-np.clip(features @ weights, -30, 30)))
        gradient = features.T @ (probabilities - labels) + penalty * np.r_[weights[:-1], 0]
        curvature = (features.T * (probabilities * (1 - probabilities) + 1e-6)) @ features + np.diag(penalty)
        weights = weights - np.linalg.solve(curvature, gradient)
    return weights


def fit_words(pairs: Sequence[MarkedPair], evidence: Sequence[PairEvidence]) -> dict[str, Any]:
    """Return the odds of both sides: of left-out words of the sources, and of made-up ones of the translations."""

    def fitted(words_of: Callable[[PairEvidence], Sequence[WordEvidence]], side: str) -> dict[str, Any]:
        rows, labels, groups = [], [], []
        for number, (pair, of_pair) in enumerate(zip(pairs, evidence, strict=True)):
            for word in words_of(of_pair):
                rows.append(word.distances)
                labels.append(any(word.start < end and word.end > start for start, end in getattr(pair, side)))
                groups.append(number)
        return fit_odds(np.array(rows), np.array(labels), np.array(groups))

    return {
        "left out": fitted(lambda of_pair: of_pair.source, "left_out"),
        "made up": fitted(lambda of_pair: of_pair.target, "made_up"),
    }


def fit_reasons(
    left_out: WordOdds,
    made_up: WordOdds,
    clean: Mapping[str, Sequence[PairEvidence]],
    joined: Mapping[str, Sequence[PairEvidence]],
) -> dict[str, dict[str, Any]]:
    """Return the threshold of each reason: the strictest of those that flag `FLAGGED` of the pairs of a domain.

    joined: pairs of several sentences, for the order of sentences.
    """
    statistics = {
        domain: [
            statistics_of(
                direction,
                *(
                    odds.probabilities(words)
                    for odds, words in ((left_out, direction.source), (made_up, direction.target))
                ),
            )
            for pair in pairs
            for direction in (pair, pair.swapped())
        ]
        for domain, pairs in clean.items()
    }
    values = {
        name: {domain: np.array([row[name] for row in rows]) for domain, rows in statistics.items()}
        for name in next(iter(statistics.values()))[0]
    }
    # the other direction of a pair has the same disorder
    values["order"] = {domain: np.array([pair.disorder for pair in pairs]) for domain, pairs in joined.items()}
    return {name: _threshold(by_domain) for name, by_domain in values.items()}


def _threshold(by_domain: Mapping[str, Array]) -> dict[str, Any]:
    threshold = max(float(np.quantile(values, 1 - FLAGGED, method="higher")) for values in by_domain.values())
    flagged = {domain: [int((values > threshold).sum()), len(values)] for domain, values in by_domain.items()}
    return {"threshold": threshold, "flagged": flagged}


def joined_by_threes(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return texts of several lines each, beside their translations."""
    groups = (zip(*pairs[start : start + JOINED], strict=True) for start in range(0, len(pairs) - JOINED + 1, JOINED))
    return [(" ".join(sources), " ".join(targets)) for sources, targets in groups]


def compared(witness: Witness, pairs: Sequence[tuple[str, str]]) -> list[PairEvidence]:
    evidence: list[PairEvidence] = []
    for start in range(0, len(pairs), BATCH_SIZE):
        evidence += witness.compare(*zip(*pairs[start : start + BATCH_SIZE], strict=True))
    return evidence


def fit(
    witness: Witness, marked: Sequence[MarkedPair], clean: Mapping[str, Sequence[tuple[str, str]]]
) -> dict[str, Any]:
    """Return the numbers of a judge, without its name, its provenance, and the `shares` of its odds."""
    words = fit_words(marked, compared(witness, [(pair.source, pair.target) for pair in marked]))
    left_out, made_up = read_odds(words["left out"]), read_odds(words["made up"])
    human = {domain: compared(witness, pairs) for domain, pairs in clean.items()}
    joined = {domain: compared(witness, joined_by_threes(pairs)) for domain, pairs in clean.items()}
    probes = [evidence.similarity for evidence in compared(witness, PROBES)]
    return {
        "layers": list(LAYERS),
        "probes": [[*texts, round(cosine, 4)] for texts, cosine in zip(PROBES, probes, strict=True)],
        "evidence": list(EVIDENCE),
        "words": words,
        "reasons": fit_reasons(left_out, made_up, human, joined),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("encoder", "marked", "out"):
        parser.add_argument(name)
    parser.add_argument("--name", default="intfloat/multilingual-e5-small", help="of the encoder, for the file")
    parser.add_argument("--clean", action="append", required=True, metavar="DOMAIN=SOURCES,TRANSLATIONS")
    parser.add_argument(
        "--weights", default="as published", help="how the encoder's weights were stored, for the file"
    )
    parser.add_argument("--every", type=int, default=1, help="take each N-th clean pair")
    arguments = parser.parse_args()
    clean: dict[str, list[tuple[str, str]]] = {}
    files = [arguments.marked]
    for value in arguments.clean:
        domain, _, paths = value.partition("=")
        sides = paths.split(",")
        files += sides
        lines = list(zip(*map(iterate_lines, sides), strict=True))[:: arguments.every]
        clean.setdefault(domain, []).extend(pair for pair in lines if all(text.strip() for text in pair))
    encoder = Encoder.from_pretrained(arguments.encoder, int8=True, layers=LAYERS)
    numbers = fit(Witness(encoder, LAYERS[0]), read_marked(arguments.marked), clean)
    provenance = {
        "version": __version__,
        "weights": arguments.weights,
        "files": {file.rpartition("/")[2]: file_digest(file) for file in files},
        "every": arguments.every,
    }
    with open(arguments.out, "w", encoding="utf-8") as stream:
        stream.write(json.dumps({"encoder": arguments.name, **numbers, "provenance": provenance}, indent=1) + "\n")


if __name__ == "__main__":
    main()

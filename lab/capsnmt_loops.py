"""Measure why CapsNMT repeats itself, by a plan that was fixed before (capsnmt_loops.md).

    python -m lab.capsnmt_loops checkpoints/capsnmt-de-en --sources test.de --references test.en \\
        --output outputs/capsnmt-loops-de-en.json

Translates a text, and the same text with its sentences joined in pairs, by the engine. For each bin of source lengths
it writes BLEU, translations that loop, capsules in use, and the loss with other routings and other capsules.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_outputs import BaseModelOutput

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.reading import read_parallel
from hf_capsule_mt.analysis.routing_statistics import (
    IterationStatistics,
    encoded_batches,
    real_positions,
    routings_of,
)
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.metrics import score_corpus
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.loading import load_checkpoint
from hf_capsule_mt.modeling.losses import IGNORE_INDEX
from lab.plain_beside_guided import translate
from lab.records import Records

SINGLE, PAIRS = (7, 11), (15, 20)  # upper edges of the bins; the last has none, and pairs begin at 12
LONGEST_LOOP = 4  # tokens of what is repeated
TIMES = 3  # in a row, which make a loop
RECORDS = {"released": "capsnmt-loops-de-en", "as printed": "capsnmt-loops-printed", "softer": "capsnmt-loops-softer"}
ROUTING = "encoder.aggregation"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="a CapsNMT with separable routing")
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--references", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="the result file")
    return parser.parse_args()


def loops(tokens: Sequence[object]) -> bool:
    """Return whether one to four tokens stand three times in a row."""
    for size in range(1, LONGEST_LOOP + 1):
        for start in range(len(tokens) - size * TIMES + 1):
            phrase = tokens[start : start + size]
            if all(tokens[start + size * n : start + size * (n + 1)] == phrase for n in range(1, TIMES)):
                return True
    return False


def joined(lines: Sequence[str]) -> list[str]:
    """Return the first line with the second, the third with the fourth, and so on; an odd last line is left out."""
    return [" ".join(pair) for pair in zip(lines[::2], lines[1::2], strict=False)]


def bins_of(sources: Sequence[str], edges: Sequence[int], lowest: int = 1) -> dict[str, list[int]]:
    """Return the indices of the sentences of each bin, by its label."""
    lengths = [len(source.split()) for source in sources]
    bins, low = {}, lowest
    for high in (*edges, None):
        label = f"{low}-{high}" if high else f"{low}+"
        bins[label] = [n for n, length in enumerate(lengths) if low <= length <= (high or length)]
        low = (high or 0) + 1
    return bins


@contextmanager
def uniform_routing(model: PreTrainedModel) -> Iterator[None]:
    """Assign every word equally to all capsules."""
    capsules = model.model.encoder.aggregation
    scale, capsules.score_scale = capsules.score_scale, 0.0
    try:
        yield
    finally:
        capsules.score_scale = scale


@torch.no_grad()
def loss_of(model: PreTrainedModel, batch: dict[str, torch.Tensor], shift: int = 0) -> tuple[float, int]:
    """Return the negative log-likelihood of a batch's references, and their tokens.

    shift: each sentence gets the capsules of the one that comes as many later.
    """
    encoded = model.get_encoder()(batch["input_ids"], attention_mask=batch["attention_mask"])
    capsules = BaseModelOutput(last_hidden_state=encoded[0].roll(shift, dims=0))
    logits = model(encoder_outputs=capsules, labels=batch["labels"]).logits
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    return float(loss), int(batch["labels"].ne(IGNORE_INDEX).sum())


def losses(model: PreTrainedModel, batches: Sequence[dict[str, torch.Tensor]]) -> dict[str, float]:
    """Return the loss for each token: as trained, with uniform assignments, with the capsules of another sentence."""
    by_kind: dict[str, list[tuple[float, int]]] = {
        "as trained": [loss_of(model, batch) for batch in batches],
        "another sentence": [loss_of(model, batch, shift=1) for batch in batches if len(batch["labels"]) > 1],
    }
    with uniform_routing(model):
        by_kind["uniform"] = [loss_of(model, batch) for batch in batches]
    return {
        kind: sum(loss_and_count[0] for loss_and_count in values) / sum(loss_and_count[1] for loss_and_count in values)
        for kind, values in by_kind.items()
    }


def capsules_in_use(
    model: PreTrainedModel, batches: Sequence[dict[str, torch.Tensor]]
) -> list[dict[str, float | list[float]]]:
    """Return by iteration how many capsules are in use, and the mean share of the words of each, the largest first."""
    statistics: list[IterationStatistics] = []
    for batch in batches:
        for number, weights in enumerate(routings_of(model, batch)[ROUTING]):
            if number == len(statistics):
                statistics.append(IterationStatistics())
            statistics[number].add(real_positions(ROUTING, weights, batch), inputs_are_words=True)
    return [
        {"effective": entry.effective_capsules, "shares": sorted(entry.mean_shares, reverse=True)}
        for entry in statistics
    ]


def measured(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: tuple[Sequence[str], Sequence[str], Sequence[str]],
    bins: dict[str, list[int]],
) -> list[dict[str, Any]]:
    """Return the measures of each bin of sources, their translations and their references."""
    rows = []
    for label, indices in bins.items():
        sources, hypotheses, references = ([side[n] for n in indices] for side in text)
        batches = list(encoded_batches(tokenizer, sources, references))
        words = [sum(len(line.split()) for line in lines) for lines in (hypotheses, references)]
        rows.append(
            {
                "label": label,
                "sentences": len(indices),
                "bleu": score_corpus(hypotheses, [references], ["bleu"])["bleu"].score,
                "length_ratio": words[0] / words[1],
                "loops": sum(loops(tokenizer.tokenize(line)) for line in hypotheses) / len(indices),
                "capsules": capsules_in_use(model, batches),
                "losses": losses(model, batches),
            }
        )
    return rows


def table(records: Records) -> str:
    """Return the measures by length of every checkpoint that was measured."""
    named, rows = records.named("studies"), []
    for title, name in RECORDS.items():
        for kind, bins in named.get(name, {}).get("text", {}).items():
            for measures in bins:
                last = measures["capsules"][-1]
                values = [measures["losses"][loss] for loss in ("as trained", "uniform", "another sentence")]
                rows.append([
                    *(title, kind, measures["label"], str(measures["sentences"]), f"{measures['bleu']:.1f}"),
                    *(f"{measures['length_ratio']:.2f}", f"{measures['loops']:.1%}"),
                    *(f"{last['effective']:.1f} of {len(last['shares'])}", f"{last['shares'][0]:.0%}"),
                    *(f"{value:.2f}" for value in values),
                ])  # fmt: skip
    header = ["model", "text", "source words", "sentences", "BLEU", "length ratio", "with a loop"]
    header += ["capsules in use", "words of the largest", "loss", "uniform", "another sentence"]
    return markdown_table(header, rows)


def main() -> None:
    arguments = parse_arguments()
    model, tokenizer = load_checkpoint(arguments.checkpoint)
    sources, references = read_parallel([arguments.sources, arguments.references])
    text = {}
    for kind, sides, edges, lowest in (
        ("sentences", (sources, references), SINGLE, 1),
        ("pairs", (joined(sources), joined(references)), PAIRS, SINGLE[-1] + 1),
    ):
        bins = {label: indices for label, indices in bins_of(sides[0], edges, lowest).items() if indices}
        hypotheses = translate(model, tokenizer, sides[0])
        text[kind] = measured(model, tokenizer, (sides[0], hypotheses, sides[1]), bins)
    result = {"kind": "loops of CapsNMT", "checkpoint": arguments.checkpoint.name, "text": text}
    print(f"Result: {write_result(arguments.output, result)}")


if __name__ == "__main__":
    run(main)

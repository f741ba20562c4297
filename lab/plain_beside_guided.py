"""A guided model beside its own plain model: BLEU by length, coverage, and a sheet to read blind (Zheng et al. 2019).

    python -m lab.plain_beside_guided translate checkpoints/capsule-marian-de-en --sources test.de \\
        --references test.en --align-with train.de train.en --sheet lab/sheets/pairs/plain_guided_de_en.tsv \\
        --output outputs/plain-beside-guided-de-en.json
    python -m lab.plain_beside_guided open lab/sheets/pairs/plain_guided_de_en.tsv --sources test.de \\
        --output outputs/read-plain-guided-de-en.json

The checkpoint's PAST and FUTURE were trained on top of a plain model whose weights stay, so without them it is that
plain model. `translate` draws 100 of the sentences that the two translate differently, and writes them without saying
which is whose; the reader fills in the sheet, and `open` counts by the same coins. lab/sheets/README.md has the rules.
"""

import argparse
import copy
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.calibration.word_alignment import fit_aligner
from capsule_mt.coverage.calibration.words import word_pairs
from capsule_mt.files.lines import one_line
from capsule_mt.files.outputs import write_output
from capsule_mt.files.reading import read_lines, read_parallel
from hf_capsule_mt import to_fast
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.adequacy import coverage_difference_ratio
from hf_capsule_mt.evaluation.length_buckets import score_by_length
from hf_capsule_mt.evaluation.metrics import sacrebleu_metric, score_corpus
from hf_capsule_mt.evaluation.significance import binomial_two_sided, compare_systems, confidence_interval
from hf_capsule_mt.loading import load_checkpoint
from hf_capsule_mt.modeling import CapsuleMarianMTModel
from lab.over_seeds import interval_over_seeds
from lab.records import read_rows

SYSTEMS = ("plain", "guided")
SIDES = ("first", "second")
SEED = 1
READ = 100  # sentences, as many as Zheng et al. had read
EDGES = (5, 8, 11)  # Tatoeba's sentences have 8 words on average
ALIGNED = 20_000  # pairs that the word aligner learns from
MEASURES = ("quality", "over", "under")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    translate = commands.add_parser("translate", help="translate with both, measure, and draw the sheet")
    translate.add_argument("checkpoint", type=Path)
    translate.add_argument("--references", type=Path, required=True)
    translate.add_argument("--align-with", type=Path, nargs=2, required=True, metavar=("SOURCE", "TARGET"))
    translate.add_argument("--sheet", type=Path, required=True, help="the sheet to write, for the reader")
    read = commands.add_parser("open", help="count what the reader found, by system")
    read.add_argument("sheet", type=Path)
    for command in (translate, read):
        command.add_argument("--sources", type=Path, required=True)
        command.add_argument("--output", type=Path, required=True, help="the result file")
    return parser.parse_args()


def plain_model(guided: CapsuleMarianMTModel) -> CapsuleMarianMTModel:
    """Return the plain model that PAST and FUTURE were put on: the same weights without them."""
    config = copy.deepcopy(guided.config)
    config.guided_routing = "none"
    plain = CapsuleMarianMTModel(config).eval()
    plain.generation_config = guided.generation_config
    missing, unexpected = plain.load_state_dict(guided.state_dict(), strict=False)
    unrelated = [name for name in unexpected if "guid" not in name]
    if missing or unrelated:
        raise ValueError(f"a plain model has other weights: {missing or unrelated}")
    return plain


def translate(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[str]) -> list[str]:
    """Return the translations by the checkpoint's own search, in float32."""
    fast, settings = to_fast(model), model.generation_config
    hypotheses: list[str] = []
    for start in range(0, len(sources), 32):
        batch = tokenizer(list(sources[start : start + 32]), return_tensors="pt", padding=True)
        outputs = fast.generate(**batch, num_beams=settings.num_beams, max_new_tokens=settings.max_new_tokens)
        hypotheses += map(one_line, tokenizer.batch_decode(outputs, skip_special_tokens=True))
    return hypotheses


def drawn(lines: Sequence[int]) -> list[int]:
    """Return the lines to read, in their order."""
    return sorted(random.Random(SEED).sample(list(lines), min(READ, len(lines))))


def systems_of(line: int) -> tuple[str, ...]:
    """Return whose the first and the second translation of a line are: a coin for each line, from its number."""
    return SYSTEMS[::-1] if random.Random(f"{SEED}, {line}").random() < 0.5 else SYSTEMS


def sheet_of(translations: Mapping[str, Sequence[str]]) -> str:
    """Return the sheet: sentences that the systems translate differently, without their names."""
    pairs = zip(*(translations[system] for system in SYSTEMS), strict=True)
    lines = drawn([number for number, (plain, guided) in enumerate(pairs, start=1) if plain != guided])
    rows = [["line", *SIDES, *(f"{measure} {side}" for measure in MEASURES for side in SIDES)]]
    for line in lines:
        rows.append([str(line), *(translations[system][line - 1] for system in systems_of(line)), *[""] * 6])
    return "".join("\t".join(row) + "\n" for row in rows)


def measured(
    translations: Mapping[str, Sequence[str]], sources: list[str], references: list[str], align: tuple[list[str], ...]
) -> dict[str, Any]:
    """Return BLEU, BLEU and lengths by source length, and the coverage difference ratio of each system."""
    aligner = fit_aligner(align[0][:ALIGNED], align[1][:ALIGNED])
    reference_links = aligner.align(word_pairs(sources, references))
    bleu = sacrebleu_metric("bleu", "13a")
    systems: dict[str, Any] = {}
    for system, hypotheses in translations.items():
        links = aligner.align(word_pairs(sources, hypotheses))
        buckets = score_by_length(sources, hypotheses, [references], edges=EDGES)
        chosen = [[number for number, source in enumerate(sources) if _is_in(bucket, source)] for bucket in buckets]
        intervals = [
            confidence_interval([hypotheses[n] for n in part], [[references[n] for n in part]], bleu)[1]
            for part in chosen
        ]
        score = score_corpus(list(hypotheses), [references], ["bleu"])["bleu"]
        systems[system] = {
            "bleu": score.score,
            "signature": score.signature,
            "coverage_difference_ratio": coverage_difference_ratio(links, [reference_links]),
            "by_length": [
                bucket.as_dict() | {"half_width": width} for bucket, width in zip(buckets, intervals, strict=True)
            ],
        }
    compared = compare_systems(dict(translations), [references], ["bleu"])["guided"]["bleu"]
    fields = ("difference", "p_bootstrap", "p_randomisation")
    return {"systems": systems, "compared": {name: getattr(compared, name) for name in fields}}


def _is_in(bucket: Any, source: str) -> bool:
    words = len(source.split())
    return words >= bucket.low and (bucket.high is None or words <= bucket.high)


def counted(rows: Sequence[Mapping[str, str]], lengths: Sequence[int]) -> dict[str, Any]:
    """Return what a reader found: means of both systems, the difference with its interval, and the sign test.

    Quality is 1 to 5. Of OVER and UNDER the shares of the source's words, in percent.
    """
    by_measure: dict[str, Any] = {}
    for measure in MEASURES:
        values: dict[str, list[float]] = {system: [] for system in SYSTEMS}
        for row, words in zip(rows, lengths, strict=True):
            scale = 1.0 if measure == "quality" else 100 / words
            for side, system in zip(SIDES, systems_of(int(row["line"])), strict=True):
                values[system].append(scale * _number(row, f"{measure} {side}"))
        differences = [guided - plain for plain, guided in zip(*(values[key] for key in SYSTEMS), strict=True)]
        higher, lower = (sum(sign * value > 0 for value in differences) for sign in (1, -1))
        by_measure[measure] = {
            **{system: fmean(system_values) for system, system_values in values.items()},
            "difference": fmean(differences),
            "interval": interval_over_seeds(differences),
            "higher": higher,
            "lower": lower,
            "p_sign": binomial_two_sided(higher, lower),
        }
    return by_measure


def _number(row: Mapping[str, str], column: str) -> int:
    if not row[column].isdigit():
        raise ValueError(f"line {row['line']}: {column!r} must be a number, got {row[column]!r}: read it first")
    return int(row[column])


def translate_both(arguments: argparse.Namespace) -> dict[str, Any]:
    guided, tokenizer = load_checkpoint(arguments.checkpoint)
    sources, references = read_parallel([arguments.sources, arguments.references])
    models: dict[str, Any] = {"plain": plain_model(guided), "guided": guided}
    translations = {system: translate(models[system], tokenizer, sources) for system in SYSTEMS}
    write_output(arguments.sheet, sheet_of(translations))
    differ = sum(plain != guided for plain, guided in zip(*translations.values(), strict=True))
    about = {"kind": "plain beside guided", "checkpoint": arguments.checkpoint.name}
    results = measured(translations, sources, references, tuple(read_parallel(arguments.align_with)))
    return {**about, "sentences": len(sources), "differ": differ, **results}


def open_sheet(arguments: argparse.Namespace) -> dict[str, Any]:
    rows, sources = read_rows(arguments.sheet), read_lines(arguments.sources)
    by_measure = counted(rows, [len(sources[int(row["line"]) - 1].split()) for row in rows])
    return {"kind": "read blind", "sheet": arguments.sheet.stem, "sentences": len(rows), "measures": by_measure}


def main() -> None:
    arguments = parse_arguments()
    commands: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
        "translate": translate_both,
        "open": open_sheet,
    }
    result = commands[arguments.command](arguments)
    print(f"Result: {write_result(arguments.output, result)}")


if __name__ == "__main__":
    run(main)

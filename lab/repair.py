"""What `retry_beams` and `weight` repair, by verified marks: omissions found, repaired and made worse, and the time.

    python -m lab.repair checkpoints/capsule-marian-de-en test.de test.en --reverse checkpoints/capsule-marian-en-de \\
        --output outputs/repair-de-en.json
    python -m lab.repair outputs/enpt flores.eng flores.por --reverse outputs/pten --student

Each line is one sentence. A retry is beside greedy translation, a weight beside four beams, both marked as "likely".
Of the translations that differ: how many have fewer marks and how many more, how many does the reverse model find more
and less probable sources for, the BLEU of all of them, and the mean log-probability of a source's token. Time is that
of the processor, over that of translation without coverage, the least of three turns; set OMP_NUM_THREADS=1.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import sacrebleu

from capsule_mt import CoverageOptions, Translation, Translator
from capsule_mt.commands.console import HelpFormatter, positive, run
from capsule_mt.files.reading import read_parallel
from capsule_mt.translate.scorer import Scorer
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table

TURNS = 3
# beams of the translation to compare with, and the options; those of `MARKS` change no text and are only timed
MARKS: dict[str, tuple[int, CoverageOptions]] = {
    "marks alone": (1, CoverageOptions(threshold=0)),
    "`support=True`": (1, CoverageOptions(support=True, threshold=0)),
}
SETTINGS: dict[str, tuple[int, CoverageOptions]] = {
    "`retry_beams=8`": (1, CoverageOptions(retry_beams=8)),
    "`retry_beams=8`, `threshold=0.8`": (1, CoverageOptions(retry_beams=8, threshold=0.8)),
    "`weight=1`": (4, CoverageOptions(weight=1, threshold=0)),
    "`weight=5`": (4, CoverageOptions(weight=5, threshold=0)),
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("model", help="the folder of the model that translates")
    parser.add_argument("source", type=Path, help="held-out text, one sentence a line")
    parser.add_argument("target", type=Path, help="its reference")
    parser.add_argument("--reverse", required=True, help="the folder of the reverse model")
    parser.add_argument("--student", action="store_true", help="translate in int8, with the shortlist")
    parser.add_argument("--timed", type=positive, default=300, help="sentences that are timed")
    parser.add_argument("--output", type=Path, default=Path("outputs/repair.json"), help="the result file")
    return parser.parse_args()


def marks_of(translation: Translation) -> int:
    """Return how many words are marked as left out."""
    assert translation.coverage is not None
    return len(translation.coverage.untranslated)


def bleu(texts: Sequence[str], references: Sequence[str]) -> float:
    """Return the BLEU of texts, 0 for none."""
    return sacrebleu.corpus_bleu(list(texts), [list(references)]).score if texts else 0.0


def compared(
    reverse: Scorer,
    sources: Sequence[str],
    references: Sequence[str],
    originals: Sequence[Translation],
    after: Sequence[Translation],
) -> dict[str, Any]:
    """Return what became of the translations that differ."""
    changed = [n for n in range(len(sources)) if originals[n].text != after[n].text]
    record: dict[str, Any] = {"sentences": len(sources), "changed": len(changed)}
    probable = []
    for name, translations in (("before", originals), ("after", after)):
        texts = [translations[n].text for n in changed]
        scores = [translation.score or 0.0 for translation in reverse.score(texts, [sources[n] for n in changed])]
        probable.append(scores)
        all_texts = [translation.text for translation in translations]
        record[name] = {
            "marks": sum(marks_of(translation) for translation in translations),
            "marks, changed": sum(marks_of(translations[n]) for n in changed),
            "BLEU": bleu(all_texts, references),
            "BLEU, changed": bleu(texts, [references[n] for n in changed]),
            "log p(source), changed": sum(scores) / max(len(scores), 1),
        }
    counts = [(marks_of(originals[n]), marks_of(after[n])) for n in changed]
    record["fewer marks"] = sum(new < old for old, new in counts)
    record["more marks"] = sum(new > old for old, new in counts)
    record["source more probable"] = sum(new > old for old, new in zip(*probable, strict=True))
    record["source less probable"] = sum(new < old for old, new in zip(*probable, strict=True))
    return record


def table(records: Sequence[Mapping[str, Any]]) -> str:
    """Return results as Markdown."""
    rows = []
    for record in records:
        for name, by_retry in record["settings"].items():
            original, after = by_retry["before"], by_retry["after"]
            rows.append(
                [
                    f"`{record['model']}`, {by_retry['sentences']}",
                    name,
                    str(by_retry["changed"]),
                    f"{original['marks']} to {after['marks']}",
                    f"{by_retry['fewer marks']}, {by_retry['more marks']}",
                    f"{by_retry['source more probable']}, {by_retry['source less probable']}",
                    f"{original['log p(source), changed']:.2f} to {after['log p(source), changed']:.2f}",
                    f"{original['BLEU, changed']:.1f} to {after['BLEU, changed']:.1f}",
                    f"{original['BLEU']:.2f} to {after['BLEU']:.2f}",
                    f"{record['times'][name]:.2f}",
                ]
            )
        for name in MARKS:
            rows.append([f"`{record['model']}`", name, *[""] * 7, f"{record['times'][name]:.2f}"])
    header = ["model, sentences", "asked", "changed", "marks", "of these with fewer, more", "source likelier, less"]
    return markdown_table([*header, "its log p", "BLEU of these", "BLEU of all", "time"], rows)


def main() -> None:
    arguments = parse_arguments()
    sources, references = read_parallel([arguments.source, arguments.target])
    translator = Translator.from_pretrained(
        arguments.model, int8=arguments.student, shortlist=arguments.student, reverse=arguments.reverse
    )
    reverse = translator.reverse
    assert reverse is not None

    def translate(lines: Sequence[str], beams: int, asked: CoverageOptions | None) -> list[Translation]:
        return translator(list(lines), num_beams=beams, batch_size=32, split_sentences=False, coverage=asked)

    plain = {beams: translate(sources, beams, CoverageOptions(threshold=0)) for beams in (1, 4)}
    settings: dict[str, Any] = {}
    for name, (beams, asked) in SETTINGS.items():
        settings[name] = compared(reverse, sources, references, plain[beams], translate(sources, beams, asked))
    sample = sources[: arguments.timed]
    seconds: dict[Any, list[float]] = {}
    timed: dict[Any, tuple[int, CoverageOptions | None]] = {1: (1, None), 4: (4, None), **MARKS, **SETTINGS}
    for _ in range(TURNS):
        for key, (beams, options) in timed.items():
            start = time.process_time()
            translate(sample, beams, options)
            seconds.setdefault(key, []).append(time.process_time() - start)
    times = {name: min(seconds[name]) / min(seconds[beams]) for name, (beams, _) in {**MARKS, **SETTINGS}.items()}
    record: dict[str, Any] = {"kind": "repair", "model": Path(arguments.model).name, "text": arguments.source.name}
    record |= {"settings": settings, "times": times}
    path = write_result(arguments.output, record)
    print(f"{table([record])}\nResult: {path}")


if __name__ == "__main__":
    run(main)

"""What each row of the table of rules earns on natural text: the gate that a row passes to stay.

    python -m lab.rules --judge strings data/enpt strings.en strings.pt --judge flores data/pten flores.pt flores.en \\
        --agreement rocs-mt data/enpt raw.en normalised.en --survival readmes data/enpt lines.en --outside readmes.txt

A judge is a student, its sources and their references; an agreement, a student, a noisy text and the same text
normalised, whose translation is the reference. Each row is measured against the usual translations: `gain` is the BLEU
that the judge loses without the row, `better` and `worse` count the changed lines by chrF, and `lines` those that the
row changes before a model reads them, of the judges and of the lines `--outside`. `survival` counts the words of
`SURVIVORS` in sources, those that a translation lacks, which are printed, and those that the reference lacks.
docs/rules.md prints lab/results/rules.jsonl.
Searches are cached by the tokens of their source, so that a difference is a rule's and not a batch's.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu
import yaml

from capsule_mt import Translator
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.engine.search import Hypothesis
from capsule_mt.files.reading import read_lines
from capsule_mt.models.loading import load_model
from capsule_mt.options.table import SearchOptions
from capsule_mt.text import rules
from capsule_mt.text.rewriting import Edit
from capsule_mt.text.segments import edits_of
from capsule_mt.translate.options import TranslationOptions
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table

MAX_LOSS = -0.005  # BLEU that a row may cost by rounding
UNMEASURED = ("languages", "numbers")  # kinds of rows that no judge's call tries
KINDS = yaml.safe_load(Path(__file__).with_name("survivors.yaml").read_text(encoding="utf-8"))
SURVIVORS = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in KINDS.items()))
GROUPED = re.compile(r"(?<!\d)\d{1,3}(?:[.,'\u2019\xa0\u202f]\d{3})+(?![.\d])")


class CachedDecoder:
    """A decoder that answers from a cache where a source was searched before with the same options."""

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self._hypotheses: dict[tuple[object, ...], list[Hypothesis]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def translate(self, sources: Sequence[Sequence[int]], options: SearchOptions) -> list[list[Hypothesis]]:
        shared = repr(options._replace(limits=(), forces_end=(), shortlist=None))
        keys = [(*source, shared) for source in sources]
        misses = list({key: index for index, key in enumerate(keys) if key not in self._hypotheses}.values())
        if misses:
            batch = options._replace(
                limits=[options.limits[index] for index in misses],
                forces_end=[options.forces_end[index] for index in misses] if options.forces_end else (),
            )
            results = self._decoder.translate([sources[index] for index in misses], batch)
            self._hypotheses |= zip((keys[index] for index in misses), results, strict=True)
        return [self._hypotheses[key] for key in keys]


Change = tuple[Sequence[Edit], list[list[int]]]  # the edits of a line, and the tokens of its pieces


class Judge(NamedTuple):
    """Sources with their references; `changes` and `usual` are their changes and translations with the whole table."""

    name: str
    translator: Translator
    sources: Sequence[str]
    references: Sequence[str]
    changes: Sequence[Change]
    usual: Sequence[str]


def translations(translator: Translator, sources: Sequence[str]) -> list[str]:
    return [translation.text for translation in translator(sources, batch_size=32)]


def changes_of(translator: Translator, lines: Sequence[str]) -> list[Change]:
    """Return what becomes of lines before a model reads them."""
    segmenter = translator.plan(TranslationOptions()).segmenter
    documents = (segmenter.document(line) for line in lines)
    return [(edits_of(document), [piece.ids for piece in document.pieces]) for document in documents]


@contextmanager
def without(row: rules.Row) -> Iterator[None]:
    """Switch a row off."""
    usual = rules.ROWS
    try:
        rules.use_rows([entry for entry in usual if entry.id != row.id])
        yield
    finally:
        rules.use_rows(usual)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    return float(sacrebleu.corpus_bleu(list(hypotheses), [list(references)], force=True).score)


def chrf(hypothesis: str, reference: str) -> float:
    return float(sacrebleu.sentence_chrf(hypothesis, [reference]).score)


def changed_lines(
    row: rules.Row, translator: Translator, lines: Sequence[str], changes: Sequence[Change]
) -> list[int]:
    """Return the indices of the lines whose changes are others without a row, which is switched off."""
    name = {"before": "edge", "after": "edge", "ending": "marks"}.get(row.stage, row.id)
    indices = [index for index, (edits, _) in enumerate(changes) if any(edit.row == name for edit in edits)]
    changes_without = changes_of(translator, [lines[index] for index in indices])
    return [index for index, change in zip(indices, changes_without, strict=True) if change != changes[index]]


def earned(judge: Judge, indices: Sequence[int]) -> dict[str, Any]:
    """Return what the table as it is now changes in a judge's translations of some lines, and what that costs."""
    changed = dict(zip(indices, translations(judge.translator, [judge.sources[i] for i in indices]), strict=True))
    changed = {index: text for index, text in changed.items() if text != judge.usual[index]}
    texts = [changed.get(index, text) for index, text in enumerate(judge.usual)]
    margins = [
        chrf(judge.usual[index], judge.references[index]) - chrf(text, judge.references[index])
        for index, text in changed.items()
    ]
    gain = bleu(judge.usual, judge.references) - bleu(texts, judge.references) if changed else 0.0
    better, worse = sum(margin > 0 for margin in margins), sum(margin < 0 for margin in margins)
    return {"judge": judge.name, "changed": len(changed), "better": better, "worse": worse, "gain": round(gain, 3)}


def survivors(text: str) -> Counter[tuple[str, str]]:
    """Count what a translation must have, by kind.

    >>> sorted(survivors("run `ls -l` on 12 files"))
    [('code', '`ls -l`'), ('number', '12')]
    """
    return Counter((match.lastgroup or "", match[0]) for match in SURVIVORS.finditer(text))


def lost(source: str, translation: str) -> Counter[tuple[str, str]]:
    words, numbers = survivors(source), Counter(re.findall(r"\d+", translation))
    found = {(kind, word): numbers[word] if kind == "number" else translation.count(word) for kind, word in words}
    return words - Counter(found)


def survival(judge: Judge) -> dict[str, Any]:
    """Print what translations lack; count words by kind, and those that translations and references lack."""
    counts = {kind: [0, 0, 0] for kind in KINDS}
    for texts in zip(judge.sources, judge.usual, judge.references, strict=True):
        source, text, reference = (GROUPED.sub(lambda number: re.sub(r"\D", "", number[0]), text) for text in texts)
        for index, words in enumerate((survivors(source), lost(source, text), lost(source, reference))):
            for kind, word in words.elements():
                counts[kind][index] += 1
                if index == 1:
                    print("lost", judge.name, kind, word, source, text, sep="\t")
    return {"judge": judge.name, "lines": len(judge.sources), "words": counts}


def verdict(num_lines: int, results: Sequence[dict[str, Any]]) -> str:
    """Return whether a row stays: one that changes no line, or that loses where it changes some, goes.

    >>> verdict(0, []), verdict(3, [{"better": 2, "worse": 7, "gain": -0.02}])
    ('never', 'loses')
    """
    better, worse = (sum(result[side] for result in results) for side in ("better", "worse"))
    if not num_lines and not better + worse:
        return "never"
    return "loses" if worse > better and sum(result["gain"] for result in results) < MAX_LOSS else "stays"


def measured(judges: Sequence[Judge], outside: Sequence[str], ids: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    """Yield what each row earns, and how many lines of the judges and outside it changes."""
    changes = changes_of(judges[0].translator, outside)
    for row in rules.ROWS:
        if row.stage == "back" or row.kind in UNMEASURED or (ids is not None and row.id not in ids):
            continue
        with without(row):
            num_lines, results = len(changed_lines(row, judges[0].translator, outside, changes)), []
            for judge in judges:
                indices = changed_lines(row, judge.translator, judge.sources, judge.changes)
                num_lines += len(indices)
                results.append(earned(judge, indices))
        yield {"row": row.id, "lines": num_lines, "verdict": verdict(num_lines, results), "judges": results}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    names: tuple[str, ...] = ("NAME", "MODEL", "SOURCES", "REFERENCES")
    parser.add_argument("--judge", nargs=4, metavar=names, action="append", default=[], help="a text with references")
    names = ("NAME", "MODEL", "NOISY", "NORMALISED")
    parser.add_argument("--agreement", nargs=4, metavar=names, action="append", default=[], help="a noisy text")
    names = ("NAME", "MODEL", "SOURCES")
    parser.add_argument(
        "--survival", nargs=3, metavar=names, action="append", default=[], help="a text without references"
    )
    parser.add_argument("--outside", type=Path, nargs="*", default=[], help="lines without references")
    parser.add_argument("--row", nargs="*", help="the rows to measure; by default all")
    parser.add_argument("--output", type=Path, default=Path("outputs/rules.json"), help="the result file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    translators: dict[str, Translator] = {}
    judges = []
    for name, folder, *paths in (*arguments.judge, *arguments.agreement, *arguments.survival):
        if folder not in translators:
            model = load_model(Path(folder), int8=True, shortlist=True)
            translators[folder] = Translator(model._replace(decoder=CachedDecoder(model.decoder)))
        translator, sources, references = translators[folder], *(read_lines(Path(paths[side])) for side in (0, -1))
        if len(sources) != len(references):
            raise ValueError(f"{paths[0]} has {len(sources)} lines and {paths[1]} {len(references)}")
        if [name, folder, *paths] in arguments.agreement:
            references = translations(translator, references)
        changes, usual = changes_of(translator, sources), translations(translator, sources)
        judges.append(Judge(name, translator, sources, references, changes, usual))
    counts = [survival(judge) for judge in judges]
    judges = judges[: len(arguments.judge) + len(arguments.agreement)]
    outside = [line for path in arguments.outside for line in read_lines(path)]
    rows = list(measured(judges, outside, arguments.row)) if judges else []
    record = {
        "kind": "rules",
        "lines": len(outside) + sum(len(judge.sources) for judge in judges),
        "bleu": {judge.name: bleu(judge.usual, judge.references) for judge in judges},
        "survival": counts,
        "rows": rows,
    }
    path = write_result(arguments.output, record)
    cells = [
        [row["row"], str(row["lines"]), row["verdict"]]
        + [f"{result['better']}/{result['worse']} {result['gain']:+.2f}" for result in row["judges"]]
        for row in rows
    ]
    print(markdown_table(["row", "lines", "verdict", *(judge.name for judge in judges)], cells))
    print(f"Result: {path}")


if __name__ == "__main__":
    run(main)

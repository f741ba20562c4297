"""How much BLEU a model loses when the typography of the source changes and its meaning does not.

    python -m lab.typography outputs/enpt flores.eng.gz flores.por.gz --student --output outputs/typography-en-pt.json

The model translates each line as one sentence, greedily, once as it is and once for each change. A change is scored on
the lines that it changes. Both translations are scored without the marks that a change adds or turns, and the rows
about case without case, so that only the words count.
"""

import argparse
import re
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sacrebleu

from capsule_mt import Translator
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.reading import read_lines
from hf_capsule_mt.evaluation import write_result
from hf_capsule_mt.evaluation.results import markdown_table

Change = Callable[[str], str]
LEAST_LINES = 8  # that a change must change to be scored
LONG_WORD = 10  # letters of a word that a change makes bold
ADDED = re.compile('[\u00ad\u200b\U0001f600*"()«»“”„]|^\\s*(?:• |3\\) )')  # what the changes add
END = re.compile(r"[.…\s]+$")


def _each_word(change: Change) -> Change:
    """Return a change of each word of a line."""
    return lambda line: " ".join(map(change, line.split(" ")))


def _into_middle(mark: str) -> Change:
    """Return a change that puts a mark into the middle of words of seven letters or more."""

    def marked(word: str) -> str:
        middle = len(word) // 2
        return f"{word[:middle]}{mark}{word[middle:]}" if len(word) > 6 and word.isalpha() else word

    return _each_word(marked)


def _quoted_by(opening: str, closing: str) -> Change:
    """Return a change of straight quotes into a pair: the first, third, ... of a line open."""

    def turned(line: str) -> str:
        parts = line.split('"')
        marks = [opening if number % 2 == 0 else closing for number in range(len(parts) - 1)]
        return "".join(part + mark for part, mark in zip(parts, [*marks, ""], strict=True))

    return turned


CHANGES: dict[str, Change] = {
    "zero-width spaces inside words": _into_middle("\u200b"),
    "soft hyphens inside words": _into_middle("\u00ad"),
    "Title Case": _each_word(lambda word: word[:1].upper() + word[1:]),
    f"`**bold**` for words of {LONG_WORD} letters or more": _each_word(
        lambda word: f"**{word}**" if len(word) >= LONG_WORD and word.isalpha() else word
    ),
    "\u2019 for '": lambda line: line.replace("'", "\u2019"),
    "small letters": str.lower,
    "CAPITALS": str.upper,
    "( ) around the sentence": lambda line: f"({line})",
    "… for the full stop": lambda line: re.sub(r"\.$", "…", line),
    "`...` for the full stop": lambda line: re.sub(r"\.$", "...", line),
    "no full stop": lambda line: line.rstrip("."),
    '“ ” for "': _quoted_by("“", "”"),
    '« » for "': _quoted_by("«", "»"),
    "“ ” around the sentence": lambda line: f"“{line}”",
    "a dash (—) for a hyphen between spaces": lambda line: line.replace(" - ", " — "),
    "no-break spaces": lambda line: line.replace(" ", "\u00a0"),
    "double spaces": lambda line: line.replace(" ", "  "),
    "narrow no-break spaces in numbers": lambda line: re.sub(r"(\d)[,.](\d{3})", "\\1\u202f\\2", line),
    "decomposed accents": lambda line: unicodedata.normalize("NFD", line),
    "a bullet (•) before the line": lambda line: f"• {line}",
    "`3)` before the line": lambda line: f"3) {line}",
    "an emoji at the end": lambda line: f"{line} \U0001f600",
}
WITHOUT_CASE = ("CAPITALS", "small letters", "Title Case")


def words_alone(line: str) -> str:
    """Return a line as it is scored.

    >>> words_alone("• “An **Important** word …”")
    'An Important word'
    """
    composed = unicodedata.normalize("NFC", line).replace("\u2019", "'").replace("—", "-")
    return END.sub("", " ".join(ADDED.sub("", composed).split()))


def bleu(translations: Sequence[str], references: Sequence[str], name: str) -> float:
    """Return the BLEU of lines for a change: without case where the change is one of case."""
    lowercase = name in WITHOUT_CASE
    hypotheses, wanted = ([words_alone(line) for line in lines] for lines in (translations, references))
    return sacrebleu.corpus_bleu(hypotheses, [wanted], lowercase=lowercase, force=True).score


def losses(
    translate: Callable[[Sequence[str]], list[str]], sources: Sequence[str], references: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the loss of each change that changes enough lines, the largest first."""
    unchanged = translate(sources)
    rows: list[dict[str, Any]] = []
    for name, change in CHANGES.items():
        changed = [change(line) for line in sources]
        numbers = [number for number, line in enumerate(sources) if changed[number] != line]
        if len(numbers) < LEAST_LINES:
            continue
        chosen = [references[number] for number in numbers]
        before = bleu([unchanged[number] for number in numbers], chosen, name)
        after = bleu(translate([changed[number] for number in numbers]), chosen, name)
        rows.append({"change": name, "lines": len(numbers), "bleu": before, "lost": before - after})
    return sorted(rows, key=lambda row: -float(row["lost"]))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("model", help="the folder of the model")
    parser.add_argument("source", type=Path, help="held-out text, one sentence a line")
    parser.add_argument("references", type=Path, help="their translations")
    parser.add_argument("--lines", type=int, default=160, help="the first lines to translate")
    parser.add_argument("--student", action="store_true", help="translate with the shortlist, too")
    parser.add_argument("--output", type=Path, default=Path("outputs/typography.json"), help="the result file")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    sources, references = (read_lines(path) for path in (arguments.source, arguments.references))
    if len(sources) != len(references):
        raise ValueError(
            f"{arguments.source} has {len(sources)} lines and {arguments.references} {len(references)}; "
            "name a file and its translation, line by line"
        )
    translator = Translator.from_pretrained(arguments.model, int8=True, shortlist=arguments.student)

    def translate(lines: Sequence[str]) -> list[str]:
        return [translation.text for translation in translator(lines, batch_size=32, split_sentences=False)]

    rows = losses(translate, sources[: arguments.lines], references[: arguments.lines])
    record = {
        "kind": "typography",
        "model": Path(arguments.model).name,
        "text": arguments.source.name,
        "changes": rows,
    }
    path = write_result(arguments.output, record)
    cells = [[row["change"], str(row["lines"]), f"{row['bleu']:.1f}", f"{row['lost']:.1f}"] for row in rows]
    print(markdown_table(["change of the source", "lines", "BLEU of the same lines unchanged", "BLEU lost"], cells))
    print(f"Result: {path}")


if __name__ == "__main__":
    run(main)

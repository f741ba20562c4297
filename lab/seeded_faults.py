"""How often each reason to check flags people's translations, and which faults put into them are found.

    python -m lab.seeded_faults en pt tatoeba.eng.gz tatoeba.por.gz --output outputs/seeded-tatoeba-en-pt.json
    python -m lab.seeded_faults en pt flores.eng.gz flores.por.gz --model enpt --reverse pten --output model.json

Only the second, fourth, ... lines are read: the others chose words and thresholds. Both directions are checked. A
fault of each kind is put into up to --max-faults translations a direction, chosen by a fixed seed; it is found if the
reasons that belong to its kind are given. Without a model and --judge, these are only rules.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from capsule_mt import CoverageOptions, Judge, Translator
from capsule_mt.checks.rules import checks_of
from capsule_mt.checks.word_lists import check_words
from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.coverage.problems import Problem, problems_in
from capsule_mt.coverage.reasons import LEVELS, REASONS
from capsule_mt.files.lines import coverage_record, judgement_record
from capsule_mt.files.reading import read_parallel
from capsule_mt.text.sentences import split_sentences
from hf_capsule_mt.evaluation import write_result

SEED = 97
CODES = "src_lang", "tgt_lang"
Fault = Callable[[str, str, str, random.Random], str | None]
COUNTED = dict.fromkeys(("any", "any but hints", *(f"any {level}" for level in LEVELS), *REASONS), 0)
NAMES = ["Carlsen", "Okafor", "Moreira", "Jansen", "Petrova", "Whitfield", "Almeida", "Brandt", "Novak", "Tanaka"]
NAME = re.compile(r"(?<=[\w,;)] )[^\W\d_a-zß-ÿ][\w'\u2019-]{2,}")
CLAUSES = {
    "en": [", as several witnesses confirmed later", ", although the costs had doubled"],
    "de": [", wie mehrere Zeugen später bestätigten", ", obwohl sich die Kosten verdoppelt hatten"],
    "pt": [", como várias testemunhas confirmaram depois", ", embora os custos tivessem dobrado"],
}
AUXILIARIES = r"\b(is|are|was|were|will|can|could|should|would|has|have|had|must)"
LOST = {
    "en": [
        (r"\b(?:do|does|did) not ", ""),
        (rf"{AUXILIARIES} not\b", r"\1"),
        (r"\bnever ", ""),
        (r"\b\w+n['\u2019]t ", ""),
    ],
    "de": [(r"\bnicht ", ""), (r"\bkein(e[rnms]?)?\b", r"ein\1"), (r"\bnie(?:mals)? ", "")],
    "pt": [(r"\b[Nn]ão ", ""), (r"\bnunca ", "")],
}
ADDED = {
    "en": (rf"{AUXILIARIES}\b", r"\1 not"),
    "de": (r"\b(ist|sind|war|waren|hat|haben|hatte|hatten)\b", r"\1 nicht"),
    "pt": (r"\b(é|são|foi|foram|está|estão|tem|têm|pode|podem|deve|era|eram)\b", r"não \1"),
}
NEGATION = re.compile(
    r"\b(?:not?|never|nicht|kein\w*|nie\w*|ohne|não|nunca|sem|nem|nenhum\w*)\b|n['\u2019]t", re.IGNORECASE
)


def _replaced(text: str, match: re.Match[str], replacement: str) -> str:
    return text[: match.start()] + replacement + text[match.end() :]


def _date(source: str, text: str, language: str, chance: random.Random) -> str | None:
    for kind in ("months", "weekdays"):
        names = getattr(check_words().languages[language], kind)
        words = [match for match in re.finditer(r"(?<=\w )[^\W\d_]+(?![\w-])", text) if match[0].lower() in names]
        words = [match for match in words if match[0].lower() not in check_words().month_verbs]
        if matches := [match for match in words if _is_named(kind, names[match[0].lower()], source)]:
            match = chance.choice(matches)
            others = [name for name, value in names.items() if value != names[match[0].lower()] and name.isalpha()]
            other = chance.choice(others)
            return _replaced(text, match, other.capitalize() if match[0][0].isupper() else other)
    return None


def _is_named(kind: str, value: int, text: str) -> bool:
    """Return whether a word of the text begins with a month's or weekday's name in any language: "Freitagsspiel"."""
    lists = (getattr(words, kind) for words in check_words().languages.values())
    names = [name for names in lists for name, other in names.items() if other == value]
    return re.search(rf"\b(?:{'|'.join(names)})", text, re.IGNORECASE) is not None


def _digit(source: str, text: str, language: str, chance: random.Random) -> str | None:
    matches = [*re.finditer(r"\d", text)]
    if not matches:
        return None
    match = chance.choice(matches)
    return _replaced(text, match, chance.choice([digit for digit in "123456789" if digit != match[0]]))


def _name(source: str, text: str, language: str, chance: random.Random) -> str | None:
    matches = [match for match in NAME.finditer(text) if re.search(rf"\b{re.escape(match[0])}\b", source)]
    return _replaced(text, chance.choice(matches), chance.choice(NAMES)) if matches else None


def _lost_negation(source: str, text: str, language: str, chance: random.Random) -> str | None:
    texts = [re.sub(pattern, replacement, text, count=1) for pattern, replacement in LOST[language]]
    return next((line for line in texts if line != text), None)


def _added_negation(source: str, text: str, language: str, chance: random.Random) -> str | None:
    pattern, replacement = ADDED[language]
    is_affirmative = NEGATION.search(f"{source} {text}") is None
    return re.sub(pattern, replacement, text, count=1) if is_affirmative and re.search(pattern, text) else None


def _added_clause(source: str, text: str, language: str, chance: random.Random) -> str | None:
    end = re.search(r"[.!?]?[\"”»']*\Z", text)
    return _replaced(text, end, chance.choice(CLAUSES[language]) + end[0]) if end and len(text.split()) >= 6 else None


def _lost_clause(source: str, text: str, language: str, chance: random.Random) -> str | None:
    parts = re.split(r"(?<=[,;]) ", text)
    indices = [index for index in range(1, len(parts)) if len(parts[index].split()) >= 4]
    if not indices or len(text.split()) < 12:
        return None
    del parts[chance.choice(indices)]
    return " ".join(parts).rstrip(",; ")


def _exchanged_sentences(source: str, text: str, language: str, chance: random.Random) -> str | None:
    first, *others = [text[start:end] for start, end in split_sentences(text, language)] or [""]
    return " ".join([*others, first]) if others else None


FAULTS: dict[str, tuple[Fault | None, set[str]]] = {
    "date": (_date, {"months", "weekdays"}),
    "digit": (_digit, {"numbers", "swapped_numbers", "lone_numbers"}),
    "name": (_name, {"names"}),
    "lost negation": (_lost_negation, {"negation"}),
    "added negation": (_added_negation, {"negation"}),
    "added clause": (_added_clause, {"made_up", "sentences"}),
    "lost clause": (_lost_clause, {"incomplete", "left_out", "sentences"}),
    "exchanged sentences": (_exchanged_sentences, {"order"}),
    "another line": (None, {"unrelated"}),
}


class Checker:
    """Finds the problems of given translations, by rules alone or also by a model and a judge."""

    def __init__(self, languages: tuple[str, str], translator: Translator | None, judge: Judge | None) -> None:
        self.languages, self._translator, self._judge = languages, translator, judge

    def problems(self, pairs: Sequence[tuple[str, str]]) -> Iterator[list[Problem]]:
        options = CoverageOptions(support=True)
        for start in range(0, len(pairs), 64):
            batch = pairs[start : start + 64]
            sources, texts = map(list, zip(*batch, strict=True))
            if self._translator is None:
                faults = ([vars(check) for check in checks_of(*pair, *self.languages)] for pair in batch)
                records = [{"checks": checks, "repetitions": [], "sentences": [], "words": []} for checks in faults]
            else:
                records = list(map(coverage_record, self._translator.cover(sources, texts, coverage=options)))
            judgements: list[Any] = [None] * len(batch)
            if self._judge is not None:
                judgements = self._judge.score(sources, texts, **dict(zip(CODES, self.languages, strict=True)))
            for pair, record, judgement in zip(batch, records, judgements, strict=True):
                judged = {} if judgement is None else {"judgement": judgement_record(judgement)}
                yield problems_in(*pair, {"coverage": record, **judged})


def measure(checker: Checker, pairs: Sequence[tuple[str, str]], record: dict[str, Any], max_faults: int) -> None:
    """Add what is flagged, and what is found, to a record."""
    flagged = record["flagged"]
    for problems in checker.problems(pairs):
        flagged.update({problem.reason for problem in problems} | {f"any {problem.level}" for problem in problems})
        flagged["any"] += bool(problems)
        flagged["any but hints"] += any(problem.level != "hint" for problem in problems)
    record["pairs"] += len(pairs)
    for kind, (fault_of, reasons) in FAULTS.items():
        chance, faulty = random.Random(f"{SEED} {kind} {checker.languages}"), list[tuple[str, str]]()
        sample = chance.sample(pairs, len(pairs))
        for (source, text), (_, next_text) in zip(sample, [*sample[1:], *sample[:1]], strict=True):
            line = next_text if fault_of is None else fault_of(source, text, checker.languages[1], chance)
            if line not in (None, text) and len(faulty) < max_faults:
                faulty.append((source, str(line)))
        counts = record["found"].setdefault(kind, {"found": 0, "faults": 0})
        counts["found"] += sum(
            any(problem.reason in reasons for problem in problems) for problems in checker.problems(faulty)
        )
        counts["faults"] += len(faulty)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("languages", nargs=2, choices=sorted(CLAUSES), help="of the two files")
    parser.add_argument("files", nargs=2, type=Path, help="a text and its translation by people, one sentence a line")
    parser.add_argument("--model", help="the folder of a model of the first direction")
    parser.add_argument("--reverse", help="the folder of the other direction's model")
    parser.add_argument("--judge", help="the folder of a judge's encoder, which judges, too")
    parser.add_argument("--student", action="store_true", help="compute in int8, with the shortlist")
    parser.add_argument("--max-faults", type=int, default=100, help="of each kind and direction")
    parser.add_argument("--output", type=Path, required=True, help="the result file")
    arguments = parser.parse_args()
    if (arguments.model is None) != (arguments.reverse is None):
        parser.error("--model and --reverse belong together")
    pairs = list(zip(*(lines[1::2] for lines in read_parallel(arguments.files)), strict=True))
    models = [(arguments.model, arguments.reverse), (arguments.reverse, arguments.model)]
    judge = None if arguments.judge is None else Judge.from_pretrained(arguments.judge, num_threads=1)
    record: dict[str, Any] = {"kind": "seeded faults", "pairs": 0, "flagged": Counter(COUNTED), "found": {}}
    for order, (model, reverse) in zip((slice(None), slice(None, None, -1)), models, strict=True):
        translator = None
        if model is not None:
            options = {"int8": arguments.student, "shortlist": arguments.student}
            translator = Translator.from_pretrained(model, reverse=reverse, **options)
        source, target = arguments.languages[order]
        checker = Checker((source, target), translator, judge)
        measure(checker, [pair[order] for pair in pairs], record, arguments.max_faults)
    record["flagged"] = dict(sorted(record["flagged"].items()))
    print(f"Result: {write_result(arguments.output, record)}\n{record}")


if __name__ == "__main__":
    run(main)

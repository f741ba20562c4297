"""The problems of a translation, in words, and the reports that list them."""

import csv
import io
import json

import pytest

from capsule_mt.commands.files import OutputFormat, checked_units, report
from capsule_mt.commands.reports import ReportRow, report_frame, report_lines
from capsule_mt.commands.translate import needs_check, noting
from capsule_mt.coverage.problems import problems_in, problems_of
from capsule_mt.files.line_failures import Failure
from capsule_mt.files.lines import RowMaker
from capsule_mt.files.windows import Totals
from capsule_mt.formats.reading import parse
from capsule_mt.formats.units import Translated, Unit
from tests.fixtures.vectors import vectors

SOURCE = "Er zahlte 1.250 € für\tden <Stuhl>."
TRANSLATION = "He paid <it>."


@pytest.mark.parametrize("case", vectors("problems")["cases"], ids=lambda case: case["source"])
def test_problems_are_those_of_the_page(case):
    """The vectors that JavaScript reads, too."""
    problems = problems_of(case["coverage"], case["source"], case["translation"])
    actual = [[problem.level, problem.message, [list(span) for span in problem.spans]] for problem in problems]
    assert actual == case["problems"]


def word(text, is_marked):
    start = SOURCE.index(text)
    return {"word": text, "start": start, "end": start + len(text), "covered": 0.1, "untranslated": is_marked}


def record_of(is_faulty=True, **facts):
    coverage = {"score": 0.5, "sentences": [], "repetitions": [], "checks": [], "method": "attention"}
    coverage["words"] = [word("zahlte", False), word("Stuhl", is_faulty)]
    if is_faulty:
        coverage["checks"] = [{"kind": "numbers", "missing": "1.250", "added": ""}]
    return {"translation_text": TRANSLATION, "coverage": coverage, **facts}


MESSAGES = ["The number 1.250 is missing in the translation.", "Perhaps left out, unverified: Stuhl"]


def test_what_is_known_about_a_text_is_in_the_list():
    """What is certain comes first."""
    second = record_of(has_other_placeholders=True, language="fr", unknown=0.25)
    second["coverage"]["checks"] = []
    assert [problem.message for problem in problems_in(SOURCE, TRANSLATION, second)] == [
        "The model cannot read 25% of the text.",
        "The placeholders are others, or in another order.",
        "The text seems to be in another language: fr",
        "Perhaps left out, unverified: Stuhl",
    ]
    assert [problem.message for problem in problems_in(SOURCE, TRANSLATION, record_of())] == MESSAGES
    lost = record_of(has_other_placeholders=True)
    lost["coverage"]["checks"] = [{"kind": "placeholders", "missing": "<Stuhl>", "added": ""}]
    messages = [problem.message for problem in problems_in(SOURCE, TRANSLATION, lost)]
    assert messages == ["The placeholder <Stuhl> is missing in the translation."]  # once, and it explains the word


def test_an_empty_translation_is_a_fault():
    """With a score alone, with a coverage that marks nothing, and with one that marks words."""
    expected = ("fault", "The translation is empty.", (), "empty", None)
    for record in ({"score": -1.0}, record_of(False), record_of()):
        for translation in ("", " \t\n"):
            assert problems_in(SOURCE, translation, record)[0] == expected
        assert expected not in problems_in(SOURCE, "x", record)
    assert problems_in(" ", "", {"score": None}) == []


def columns_of(suffix, records, **options):
    lines = [
        OutputFormat(coverage=suffix, **options).columns(index, SOURCE, record) for index, record in enumerate(records)
    ]
    return "".join(f"{line}\n" for columns in lines for line in columns[1])


RECORDS = [[record_of(False)], [record_of()], Failure("ValueError: no")]


def test_a_table_says_what_is_wrong_and_has_the_texts():
    rows = list(csv.reader(io.StringIO(columns_of("tsv", RECORDS)), delimiter="\t", quoting=csv.QUOTE_NONE))
    source = SOURCE.replace("\t", " ")
    assert rows == [
        ["1", "0.5000", "", source, TRANSLATION],
        ["2", "0.5000", f"{MESSAGES[0][:-1]}; {MESSAGES[1]}", source, TRANSLATION],
        ["3", "", "Not translated: ValueError: no", source, ""],
    ]


def test_json_has_every_value():
    fine, faulty, failed = map(json.loads, columns_of("jsonl", RECORDS).splitlines())
    texts = {"source": SOURCE, "translation": TRANSLATION}
    assert fine == {"line": 1, **texts, "problems": [], **record_of(False)["coverage"]}
    problems = faulty.pop("problems")
    assert faulty == {"line": 2, **texts, **record_of()["coverage"]}
    assert [problem["message"] for problem in problems] == MESSAGES
    assert [SOURCE[span["start"] : span["end"]] for problem in problems for span in problem["spans"]] == [
        "1.250",
        "Stuhl",
    ]
    assert failed == {"line": 3, "source": SOURCE, "error": "ValueError: no"}


def test_a_page_has_only_what_is_to_be_checked_with_its_marks():
    page = report_frame("html", ["capsule-mt", "a <b>.txt"], "lines").header(Totals(3, 2, 1)).decode()
    page += columns_of("html", RECORDS)
    html5lib = pytest.importorskip("html5lib", reason="reads the page as a browser does")
    document = html5lib.parse(page, namespaceHTMLElements=False)
    assert document.findtext("body/p") == "capsule-mt, a <b>.txt: 3 lines, 2 to check, 1 failed"
    head, *rows = (["".join(cell.itertext()).rstrip("\n") for cell in row] for row in document.iter("tr"))
    assert len(head) == 4
    assert rows == [
        ["2", "".join(MESSAGES), SOURCE, TRANSLATION],  # escaped: <Stuhl> is text
        ["3", "Not translated: ValueError: no", SOURCE, ""],
    ]
    marks = [(mark.get("class"), mark.text) for mark in document.iter("mark")]
    assert marks == [("probable", "1.250"), ("hint", "Stuhl")]


def test_the_lines_of_a_page_are_sorted_by_how_certain_their_reasons_are():
    hint, fault = record_of(), record_of()
    hint["coverage"]["checks"] = []
    fault["coverage"]["checks"] = [{"kind": "signs", "missing": "€", "added": ""}]
    likely, likelier = (record_of() for _ in range(2))
    for share, record in ((0.6, likely), (0.8, likelier)):
        record["coverage"] |= {"checks": [], "method": "verified", "precision": share}
    records = [hint, likely, fault, likelier, Failure("no"), fault, record_of(False)]
    rows = [
        line
        for number, record in enumerate(records, start=1)
        for line in report_lines("html", ReportRow(number, SOURCE, TRANSLATION, record, [], {}))
    ]
    assert len(rows) == 6  # nothing is wrong with the last one
    frame = report_frame("html", ["capsule-mt"], "lines")
    arranged = frame.arranged([f"{row}\n".encode() for row in rows])
    assert [int(row.decode().split("<td>")[1]) for row in arranged] == [3, 5, 6, 4, 2, 1]
    table = report_frame("tsv", ["capsule-mt"], "lines")
    assert list(table.arranged(iter([b"b", b"a"]))) == [b"b", b"a"]  # a row for each line stays where the line is


def test_marks_that_overlap_are_the_more_certain_one():
    case = vectors("problems")["cases"][14]
    row = ReportRow(1, case["source"], case["translation"], {"coverage": case["coverage"]}, [], {})
    assert [message for _, message, _ in case["problems"]][1] == "Probably left out: 5 Tage"
    (line,) = report_lines("html", row)
    assert line.count("<mark") == 2
    assert '<mark class="probable">5</mark> Tage' in line


def test_the_terminal_says_where_to_look_and_why(capsys):
    form = OutputFormat(labels=[f"cue {number}" for number in range(8)])
    records = [[record_of(index != 1)] for index in range(7)] + [Failure("no")]
    lines = [form.columns(index, SOURCE, record)[0][0] for index, record in enumerate(records)]
    units = checked_units("".join(f"{line}\n" for line in lines).encode())
    assert [unit.text for unit in units] == [TRANSLATION] * 7 + [None]

    class File:
        units = [Unit(SOURCE if n else f"long\n{'er ' * 40}", f"cue {n}") for n in range(8)]

    report(File, units, "c.tsv")
    assert capsys.readouterr().err.splitlines() == [
        "6 of 8 passages to check: see c.tsv",
        f"  cue 0: {MESSAGES[0][:-1]}: long {'er ' * 18}e...",
        *(f"  cue {number}: {MESSAGES[0][:-1]}: {SOURCE}" for number in (2, 3, 4, 5)),
        "  and 1 more",
    ]
    report(File, [units[1]] * 8, None)
    assert capsys.readouterr().err == ""
    report(File, [units[1]] * 8, "c.tsv")
    assert capsys.readouterr().err == "0 of 8 passages to check: see c.tsv\n"


PLURALS = 'msgid "%d file"\nmsgid_plural "%d files"\n' + "".join(f'msgstr[{form}] ""\n' for form in range(3))
RUSSIAN = {"1 file": "1 файл", "2 files": "два файла", "5 files": "5 файлов"}


def test_a_report_says_which_plural_form_is_not_in_the_file(capsys):
    """The file has "%d файлов" for 2, too: a report with "два файла" must not leave that open."""
    parsed = parse(PLURALS.encode(), "po", name="a.po", language="ru")
    form = OutputFormat(coverage="tsv", labels=[unit.location for unit in parsed.units])
    texts = [unit.text for unit in parsed.units]
    rows = RowMaker(
        lambda lines: [[{"translation_text": RUSSIAN[line]}] for line in lines],
        form.columns,
        "a.po,",
        needs_check,
        note=noting(parsed),
    )(list(range(3)), texts)
    message = "Not in the file: a plural form must have its number 2 once"
    assert [row.columns[1][0].split("\t")[2:] for row in rows] == [
        ["", "1 file", "1 файл"],
        [message, "2 files", "два файла"],
        ["", "5 files", "5 файлов"],
    ]
    assert [row.is_flagged for row in rows] == [False, True, False]
    units = checked_units("".join(f"{row.columns[0][0]}\n" for row in rows).encode())
    report(parsed, units, None)
    assert capsys.readouterr().err == f"1 of 3 passages to check\n  line 1: {message}: 2 files\n"
    written = parsed.write([Translated(unit.text, bool(unit.messages)) for unit in units]).decode()
    assert '#, fuzzy\nmsgid "%d file"' in written
    assert 'msgstr[0] "%d файл"\nmsgstr[1] "%d файлов"\nmsgstr[2] "%d файлов"\n' in written

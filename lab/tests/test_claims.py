"""The ledger of claims, the page and the links that it writes, and measured numbers outside of it."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from lab import claims as ledger
from lab import repeat
from lab.claims import CODE, LINK, ROOT, ClaimError

CLAIMS = ledger.read_claims()
OUTPUTS = {path.relative_to(ROOT).as_posix(): text for path, text in ledger.outputs(CLAIMS).items()}
IS_GENERATED = re.compile(r"<!-- .* writes this page")  # the first line of a page that a command writes
CHECKED = {
    page: text
    for page in OUTPUTS
    if not page.startswith("lab/") and not IS_GENERATED.match(text := (ROOT / page).read_text(encoding="utf-8"))
}
del CHECKED["docs/options.md"]  # written from the table of options

NUMBER = r"[-+\u2212]?\d[\d,]*(?:\.\d+)?"
UNITS = (
    r"BLEU|chrF|COMET|TER\b|%|percent|µs|ms\b|s\b|seconds?\b|minutes?\b|hours?\b|[kKMGT]i?B\b|bytes?\b|points?\b"
    r"|times (?:as|more|less|faster|slower|larger|smaller)\b|x (?:faster|slower)\b"
    r"|(?:sentences|words|tokens|lines|characters|texts|pages|requests)(?:/s\b| (?:a|per) second)"
)
MEASURED = re.compile(
    rf"(?<![\w.])(?:{NUMBER}(?:(?: to | and |, | or |-|\u2013){NUMBER})* ?(?:{UNITS})"  # 3.3 to 4.3 times as fast
    rf"|(?:BLEU|chrF|COMET|AUC|curve|kappa|precision|recall|perplexity)(?: \w+){{0,2}} {NUMBER}"  # an AUC of 0.84
    r"|[-+\u2212]\d+\.\d+"  # +0.04
    rf"|\[{NUMBER}(?:,| to) {NUMBER}\]"  # [-0.15, +0.22]
    r"|\d[\d,]* of (?:the |our |its |all )?\d[\d,]*"  # 34 of 63
    r"|0\.\d{2,}(?![\d.]))"  # 0.84, but not a version
)
CELL = re.compile(rf"(?!(?:19|20)\d\d$){NUMBER}(?: ?(?:to|and|or|/|,) ?{NUMBER})*(?: \(.*\))?")  # of a table
NOT_MEASURED = (
    re.compile(r"<!-- ([a-z0-9_]+) -->.*?<!-- end of \1 -->", re.DOTALL),  # generated
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL),  # code
    LINK,
    re.compile(r"(?<=\])\([^)]*\)"),  # targets of other links
    re.compile(r"\b95 % (?:bootstrap |confidence )?intervals?"),
)


def measured_numbers(page: str) -> list[str]:
    """Return the measured numbers of a page that are not links to the ledger."""
    text = "`x`".join(CODE.split(page)[::2])
    for pattern in NOT_MEASURED:
        text = pattern.sub("`x`", text)
    rows = [line.strip(" |").split("|") for line in text.splitlines() if line.lstrip().startswith("|")]
    cells = [cell.strip() for row in rows for cell in row if CELL.fullmatch(cell.strip())]
    return [match[0] for match in MEASURED.finditer(text)] + cells


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It gains 0.4 BLEU and takes 12.5 ms, 30 MB more.", ["0.4 BLEU", "12.5 ms", "30 MB"]),
        (
            "91 % are flagged; 34 of 63 are right: +0.04 [-0.15, +0.22]",
            ["91 %", "34 of 63", "+0.04", "[-0.15, +0.22]"],
        ),
        ("The area under the curve is 0.84.\n\n|speed|\n|---|\n| 316 (4.3) |\n", ["curve is 0.84", "316 (4.3)"]),
        ("316 sentences a second are 3.3 to 4.3 times as many", ["316 sentences a second", "3.3 to 4.3 times as"]),
        # not found: claims, code, generated sections, the level of intervals
        ("It translates [316](evidence.md#speed.en-pt) sentences a second.", []),
        ("`5 s`, [`0.3 BLEU`](x.md) and\n```\n0.4 BLEU\n```\n", []),
        ("<!-- table -->\n| 0.84 |\n<!-- end of table -->\nwith 95 % intervals", []),
        # not measured: counts, sizes of models, versions, dates
        ("Two models with 6 layers and 32,000 tokens; version 1.12.42, Python 3.10.\n| 2026-10 |\n| 2026 |", []),
        # missed: words, and numbers without a unit in prose
        ("It is twice as fast, and three of ten readers saw 300 sentences.", []),
    ],
)
def test_measured_numbers(text, numbers):
    assert measured_numbers(text) == numbers


@pytest.mark.parametrize("page", CHECKED)
def test_measured_numbers_come_from_the_ledger(page):
    assert not measured_numbers(CHECKED[page]), "link to a claim of lab/claims.jsonl, or write a limit as code"


@pytest.mark.parametrize("page", OUTPUTS)
def test_pages_print_the_ledger(page):
    assert (ROOT / page).read_text(encoding="utf-8") == OUTPUTS[page], "run python -m lab.claims"


def test_the_rows_give_the_claims():
    assert not ledger.problems(CLAIMS)


def numbers(text):
    return [float(number.replace("\u2212", "-").replace(",", "")) for number in re.findall(NUMBER, text)]


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS.values() if claim.interval], ids=lambda claim: claim.id)
def test_intervals_hold_their_values(claim):
    low, high = numbers(claim.interval)
    value, *total = numbers(claim.value)
    assert low <= (100 * value / total[0] if total else value) <= high
    assert low < high


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS.values() if claim.derive], ids=lambda claim: claim.id)
def test_the_commit_and_date_are_of_the_last_row(claim):
    derive = claim.derive
    names = {derive.get("name"), derive.get("run"), derive.get("baseline"), *derive.get("names", ())} - {None}
    seeds = [None, *derive.get("seeds", ())]
    rows = [row for row in ledger.records(derive["file"]) if {row.get("name"), row.get("run")} & names]
    last = max((row for row in rows if row.get("seed") in seeds), key=lambda row: row["date"])
    assert (claim.commit, claim.date) == (last["commit"].rstrip("+"), last["date"][:10])


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_commands_name_what_exists(claim):
    commands = [shlex.split(command) for command in claim.command.split(" && ")]
    if commands[0][:2] == ["git", "checkout"]:  # the program has left the tree
        assert claim.commit.startswith(commands[0][2])
        return
    for words in commands:
        assert words[0] in ("python", "capsule-mt")
        files = [word.split("::")[0] for word in words if word.startswith(("tests/", "checkpoints/", "lab/"))]
        if words[0] == "python" and words[2] != "pytest":
            module = words[2].replace(".", "/")
            files.append(f"{module}/__init__.py" if (ROOT / module).is_dir() else f"{module}.py")
        assert all((ROOT / file).exists() for file in files), files


def test_commits_are_ancestors():
    git = ["git", "-C", str(ROOT)]
    shallow, commits = (
        subprocess.run([*git, *arguments], capture_output=True, text=True, check=False).stdout.split()
        for arguments in (["rev-parse", "--is-shallow-repository"], ["rev-list", "HEAD"])
    )
    if shallow != ["false"]:
        pytest.skip("the clone is shallow or is not a clone: its commits are not known")
    assert {claim.commit for claim in CLAIMS.values()} <= set(commits)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"commit": "742c4557"}, "`commit` must be a text that fits"),
        ({"note": "x"}, "missing or unknown: note"),
        ({"id": "unknown.id"}, "`id` must be"),
        ({"data": [{"path": "x"}]}, "missing or unknown: address, sha256"),
        ({"derive": {"how": "x"}}, "`how` must be one of"),
    ],
)
def test_errors_name_the_field(tmp_path, change, message):
    fields = json.loads(ledger.LEDGER.read_text(encoding="utf-8").split("\n")[0]) | change
    (tmp_path / "claims.jsonl").write_text(json.dumps(fields))
    with pytest.raises(ClaimError, match=re.escape(message)):
        ledger.read_claims(tmp_path / "claims.jsonl")


def test_links_name_a_claim_and_its_field():
    with pytest.raises(ClaimError, match=r"page\.md: links to a claim"):
        ledger.with_texts("[1](evidence.md#speed.unknown)", CLAIMS, "page.md")


def test_light_claims_run_without_torch():
    code = "import lab.claims, lab.repeat, sys; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_repeat_prints_both_values(monkeypatch, capsys):
    claim = next(claim for claim in CLAIMS.values() if claim.derive)
    monkeypatch.setattr("sys.argv", ["lab.repeat", claim.id])
    repeat.main()
    assert f"recorded: {repeat.shown(claim)}\nrepeated: {repeat.shown(claim)}\n" in capsys.readouterr().out


@pytest.mark.parametrize(("sha256", "message"), [(None, "is missing; put it there from x"), ("a", "its SHA-256 is a")])
def test_repeat_says_which_data_are_missing_or_differ(sha256, message, monkeypatch):
    monkeypatch.setattr(repeat, "digest", lambda pattern: sha256)
    with pytest.raises(ClaimError, match=message):
        repeat.check_data(ledger.Data("data/x", "x", "0" * 64))

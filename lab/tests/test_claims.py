"""The ledger of claims: its lines, the page and the links that it writes, and numbers that stand outside of it."""

import json
import re
import shlex
import subprocess
import sys

import pytest

from lab import claims as ledger
from lab import repeat
from lab.claims import FENCE, LINK, ROOT, ClaimError

CLAIMS = ledger.read_claims()
# pages that still have numbers typed by hand; one without must leave this list
UNCONVERTED = {
    *("README", "CHANGELOG", "CONTRIBUTING", "SECURITY", "web/README", "docs/backends", "docs/browser"),
    *("docs/coming-from", "docs/compatibility", "docs/concepts", "docs/coverage", "docs/depth", "docs/distilling"),
    *("docs/does-it-help", "docs/engine", "docs/evaluating", "docs/files", "docs/models", "docs/multilingual"),
    *("docs/opus-mt", "docs/paper_index", "docs/quickstart", "docs/scale", "docs/serving", "docs/speed"),
    *("docs/training", "docs/translating", "docs/troubleshooting"),
}
IS_GENERATED = re.compile(r"<!-- .* writes this page")  # the first line of a page that a command writes from code
PAGES = ("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "docs/*.md", "*/README.md", "model_cards/*.md")
CHECKED = {
    path.relative_to(ROOT).as_posix(): text
    for pattern in PAGES
    for path in ROOT.glob(pattern)
    if path.parent.name != "lab" and not IS_GENERATED.match(text := path.read_text(encoding="utf-8"))
}
CHECKED.pop("docs/options.md")  # written from the table of options

NUMBER = r"[-+\u2212]?\d[\d,]*(?:\.\d+)?"
UNITS = (
    r"BLEU|chrF|COMET|TER\b|%|percent|µs|ms\b|s\b|seconds?\b|minutes?\b|hours?\b|[kKMGT]i?B\b|bytes?\b"
    r"|times (?:as|more|less|faster|slower|larger|smaller)\b|x (?:faster|slower)\b|points?\b"
    r"|(?:sentences|words|tokens|lines|characters|texts|pages|requests)(?:/s\b| (?:a|per) second)"
)
MEASURED = re.compile(
    rf"(?<![\w.])(?:{NUMBER}(?:(?: to | and |, | or |-|\u2013){NUMBER})* ?(?:{UNITS})"  # 3.3 to 4.3 times as fast
    rf"|(?:BLEU|chrF|COMET|AUC|curve|kappa|precision|recall|perplexity)(?: \w+){{0,2}} {NUMBER}"  # an AUC of 0.84
    rf"|[-+\u2212]\d+\.\d+"  # +0.04
    rf"|\[{NUMBER}(?:,| to) {NUMBER}\]"  # [-0.15, +0.22]
    rf"|\d[\d,]* of (?:the |our |its |all )?\d[\d,]*"  # 34 of 63
    rf"|0\.\d{{2,}}(?![\d.]))"  # 0.84, but no version
)
CELL = re.compile(rf"(?!(?:19|20)\d\d$){NUMBER}(?: ?(?:to|and|or|/|,) ?{NUMBER})*(?: \(.*\))?")
NOT_MEASURED = (
    re.compile(r"<!-- ([a-z0-9_]+) -->.*?<!-- end of \1 -->", re.DOTALL),  # generated
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL),  # code
    LINK,
    re.compile(r"(?<=\])\([^)]*\)"),  # targets of other links
    re.compile(r"\b95 % (?:bootstrap |confidence )?intervals?"),
)


def measured_numbers(text: str) -> list[str]:
    """Return the measured numbers of a page that no link to the ledger has."""
    for _, code in ((match, match[0]) for match in FENCE.finditer(text)):
        text = text.replace(code, "")
    for pattern in NOT_MEASURED:
        text = pattern.sub("`x`", text)
    numbers = [match[0] for match in MEASURED.finditer(text)]
    rows = [line.strip().strip("|").split("|") for line in text.splitlines() if line.lstrip().startswith("|")]
    return numbers + [cell.strip() for row in rows for cell in row if CELL.fullmatch(cell.strip())]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("It gains 0.4 BLEU and takes 12.5 ms, 30 MB more.", ["0.4 BLEU", "12.5 ms", "30 MB"]),
        ("It is 3.3 to 4.3 times as fast.", ["3.3 to 4.3 times as"]),
        ("91 % are flagged; 34 of 63 marks are right.", ["91 %", "34 of 63"]),
        ("The gain is +0.04 [-0.15, +0.22].", ["+0.04", "[-0.15, +0.22]"]),
        ("The area under the curve is 0.84.", ["curve is 0.84"]),
        ("A measurement:\n\n| model | speed |\n|---|---|\n| small | 316 (4.3) |\n", ["316 (4.3)"]),
        ("316 sentences a second", ["316 sentences a second"]),
        # claims, code, generated sections and intervals' level
        ("[316](evidence.md#speed.en-pt) sentences a second", []),
        ("`5 s`, [`0.3 BLEU`](x.md) and\n```\n0.4 BLEU\n```\n", []),
        ("<!-- table -->\n| 0.84 |\n<!-- end of table -->", []),
        ("with 95 % intervals", []),
        # counts, sizes of models, versions and dates are not measured
        ("Two models with 6 layers, width 512 and 32,000 tokens; version 1.12.42, Python 3.10, 2026-11-29.", []),
        ("| released |\n|---|\n| 2026-10 |\n| 2026 |", []),
        # what it does not find: numbers in words, and numbers without a unit in prose
        ("Twice as fast, by a third.", []),
        ("We read 300 sentences.", []),
    ],
)
def test_measured_numbers(text, numbers):
    assert measured_numbers(text) == numbers


@pytest.mark.parametrize("page", sorted(CHECKED))
def test_measured_numbers_come_from_the_ledger(page):
    numbers = measured_numbers(CHECKED[page])
    if page.removesuffix(".md") in UNCONVERTED and numbers:
        pytest.skip(f"{page} still has {len(numbers)} numbers typed by hand")
    assert not numbers, "link them to a claim (lab/claims.jsonl), write a limit as code, or leave them out"


@pytest.mark.parametrize("page", sorted(path.relative_to(ROOT).as_posix() for path in ledger.outputs(CLAIMS)))
def test_pages_print_the_ledger(page):
    assert (ROOT / page).read_text(encoding="utf-8") == ledger.outputs(CLAIMS)[ROOT / page], "run python -m lab.claims"


@pytest.mark.parametrize("claim", [claim for claim in CLAIMS.values() if claim.derive], ids=lambda claim: claim.id)
def test_the_rows_give_the_claim(claim):
    assert not ledger.differs(claim)


@pytest.mark.parametrize("command", sorted({claim.command for claim in CLAIMS.values()}))
def test_commands_name_what_exists(command):
    parts = [shlex.split(part) for part in command.split(" && ")]
    commit = parts.pop(0)[-1] if command.startswith("git checkout ") else None
    for words in parts:
        files = [word.split("::")[0] for word in words if word.startswith(("tests/", "checkpoints/"))]
        if words[0] == "python" and words[2] != "pytest":
            module = words[2].replace(".", "/")
            files.append(next((f for f in (f"{module}.py", f"{module}/__init__.py") if (ROOT / f).exists()), module))
        else:
            assert words[0] in ("python", "capsule-mt")
        assert commit or all((ROOT / file).exists() for file in files), files


def test_commands_of_older_commits_are_run_at_that_of_the_claim():
    for claim in CLAIMS.values():
        if claim.command.startswith("git checkout "):
            assert claim.commit.startswith(claim.command.split()[2])


def test_commits_are_ancestors():
    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout

    try:
        if git("rev-parse", "--is-shallow-repository").strip() == "true":
            pytest.skip("the clone is shallow: its commits are not known")
        known = set(git("rev-list", "HEAD").split())
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git does not know this folder: {error}")
    assert not {claim.id: claim.commit for claim in CLAIMS.values() if claim.commit not in known}


def test_repository_data_are_as_recorded():
    for data in {data for claim in CLAIMS.values() for data in claim.data if data.address == "in the repository"}:
        assert repeat.digest(data.path) == data.sha256, data.path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"judge": None}, "`judge` must be a text"),
        ({"commit": "742c4557"}, "`commit` must be a text that fits"),
        ({"note": "x"}, "missing or unknown: note"),
        ({"sentence": "no value"}, "`sentence`"),
        ({"id": "unknown.id"}, "`id` must be a text"),
        ({"data": [{"path": "x"}]}, "missing or unknown: address, sha256"),
    ],
)
def test_errors_name_the_field(tmp_path, change, message):
    fields = json.loads(ledger.LEDGER.read_text(encoding="utf-8").splitlines()[0]) | change
    (tmp_path / "claims.jsonl").write_text(json.dumps(fields))
    with pytest.raises(ClaimError, match=re.escape(message)):
        ledger.read_claims(tmp_path / "claims.jsonl")


def test_links_to_unknown_claims_are_errors():
    with pytest.raises(ClaimError, match=r"page\.md: links to a claim"):
        ledger.with_texts("[1](evidence.md#speed.unknown)", CLAIMS, "page.md")


def test_light_claims_run_without_torch():
    code = "import lab.claims, lab.repeat, sys; assert not {'torch', 'transformers'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_repeat_prints_both_values(monkeypatch, capsys):
    claim = next(claim for claim in CLAIMS.values() if claim.derive)
    monkeypatch.setattr("sys.argv", ["lab.repeat", claim.id])
    repeat.main()
    out = capsys.readouterr().out
    assert f"recorded: {claim.value}" in out
    assert f"repeated: {claim.value}" in out


def test_repeat_says_which_data_are_missing(tmp_path):
    missing = ledger.Data("data/nowhere/x.txt", "https://example.org", "0" * 64)
    with pytest.raises(ClaimError, match=re.escape("is missing; put it there from https://example.org")):
        repeat.check_data(missing)
    (tmp_path / "a").write_text("a")
    assert repeat.digest("a", tmp_path) == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"

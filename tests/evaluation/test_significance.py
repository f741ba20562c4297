"""Significance: the sign test by hand and on its paper's numbers, resampling against sacreBLEU's own command."""

import json
import math
import os
import re
import shutil
import subprocess
import sys

import pytest
import sacrebleu

from hf_capsule_mt.evaluation import comparison_page
from hf_capsule_mt.evaluation.comet import Comet
from hf_capsule_mt.evaluation.comparison import as_markdown, as_text, build_report
from hf_capsule_mt.evaluation.comparison_page import SentenceCoverage, as_html
from hf_capsule_mt.evaluation.significance import (
    binomial_two_sided,
    compare_systems,
    confidence_interval,
    sentence_scores,
    sign_test_collins,
)

REFERENCE = [f"the {thing} is on the small table in room {n}" for n, thing in enumerate(["cat", "dog", "cup"] * 8)]
BASELINE = [line.replace("small", "little") if n % 2 else line for n, line in enumerate(REFERENCE)]
SYSTEM = [line.replace("on the", "upon a") if n % 12 == 0 else line for n, line in enumerate(REFERENCE)]


def test_binomial_by_hand():
    assert binomial_two_sided(8, 2) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert binomial_two_sided(2, 8) == pytest.approx(2 * (1 + 10 + 45) / 1024)
    assert binomial_two_sided(5, 0) == pytest.approx(2 / 32)
    assert binomial_two_sided(3, 3) == 1.0
    assert binomial_two_sided(0, 0) == 1.0
    with pytest.raises(ValueError, match="must not be negative"):
        binomial_two_sided(-1, 2)


def test_binomial_on_the_numbers_of_collins_et_al():
    """Their Section 5: of 2000 sentences 52.85 % improved and 36.4 % got worse, significant at p <= 0.01."""
    p_value = binomial_two_sided(1057, 728)
    assert p_value <= 0.01
    # the normal approximation, which is good for so many
    z = (1057 - 728 - 1) / math.sqrt(1057 + 728)
    assert p_value == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.02)


def test_sign_test_counts_what_one_sentence_does_to_the_corpus():
    # the odd sentences of the baseline have one wrong word, numbers 0 and 12 of the system have two: 12 against 2
    test = sign_test_collins(SYSTEM, BASELINE, [REFERENCE])
    assert (test.wins, test.losses, test.ties) == (12, 2, 10)
    assert test.p_value == pytest.approx(2 * (1 + 14 + 91) / 2**14)
    # done the slow way, with whole corpora
    before = sacrebleu.corpus_bleu(BASELINE, [REFERENCE]).score
    after = [
        sacrebleu.corpus_bleu([*BASELINE[:n], SYSTEM[n], *BASELINE[n + 1 :]], [REFERENCE]).score
        for n in range(len(BASELINE))
    ]
    assert (sum(score > before for score in after), sum(score < before for score in after)) == (12, 2)


def test_sign_test_of_a_metric_of_which_less_is_better():
    test = sign_test_collins(SYSTEM, BASELINE, [REFERENCE], "ter")
    assert (test.wins, test.losses, test.ties) == (12, 2, 10)
    assert sign_test_collins(BASELINE, BASELINE, [REFERENCE]).p_value == 1.0


@pytest.mark.parametrize(("option", "attribute"), [("--paired-bs", "p_bootstrap"), ("--paired-ar", "p_randomisation")])
def test_p_values_are_those_of_the_command_sacrebleu(tmp_path, option, attribute):
    for name, lines in (("reference", REFERENCE), ("baseline", BASELINE), ("system", SYSTEM)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "baseline", "system", option, "--format", "json"]
    done = subprocess.run(
        [*command, "--paired-bs-n", "300", "--paired-ar-n", "300"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = json.loads(done.stdout)[1]["BLEU"]
    row = compare_systems({"a": BASELINE, "b": SYSTEM}, [REFERENCE], ["bleu"], 300, 300)["b"]["bleu"]
    assert getattr(row, attribute) == pytest.approx(expected["p_value"], abs=1e-4)
    assert row.score == pytest.approx(expected["score"], abs=0.01)
    if option == "--paired-bs":
        assert row.confidence == pytest.approx(expected["ci"], abs=0.01)


def test_a_system_is_not_better_than_itself():
    row = compare_systems({"a": BASELINE, "b": BASELINE}, [REFERENCE], ["bleu"], 100, 100)["b"]["bleu"]
    assert row.difference == 0
    assert (row.p_bootstrap, row.p_randomisation, row.sign_test.p_value) == (1, 1, 1)
    with pytest.raises(ValueError, match="needs a baseline and at least one more"):
        compare_systems({"a": BASELINE}, [REFERENCE])


def test_confidence_interval_holds_the_score():
    mean, width = confidence_interval(BASELINE, [REFERENCE], samples=200)
    score = sacrebleu.corpus_bleu(BASELINE, [REFERENCE]).score
    assert 0 < width < 20
    assert abs(mean - score) < width


def test_sentence_scores():
    scores = sentence_scores(SYSTEM, [REFERENCE], "bleu")
    assert scores[1] == pytest.approx(100)
    assert scores[0] == pytest.approx(sacrebleu.sentence_bleu(SYSTEM[0], [REFERENCE[0]]).score)


def test_report_in_three_forms():
    sources = [f"<Quelle> {n} | *" for n in range(len(REFERENCE))]
    report = build_report({"plain": BASELINE, "em": SYSTEM}, [REFERENCE], sources, ["bleu", "ter"], 20, 100, 100)
    most = report.differences["em"]
    # the even sentences, that the baseline gets wrong, and two that the system does; no sentence that is the same
    assert {item.number for item in most} == {*range(2, 25, 2), 1, 13}
    assert {item.number for item in most if item.gain < 0} == {1, 13}
    gains = [abs(item.gain) for item in most]
    assert gains == sorted(gains, reverse=True)
    text, markdown, page = as_text(report), as_markdown(report), as_html(report)
    for form in (text, markdown, page):
        assert "12/10/2" in form
        assert "upon a" in form
    assert "<Quelle> 0 | *" in text
    assert r"\<Quelle\> 0 \| \*" in markdown
    assert "&lt;Quelle&gt; 0 | *" in page
    assert "<Quelle>" not in page
    table = [line for line in markdown.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table} == {10}
    assert len(table) == 2 + 2 + 2
    json.dumps(report.as_dict())


@pytest.mark.parametrize(("system", "most_different"), [(SYSTEM, 0), (BASELINE, 5)])
def test_no_heading_without_sentences(system, most_different):
    report = build_report({"plain": BASELINE, "em": system}, [REFERENCE], None, ["bleu"], most_different, 20, 100)
    for form in (as_text(report), as_markdown(report), as_html(report)):
        assert "plain" in form
        assert "differ most" not in form


# ---- the page
def page_of(systems, sources=None, coverage=None):
    return as_html(build_report(systems, [REFERENCE], sources, ["bleu"], 1, 20, 100), coverage)


def test_the_page_has_a_dot_and_a_row_for_each_sentence_that_differs():
    sources = ["<i>x</i> " * (n % 3 + 1) for n in range(len(REFERENCE))]
    coverage = [SentenceCoverage(None if n == 0 else n / 100, "<i>x" * (n == 1)) for n in range(len(REFERENCE))]
    page = page_of({"plain": BASELINE, "em": SYSTEM}, sources, {"em": coverage})
    numbers = sorted([*range(2, 25, 2), 1, 13])
    assert sorted(map(int, re.findall(r'<tr id="s0-(\d+)"', page))) == numbers
    assert sorted(map(int, re.findall(r'<a href="#s0-(\d+)"', page))) == numbers
    assert page.index("<svg") < page.index("<table")
    rows = {int(n): data for n, data in re.findall(r'<tr id="s0-(\d+)"([^>]*)>', page)}
    assert 'data-words="2"' in rows[2]
    assert 'data-coverage0="0.01"' in rows[2]
    assert "data-coverage0" not in rows[1]  # so that no bound on the coverage lets it through
    gains = {int(n): float(gain) for n, gain in re.findall(r'<tr id="s0-(\d+)"[^>]*data-bleu="([^"]*)"', page)}
    assert {n for n, gain in gains.items() if gain < 0} == {1, 13}
    assert "14 of 24 sentences differ: 12 better by chrF, 2 worse." in page
    assert "<mark>little</mark>" in page
    assert "<mark>small</mark>" in page
    assert "<i>" not in page
    assert "left out by em" in page


def test_the_page_loads_nothing():
    page = page_of({"plain": BASELINE, "em": SYSTEM, "same": BASELINE})
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|\bsrc=|url\(|@import|<link", page)
    assert "prefers-color-scheme:dark" in page
    assert page.count("<svg") == page.count("<form") == 1  # none for a system without differences
    assert "reference words" in page


def test_the_page_keeps_to_the_sentences_that_differ_most(monkeypatch):
    monkeypatch.setattr(comparison_page, "MOST_SENTENCES", 3)
    page = page_of({"plain": BASELINE, "em": SYSTEM})
    assert page.count("<tr id=") == page.count("<circle") == 3
    assert "The page has the 3 whose chrF differs most." in page


def test_the_page_of_texts_without_spaces_marks_signs():
    report = build_report({"a": ["你好世界"], "b": ["你好地界"]}, [["你好地界"]], None, ["chrf"], 1, 20, 20)
    assert "你好<mark>世</mark>界" in as_html(report)
    assert "你好<mark>地</mark>界" in as_html(report)


@pytest.mark.slow
def test_the_filters_in_a_browser(tmp_path):
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium here; CHROMIUM names one")
    page = page_of({"plain": BASELINE, "em": SYSTEM})
    typed = "<script>const bound=document.querySelector('input[data-field=chrf][name=most]');bound.value='0';"
    typed += "bound.form.dispatchEvent(new Event('input'))</script></body>"
    (tmp_path / "page.html").write_text(page.replace("</body>", typed))
    command = [
        chromium,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        (tmp_path / "page.html").as_uri(),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    rows = {int(n): data for n, data in re.findall(r'<tr id="s0-(\d+)"([^>]*)>', shown)}
    assert len(rows) == 14
    assert {n for n, data in rows.items() if "hidden" not in data} == {1, 13}
    assert len(re.findall(r'class="\w+ out"', shown)) == 12
    assert "<form hidden" not in shown


# ---- COMET
STUB = """
import json, sys
words = sys.argv[1:]
if "broken.ckpt" in words[words.index("--model") + 1]:
    sys.exit("no such tokenizer")
read = {option: open(words[words.index(option) + 1]).read().splitlines() for option in ("-s", "-t", "-r")}
rows = [{"COMET": (t == r) / 2 + s.startswith("x") / 4} for s, t, r in zip(*read.values(), strict=True)]
json.dump({"lines-t": rows}, open(words[words.index("--to_json") + 1], "w"))
open(sys.argv[0] + ".calls", "a").write("called\\n")
print("noise on stdout")
"""


@pytest.fixture
def comet_program(tmp_path, monkeypatch):
    """Put a program on the PATH that takes the arguments of `comet-score`; it counts its calls."""
    program = tmp_path / "bin" / "comet-score"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}{STUB}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    return program


@pytest.mark.skipif(sys.platform == "win32", reason="the stub begins with the name of its interpreter")
def test_comet_scores_and_compares_by_the_program(comet_program, capfd):
    sources = [f"{'x' if n % 2 else 'y'} {n}\rz" for n in range(len(REFERENCE))]
    comet = Comet("owner/model", sources)
    score = comet.score(BASELINE, [REFERENCE])
    assert score.score == pytest.approx(100 * (0.5 / 2 + 0.25 / 2))  # half of the lines are right, half begin with x
    assert score.text == "COMET = 37.50"
    assert score.signature == "nrefs:1|model:owner/model|scale:100|version:unbabel-comet unknown"
    report = build_report({"plain": BASELINE, "em": SYSTEM}, [REFERENCE], sources, ["chrf++", comet], 1, 50, 50)
    row = report.comparisons["em"]["comet"]
    assert (row.sign_test.wins, row.sign_test.losses) == (12, 2)
    assert row.difference == pytest.approx(100 * 0.5 * 10 / 24)
    assert row.p_bootstrap < 0.05
    assert report.baseline_scores["comet"][1] > 0
    assert "model:owner/model" in as_text(report)
    assert comet_program.with_suffix(".calls").read_text() == "called\n" * 2  # once for each system
    assert "noise" not in capfd.readouterr().out


def test_comet_says_what_it_needs(comet_program, tmp_path, monkeypatch):
    for path in ("one/checkpoints/model.ckpt", "two/broken.ckpt", "two/notes.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert Comet(str(tmp_path / "one"), ["a"]).checkpoint == str(tmp_path / "one" / "checkpoints" / "model.ckpt")
    for wrong in (tmp_path / "two", tmp_path / "two" / "notes.txt", tmp_path / "none.ckpt", "none.ckpt", "a/b.ckpt"):
        with pytest.raises(ValueError, match=r"\.ckpt file"):
            Comet(str(wrong), ["a"])
    with pytest.raises(ValueError, match="one set of references, got 2"):
        Comet("owner/model", ["a"]).score(["b"], [["c"], ["d"]])
    with pytest.raises(ValueError, match="must have a line for each of the 1 hypotheses, got 2"):
        Comet("owner/model", ["a", "b"]).score(["b"], [["c"]])
    if sys.platform != "win32":
        with pytest.raises(ValueError, match=r"broken\.ckpt failed, code 1: see above"):
            Comet(str(tmp_path / "two" / "broken.ckpt"), ["a"]).score(["b"], [["c"]])
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImportError, match="comet/bin/pip install unbabel-comet"):
        Comet("owner/model", ["a"])

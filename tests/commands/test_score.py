"""`capsule-mt score`: scores of given pairs from files and pipes, failures, and runs that are taken up again."""

import io
import json
from types import SimpleNamespace

import pytest
from hf_capsule_mt.pipelines.translator import languages_of_task

from capsule_mt.text.windows import WindowedOutput
from hf_capsule_mt import Translator
from hf_capsule_mt.commands import score
from tests.fixtures.word_for_word import sentences

SOURCES = [*sentences(5, seed=5), ""]


@pytest.fixture
def translator(word_for_word):
    return Translator.from_pretrained(word_for_word, backend="transformers")


@pytest.fixture
def run(word_for_word, translator, monkeypatch, capfdbinary, tmp_path):
    """Score the translations of the model itself; return the exit code, what was printed and the complaints."""
    pairs = [(source, translator(source).text) for source in SOURCES]
    for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))

    def scored(*arguments, text=None):
        if text is None:
            text = "".join(f"{source}\t{target}\n" for source, target in pairs).encode()
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))
        monkeypatch.setattr("sys.argv", ["capsule-mt", str(word_for_word), "--cpu", *map(str, arguments)])
        code = score.main()
        printed, complaints = capfdbinary.readouterr()
        return code, [line.split("\t") for line in printed.decode().split("\n")[:-1]], complaints.decode()

    monkeypatch.chdir(tmp_path)
    return scored


FILES = ("--sources", "source", "--translations", "target")


def test_files_and_pipes(run, translator, tmp_path):
    code, rows, _ = run()
    own = [translator(source).score for source in SOURCES]
    assert code == 0
    assert [row[0] for row in rows] == [str(number) for number in range(6)]
    assert [float(row[1]) for row in rows[:-1]] == pytest.approx(own[:-1], abs=1e-4)
    assert rows[-1] == ["5", "", "0"]
    assert run(*FILES)[1] == rows
    assert run(*FILES, "--window", 2, "--batch-tokens", 1)[1] == rows
    _, covered, _ = run(*FILES, "--coverage")
    assert [row[:3] for row in covered] == rows
    assert {len(row) for row in covered} == {6}
    run(*FILES, "--coverage", "guided", "--output", "scores.jsonl")
    records = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [f"{record['coverage']['score']:.4f}" for record in records] == [row[3] for row in covered]
    assert [record["tokens"] for record in records] == [int(row[2]) for row in rows]
    assert records[-1]["score"] is None


@pytest.mark.parametrize("arguments", [(), ("--input", "nothing", "--output", "scores.tsv")])
def test_no_pairs_are_an_error(run, tmp_path, arguments):
    (tmp_path / "nothing").write_text("")
    with pytest.raises(ValueError, match=f"^{arguments[1] if arguments else 'stdin'}: no pairs to score"):
        run(*arguments, text=b"")
    assert not (tmp_path / "scores.tsv").exists()


def test_a_pair_that_fails_costs_no_other(run, monkeypatch, tmp_path):
    rows, good = run()[1], Translator.score

    def bad(self, sources, *arguments, **settings):
        if SOURCES[2] in sources:
            raise ValueError("no")
        return good(self, sources, *arguments, **settings)

    monkeypatch.setattr(Translator, "score", bad)
    code, found, complaints = run("--window", 4)
    assert (code, found) == (3, [*rows[:2], ["2", "", ""], *rows[3:]])
    assert complaints.count("pair 3: ValueError: no") == 1
    run(*FILES, "--output", "scores.jsonl")
    assert json.loads((tmp_path / "scores.jsonl").read_text().splitlines()[2]) == {
        "line": 2,
        "error": "ValueError: no",
    }
    with pytest.raises(ValueError, match="pair 3: ValueError: no"):
        run(*FILES, "--output", "strict.tsv", "--strict")


def test_an_interrupted_run_resumes(run, monkeypatch, tmp_path):
    def stop(self):
        raise KeyboardInterrupt

    rows = run()[1]
    arguments = (*FILES, "--output", "scores.tsv", "--window", 2)
    with monkeypatch.context() as patched:
        patched.setattr(WindowedOutput, "finish", stop)
        with pytest.raises(KeyboardInterrupt):
            run(*arguments)
    with pytest.raises(ValueError, match=r"\(coverage: None then, 'auto' now\); `--restart` discards it"):
        run(*arguments, "--coverage")
    with monkeypatch.context() as patched:
        patched.delattr(Translator, "score")  # everything is there
        run(*arguments)
    assert [line.split("\t") for line in (tmp_path / "scores.tsv").read_text().splitlines()] == rows


def test_languages(run, monkeypatch):
    tasks, load = [], Translator.from_pretrained
    monkeypatch.setattr(Translator, "from_pretrained", lambda *a, task, **b: tasks.append(task) or load(*a, **b))
    assert run("--src-lang", "eng_Latn", "--tgt-lang", "deu_Latn")[0] == 0
    assert languages_of_task(*tasks) == ("eng_Latn", "deu_Latn")
    with pytest.raises(ValueError, match="--src-lang and --tgt-lang belong together, got None and de"):
        run("--tgt-lang", "de")

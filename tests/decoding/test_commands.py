"""`capsule-mt translate` and `score` where transformers decodes."""

import pytest

from capsule_mt.commands import score, translate
from capsule_mt.models.shortlist import Shortlist
from hf_capsule_mt import Translator
from tests.fixtures.word_for_word import sentences

LINES = sentences(5, seed=5)


@pytest.fixture
def run(monkeypatch, call, tmp_path):
    def ran(command, *arguments, lines=LINES):
        code, printed, _ = call(command, *arguments, "--cpu", text="".join(f"{line}\n" for line in lines))
        assert code == 0
        return printed.splitlines()

    monkeypatch.chdir(tmp_path)
    return ran


def test_translations_by_transformers_and_of_an_ensemble(run, word_for_word):
    expected = run(translate, word_for_word)
    assert run(translate, word_for_word, "--backend", "transformers") == expected
    assert run(translate, word_for_word, word_for_word, "--dtype", "float32") == expected
    assert len(run(translate, word_for_word, "--backend", "transformers", "--dtype", "bfloat16")) == 5


def test_scores_by_transformers(run, word_for_word):
    pairs = [
        f"{line}\t{translation.text}"
        for line, translation in zip(LINES, Translator.from_pretrained(word_for_word)(LINES), strict=True)
    ]
    by_engine, by_transformers = (
        [line.split("\t") for line in run(score, word_for_word, "--coverage", *backend, lines=pairs)]
        for backend in ((), ("--backend", "transformers"))
    )
    for by_engine_line, by_generate in zip(by_engine, by_transformers, strict=True):
        assert [by_engine_line[0], by_engine_line[2], *by_engine_line[4:]] == [
            by_generate[0],
            by_generate[2],
            *by_generate[4:],
        ]
        assert [float(by_engine_line[1]), float(by_engine_line[3])] == pytest.approx(
            [float(by_generate[1]), float(by_generate[3])], abs=2e-4
        )


def test_what_the_engine_alone_does_is_refused(run, word_for_word, tmp_path):
    Shortlist.of_translations({}, range(43), (43, 43)).save(tmp_path / "list")
    for option, named in ((("--int8",), "`int8=True`"), (("--shortlist", "list"), "`shortlist`")):
        with pytest.raises(ValueError, match=f"{named} is for one float32 model on a CPU"):
            run(translate, word_for_word, "--backend", "transformers", *option)
    with pytest.raises(ValueError, match="--backend native does not support an ensemble of 2 models"):
        run(translate, word_for_word, word_for_word, "--backend", "native")

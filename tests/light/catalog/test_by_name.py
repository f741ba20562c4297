"""Names where a folder can be: `Translator`, the commands, and two models one after the other."""

import argparse
import json
import shutil
from pathlib import Path

import pytest

from capsule_mt import CoverageOptions, Encoder, Judge, PivotTranslator, Translator, UnsupportedModelError, load
from capsule_mt.catalog.entries import FACTS_FILE, CatalogError, DownloadError, cache_folder
from capsule_mt.commands import calibrate, console, convert, models, score, serve, translate
from capsule_mt.coverage.calibration import calibrating
from capsule_mt.models import loading, probing
from capsule_mt.serve.batching import Batcher, RequestSettings
from capsule_mt.translate.plan import DEFAULT_COVERAGE_WEIGHT
from tests.fixtures.word_for_word import SOURCE, TARGET, TRANSLATION, sentences
from tests.light.judge.encoders import write_encoder

TEXTS = sentences(40, seed=8)
FIELD = "`coverage_calibration`"
# the words between the two models, not in capitals, which the second would read in lowercase; and what it writes
MIDDLE = [word.lower() for word in TARGET]
LAST = [f"{word}x" for word in MIDDLE]


@pytest.fixture
def keep(registry, word_for_word):
    """Keep the model of word_for_word under a name, as if it had been downloaded, with other words."""

    def under(name, source=SOURCE, target=TARGET):
        folder = cache_folder() / "mozilla" / name
        shutil.copytree(word_for_word, folder)
        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        new = dict(zip([*SOURCE, *TARGET], [*source, *target], strict=True))
        content = json.loads(text)
        content["model"]["vocab"] = {new.get(word, word): n for word, n in content["model"]["vocab"].items()}
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
        facts = {"name": name, "licence": "MPL-2.0", "author": "Mozilla", "page": "https://example.org"}
        (folder / FACTS_FILE).write_text(json.dumps(facts))
        return folder

    return under


@pytest.fixture
def both(keep):
    """Both models of de-pt, each loaded alone."""
    return [
        Translator.from_pretrained(keep("de-en", SOURCE, MIDDLE)),
        Translator.from_pretrained(keep("en-pt", MIDDLE, LAST)),
    ]


# ---- through English
def test_one_model_after_the_other(both):
    first, second = both
    translator = load("de-pt")
    assert isinstance(translator, PivotTranslator)
    with pytest.raises(ValueError, match=r"de-pt goes .* de-en and en-pt: `capsule_mt.load` loads both"):
        Translator.from_pretrained("de-pt")
    assert isinstance(load("de-en"), Translator)
    texts = [*TEXTS, "\n".join(TEXTS[:3])]
    for text, translation in zip(texts, translator(texts, batch_size=8), strict=True):
        middle = first(text)
        end = second(middle.text)
        assert translation.text == end.text
        tokens = [len(step.token_ids) - len(step.segments) for step in (middle, end)]  # start tokens have no score
        mean = (middle.score * tokens[0] + end.score * tokens[1]) / sum(tokens)
        assert translation.score == pytest.approx(mean, rel=1e-5)
        assert [(step.start, step.end) for step in translation.segments] == [
            (step.start, step.end) for step in middle.segments
        ]
    assert translator("") == second("")
    several = translator(TEXTS[0], num_beams=3, num_return_sequences=2)
    assert [step.text for step in several] == [
        step.text for step in second(first(TEXTS[0], num_beams=3).text, num_beams=3, num_return_sequences=2)
    ]


def test_what_either_leaves_out_is_left_out(both):
    first, second = both
    translator, options = load("de-pt"), CoverageOptions(method="deletion")
    texts = sentences(60, seed=9)
    translations = translator(texts, coverage=options, split_sentences=False)
    middles = [first(text, coverage=options, split_sentences=False) for text in texts]
    ends = [second(middle.text, coverage=options, split_sentences=False) for middle in middles]
    english, in_second = dict(zip(MIDDLE, SOURCE, strict=True)), 0
    for translation, middle, end in zip(translations, middles, ends, strict=True):
        lost = {english[word.text] for word in end.coverage.untranslated}
        in_second += len(lost)
        by_first = {word.text for word in middle.coverage.untranslated}
        assert {word.text for word in translation.coverage.untranslated} == by_first | lost
        assert [word.text for word in translation.coverage.words] == [word.text for word in middle.coverage.words]
        assert translation.coverage.score == pytest.approx(middle.coverage.score * end.coverage.score)
        assert [one.score for one in translation.coverage.sentences] == pytest.approx([translation.coverage.score])
    assert in_second > 5


def count_loads(monkeypatch):
    """Return a list that gets the folder of every model that is loaded from now on."""
    folders, load_model = [], loading.load_model

    def counted(folder, **options):
        folders.append(folder)
        return load_model(folder, **options)

    monkeypatch.setattr(loading, "load_model", counted)
    return folders


def test_pairs_share_the_models_that_they_go_through(both, keep, monkeypatch):
    keep("en-fr", MIDDLE, LAST)
    folders, loaded = count_loads(monkeypatch), {}
    through_pt, through_fr, first = (load(name, loaded=loaded) for name in ("de-pt", "de-fr", "de-en"))
    assert through_pt.first is through_fr.first is first
    assert [Path(folder).name for folder in folders] == ["de-en", "en-pt", "en-fr"]
    assert through_fr(TEXTS[:5]) == load("de-fr")(TEXTS[:5])
    terms = {SOURCE[0]: MIDDLE[0]}
    assert load("de-en", loaded=loaded, glossary=terms) is not first
    assert first.glossary is None


def test_the_server_loads_each_model_once(both, keep, call, monkeypatch):
    keep("en-fr", MIDDLE, LAST)
    folders = count_loads(monkeypatch)
    _, printed, _ = call(serve, "--check", "--port", "0", "de-pt", "de-fr", "de-en", "en-pt")
    assert [line.partition(":")[0] for line in printed.splitlines()][:4] == ["de-pt", "de-fr", "de-en", "en-pt"]
    assert [Path(folder).name for folder in folders] == ["de-en", "en-pt", "en-fr"]


def test_what_needs_one_model_is_refused(both):
    with pytest.raises(TypeError, match=r"`second` must be a `Translator`, got 'en-pt' \(str\)"):
        PivotTranslator(both[0], "en-pt")
    translator = PivotTranslator(*both)
    support = {"coverage": CoverageOptions(support=True)}
    for name, options in (("alignment", {"alignment": True}), ("support", support)):
        with pytest.raises(ValueError, match=f"`{name}` needs one model, but this pair goes through English with two"):
            translator(TEXTS[0], **options)
    for name, value in (("reverse", both[0]), ("glossary", {"ba": "be"})):
        with pytest.raises(ValueError, match=f"`{name}` needs one model, but de-pt goes through English with two"):
            load("de-pt", **{name: value})
    with pytest.raises(ValueError, match="`glossary` needs one model, but this pair goes through English with two"):
        translator.glossary = {"ba": "be"}
    assert not any(hasattr(translator, name) for name in ("score", "cover", "reverse", "from_pretrained"))


def test_scoring_by_two_models_is_refused(both, call, tmp_path):
    (tmp_path / "in").write_text(f"{TEXTS[0]}\n")
    arguments = ("--sources", tmp_path / "in", "--translations", tmp_path / "in")
    with pytest.raises(
        ValueError, match="a given translation needs one model, but this pair goes through English with"
    ):
        call(score, "de-pt", *arguments)


def test_the_alarm_of_both(both):
    first, second = both
    translator = PivotTranslator(first, second)
    curves = {"words": [[0.0, 0.0], [1.0, 1.0]], "sentences": [[0.0, 0.0], [1.0, 1.0]]}
    for first_alarm, second_alarm, expected in ((0.9, 0.8, 0.8), (0.7, 0.8, 0.7), (None, 0.8, None)):
        for leg, alarm in ((first, first_alarm), (second, second_alarm)):
            values = {"score": alarm, "flagged": 0.01, "caught": {}}
            leg.set_calibration({} if alarm is None else {"deletion": {**curves, "alarm": values}})
        coverage = translator("\n".join(TEXTS[:3]), coverage=CoverageOptions(method="deletion")).coverage
        assert coverage.threshold == expected
    assert translator(TEXTS[0], coverage=CoverageOptions(threshold=0.5)).coverage.threshold == 0.5


def test_sentences_that_the_first_model_does_not_know(both):
    first, translator = both[0], load("de-pt")
    text = f"{TEXTS[0]}\n\nOne two three.\n\n{TEXTS[1]}"
    translation, by_first = (model(text, coverage=CoverageOptions()) for model in (translator, first))
    assert "One two three." in translation.text
    foreign = [word for word in by_first.coverage.words if word.text in ("One", "two", "three")]
    assert [word for word in translation.coverage.words if word.text in ("One", "two", "three")] == foreign
    assert not any(word.marked for word in foreign)  # they are copied
    assert len(translation.coverage.sentences) == 3
    (copied,) = [
        model for model in translation.coverage.sentences if text[model.start : model.end] == "One two three."
    ]
    assert copied.score == 1.0
    assert translation.unknown == by_first.unknown > 0


def test_the_server_batches_sentences_through_english(both):
    translator = load("de-pt")
    texts = [f"{first}\n\n{second}" for first, second in zip(TEXTS[::2], TEXTS[1::2], strict=True)]
    batcher = Batcher(translator, max_batch=4)
    try:
        results = batcher.submit(["", *texts], RequestSettings(coverage=True, search=(("num_beams", 2),))).results
        translations = [result.result(timeout=120)[0] for result in results]
        options = {"num_beams": 2, "coverage": CoverageOptions(weight=DEFAULT_COVERAGE_WEIGHT), "scores": False}
        assert translations == [translator(text, **options) for text in ["", *texts]]
    finally:
        assert batcher.close()


# ---- commands
def test_translating_by_name(both, call, tmp_path):
    (tmp_path / "in").write_text("".join(f"{text}\n" for text in TEXTS))
    arguments = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--coverage", tmp_path / "out.tsv")
    for name in ("de-en", "de-pt"):
        assert call(translate, name, *arguments, "--restart")[0] == 0
        expected = [translation.text for translation in load(name)(TEXTS)]
        assert (tmp_path / "out").read_text().splitlines() == expected
    with pytest.raises(CatalogError, match="similar names: "):
        call(translate, "en-pr", *arguments)
    (tmp_path / "terms").write_text(f"{SOURCE[0]}\t{LAST[3]}\n")
    with pytest.raises(ValueError, match="`glossary` needs one model, but this pair goes through English with two"):
        call(translate, "de-pt", *arguments, "--restart", "--glossary", tmp_path / "terms")
    for further in (["en-pt"], ["--backend", "transformers"]):
        with pytest.raises(ValueError, match="de-en is a model for the engine alone, which does not support "):
            call(translate, "de-en", *further, *arguments)


def test_calibrating_by_name(keep, call, monkeypatch, tmp_path):
    """What is fitted stays with the model in the cache, and finds the other direction there."""
    keep("en-pt")
    keep("pt-en", TARGET, SOURCE)
    texts = sentences(60, seed=5)
    (tmp_path / "en").write_text("".join(f"{text}\n" for text in texts))
    (tmp_path / "pt").write_text(
        "".join(" ".join(TRANSLATION[word] for word in text.split()) + "\n" for text in texts)
    )
    monkeypatch.setattr(calibrating, "MIN_AREA", 0.0)
    options = ("--method", "attention", "verified", "--sentences", "6")
    call(calibrate, "pt-en", tmp_path / "pt", *options[:2], *options[3:])  # its own translations are the references
    _, printed, _ = call(calibrate, "en-pt", tmp_path / "en", tmp_path / "pt", "--reverse", "pt-en", *options)
    assert printed.splitlines()[-1] == f"{cache_folder() / 'mozilla' / 'en-pt' / 'config.json'}: {FIELD}"
    translator = Translator.from_pretrained("en-pt")
    assert translator.has_reverse
    assert set(translator.loaded.calibration) >= {"attention", "verified", "support"}
    by_default, verified = (CoverageOptions(method=method, support=True) for method in ("auto", "verified"))
    assert translator(TEXTS[0], coverage=by_default) == translator(TEXTS[0], coverage=verified)
    call(models, "remove", "pt-en")
    assert not Translator.from_pretrained("en-pt").has_reverse
    keep("de-en")
    with pytest.raises(ValueError, match="de-pt goes through English by two models: calibrate each of them"):
        call(calibrate, "de-pt", tmp_path / "en", tmp_path / "pt")


def test_calibrating_again_without_naming_the_reverse(keep, call, monkeypatch, tmp_path):
    """All that the model supports is fitted and saved; `verified` by the reverse that the calibration names."""
    keep("en-pt")
    keep("pt-en", TARGET, SOURCE)
    texts = sentences(60, seed=5)
    (tmp_path / "en").write_text("".join(f"{text}\n" for text in texts))
    arguments = ("en-pt", tmp_path / "en", "--sentences", "6")

    def methods_calibrated():
        return {"attention", "verified", "deletion"} & set(Translator.from_pretrained("en-pt").loaded.calibration)

    monkeypatch.setattr(calibrating, "MIN_AREA", 2.0)  # no head can be good enough
    printed = call(calibrate, *arguments, "--reverse", "pt-en")[1]
    assert "verified: not calibrated, as it needs the head of attention\n" in printed
    assert methods_calibrated() == {"deletion"}
    monkeypatch.setattr(calibrating, "MIN_AREA", 0.0)
    call(calibrate, *arguments, "--reverse", "pt-en")
    printed = call(calibrate, *arguments)[1]
    assert f"verified: by {cache_folder() / 'mozilla' / 'pt-en'}, the model that the calibration names\n" in printed
    assert Translator.from_pretrained("en-pt").calibration.reverse == "pt-en"
    assert methods_calibrated() == {"attention", "verified", "deletion"}
    call(models, "remove", "pt-en")
    printed = call(calibrate, *arguments)[1]
    assert "verified: not calibrated, as it needs a reverse model: name it by `--reverse MODEL`\n" in printed
    assert printed.splitlines()[-1].endswith(FIELD)
    monkeypatch.setattr(calibrating, "examples_of", None)  # refused before any work
    with pytest.raises(ValueError, match=r"^--method verified needs a reverse model.*`--reverse MODEL`"):
        call(calibrate, *arguments, "--method", "attention", "verified")


def test_an_encoder_by_its_name(hub, monkeypatch, tmp_path):
    name, folder = "intfloat/multilingual-e5-small", write_encoder(tmp_path / "encoder")
    hub.add_folder(name, folder)
    encoder = Encoder.from_pretrained(name)
    vectors = encoder.encode(["bal den", "fir"])
    assert vectors == Encoder.from_pretrained(folder).encode(["bal den", "fir"])
    facts = json.loads((cache_folder() / "hugging_face" / name / FACTS_FILE).read_text())
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(facts["files"])
    assert facts["checked"]["translations"] == {}
    num_requests = len(hub.log)
    monkeypatch.setattr(probing, "probe", None)  # it was loaded in a process of its own before
    assert Encoder.from_pretrained(name).encode(["bal den", "fir"]) == vectors
    assert len(hub.log) == num_requests
    with pytest.raises(UnsupportedModelError, match="has too few layers; a judge needs intfloat/"):
        Judge.from_pretrained()
    with pytest.raises(UnsupportedModelError, match="'bert' encodes text and does not translate"):
        Translator.from_pretrained(cache_folder() / "hugging_face" / name)


def test_an_encoder_that_pools_otherwise_says_so_after_a_download(hub, tmp_path):
    hub.add_folder("someone/cls", write_encoder(tmp_path / "encoder"))
    repository = hub.repositories["someone/cls"]
    repository.files |= {"modules.json": b"[]", "1_Pooling/config.json": b'{"pooling_mode_mean_tokens": false}'}
    repository.commit()
    encoder = Encoder.from_pretrained("someone/cls")
    assert len(encoder.hidden_states(["bal"])) == 1
    with pytest.raises(UnsupportedModelError, match="does not represent a text by the mean"):
        encoder.encode(["bal"])


def test_a_folder_that_is_mistyped_is_not_looked_for_on_the_hub(hub, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(CatalogError, match=r"checkpoints/nope: no such folder; not looked up on the hub, as"):
        Translator.from_pretrained("checkpoints/nope")
    (tmp_path / "checkpoints" / "en-de-small").mkdir()
    near = r": no such folder \(did you mean `checkpoints/en-de-small`\?\)"
    with pytest.raises(CatalogError, match=f"checkpoints/en-de-smal{near}; not looked up"):
        Translator.from_pretrained("checkpoints/en-de-smal")
    assert hub.log == []
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with pytest.raises(CatalogError, match=f"chekpoints/en-de-small{near}, and http.* has no public model"):
        Translator.from_pretrained("chekpoints/en-de-small")
    hub.stop()
    with pytest.raises(DownloadError, match=f"^chekpoints/en-de-small{near}; http.* cannot be reached"):
        Translator.from_pretrained("chekpoints/en-de-small")
    monkeypatch.setattr(hub, "stop", lambda: None)
    with pytest.raises(argparse.ArgumentTypeError, match=f"^checkpoints/en-de_small{near}$"):
        console.folder("checkpoints/en-de_small")


@pytest.mark.parametrize(
    ("name", "offline", "error"),
    [
        ("nowhere", "0", "nowhere: no such folder, and not the name of a model: name a pair"),
        ("org/model", "0", "cannot be reached"),
        ("org/model", "1", "org/model: no such folder, and not a downloaded model"),
    ],
)
def test_without_a_network_a_wrong_name_is_told_at_once(call, monkeypatch, name, offline, error):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HUB_OFFLINE", offline)
    with pytest.raises((CatalogError, DownloadError), match=error):
        call(translate, name)


def test_the_command_models(call, registry, hub, word_for_word, monkeypatch):
    hub.add_folder("Helsinki-NLP/opus-mt-en-pt", word_for_word)
    repository = hub.repositories["Helsinki-NLP/opus-mt-en-pt"]
    repository.files["README.md"] = b"---\nlicense: apache-2.0\n---\n"
    repository.commit()
    assert "no models in" in call(models)[1]

    def search(*words):
        return [line.split() for line in call(models, "search", *words)[1].splitlines()[1:]]

    assert " ".join(search()[0]) == "en-pt English to Portuguese 0.2 MPL-2.0 Mozilla (Firefox Translations)"
    for words in (["portuguese", "en-pt"], ["en-pt-BR"], ["en", "pt-BR"]):
        assert [line[0] for line in search(*words)][:2] == ["en-pt", "en-pt:tiny"]
    assert [line[0] for line in search("portuguese", "en-pt")] == ["en-pt", "en-pt:tiny"]
    assert search("en-pt")[-1][:6] == ["Helsinki-NLP/opus-mt-en-pt", "English", "to", "Portuguese", "-", "apache-2.0"]
    assert call(models, "search", "klingon") == (1, "", "no model matches 'klingon'\n")
    folders = [str(cache_folder() / "mozilla" / name) for name in ("en-pt", "pt-en")]
    assert call(models, "download", "en-pt", "pt-en")[1].splitlines() == folders
    assert [line.split()[0] for line in call(models, "list")[1].splitlines()] == ["name", "en-pt", "pt-en", "in"]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    code, printed, complaints = call(models, "search", "en-pt")
    assert (code, len(printed.splitlines())) == (0, 3)
    assert "127.0.0.1:9 cannot be reached" in complaints
    call(models, "remove", "en-pt", "pt-en")
    assert "no models in" in call(models, "list")[1]


def test_the_command_convert_takes_a_name(call, both, tmp_path):
    code, printed, _ = call(convert, "de-en", tmp_path / "web", "--to", "web", "--languages", "de-en")
    assert not code
    assert printed == f"{tmp_path / 'web' / 'model.capsule'}\n"
    with pytest.raises(ValueError, match=r"de-pt goes .* by two models, de-en and en-pt: convert each of them"):
        call(convert, "de-pt", tmp_path / "two", "--to", "web")
    with pytest.raises(CatalogError, match="nowhere: no such folder, and not the name of a model"):
        call(convert, "nowhere", tmp_path / "two", "--to", "web")

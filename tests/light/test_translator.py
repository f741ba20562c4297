"""`Translator`: what it asks of a decoder, and what it makes of the answers. No torch, and mostly no model."""

import pickle
import re
import shutil
from collections import Counter
from contextlib import nullcontext
from pathlib import Path

import pytest

from capsule_mt import CoverageOptions, Translation, Translator, load
from capsule_mt.coverage.methods import cover
from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.search import Hypothesis
from capsule_mt.models.loading import load_model
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.text.keeping import Item, parts_of
from capsule_mt.text.languages import check_language
from capsule_mt.text.rules import KEEP_KINDS
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.pivot import PivotTranslator
from capsule_mt.translate.search_plan import search_options
from tests.fixtures.word_for_word import TEXTS as WORDS
from tests.light.decoders import END, Echo, translator
from tests.light.text.fakes import WordTokenizer

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "capsule_marian"
RELEASED = ROOT / "checkpoints" / "capsule-marian-de-en"
TEXTS = ["one two three", "four!", "Five six seven eight nine!", "two one"]


# ---- what goes in and comes out
@pytest.mark.parametrize(("loader", "argument"), [(load, "name_or_folder"), (Translator.from_pretrained, "folder")])
def test_what_cannot_name_a_model(loader, argument):
    with pytest.raises(TypeError, match=rf"`{argument}` must be the folder or the name of a model, .*, got None"):
        loader(None)
    with pytest.raises(ValueError, match=rf"`{argument}` must be the folder or the name of a model, .*, got an empty"):
        loader("")


def test_one_string():
    translation = translator()("one two three")
    assert isinstance(translation, Translation)
    assert (translation.text, translation.score, translation.coverage) == ("one two three", -1.0, None)
    assert translation.token_ids == (0, 2, 3, 4, 1)
    assert not translation.was_cut
    assert repr(translation).startswith("Translation(text='one two three', score=-1.0, coverage=None, segments=(")


def test_lists_iterables_and_blank_texts():
    translate = translator()
    assert [translation.text for translation in translate(TEXTS, batch_size=3)] == TEXTS
    assert [translation.text for translation in translate(tuple(TEXTS))] == TEXTS
    assert [translation.score for translation in translate(TEXTS, scores=False)] == [None] * 4
    assert translate([]) == []
    blank, text = translate(["\n", "one"], coverage=CoverageOptions())
    assert (blank.text, blank.score, blank.segments) == ("\n", None, ())
    assert (blank.coverage.score, blank.coverage.words) == (1.0, ())
    assert text.text == "one"
    several = translate(["", "one two"], num_return_sequences=2, num_beams=2)
    assert [[translation.text for translation in n_best] for n_best in several] == [["", ""], ["one two", "one"]]
    lazy = translate(dict.fromkeys(TEXTS).keys())
    assert len(lazy) == 4  # for a progress bar
    assert [translation.text for translation in lazy] == [translation.text for translation in iter(lazy)] == TEXTS


class Counted(EngineDecoder):
    """An engine's decoder that keeps whether searches had scores, and how many targets were forced."""

    def __init__(self, decoder):
        super().__init__(decoder.engine, decoder.start, decoder.end, decoder.pad)
        self.searched_scores, self.num_forced = [], []

    def translate(self, sources, options):
        self.searched_scores.append(options.scores)
        return super().translate(sources, options)

    def force(self, sources, targets, readings, positions=None):
        self.num_forced.append(len(targets))
        return super().force(sources, targets, readings, positions)


@pytest.fixture
def counted(word_for_word):
    loaded = load_model(word_for_word, int8=True)
    return Translator(loaded._replace(decoder=Counted(loaded.decoder)))


def test_scores_are_computed_once_one_is_read(counted):
    texts = [*WORDS[:9], "", "\n".join(WORDS[9:12])]
    decoder = counted.loaded.decoder
    expected = [translation.score for translation in counted(texts, batch_size=4, scores=True)]
    assert (set(decoder.searched_scores), decoder.num_forced) == ({True}, [])
    decoder.searched_scores.clear()
    translations = counted(texts, batch_size=4)
    assert (set(decoder.searched_scores), decoder.num_forced) == ({False}, [])
    assert translations[3].score == expected[3]
    assert [translation.score for translation in translations] == expected  # bit for bit
    assert (decoder.num_forced, expected[9]) == ([12], None)  # all texts in one pass
    copied = pickle.loads(pickle.dumps(counted(texts[0])))
    assert (copied, copied.score) == (translations[0], expected[0])
    prefixed = counted(texts[:2], copy=False)
    assert repr(prefixed) == repr(translations[:2])
    assert [translation.score for translation in counted(texts[:2], scores=False)] == [None, None]


@pytest.mark.parametrize(
    "options",
    [{"num_beams": 2}, {"no_repeat_ngram_size": 2}, {"renormalize_logits": True}, {"repetition_penalty": 1.1}],
)
def test_scores_that_the_search_computes(counted, options):
    score = counted(WORDS[0], **options).score
    assert (counted.loaded.decoder.searched_scores, counted.loaded.decoder.num_forced) == ([True], [])
    assert score == counted(WORDS[0], scores=True, **options).score


def test_scores_with_a_shortlist_are_among_its_tokens(counted):
    shortlist = Shortlist([0] * 44, [], range(43), 43)
    listed = Translator(counted.loaded._replace(shortlist=shortlist))
    assert listed(WORDS[0]).score == counted(WORDS[0], scores=True).score
    assert listed.loaded.decoder.searched_scores == [True, True]


def test_placeholders_that_the_vocabulary_lacks_are_not_unknown_text(caplog):
    model = translator(tokenizer=WordTokenizer(unknown=("{1}", "{#}", "%@", "Čech")))
    texts = ["{1} has {#} file", "{1} has %@ Čech", "{1} Čech"]
    translations = model(texts, batch_size=3)
    assert [translation.text for translation in translations] == texts
    # the shares are of two words and an end token, and of one word and an end token
    assert [round(translation.unknown, 2) for translation in translations] == [0.0, 0.33, 0.5]
    assert (
        "The vocabulary lacks more than 20% of the tokens of 2 of 3 texts: is it in the source language?"
        in caplog.text
    )


def test_what_the_vocabulary_lacks_is_copied_and_said(caplog):
    model = translator(tokenizer=WordTokenizer(unknown=("Čech!", "ξένος", "ξένος,", "λόγος!")))
    texts = ["One two three four five Čech!", "One ξένος, λόγος! two.", "ξένος λόγος!"]
    translations = model(texts, batch_size=3)
    assert [translation.text for translation in translations] == texts
    words = model.loaded.tokenizer.words
    read = [" ".join(words[token] for token in source[:-1]) for source in model.loaded.decoder.calls[0][0]]
    assert sorted(read) == ["One Tom! two.", "One two three four five Tom!"]
    assert [round(translation.unknown, 2) for translation in translations] == [0.14, 0.4, 0.67]
    assert (
        "The vocabulary lacks more than 20% of the tokens of 2 of 3 texts: is it in the source language?"
        in caplog.text
    )
    covered = [translation.coverage for translation in model(texts, coverage=CoverageOptions())]
    assert [
        (translation.untranslated, [word.covered for word in translation.words][-1]) for translation in covered
    ] == [((), 1.0)] * 3


def test_a_word_of_a_script_that_the_vocabulary_lacks_is_copied_with_its_marks():
    hindi = "\u0939\u093f\u0928\u094d\u0926\u0940"
    released = Translator.from_pretrained(ROOT / "checkpoints/capsule-marian-en-de")
    text = f"The old man sees {hindi} in the garden."
    translation = released(text, coverage=CoverageOptions())
    assert translation.text.count(hindi) == 1
    assert not [word.text for word in translation.coverage.untranslated if word.text in hindi]


def test_any_other_iterable_is_read_lazily():
    read = []

    def texts():
        for text in TEXTS * 50:
            read.append(text)
            yield text

    for options, expected in (({}, 1), ({"batch_size": 2}, 64), ({"batch_tokens": 9}, 200)):
        read.clear()
        assert next(iter(translator()(texts(), **options))).text == TEXTS[0]
        assert len(read) == expected


def test_the_work_is_done_in_order_of_length_and_each_piece_is_tokenised_once(monkeypatch):
    read, encode = [], WordTokenizer.encode
    monkeypatch.setattr(WordTokenizer, "encode", lambda self, text: read.append(text) or encode(self, text))
    decoder = Echo(lost=1)
    translations = translator(decoder)(TEXTS, batch_size=3, coverage=CoverageOptions(threshold=1, retry_beams=2))
    assert [translation.text for translation in translations] == TEXTS
    lengths = [[len(source) for source in sources] for sources, _ in decoder.calls]
    assert lengths == [[6, 4, 3], [2]] * 2  # all of the first pass, then the retries
    assert Counter(read) == Counter(TEXTS)
    decoder.calls.clear()
    translator(decoder)(TEXTS, batch_tokens=8)
    assert [len(sources) for sources, _ in decoder.calls] == [1, 2, 1]


def test_sentences_are_translated_one_by_one():
    text = "  One two.  \n\n three four "
    (translation,) = translator()([text])
    assert translation.text == text
    assert [text[segment.start : segment.end] for segment in translation.segments] == ["One two.", "three four"]
    assert [segment.source_ids for segment in translation.segments] == [(2, 3, 1), (4, 5, 1)]
    assert translation.token_ids == (0, 2, 3, 1, 0, 4, 5, 1)
    (unsplit,) = translator()([text], split_sentences=False, copy=False)
    assert [text[segment.start : segment.end] for segment in unsplit.segments] == [text.strip()]


def test_sources_beyond_the_positions(caplog):
    translate, text = translator(longest_source=4), "One two, three four, five six"
    translation = translate(text)
    assert translation.text == text
    assert [len(segment.source_ids) for segment in translation.segments] == [3, 3, 3]
    with pytest.raises(ValueError, match=r"a source of 7 tokens is longer than the 4 that the model takes: 'One two,"):
        translate(text, split_sentences=False)
    with pytest.raises(ValueError, match=r"a source of 7 tokens is longer than the 4 that the model takes: 'One two,"):
        translate(text, split_sentences=False, truncation="do_not_truncate")
    assert translate(text, truncation=True, split_sentences=False).text == "One two, three"
    assert "A source of 7 tokens was cut to 4" in caplog.text


def test_what_is_refused():
    with pytest.raises(TypeError, match="`model` must be a loaded model, got 'en-pt': `from_pretrained`"):
        Translator("en-pt")
    translate = translator()
    for wrong in (3, None, 2.5, b"bytes", {"text": "a"}):
        with pytest.raises(TypeError, match="`texts` must be a string or an iterable of strings, got a"):
            translate(wrong)
    for wrong, message in (
        ([None], "`texts[0]` must be a string, got None (NoneType)"),
        (["a", float("nan")], "`texts[1]` must be a string, got nan (float)"),
        ([*"abcde", b"a"], "`texts[5]` must be a string, got b'a' (bytes)"),
        ([["a"]], "`texts[0]` must be a string, got ['a'] (list)"),
    ):
        for texts in (wrong, iter(wrong)):
            with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
                list(translate(texts, batch_size=2))
    for name in ("batch_size", "batch_tokens"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
            translate("one", **{name: 0})
        with pytest.raises(TypeError, match=f"`{name}` must be a whole number, got '3'"):
            translate("one", **{name: "3"})
    for name in ("split_sentences", "copy", "alignment", "copy_foreign"):
        with pytest.raises(TypeError, match=f"`{name}` must be True or False, got 'no'"):
            translate("one", **{name: "no"})
    for name in ("src_lang", "tgt_lang"):
        with pytest.raises(TypeError, match=f"`{name}` must be the code of a language, such as 'de', got 5"):
            translate("one", **{name: 5})
        with pytest.raises(TypeError, match=f"`{name}` must be the code of a language, such as 'de', got 5"):
            translate.score(["one"], ["one"], **{name: 5})
    with pytest.raises(ValueError, match="`truncation` must be True or False, got 'no'"):
        translate("one", truncation="no")
    for name in ("num_beams", "num_return_sequences", "max_new_tokens", "max_length"):
        for wrong in (0, -1, True, "3"):
            with pytest.raises(ValueError, match=f"`{name}` must be a whole number from 1 to .*, got {wrong!r}"):
                translate("one", **{name: wrong})
    with pytest.raises(ValueError, match="`min_new_tokens` must be a whole number from 0 to 16,777,216, got -1"):
        translate("one", min_new_tokens=-1)
    wrong_ids = (("eos_token_id", 2**40, 2**40), ("pad_token_id", True, True), ("forced_eos_token_id", "a", "'a'"))
    for name, value, wrong in wrong_ids:
        ids = f"`{name}` takes token ids, .* from -?[01] to 2,147,483,647 that the vocabulary has, got {wrong}"
        with pytest.raises(ValueError, match=ids):
            translate("one", **{name: value})
    with pytest.raises(TypeError, match="`coverage` must be a `CoverageOptions`, got True"):
        translate("one", coverage=True)
    for name, wrong in (("suppress_tokens", [3, -7]), ("bad_words_ids", [[2**40]]), ("suppress_tokens", 3)):
        with pytest.raises(ValueError, match=f"`{name}` must be a list .* from 0 to 2,147,483,647, got "):
            translate("one", **{name: wrong})
    with pytest.raises(TypeError, match="`scores` must be True, False or None, got 'no'"):
        translate("one", scores="no")
    for keep in ("tags", ["colours"], iter(["tags"]), None):
        with pytest.raises(ValueError, match="`keep` takes a list of tags, urls, placeholders, numbers, got "):
            translate("one", keep=keep)


@pytest.mark.parametrize("value", [None, False, True, 0, 3, "a", [], {}])
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("num_beam", "did you mean `num_beams`"),
        ("beam_size", "did you mean `num_beams`"),
        ("num_hypotheses", "did you mean `num_return_sequences`"),
        ("n_best", "did you mean `num_return_sequences`"),
        ("use_vmap", "load with `shortlist=True`"),
        ("glossary", "pass it to `from_pretrained`"),
        ("glosary", "did you mean `glossary`"),
        ("no_repeat_ngram", "did you mean `no_repeat_ngram_size`"),
        ("split_sentence", "did you mean `split_sentences`"),
        ("generate_kwargs", "it takes num_beams, num_return_sequences"),
    ],
)
def test_an_unknown_option_is_an_error_whatever_its_value(name, hint, value):
    for text in ("one", "", ["one", "two"]):
        with pytest.raises(ValueError, match=rf"`{name}` is not an option of this translator: {hint}"):
            translator()(text, **{name: value})


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("compute_type", "load with `int8=True`"),
        ("device", "only `from_pretrained` of `hf_capsule_mt.Translator`"),
        ("intra_threads", "set the number of threads by"),
        ("target_lang", "did you mean `tgt_lang`"),
        ("beam_size", r"it is an option of a call: `translator\(texts, num_beams=...\)`"),
        ("shortlst", "did you mean `shortlist`"),
        ("a", "it takes int8, shortlist"),
    ],
)
def test_an_unknown_argument_of_loading_is_named(name, hint):
    with pytest.raises(TypeError, match=rf"`{name}` is not an argument of `Translator.from_pretrained`: {hint}"):
        Translator.from_pretrained("anything", **{name: "auto"})


# ---- how to search
def asked(lengths=(4,), settings=(), **facts):
    facts = {"start": 0, "end": 1, "pad": 1} | facts
    return search_options(LoadedModel(Echo(), WordTokenizer(), "a model", **facts), lengths, dict(settings))


@pytest.mark.parametrize(
    ("settings", "facts", "limits", "forced"),
    [
        ({}, {}, [42, 36], [True, True]),
        ({}, {"longest_target": 41}, [40, 36], [False, True]),
        ({}, {"generation": {"max_length": 20}}, [19, 19], [False, False]),
        ({}, {"generation": {"max_length": 30}}, [29, 29], [False, False]),
        ({}, {"generation": {"max_new_tokens": 12, "max_length": 5}}, [12, 12], [False, False]),
        ({}, {"generation": {"max_new_tokens": 12, "forced_eos_token_id": 1}}, [12, 12], [True, True]),
        ({}, {"end": -1}, [42, 36], [False, False]),
        ({"max_length": 9}, {"longest_target": 5}, [8, 8], [False, False]),
        ({"max_length": 9}, {"generation": {"max_new_tokens": 12}}, [12, 12], [False, False]),  # as in `generate()`
        ({"max_new_tokens": None, "max_length": 5}, {"generation": {"max_new_tokens": 12}}, [4, 4], [False, False]),
        ({"max_new_tokens": 3, "max_length": 9}, {"generation": {"max_new_tokens": 12}}, [3, 3], [False, False]),
        ({"max_new_tokens": 3, "forced_eos_token_id": 1}, {}, [3, 3], [True, True]),
        ({"max_time": 60.0}, {"longest_target": 41}, [40, 36], [False, True]),
        ({}, {"length_factor": 2.5}, [10, 5], [False, False]),
        ({}, {"length_factor": 2.6, "longest_target": 9}, [8, 6], [False, False]),
        ({}, {"length_factor": 2.5, "generation": {"max_length": 9, "forced_eos_token_id": 1}}, [8, 5], [True, False]),
        ({}, {"length_factor": 0.3, "lengths": (10, 11)}, [3, 4], [False, False]),
        ({}, {"length_factor": 0.1, "lengths": (30, 1)}, [3, 1], [False, False]),
        ({"max_new_tokens": 30}, {"length_factor": 2.5}, [30, 30], [False, False]),
    ],
)
def test_limits(settings, facts, limits, forced):
    options = asked(**{"lengths": (4, 2), "settings": settings, **facts})
    assert (options.limits, options.forces_end) == (limits, forced)


def test_a_maximum_length_that_the_checkpoint_overrides_is_said(monkeypatch):
    warnings = []
    monkeypatch.setattr("capsule_mt.translate.search_plan.warn_once", warnings.append)
    generation = {"max_new_tokens": 12}
    asked((4,), {"max_new_tokens": 5, "max_length": 9}, generation=generation)
    asked((4,), {"max_new_tokens": None, "max_length": 9}, generation=generation)
    assert warnings == []
    asked((4,), {"max_length": 9}, generation=generation)
    assert len(warnings) == 1
    assert "the checkpoint sets `max_new_tokens` to 12" in warnings[0]


def test_the_checkpoints_settings_and_the_calls():
    generation = {"num_beams": 4, "length_penalty": 0.6, "bad_words_ids": [[7], [1]], "min_length": 3, "max_length": 9}
    options = asked(generation=generation)
    assert (options.num_beams, options.length_penalty, options.min_new_tokens) == (4, 0.6, 2)
    assert options.suppress_tokens == [7]  # no bad word keeps a translation from its end
    options = asked(settings={"num_beams": 2, "min_new_tokens": 5, "early_stopping": True}, generation=generation)
    assert (options.num_beams, options.length_penalty, options.min_new_tokens) == (2, 0.6, 5)
    assert options.early_stopping is True


def test_what_a_call_without_options_does_follows_the_translator():
    """Its plan is kept only while nothing that it was made from has changed."""
    generation = {"num_beams": 2, "bad_words_ids": [[7]]}
    translate = translator(generation=generation)
    plan = translate.plan(TranslationOptions())
    assert translate.plan(TranslationOptions()) is plan
    assert translate.plan(TranslationOptions(copy=False)).segmenter.copies is False
    translate.languages = ("de", "en")
    assert translate.plan(TranslationOptions()).languages == ("de", "en")
    translate.set_calibration({"attention": {"head": [0, 0]}})
    assert translate.plan(TranslationOptions()).head == (0, 0)
    generation["num_beams"] = 5
    assert translate.plan(TranslationOptions()).search.options.num_beams == 5
    generation["bad_words_ids"].append([8])
    assert translate.plan(TranslationOptions()).search.options.suppress_tokens == [7, 8]
    translate.loaded = translate.loaded._replace(longest_source=7)
    assert translate.plan(TranslationOptions()).segmenter.limit == 7


@pytest.mark.parametrize(
    ("settings", "config", "expected"),
    [
        (
            {"encoder_repetition_penalty": 1.0, "use_cache": True, "do_sample": False, "top_k": 50},
            {"temperature": 0.7, "top_h": 0.4},
            {},
        ),
        ({"encoder_repetition_penalty": 1.5}, {}, {"encoder_repetition_penalty": 1.5}),
        ({}, {"encoder_repetition_penalty": 1.5, "_from_model_config": True}, {"encoder_repetition_penalty": 1.5}),
        ({"do_sample": True}, {"top_p": 0.9}, {"do_sample": True, "top_p": 0.9}),
        ({"bad_words_ids": [[3], [4, 5]]}, {}, {"bad_words_ids": [[3], [4, 5]]}),
        ({"forced_bos_token_id": 0}, {}, {"forced_bos_token_id": 0}),  # a token of 0 is a value
        ({"forced_eos_token_id": 1}, {"forced_eos_token_id": [1]}, {}),  # the end token, which `forces_end` says
        ({}, {"forced_eos_token_id": 2}, {"forced_eos_token_id": 2}),
        ({"clean_up_tokenization_spaces": True}, {"eos_token_id": 1, "cache_implementation": "static"}, {}),
    ],
)
def test_options_that_only_transformers_knows(settings, config, expected):
    assert asked(settings=settings, generation=config).transformers_only == expected


def test_a_translation_at_its_limit_is_told(caplog):
    translations = translator()(["one two three", "four!"], max_new_tokens=3, batch_size=2)
    assert [translation.was_cut for translation in translations] == [True, False]
    assert "1 of 2 translations reached a limit" in caplog.text


# ---- what coverage does
def test_a_threshold_warns_and_a_retry_takes_what_leaves_less_out(caplog, monkeypatch):
    hypothesis = Echo.hypothesis
    decoder = Echo(lost=1)
    translate = translator(decoder)
    translations = translate(TEXTS, batch_size=4, coverage=CoverageOptions(threshold=0.6))
    assert [translation.text for translation in translations] == ["one two", "", "Five six seven eight", "two"]
    assert [translation.coverage.score for translation in translations] == [pytest.approx(2 / 3), 0.0, 0.8, 0.5]
    assert "The coverage of 2 of 4 translations is below 0.6" in caplog.text
    translations = translate(TEXTS, batch_size=4, coverage=CoverageOptions(threshold=0.6, retry_beams=3))
    assert [translation.text for translation in translations] == [
        "one two",
        "four!",
        "Five six seven eight",
        "two one",
    ]
    sources, options = decoder.calls[-1]
    assert (len(sources), options.num_beams, options.num_return_sequences) == (2, 3, 3)
    several = translate("four!", num_beams=4, num_return_sequences=3, coverage=CoverageOptions(1.0, 2))
    assert len(several) == 3  # a retry has beams for all translations
    monkeypatch.setattr(Echo, "hypothesis", lambda self, source, lost, limit: hypothesis(self, source, 1, limit))
    without_retry = translate("one two", coverage=CoverageOptions(1.0))
    assert without_retry.coverage.score == 0.5
    # what leaves as much out does not win
    assert translate("one two", coverage=CoverageOptions(1.0, 2)) == without_retry


def test_a_retry_repairs_what_rules_find():
    """Also where nothing is below the threshold, and by a hypothesis that is not the best one."""

    class Improving(Echo):
        def hypothesis(self, source, lost, limit):
            return super().hypothesis(source, max(2 - lost, 0), limit)

    options = CoverageOptions(threshold=0, retry_beams=3)
    assert translator(Echo(lost=1))("one 12", copy=False, coverage=CoverageOptions(threshold=0)).text == "one"
    assert translator(Echo(lost=1))("one 12", coverage=options).text == "one 12"
    decoder = Improving()
    assert translator(decoder)("one two 12 3", coverage=options).text == "one two 12 3"
    assert [len(sources) for sources, _ in decoder.calls] == [1, 1]
    assert translator(Echo(lost=1))("one two", coverage=options).text == "one"  # without a fault there is no retry


class Inventive(Echo):
    """Adds a bracket to each translation, each time with a token that no option forbids; the last beam adds none."""

    def __init__(self, endings=("(a)", "(o", "[sic]"), num_clean=0):
        super().__init__()
        self.endings, self.num_clean = endings, num_clean

    def translate(self, sources, options):
        self.tokenizer_ids = [self.tokenizer.id(ending) for ending in self.endings]
        return super().translate(sources, options)

    def hypothesis(self, source, lost, limit):
        options = self.calls[-1][1]
        allowed = [token for token in self.tokenizer_ids if token not in options.suppress_tokens]
        is_clean = options.num_beams > 1 and lost >= options.num_return_sequences - self.num_clean
        ids = [*source[:-1], *([] if is_clean else allowed[:1]), END]
        return Hypothesis(ids, [-1.0 - lost] * len(ids), False, [[1.0 / len(source)] * len(source)] * len(ids))


def inventive(**options):
    tokenizer = WordTokenizer()
    decoder = Inventive(**options)
    decoder.tokenizer = tokenizer
    return decoder, translator(decoder, tokenizer)


@pytest.mark.parametrize(
    ("endings", "num_searches"),
    [(("(a)",), 2), (("(a)", "(o"), 3), (("(", "\uff3ba", ")"), 4), (("{",), 2), (('"a', "(", "\u201e"), 4)],
)
def test_a_mark_that_the_source_lacks_is_forbidden(endings, num_searches):
    decoder, translate = inventive(endings=endings)
    translations = translate(["Retry now", "Try again soon"], batch_size=2)
    assert [translation.text for translation in translations] == ["Retry now", "Try again soon"]
    assert len(decoder.calls) == num_searches
    _, options = decoder.calls[-1]
    assert {*options.suppress_tokens} == {decoder.tokenizer.id(ending) for ending in endings}
    assert translate("Retry now", copy=False).text == f"Retry now {endings[0]}"  # as the model has it


def test_a_translation_without_a_certain_fault_is_searched_once():
    decoder, translate = inventive(endings=())
    texts = ["Retry now", "Retry (now)", "3 of 12 is 3", "ha ha ha", "two three"]
    assert [translation.text for translation in translate(texts, batch_size=8)] == texts
    assert len(decoder.calls) == 1


def test_a_retry_takes_the_first_beam_without_a_fault():
    decoder, translate = inventive(endings=("(", "(", "("), num_clean=1)
    # the source has a bracket, too, so that the search may write it
    assert translate("Retry (now)").text == "Retry (now)"
    (sources, first), (_, retry) = decoder.calls
    assert (len(sources), first.num_beams, retry.num_beams, retry.num_return_sequences) == (1, 1, 4, 4)
    assert retry.suppress_tokens == ()


@pytest.mark.parametrize(
    ("text", "translation"),
    [("one 12", "one 12"), ("one 12 and 7", "one 12 and 7"), ("purchase now", "purchase now")],
)
def test_further_certain_faults_start_a_retry(text, translation):
    class Faulty(Echo):
        def hypothesis(self, source, lost, limit):
            ids = [*source[:-1]] if self.calls[-1][1].num_beams > 1 else [*source[:-2], source[-3]]
            return Hypothesis([*ids, END], [-1.0] * (len(ids) + 1), False)

    tokenizer = WordTokenizer()
    assert translator(Faulty(), tokenizer)(text, copy=False).text != translation
    assert translator(Faulty(), tokenizer)(text).text == translation


def test_what_stays_wrong_is_a_check_of_the_translation():
    decoder, translate = inventive(endings=("(a", "(b", "(c", "(d", "(e"))
    translation = translate("Retry now", coverage=CoverageOptions())
    assert len(decoder.calls) == 4  # no endless search
    assert translation.text == "Retry now (a"
    assert [(check.kind, check.added) for check in translation.coverage.checks] == [("brackets", "()")]


@pytest.mark.parametrize(("length_penalty", "weight", "best"), [(1.0, 0.5, 0), (0.0, 0.5, 2), (0.0, 9.0, 0)])
def test_a_weight_ranks_by_what_is_left_out(length_penalty, weight, best):
    """Beam search's score of the ranks is -1, -2, -3, or times 4, 3 and 2 tokens; they leave 0, 1/3 and 2/3 out."""

    class Even(Echo):
        def hypothesis(self, source, lost, limit):
            base = super().hypothesis(source, lost, limit)
            base.log_probs = [-1.0] * len(base.ids) if length_penalty == 0.0 else base.log_probs
            return base

    settings = {"num_beams": 3, "length_penalty": length_penalty, "coverage": CoverageOptions(weight=weight)}
    translation = translator(Even())("one two three", **settings)
    assert translation.text == ["one two three", "one two", "one"][best]
    with pytest.raises(ValueError, match="the `weight` of coverage needs at least 2 beams: `num_beams` is 1"):
        translator()("one", coverage=CoverageOptions(weight=1.0))


# ---- given translations
def test_a_warning_is_of_the_last_pass_and_not_of_one_before_stand_ins(released, caplog):
    translation = released("Er hat %d Hut.", keep=["placeholders"], coverage=CoverageOptions())
    assert translation.coverage.score > released.calibration.alarm("verified")
    assert "left something out" not in caplog.text


def test_scores_of_given_translations(caplog):
    decoder = Echo()
    translate = translator(decoder, longest_target=4)
    scored = translate.score(["one two", "one", " ", "three four. five"], ["one", "two", "x", "three four."])
    assert [translation.score for translation in scored] == [-1.0, -2.0, None, -1.0]
    assert [translation.text for translation in scored] == ["one", "two", "x", "three four."]
    assert [len(translation.segments) for translation in scored] == [1, 1, 0, 1]  # each text is one sentence
    assert scored[1].segments[0].target_ids == (0, 3, 1)
    assert not any(translation.was_cut or translation.coverage for translation in scored)
    (cut,) = translate.score(["one"], ["two three four five six"])
    assert cut.segments[0].target_ids[1:] == tuple(translate.loaded.tokenizer.encode_target("two three four"))
    assert cut.was_cut
    assert "A given translation of 6 tokens was cut to 4" in caplog.text
    caplog.clear()
    translator(longest_source=4, longest_target=4).force(["one two three four five"], ["one two three four five six"])
    assert [record.getMessage() for record in caplog.records] == [
        "The reverse model cut a translation of 6 tokens to 4.",
        "The reverse model cut a source of 7 tokens to 4.",
    ]
    decoder.forced.clear()
    translate.score(TEXTS, ["one"] * 4, batch_tokens=8)
    assert [len(sources) for sources, _ in decoder.forced] == [1, 2, 1]


def test_a_string_is_no_list_of_texts():
    with pytest.raises(TypeError, match="`texts` must be a list of strings, got the string 'the farmer'"):
        translator().score("the farmer", "der Bauer.")
    with pytest.raises(TypeError, match="`translations` must be a list"):
        translator().cover(["no."], "Nein")
    with pytest.raises(TypeError, match=r"`texts\[1\]` must be a string, got None \(NoneType\)$"):
        translator().score(["no.", None], ["Nein", "ja"])
    with pytest.raises(TypeError, match=r"`translations\[1\]` must be a string, got 3 \(int\)$"):
        translator().score(["no.", "yes"], ["Nein", 3])
    with pytest.raises(TypeError, match="`texts` must be a list of strings, got a generator"):
        translator().score((text for text in ["no."]), ["Nein"])
    with pytest.raises(ValueError, match="one of `translations` for each of `texts`, got 1 for 2"):
        translator().cover(["no.", "yes"], ["Nein"])
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        translator().score(["no"], ["nein"], batch_size=0)


# ---- by real models
def items(text, kinds=KEEP_KINDS):
    return Counter(part for part in parts_of(text, kinds) if isinstance(part, Item))


@pytest.fixture(scope="module")
def released():
    return Translator.from_pretrained(RELEASED)


def test_what_is_kept(released):
    text = "<p>Siehe https://example.org/a?b=1, {name}!</p> Der alte <b>Mann</b> kauft 7 <i>rote Hüte</i>."
    (translation,) = released([text], keep=list(KEEP_KINDS), num_beams=4)
    assert items(translation.text) == items(text)
    assert "<b>man</b>" in translation.text
    assert "<i>red hats</i>" in translation.text
    assert translation.text.startswith("<p>")
    assert translation.score < 0
    assert [text[segment.start : segment.end] for segment in translation.segments][-1].startswith("Der alte")
    plain = released("Der Mann schläft.", num_beams=4)
    assert released("Der Mann schläft.", keep=KEEP_KINDS, num_beams=4).text == plain.text


def test_a_coverage_that_fails_does_not_cost_the_translation(caplog, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("curves")

    monkeypatch.setattr("capsule_mt.coverage.methods.cover", fail)
    for coverage, search in ((CoverageOptions(), {}), (CoverageOptions(weight=5.0), {"num_beams": 2})):
        translations = translator()(["one two", "three"], coverage=coverage, **search)
        assert [(translation.text, translation.coverage) for translation in translations] == [
            ("one two", None),
            ("three", None),
        ]
    assert "The coverage of 1 translation was not found: ZeroDivisionError: curves." in caplog.text


def test_a_retry_whose_coverage_fails_does_not_win(monkeypatch):
    covers = iter([cover, lambda *_: 1 / 0])
    monkeypatch.setattr("capsule_mt.coverage.methods.cover", lambda *arguments: next(covers)(*arguments))
    translation = translator(Echo(lost=1))("one two three", coverage=CoverageOptions(threshold=0.9, retry_beams=2))
    assert (translation.text, translation.coverage.score) == ("one two", pytest.approx(2 / 3))


# ---- a model of one pair
@pytest.fixture
def pair(tmp_path):
    """The folder of a model from English to German, whose name says so."""
    return shutil.copytree(GOLDEN, tmp_path / "student-en-de")


def refusal(argument, expected, language, folder):
    return re.escape(f"`{argument}` must be {expected} or left out, got {language!r}: {folder} translates en-de; ")


@pytest.mark.parametrize(
    ("argument", "expected", "language"),
    [
        ("tgt_lang", "de", "fr"),
        ("src_lang", "en", "de"),
        ("tgt_lang", "de", "fra_Latn"),
        ("src_lang", "en", "pt-BR"),
        ("tgt_lang", "de", "ast"),
        ("src_lang", "en", "arz_Arab"),
        ("tgt_lang", "de", "yue"),
    ],
)
def test_a_model_of_one_pair_refuses_another_language(argument, expected, language, pair):
    message, option = refusal(argument, expected, language, pair), {argument: language}
    with pytest.raises(ValueError, match=message):
        Translator.from_pretrained(pair, **option)
    translate = Translator.from_pretrained(pair)
    for call in (translate, lambda text, **options: translate.score([text], ["Er"], **options)):
        with pytest.raises(ValueError, match=message):
            call("He sleeps.", **option)


@pytest.mark.parametrize("languages", [("en", "de"), ("en-GB", "de_AT"), ("eng_Latn", "deu"), (None, "gmw")])
def test_a_model_of_one_pair_accepts_other_codes_of_its_languages(languages, pair):
    options = dict(zip(("src_lang", "tgt_lang"), languages, strict=True))
    assert Translator.from_pretrained(pair)("He sleeps.", **options).text == "Er schläft."
    assert Translator.from_pretrained(pair, **options)("He sleeps.").text == "Er schläft."


@pytest.mark.parametrize(
    ("language", "model_language", "is_refused"),
    [
        ("ast", "es", True),
        ("ast", "ast", False),
        ("ceb", "ast", True),
        ("arz", "ar", False),
        ("arz", "fa", True),
        ("yue", "zh", False),
        ("gmw", "de", False),
        ("ast", "roa", False),
        ("cmn", "zh", False),
    ],
)
def test_codes_of_three_letters(language, model_language, is_refused):
    refused = pytest.raises(
        ValueError, match=f"`tgt_lang` must be {model_language} or left out, got {language!r}: M; "
    )
    with refused if is_refused else nullcontext():
        check_language("tgt_lang", language, model_language, "M")


@pytest.mark.parametrize("language", ["German", "deutsch", "\u5fb7"])
def test_a_name_is_not_the_code_of_a_language(language):
    with pytest.raises(ValueError, match=f"`tgt_lang` must be a code such as de, or left out, got {language!r}: M"):
        check_language("tgt_lang", language, "de", "M")
    check_language("tgt_lang", language, language, "M")  # a recipe may name it so
    check_language("tgt_lang", "__de__", "de", "M")


def test_a_folder_tells_the_languages_of_sentences_and_typography(pair):
    text = "Room 3. He sleeps. \u201cHe sleeps.\u201d"
    translation, unnamed = (Translator.from_pretrained(folder)(text) for folder in (pair, GOLDEN))
    assert (len(translation.segments), len(unnamed.segments)) == (3, 2)  # German has ordinals such as "3."
    assert translation.text.endswith("\u201eEr schl\xe4ft.\u201c")
    assert unnamed.text.endswith("\u201cEr schl\xe4ft.\u201d")
    named = Translator.from_pretrained(GOLDEN)(text, src_lang="en", tgt_lang="de")
    assert (translation.text, translation.segments) == (named.text, named.segments)


def test_a_model_whose_pair_is_not_known_accepts_any_language():
    assert Translator.from_pretrained(GOLDEN)("He sleeps.", src_lang="fr", tgt_lang="pt").text == "Er schläft."


def test_a_pair_through_english_refuses_another_language(pair, tmp_path):
    first = shutil.copytree(GOLDEN, tmp_path / "pt-en")
    pivot = PivotTranslator(Translator.from_pretrained(first), Translator.from_pretrained(pair))
    pivot.plan(TranslationOptions(src_lang="pt", tgt_lang="de"))
    with pytest.raises(ValueError, match=refusal("tgt_lang", "de", "fr", pair)):
        pivot.plan(TranslationOptions(src_lang="pt", tgt_lang="fr"))

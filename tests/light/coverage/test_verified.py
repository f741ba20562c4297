"""Marks that a reverse model verifies, by hand and by the released pair."""

import math
import re

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.checks.results import Check
from capsule_mt.coverage.completeness import completeness, gap_of
from capsule_mt.coverage.lengths import ExpectedLength
from capsule_mt.coverage.problems import made_up_indices
from capsule_mt.coverage.supported import support_doubts
from capsule_mt.coverage.verified import Candidate, ForcedPair, covered_share, doubt_of, doubts
from capsule_mt.engine.search import Forced
from capsule_mt.text.reading import overlaps
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import SourceWord
from capsule_mt.translate.pivot import PivotTranslator
from capsule_mt.translate.translator_model import TranslatorModel
from tests.conftest import GOLDEN
from tests.fixtures.vectors import vectors
from tests.light.decoders import Echo, translator
from tests.light.text.fakes import WordTokenizer, plain_piece

GERMAN, ENGLISH = (
    str(GOLDEN.parents[1] / "checkpoints" / name) for name in ("capsule-marian-de-en", "capsule-marian-en-de")
)
SOURCE = "Die Kinder spielen heute im Garten ihrer Großmutter."
COMPLETE, SHORT = "The children are playing in their grandmother's garden today.", "The children are playing today."
SPANS = [Span(0, 3), Span(4, 7), Span(8, 13)]
WORDS = [
    SourceWord(span, [index], is_mark=False, is_unknown=False, model_span=span) for index, span in enumerate(SPANS)
]
PIECE = plain_piece("one two three", None, [5, 6, 7, 1], WORDS)
ALARM = {"score": 0.5, "flagged": 0.01, "caught": {}}
CANDIDATE = Candidate(PIECE, "eins", [8, 1], [0.9, 0.1, 0.4], [True] * 3)


class Reverse:
    """A reverse model that gives the words these log-probabilities."""

    def __init__(self, *log_probs):
        self.log_probs, self.texts = list(log_probs), []

    def force(self, texts, translations, *, with_head=False, spans=None):
        self.texts.append(list(texts))
        self.spans = spans
        return [ForcedPair([], [*SPANS, None], Forced([*self.log_probs, -1.0])) for _ in texts]


class Losing:
    """A decoder in which the translation loses these nats of log-probability for each token that its source lacks."""

    def __init__(self, **losses):
        self.losses, self.sources = losses, []

    def force(self, sources, targets, readings):
        self.sources += [list(source) for source in sources]
        missing = [{5, 6, 7} - set(source) for source in sources]
        return [Forced([-sum(self.losses[f"token_{token}"] for token in tokens), 0.0]) for tokens in missing]


def test_a_doubt_by_hand():
    assert doubt_of(0.5) == -9  # nobody doubts it
    assert doubt_of(0.5, -4.0, 1.5) == 0.5 * 4 - 1.5
    assert doubt_of(0.5, -40.0, -7.0) == 0.5 * 12 + 1
    assert covered_share(doubt_of(0.5, -12.0, -1.0)) == 0.5
    assert doubt_of(0.0, 0.0, 0.0) == 16


def test_the_least_attended_words_in_a_row():
    half, nothing_attended, all_of_it = 0.5, 0.0, 1.0  # doubts of 0, 6 and -4
    assert gap_of([half] * 5) == pytest.approx(0.4)
    assert gap_of([nothing_attended, all_of_it, all_of_it, half, half, nothing_attended]) == pytest.approx(
        (6 / 3 + 4) / 10
    )
    assert gap_of([nothing_attended, half]) == pytest.approx((6 / 2 + 4) / 10)
    assert gap_of([]) == 0


def test_completeness_by_hand():
    assert completeness(0.8, 0.1, 0.4, 0.75) == pytest.approx(1 - (0.2 + 0.075 + 0.1) / 2)
    assert (completeness(1.0, 0.0, 0.0, 2.0), completeness(0.0, 1.0, 1.0, 2.0)) == (1, 0)


def test_a_length_by_hand():
    length = ExpectedLength.of_calibration({"start": 2, "slope": 0.5, "more": {"-3": "damen und", "4": "zug"}})
    assert length.predict("Damen und Zug!") == 2 + 0.5 * 14 - 3 - 3 + 4
    assert length.predict("und und und") == 2
    assert length.shortness("Zug", "a longer one") == 0
    assert length.shortness("Zug", "abc") == pytest.approx((1 - 3 / 7.5) * 7.5 / 40)
    assert ExpectedLength().shortness("a" * 80, "a" * 60) == 0.25


def test_only_words_whose_doubt_may_exceed_the_threshold_are_verified():
    reverse, decoder = Reverse(-1.0, -8.0, -2.0), Losing(token_5=4.0, token_6=-1.0, token_7=5.0)
    exact = doubts([CANDIDATE], decoder, reverse, threshold=-99.0)[0]
    assert reverse.spans == [SPANS]
    assert decoder.sources == [[6, 7, 1], [5, 7, 1], [5, 6, 1]]  # without each word
    assert exact[1] == pytest.approx(doubt_of(0.1, -8.0, -1.0))
    for above in (0.0, 3.0, 5.0, 7.0, 11.0):
        reverse.texts, decoder.sources = [], []
        verified = doubts([CANDIDATE], decoder, reverse, above)[0]
        assert [doubt > above for doubt in verified] == [doubt > above for doubt in exact]
        assert len(decoder.sources) == {0.0: 2, 3.0: 1, 5.0: 1, 7.0: 1, 11.0: 0}[above]
        assert not reverse.texts or reverse.spans == [{0.0: SPANS, 3.0: SPANS, 5.0: SPANS[1:], 7.0: SPANS[1:]}[above]]
    assert reverse.texts == []  # no doubt can exceed 9.2, so none above 11 is verified


def test_unmarkable_words_and_an_empty_translation():
    reverse, decoder = Reverse(-9.0, -9.0, -9.0), Losing(token_5=0.0, token_6=0.0, token_7=0.0)
    doubts([CANDIDATE._replace(markable=[False] * 3)], decoder, reverse, threshold=0.0)
    assert (reverse.texts, decoder.sources) == ([], [])
    reverse.force = lambda texts, translations, spans: [None for _ in texts]
    assert min(doubts([CANDIDATE._replace(attention=[0.0] * 3)], decoder, reverse, threshold=7.0)[0]) > 7


def test_words_of_a_text():
    """The echo lacks the last word of each sentence, and a reverse echo finds it improbable."""
    translate = translator(Echo(lost=1), words := WordTokenizer())
    translate.reverse = translator(Echo(), words)
    text = "One two three. \n\n Four five"
    translation = translate(text, coverage=CoverageOptions(support=True))
    assert [word.text for word in translation.coverage.untranslated] == ["three", "five"]
    assert [translation.text[word.start : word.end] for word in translation.coverage.target_words] == [
        "One",
        "two",
        "Four",
    ]
    assert translation.coverage.support == pytest.approx(1.0)
    assert not translation.coverage.unsupported
    (blank,) = translate.cover([" "], ["x"], coverage=CoverageOptions(support=True))
    assert (blank.score, blank.target_words) == (1.0, ())


def test_a_choice_among_unverified_marks_warns_once(caplog, monkeypatch):
    monkeypatch.setattr("capsule_mt.messages._messages_logged", set())
    translate = translator(Echo(lost=1), words := WordTokenizer())
    translate("one two", coverage=CoverageOptions())
    assert not caplog.records
    for _ in range(2):
        translate("one two", coverage=CoverageOptions(marks="likely"))
        translate.cover(["one two"], ["one"], coverage=CoverageOptions(marks="likely"))
    (message,) = caplog.messages
    assert message.startswith('`marks="likely"` chooses among marks that a reverse model has verified')
    assert "are unverified" in message
    assert message.endswith("name the reverse model by `reverse` (`--reverse`).")
    translate.reverse = translator(Echo(), words)
    translate("one two", coverage=CoverageOptions(marks="sure"))
    assert len(caplog.messages) == 1
    translate("one two", coverage=CoverageOptions(marks="sure", method="deletion"))
    assert caplog.messages[1].endswith('use `method="verified"`.')
    without_heads = translator(Echo(), words, calibration={}, head_shape=(0, 0))
    without_heads("one two", coverage=CoverageOptions(marks="all"))
    assert caplog.messages[2].endswith("its decoder is not built like Marian's, so nothing verifies them.")


@pytest.fixture(scope="module")
def pair():
    return Translator.from_pretrained(GERMAN, reverse=Translator.from_pretrained(ENGLISH))


def test_the_released_pair(pair):
    complete, short = pair.cover([SOURCE] * 2, [COMPLETE, SHORT], coverage=CoverageOptions(method="verified"))
    assert [word.text for word in complete.untranslated] == []
    assert [word.text for word in short.untranslated] == ["Garten", "ihrer", "Großmutter"]
    assert short.score < 0.8 < complete.score


def test_a_given_translation_has_an_alarm_of_its_own(pair):
    """People translate more freely than the model, so the alarm of its own translations would cry wolf."""
    calibration = pair.loaded.calibration
    alarms = {"alarm": {"score": 0.9}, "human_alarm": {"score": 0.4}}
    own_alone = {name: value for name, value in calibration["verified"].items() if name != "human_alarm"}
    translate = Translator(pair.loaded, reverse=pair.reverse)
    for verified, alarm in ((calibration["verified"] | alarms, 0.4), (own_alone | {"alarm": {"score": 0.9}}, 0.9)):
        alarms = {name: ALARM | value for name, value in verified.items() if name.endswith("alarm")}
        translate.set_calibration(calibration | {"verified": verified | alarms})
        assert translate(SOURCE, coverage=CoverageOptions()).coverage.threshold == 0.9
        assert translate.cover([SOURCE], [SHORT])[0].threshold == alarm
        assert translate.cover([SOURCE], [SHORT], coverage=CoverageOptions(threshold=0.7))[0].threshold == 0.7


def test_single_words_of_a_given_translation_are_marked_only_if_that_is_requested(pair):
    lost = "The children are playing today in their garden."

    def marked(translations, **options):
        coverages = pair.cover([SOURCE] * len(translations), translations, coverage=CoverageOptions(**options))
        return [[word.text for word in coverage.untranslated] for coverage in coverages]

    alarmed = ["Garten", "ihrer", "Großmutter"]
    assert marked([lost, "The children are playing."]) == [[], alarmed]  # the latter raises the alarm
    assert marked([lost], threshold=0.9) == [["Großmutter"]]
    for options in ({"marks": "likely"}, {"method": "verified"}):
        assert marked([lost], **options) == [["Großmutter"]]
    (silent,), (marking,) = (
        pair.cover([SOURCE], [lost], coverage=options) for options in (None, CoverageOptions(marks="likely"))
    )
    assert silent.score == marking.score


def test_marks_that_readers_mostly_found_wrong_are_off_by_default():
    counts = [3, 16]
    calibration = {"attention": {"head": [0, 0]}, "verified": {"right_marks": {"likely": counts}}}
    translate = translator(Echo(lost=1), words := WordTokenizer(), calibration=calibration)
    translate.reverse = translator(Echo(), words)

    def marked(**options):
        return [
            word.text for word in translate("one two three", coverage=CoverageOptions(**options)).coverage.untranslated
        ]

    assert translate.precision == {"likely": 0.19}
    assert marked() == []
    assert marked(threshold=1) == marked(marks="all") == ["three"]
    counts[0] = 8
    translate.set_calibration(dict(calibration))
    assert marked() == ["three"]


def test_words_that_were_made_up(pair):
    made_up = "The children are playing today in their grandmother's old castle garden."
    (silent,) = pair.cover([SOURCE], [made_up], coverage=CoverageOptions(support=True))
    assert not silent.unsupported
    (coverage,) = pair.cover([SOURCE], [made_up], coverage=CoverageOptions(support=True, marks="likely"))
    assert silent.support == coverage.support
    assert {"old", "castle"} <= {word.text for word in coverage.unsupported}
    assert not {"children", "playing", "grandmother", "garden"} & {word.text for word in coverage.unsupported}
    assert [made_up[word.start : word.end] for word in coverage.target_words] == [
        w.text for w in coverage.target_words
    ]
    assert coverage.support < 1


def test_precision_is_what_a_reader_found(pair):
    assert pair.precision == {"sure": 0.54, "likely": 0.5, "all": 0.41}
    calibration, translator = pair.loaded.calibration, Translator.from_pretrained(GERMAN)
    verified = calibration["verified"]
    old = {"labels": "by hand", "marks": {"all": {"marks": 4, "precision": 0.5, "recall": 0.5}}, "unrelated": {}}
    translator.set_calibration(calibration | {"verified": {"reverse": verified["reverse"]} | old})  # as 0.4 wrote it
    assert translator.has_reverse
    assert translator.precision is None
    translator.set_calibration(calibration | {"verified": verified | {"reverse": "elsewhere"}})
    assert not translator.has_reverse
    assert translator.precision is None


def test_the_reverse_that_a_calibration_names(pair):
    alone = Translator.from_pretrained(ENGLISH)
    alone.set_calibration({**alone.loaded.calibration, "verified": {"reverse": "capsule-marian-de-en"}})
    assert alone.has_reverse
    assert alone.reverse.loaded.name.endswith("capsule-marian-de-en")
    alone.set_calibration({**alone.loaded.calibration, "verified": {"reverse": "elsewhere"}})
    assert not Translator(alone.loaded).has_reverse


def test_support_needs_a_calibrated_reverse(pair):
    assert pair.gives_support
    alone, reverse = Translator.from_pretrained(GERMAN), Translator.from_pretrained(ENGLISH)
    reverse.set_calibration({})
    alone.reverse = reverse
    assert alone.has_reverse
    assert not alone.gives_support
    with pytest.raises(ValueError, match="`support` needs a `reverse` with a head that aligns words"):
        alone(SOURCE, coverage=CoverageOptions(support=True))


def test_a_loaded_reverse_of_the_same_direction_is_refused(pair):
    message = r"`reverse` must translate en-de, since .*de-en translates de-en; got .*de-en, which translates de-en$"
    with pytest.raises(ValueError, match=message):
        Translator.from_pretrained(GERMAN, reverse=pair)
    with pytest.raises(ValueError, match=message):
        pair.reverse = Translator(pair.loaded)
    for argument in (5, PivotTranslator(pair, pair)):
        actual = re.escape(f"got {argument!r:.70}")
        with pytest.raises(TypeError, match=f"`reverse` must be a `Translator`, or .* a model, {actual}"):
            Translator(pair.loaded, reverse=argument)
    with pytest.raises(ValueError, match=r"`reverse` must be a `Translator`, or .* a model, got an empty string$"):
        Translator(pair.loaded, reverse="")
    assert pair.reverse.loaded.name == str(ENGLISH)


@pytest.mark.parametrize("folder", [f"{ENGLISH}s", "not/a/model"])
def test_a_reverse_that_cannot_be_a_model_is_refused_before_it_is_needed(pair, folder):
    with pytest.raises(ValueError, match=rf"^`reverse`: {folder}: no such folder"):
        Translator(pair.loaded, reverse=folder)
    with pytest.raises(ValueError, match=rf"^`reverse`: {folder}: no such folder"):
        pair.reverse = folder
    assert Translator(pair.loaded, reverse="de-en").has_reverse  # a name is downloaded when it is needed


def test_a_reverse_that_is_not_there_is_looked_for_once(pair, monkeypatch):
    looked_for = []
    monkeypatch.setattr(TranslatorModel, "downloaded_folder", lambda self, name: looked_for.append(name))
    alone = Translator.from_pretrained(ENGLISH)
    alone.set_calibration({**alone.loaded.calibration, "verified": {"reverse": "elsewhere"}})
    alone(["Good morning.", "Good night."], coverage=CoverageOptions())
    assert looked_for == ["elsewhere"]


def test_a_forced_pass_over_requested_words_alone(pair):
    """Their log-probabilities are the same; the pass ends at the last of them."""
    verb, garden = (Span(SOURCE.index(word), SOURCE.index(word) + len(word)) for word in ("spielen", "Garten"))
    (complete,) = pair.reverse.force([COMPLETE], [SOURCE])
    partial, blank, nothing = pair.reverse.force(
        [COMPLETE, " ", COMPLETE], [SOURCE] * 3, spans=[[verb, garden], [], []]
    )
    assert (blank, len(nothing.forced.log_probs)) == (None, 1)
    assert complete.target == partial.target
    requested = [bool(span) and overlaps(Span(*span), [verb, garden]) for span in partial.target]
    assert sum(requested) >= 2
    assert not requested[len(partial.forced.log_probs) :].count(True)
    assert len(partial.forced.log_probs) < len(complete.forced.log_probs)
    for is_requested, log_prob, expected in zip(
        requested, partial.forced.log_probs, complete.forced.log_probs, strict=False
    ):
        assert log_prob == expected if is_requested else math.isnan(log_prob)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "`coverage_calibration` must be an object, got None"),
        ([], r"`coverage_calibration` must be an object, got \[\]"),
        ({"attention": {"head": [9, 0]}}, r"`coverage_calibration.attention.head` must be a layer and a head of \d+"),
        ({"verified": {"alarm": 0.5}}, "`coverage_calibration.verified.alarm` must be an object, got 0.5"),
    ],
)
def test_a_calibration_that_is_set_is_checked(pair, values, message):
    before = pair.calibration
    with pytest.raises(ValueError, match=f"^`set_calibration`: {message}"):
        pair.set_calibration(values)
    assert pair.calibration == before


def test_a_made_up_word_by_hand():
    """The words have the tokens 0, 1 to 2 and 3 of the translation, the end token apart."""
    spans = [Span(0, 3), Span(4, 9), Span(10, 15)]
    offsets = [(0, 3), (4, 6), (6, 9), (10, 15), None]
    words = list(zip(spans, [0.5, 0.1, 0.5], strict=True))
    by_hand = [0.4, math.log(9) + 0.4 * 3, 0.4 * 8]
    expected = [
        by_hand[0] + 0.5 * by_hand[1],
        by_hand[1] + 0.5 * (by_hand[0] + by_hand[2]) / 2,
        by_hand[2] + 0.5 * by_hand[1],
    ]
    measured = support_doubts("one threy fiver", offsets, [-1.0, -2.0, -4.0, -20.0, 0.0], words)
    assert measured == pytest.approx(expected)


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        ([], set()),
        ([1.0, 0.04, 0.02, 0.03, 0.03, 0.9], {1, 2, 3, 4}),
        ([0.0001, 0.9, 0.001, 0.9, 0.01], {0, 1, 2, 3}),  # the last four have more
        ([1.0, 1.0, 0.000001, 1.0, 1.0], set()),
        ([0.01, 0.01, 0.01], set()),
        ([0.01, 0.01, 0.005], {0, 1, 2}),
    ],
)
def test_only_rows_of_words_are_probably_made_up(supported, expected):
    assert made_up_indices(supported) == expected


def test_tags_do_not_change_the_scores_of_translations(pair, caplog):
    texts = ["Der <i>alte</i> Mann kauft <a href='x'>einen roten Hut</a>.", "<p>Er schläft.</p>"]
    options = CoverageOptions(support=True)
    expected = pair(texts, coverage=options, alignment=True)
    translations = [translation.text for translation in expected]
    assert translations == ["The <i>old</i> man buys <a href='x'>a red hat</a>.", "<p>He's sleeping.</p>"]
    scored = pair.score(texts, translations, coverage=options, alignment=True)
    for translation, result in zip(expected, scored, strict=True):
        assert result.score == pytest.approx(translation.score, abs=1e-5)
        assert result.alignment == translation.alignment
        assert [word.text for word in result.coverage.words] == [word.text for word in translation.coverage.words]
        assert result.coverage.score == pytest.approx(translation.coverage.score, abs=1e-5)
    (forced_pair,) = pair.force(texts[1:], translations[1:])
    assert [translations[1][slice(*span)] for span in forced_pair.target if span][:2] == ["He", "'"]
    assert pair.score(["Er schläft."], translations[1:])[0].score == pytest.approx(scored[1].score, abs=1e-5)
    assert not caplog.records


@pytest.mark.parametrize("case", vectors("forced")["cases"], ids=lambda case: case["text"])
def test_what_the_model_reads_of_a_translation(case):
    decoder, tokenizer, text = Echo(), WordTokenizer(), case["text"]
    (forced_pair,) = translator(decoder, tokenizer).force([text], [case["translation"]])
    if case["source"] is None:
        assert forced_pair is None
        return
    ((sources, targets),) = decoder.forced
    assert [text[slice(*span)] for span in forced_pair.source if span] == case["source"]
    assert [tokenizer.decode(sources[0]), tokenizer.decode(targets[0])] == [case["read"], case["target"]]


def test_tags_between_sentences_are_read_as_a_space(pair, caplog):
    text, translation = "<p>Er schläft.</p><p>Er liest.</p>", "<p>He sleeps.</p><p>He reads.</p>"
    (scored,) = pair.score([text], [translation], coverage=CoverageOptions(support=True))
    (plain,) = pair.score(
        ["Er schläft.  Er liest."], ["He sleeps.  He reads."], coverage=CoverageOptions(support=True)
    )
    assert scored.segments[0].source_ids == plain.segments[0].source_ids
    assert scored.segments[0].target_ids == plain.segments[0].target_ids
    assert scored.score == pytest.approx(plain.score, abs=1e-5)
    words = [word.text for word in scored.coverage.words]
    assert words == [word.text for word in plain.coverage.words]
    assert [text[word.start : word.end] for word in scored.coverage.words] == words
    (forced_pair,) = pair.force([text], [translation])
    assert "".join(translation[slice(*span)] for span in forced_pair.target if span) == "Hesleeps.Hereads."
    assert not caplog.records


def test_checks_know_the_languages_that_the_folder_tells(pair):
    (scored,) = pair.score(["Er schläft nicht."], ["He sleeps."], coverage=CoverageOptions())
    assert scored.coverage.checks == (Check("negation", "nicht", ""),)
    assert pair("Er schläft nicht.", coverage=CoverageOptions()).coverage.checks == ()


def test_a_mark_is_a_trigger_first(pair):
    """A sentence with a mark is translated again, and keeps the translation with the fewest."""
    calibration = dict(pair.loaded.calibration)
    before = pair(SOURCE, coverage=CoverageOptions())
    try:
        pair.set_calibration(calibration | {"verified": calibration["verified"] | {"retries_marks": True}})
        after = pair(SOURCE, coverage=CoverageOptions())
        assert pair(SOURCE).text == before.text  # without coverage, nothing is marked
    finally:
        pair.set_calibration(calibration)
    assert len(after.coverage.untranslated) < len(before.coverage.untranslated)

"""Coverage: how much of each word is translated, by hand, by a fake decoder, and by a model that leaves words out."""

import math
import re
from statistics import mean

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.coverage import deletion
from capsule_mt.coverage.curves import evidence_of, on_curve
from capsule_mt.coverage.documents import coverage_of, repeated_phrases
from capsule_mt.coverage.methods import Calibration, attention_coverage, choose_method, cover
from capsule_mt.coverage.piece_coverage import PieceCoverage, PieceSupport
from capsule_mt.coverage.problems import problems_in
from capsule_mt.engine.search import Forced, Hypothesis
from capsule_mt.files.lines import coverage_record
from capsule_mt.text.segments import Document
from capsule_mt.text.sentences import Span
from capsule_mt.text.words import SourceWord, WordLists, source_words
from tests.fixtures.vectors import spans_in, vectors
from tests.fixtures.word_for_word import TEXTS, TRANSLATION, count_marks
from tests.light.decoders import Echo, translator
from tests.light.text.fakes import WordTokenizer, plain_piece

METHODS = ("attention", "deletion")
HEAD = {"head": [1, 2]}
# everything in doubt is half translated
CURVES = {"words": [[0.0, 0.25], [16.0, 0.75]], "sentences": [[0.0, 0.0], [0.5, 0.2], [1.0, 1.0]]}


def word(*tokens, **facts):
    return SourceWord(Span(0, 1), list(tokens), **{"is_mark": False, "is_unknown": False} | facts)


def piece_of(ids, words):
    return plain_piece("x", None, ids, words)


# ---- curves and choices
def test_a_curve_is_read_as_numpy_does():
    values = [-1.0, 0.0, 0.25, 0.5, 0.75, 2.0]
    assert [on_curve(CURVES["sentences"], value) for value in values] == pytest.approx([0, 0, 0.1, 0.2, 0.6, 1])
    assert [on_curve([[0.3, 0.5]], value) for value in values] == [0.5] * 6


def test_what_auto_stands_for_and_what_a_model_lacks():
    calibrated, uncalibrated = Calibration.of_config({"attention": HEAD}), Calibration.of_config(None)
    model = {"num_heads": 8, "name": "a model"}
    assert choose_method("auto", calibrated, **model) == "attention"
    assert choose_method("auto", uncalibrated, **model) == "deletion"
    with pytest.raises(ValueError, match='"attention"` needs a head that aligns words, which `capsule-mt calibrate`'):
        choose_method("attention", uncalibrated, **model)
    with pytest.raises(ValueError, match='"attention"` needs a decoder built like Marian\'s, got a model'):
        choose_method("attention", calibrated, **model | {"num_heads": 0})


def test_a_calibration_of_the_removed_method_is_refused_by_name():
    """Its alarm and scores belong to "guided"; with a head that aligns words, they were never used."""
    model = {"num_heads": 8, "name": "a model"}
    guided = {"guided": {"words": [[0.0, 0.0]]}, "deletion": {"words": [[0.0, 0.0]]}}
    with pytest.raises(ValueError, match=r'of a model is of "guided", .* `capsule-mt calibrate`, or .*"deletion"`'):
        choose_method("auto", Calibration.of_config(guided), **model)
    assert choose_method("deletion", Calibration.of_config(guided), **model) == "deletion"
    assert choose_method("auto", Calibration.of_config(guided | {"attention": HEAD}), **model) == "attention"
    with pytest.raises(ValueError, match="verified, attention or deletion, got 'guided'; `capsule-mt analyze` shows"):
        CoverageOptions(method="guided")


def test_options_that_are_refused():
    with pytest.raises(ValueError, match="must be auto, verified, attention or deletion, got 'delete'"):
        CoverageOptions(method="delete")
    for name in ("threshold", "retry_beams", "weight"):
        with pytest.raises(TypeError, match=f"`{name}` must be a number, got '4'"):
            CoverageOptions(**{name: "4"})
    for retry_beams in (1, 2.5, 4.0, float("inf")):
        with pytest.raises(ValueError, match=f"`retry_beams` must be a whole number of at least 2, got {retry_beams}"):
            CoverageOptions(threshold=0.5, retry_beams=retry_beams)
    for threshold in (-0.1, 80, float("nan")):
        with pytest.raises(ValueError, match="`threshold` of coverage must be a score from 0 to 1, got"):
            CoverageOptions(threshold=threshold)
    for weight in (-1, float("inf")):
        with pytest.raises(ValueError, match=f"`weight` of coverage must be a finite number .* 0, got {weight}"):
            CoverageOptions(weight=weight)
    with pytest.raises(TypeError, match="`support` must be True or False, got 'yes'"):
        CoverageOptions(support="yes")
    with pytest.raises(ValueError, match="`marks` must be sure, likely or all, got 'some'"):
        CoverageOptions(marks="some")
    with pytest.raises(
        ValueError, match=r"`retry_beams` \(4\) needs a `threshold`: the calibration of an echo has no"
    ):
        translator()("one two", coverage=CoverageOptions(retry_beams=4))
    with pytest.raises(ValueError, match='"verified"` needs a reverse model: give an echo a `reverse`'):
        translator()("one two", coverage=CoverageOptions(method="verified"))
    with pytest.raises(ValueError, match="`support` needs a reverse model: give an echo a `reverse`"):
        translator()("one two", coverage=CoverageOptions(support=True))


# ---- the methods by hand
def test_attention_by_hand():
    words = [word(0), word(1, 2), word(3, is_mark=True), word(4, is_unknown=True)]
    measured = attention_coverage(piece_of([5, 6, 7, 8, 0, 1], words), [0.1, 0.1, 0.9, 0.0, 0.8, 0.3], None)
    assert measured.covered == [0.1, 0.9, 1.0, 0.0]
    assert measured.marked == [True, False, False, True]  # below 0.2; an unknown word is missing
    assert measured.score == pytest.approx((0.1 + 0.9 + 0.0) / 3)
    assert measured.omitted_share == pytest.approx((0.9 + 0.1 + 0.2) / 3)


VECTORS = vectors("marks")


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["text"])
def test_marks_by_attention(case):
    """The vectors that JavaScript reads, too."""
    text, offsets = case["text"], spans_in(case["text"], case["tokens"])
    ids = [0 if token in case["unknown"] else token + 3 for token in range(len(offsets))]
    lists = WordLists(frozenset(case["optional_words"]), frozenset(case["function_words"]))
    piece = plain_piece(text, None, ids, source_words(text, offsets, ids, 0, lists), offsets)
    coverage = attention_coverage(piece, case["received"], VECTORS["calibration"], case["translation"])
    words = [text[slice(*word.span)] for word in piece.words]
    assert words == [word["word"] for word in case["words"]]
    assert coverage.covered == pytest.approx([word["covered"] for word in case["words"]], abs=1e-5)
    marked = [mark and not word.is_mark for mark, word in zip(coverage.marked, piece.words, strict=True)]
    assert marked == [word["untranslated"] for word in case["words"]]
    assert coverage.score == pytest.approx(case["score"], abs=1e-5)


@pytest.mark.parametrize("case", VECTORS["alarmed"], ids=repr)
def test_single_marks_only_in_alarmed_sentences(case):
    """The vectors that JavaScript reads, too: words of both texts, each sentence by its own score."""
    sources, translations = ([sentence[name] for sentence in case["sentences"]] for name in ("source", "translation"))
    text, pieces, coverages = " ".join(sources), [], []
    for sentence, start in zip(case["sentences"], starts_of(sources), strict=True):
        source, target = sentence["source"], sentence["translation"]
        words = [
            SourceWord(Span(start + match.start(), start + match.end()), [], is_mark=False, is_unknown=False)
            for match in re.finditer(r"\w+", source)
        ]
        pieces.append(plain_piece(text, (start, start + len(source)), words=words))
        spans = [Span(*match.span()) for match in re.finditer(r"\w+", target)]
        made_up = [target[slice(*span)] in sentence["unsupported"] for span in spans]
        marked = [text[slice(*word.span)] in sentence["untranslated"] for word in words]
        support = PieceSupport(spans, [1.0] * len(spans), made_up, 1.0)
        coverages.append(PieceCoverage([1.0] * len(words), marked, sentence["score"], 0.0, support))
    parts = [*zip(translations, starts_of(translations), strict=True)]
    covered = coverage_of(
        Document(text, pieces=pieces), coverages, parts, translations, case["threshold"], marks_single_words=False
    )
    assert [word.text for word in covered.words if word.marked] == case["marked"]
    assert [word.text for word in covered.target_words if word.marked] == case["made_up"]


@pytest.mark.parametrize(("support", "is_alarm"), [(0.029, True), (0.031, False)])
def test_marks_outside_alarmed_sentences_need_a_row_with_hardly_any_support(support, is_alarm):
    text, target = "Er kommt.", "He comes from an old castle."
    spans = [Span(*match.span()) for match in re.finditer(r"\w+", target)]
    shares = [1.0, 0.9, support, support, support, support]
    piece_support = PieceSupport(spans, shares, [share < 0.5 for share in shares], 0.3)
    coverage = PieceCoverage([], [], 0.9, 0.0, piece_support)
    document = Document(text, pieces=[plain_piece(text, (0, len(text)), words=[])])
    covered = coverage_of(document, [coverage], [(target, 0)], [target], 0.5, marks_single_words=False)
    assert [word.text for word in covered.unsupported] == (["from", "an", "old", "castle"] if is_alarm else [])
    (problem, *_) = [*problems_in(text, target, {"coverage": coverage_record(covered)}), None]
    assert (problem and problem.reason) == ("made_up" if is_alarm else None)


def starts_of(sentences):
    """Return where each sentence starts in a text that joins them with spaces."""
    return [len(" ".join([*sentences[:index], ""])) for index in range(len(sentences))]


class Sums:
    """Gives each token a log-probability of the sum of the source ids / 1000; notes the sources of each call."""

    def __init__(self):
        self.sources = []

    def force(self, sources, targets, readings, positions=None):
        self.sources.append([list(source) for source in sources])
        return [Forced([sum(source) / 1000] * len(target)) for source, target in zip(sources, targets, strict=True)]


def test_deletion_by_hand(monkeypatch):
    words = [word(0), word(1, 2), word(3, is_mark=True)]
    pieces = [piece_of([500, 200, -700, 7, 1], words), piece_of([9], [word(0)])]
    hypotheses = [Hypothesis([3, 4, 1], [], False), Hypothesis([3, 1], [], False)]
    decoder = Sums()
    first, second = cover(pieces, hypotheses, "deletion", decoder, Calibration(), 1)
    assert first.covered == pytest.approx([1 / (1 + math.exp(-1.5)), 1 / (1 + math.exp(1.5)), 1.0])
    assert first.marked == [False, True, False]
    assert first.score == pytest.approx(0.5)
    assert second.covered == [0.5]  # nothing is left without the word: it stays
    assert decoder.sources == [[[500, 200, -700, 7, 1], [200, -700, 7, 1], [500, 7, 1]], [[9], [9]]]
    monkeypatch.setattr(deletion, "TOKENS_AT_ONCE", 1)
    assert cover(pieces, hypotheses, "deletion", decoder, Calibration(), 1) == [first, second]


def test_what_a_search_has_not_read_is_read_by_a_forced_pass():
    calibration, decoder = Calibration.of_config({"attention": HEAD}), Echo()
    pieces = [piece_of([5, 6, 1], [word(0), word(1)])] * 3
    read, unread, empty = (Hypothesis(ids, [], False) for ids in ([5, 6, 1], [6, 1], [1]))
    read.attention = [[0.3, 0.1, 0.5], [0.2, 0.4, 0.1]]
    coverages = cover(pieces, [read, unread, empty], "attention", decoder, calibration, 1)
    assert [coverage.covered for coverage in coverages] == [[0.3, 0.4], [0.0, 1.0], [0.0, 0.0]]
    assert decoder.forced == [([pieces[0].ids] * 2, [[6, 1], [1]])]
    assert empty.received == [0.0] * 3  # an end alone covers nothing, whatever it attends to


@pytest.mark.parametrize(
    ("translation", "source", "phrases"),
    [
        ("Das alte Haus, das alte Haus, steht.", "The old house stands.", ["das alte haus ,"]),
        ("Er ist sehr sehr alt.", "He is very very old.", []),
        ("Er ist sehr sehr alt.", "He is very old.", ["sehr"]),
        ("nein nein nein nein", "no", ["nein nein", "nein"]),
        ("Das Haus und das Haus.", "The house and the house.", []),
        ("...", "...", []),
    ],
)
def test_repetitions(translation, source, phrases):
    assert repeated_phrases(translation, source) == phrases


# ---- of a whole text
def test_each_word_of_the_users_string():
    text = "  One two three.  \n\n Four five "
    coverage = translator(Echo(lost=1))(text, coverage=CoverageOptions()).coverage
    assert [text[word.start : word.end] for word in coverage.words] == [word.text for word in coverage.words]
    assert [word.text for word in coverage.words] == ["One", "two", "three", ".", "Four", "five"]
    assert [text[word.start : word.end] for word in coverage.sentences] == ["One two three.", "Four five"]
    assert [word.score for word in coverage.sentences] == pytest.approx([2 / 3, 1 / 2])
    assert coverage.score == pytest.approx(3 / 5)  # words count, not sentences
    assert [word.text for word in coverage.untranslated] == ["three", "five"]


def test_copied_words_are_not_missing_and_unknown_ones_are():
    tokenizer = WordTokenizer(unknown=("xyz", "zyx", "!", "\U0001f642"))
    translate = translator(tokenizer=tokenizer)
    for method in ("attention", "deletion"):
        options = CoverageOptions(method=method)
        coverage = translate("one xyz !", coverage=options).coverage
        known_word, unknown, mark = coverage.words
        assert (unknown.text, unknown.covered, unknown.marked) == ("xyz", 1.0, False)
        assert (mark.text, mark.marked) == ("!", False)
        assert coverage.score == pytest.approx((known_word.covered + 1) / 2)
        record, emoji = translate(["xyz zyx", "\U0001f642"], coverage=options)
        assert (record.coverage.score, len(record.coverage.words)) == (1.0, 2)  # it is not blank
        with_it, without = translate.cover(["one xyz"] * 2, ["one xyz", "one"], coverage=options)
        assert [[word.text for word in result.untranslated] for result in (with_it, without)] == [[], ["xyz"]]
        assert with_it.score > without.score
        assert (emoji.text, emoji.coverage.score) == ("\U0001f642", 1.0)
    assert translate("?!", coverage=CoverageOptions(method="deletion")).coverage.score == 1


# ---- by a model that leaves words out
@pytest.fixture(scope="module")
def omitting(word_for_word):
    return Translator.from_pretrained(word_for_word)


def calibrated(translate, **calibration):
    """Return the same model with this calibration."""
    return Translator(translate.loaded._replace(calibration=calibration))


def test_it_finds_what_is_missing(omitting):
    """With a head of this checkpoint that shows what is missing."""
    translations = calibrated(omitting, attention=HEAD)(TEXTS, batch_size=40, coverage=CoverageOptions())
    marks = [[word.marked for word in translation.coverage.words] for translation in translations]
    counts = count_marks([translation.text for translation in translations], marks)
    assert counts["missing"] >= 20
    assert counts["missing and marked"] / counts["missing"] > 0.5
    assert counts["translated and marked"] / counts["translated"] < 0.15


@pytest.mark.parametrize("method", METHODS)
def test_neither_the_batch_nor_who_translated_matters(omitting, method):
    """A search reads what a forced pass reads of its translation."""
    options = CoverageOptions(method=method)
    translate = calibrated(omitting, attention=HEAD)
    alone = [translate(text, coverage=options) for text in TEXTS[:6]]
    together = translate(TEXTS[:6], batch_size=6, coverage=options)
    coverages = translate.cover(TEXTS[:6], [translation.text for translation in alone], coverage=options, batch_size=3)
    for single, in_batch, forced in zip(alone, (result.coverage for result in together), coverages, strict=True):
        assert (
            single.coverage.score == pytest.approx(in_batch.score, abs=1e-5) == pytest.approx(forced.score, abs=1e-4)
        )
        shares = [[word.covered for word in result.words] for result in (single.coverage, in_batch, forced)]
        assert shares[0] == pytest.approx(shares[1], abs=1e-5)
        assert shares[0] == pytest.approx(shares[2], abs=1e-4)


# ---- calibrated
def score_of(counted, curves=CURVES):
    """Return the expected score of counted words: by the curve, and at most the share of unmarked words."""
    score = on_curve(curves["sentences"], mean(word.covered for word in counted))
    return pytest.approx(min(score, 1 - mean(word.marked for word in counted)), abs=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_curves_apply(omitting, method):
    head = HEAD if method == "attention" else {}
    options, texts = CoverageOptions(method=method), [*TEXTS[:6], "balu Xyz"]
    uncalibrated = calibrated(omitting, **{method: head} if head else {})(texts, coverage=options)
    with_curves = calibrated(omitting, **{method: CURVES | head})(texts, coverage=options)
    for plain, curved in zip(uncalibrated, with_curves, strict=True):
        expected = [on_curve(CURVES["words"], evidence_of(word.covered)) for word in plain.coverage.words]
        if plain.coverage.words[-1].text == "Xyz":
            expected[-1] = 0.0  # the vocabulary lacks it
        assert [word.covered for word in curved.coverage.words] == pytest.approx(expected, abs=1e-5)
        assert [word.marked for word in curved.coverage.words] == [value < 0.5 for value in expected]
        assert curved.coverage.score == score_of(curved.coverage.words)


@pytest.mark.parametrize("method", METHODS)
def test_optional_words_do_not_count(omitting, method):
    curves = {method: CURVES | (HEAD if method == "attention" else {})}
    text, *small_letters = TEXTS[0], *(word.casefold() for word in TEXTS[0].split()[1:])
    translations, options = [TRANSLATION[text.split()[0]]], CoverageOptions(method=method)
    all_counted, first_counted = (
        calibrated(omitting, **curves, optional_words=optional).cover([text], translations, coverage=options)[0]
        for optional in ([], small_letters)
    )
    assert any(word.marked for word in all_counted.words[1:])
    assert not any(word.marked for word in first_counted.words[1:])
    assert [word.covered for word in first_counted.words] == [word.covered for word in all_counted.words]
    assert first_counted.words[0] == all_counted.words[0]
    assert first_counted.score == score_of(first_counted.words[:1])

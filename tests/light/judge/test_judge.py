"""Judges: the evidence of an encoder against plain loops, numbers fitted to marked words, and reasons by name."""

import json
import math
import random
import subprocess
import sys

import pytest

from capsule_mt import Encoder, Judge, UnsupportedModelError
from capsule_mt.catalog.entries import CatalogError
from capsule_mt.coverage.problems import problems_in
from capsule_mt.coverage.reasons import LEVELS
from capsule_mt.files.lines import judgement_record
from capsule_mt.judge.judge import MAX_PROBE_DEVIATION
from capsule_mt.judge.numbers import JudgeNumbers, WordOdds, largest_window, read_numbers
from capsule_mt.judge.witness import EVIDENCE, Witness, _disorder
from capsule_mt.models.tensors import floats
from tests.light.judge.encoders import LAYERS, POSITIONS, WIDTH, sentence, write_encoder

NO_ODDS = WordOdds((0.0,) * len(EVIDENCE), (1.0,) * len(EVIDENCE), (0.0,) * len(EVIDENCE), -9.0, 1.0, 0.0)
NO_THRESHOLDS = {"another text": 9.0, "left out": 9.0, "made up": 9.0, "order": 9.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def encoder(folder):
    return Encoder.from_pretrained(folder, layers=[1, LAYERS])


@pytest.fixture(scope="module")
def witness(encoder):
    return Witness(encoder, 1)


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def rows_of(encoder, text, layer):
    numbers = floats(encoder.hidden_states([text])[0].states[layer])
    return [list(numbers[start : start + WIDTH]) for start in range(0, len(numbers), WIDTH)]


def test_a_pair_that_takes_too_long_is_refused(witness):
    witness.compare([" ".join(["bal"] * 900)], ["den"])
    with pytest.raises(ValueError, match=r"have 1,002 and 1,002 tokens, .* at most 1,000,000: cut them"):
        witness.compare(["bal " * 1000], ["bal " * 1000])


def test_evidence_is_that_of_plain_loops(encoder, witness):
    """Words of one token each, so that a word's similarity is its token's."""
    source, target = "bal den fir gom kun", "den bal kal fir"
    [evidence] = witness.compare([source], [target])
    first, second = (rows_of(encoder, text, 1)[1:-1] for text in (source, target))
    similarities = [[cosine(a, b) for b in second] for a in first]
    best = [max(row) for row in similarities]
    margins = []
    for index, row in enumerate(similarities):
        others = [max(other[column] for k, other in enumerate(similarities) if k != index) for column in range(4)]
        margins.append(max(value - other for value, other in zip(row, others, strict=True)))
    means = [
        [math.fsum(column) / len(rows) for column in zip(*rows, strict=True)]
        for rows in (rows_of(encoder, text, LAYERS) for text in (source, target))
    ]
    assert evidence.similarity == pytest.approx(cosine(*means), abs=1e-5)
    around = [1.0, *best, 1.0], [1.0, *margins, 1.0]
    for index, word in enumerate(evidence.source):
        assert source[word.start : word.end] == source.split()[index]
        near = [min(numbers[index], numbers[index + 2]) for numbers in reversed(around)]
        expected = [best[index], margins[index], best[index], *near, evidence.similarity, -math.log(3)]
        assert word.distances == pytest.approx([-value for value in expected], abs=1e-4)
    assert [word.partner for word in evidence.target] == [1, 0, evidence.target[2].partner, 2]


def test_the_other_direction_is_the_same_evidence_swapped(witness):
    [there] = witness.compare(["bal den fir gom"], ["fir gom bals"])
    [back] = witness.compare(["fir gom bals"], ["bal den fir gom"])
    for word, mirrored in zip((*there.source, *there.target), (*back.target, *back.source), strict=True):
        assert word.distances == pytest.approx(mirrored.distances, abs=1e-5)
    assert there.disorder == pytest.approx(there.swapped().disorder)


def test_disorder_is_the_gain_of_sentences_that_change_their_order(witness):
    first, second, third = "Bal den fir.", "Gom kun bal.", "Kal bal gom den."
    source = f"{first} {second} {third}"
    targets = [f"{first} {second} {third}", f"{second} {first} {third}", f"{first} {second[:-1]}, {third}", first]
    evidence = witness.compare([source] * 4, targets)
    assert [pair.disorder > 0 for pair in evidence] == [False, True, False, False]
    # of words in one sentence, the order is not told
    assert witness.compare(["Bal den fir gom kun."], ["Kun gom fir den bal."])[0].disorder == 0.0


def test_disorder_is_that_of_plain_loops():
    """Four words in two sentences on each side, of which each is nearest to the other one's counterpart."""
    words = [[0.1, 0.2, 0.9, 0.4], [0.3, 0.1, 0.5, 0.8], [0.7, 0.3, 0.2, 0.1], [0.2, 0.6, 0.3, 0.3]]
    halves = [[0, 1], [2, 3]]
    exchanged = (0.9 + 0.8 + 0.9 + 0.8) / 4 + (0.7 + 0.6 + 0.7 + 0.6) / 4
    in_place = (0.2 + 0.3 + 0.3 + 0.2) / 4 + (0.2 + 0.3 + 0.3 + 0.3) / 4
    assert _disorder(words, halves, halves) == pytest.approx(exchanged - in_place)
    assert _disorder(words, [[0, 1, 2, 3]], halves) == _disorder(words[2:] + words[:2], halves, halves) == 0.0


def test_a_text_of_more_tokens_than_the_encoder_reads_is_compared_in_parts(witness):
    words = sentence(random.Random(4), 60)
    assert len(words) > POSITIONS
    [evidence] = witness.compare([" ".join(words)], [" ".join(words)])
    assert [word.partner for word in evidence.source] == list(range(60))


def test_marks_and_texts_without_words_have_no_words(witness):
    [evidence] = witness.compare(["bal, den!"], ["?"])
    assert [word.end - word.start for word in evidence.source] == [3, 3]
    assert evidence.target == ()
    assert [word.partner for word in evidence.source] == [None, None]


def pairs_with_losses(seed: int, count: int):
    """Pairs of equal texts, of half of which some words in a row are lost; and the spans of these."""
    generator = random.Random(seed)
    pairs = []
    for _ in range(count):
        words = sentence(generator, generator.randrange(6, 12))
        start = generator.randrange(len(words) - 3)
        end = start + (generator.randrange(1, 4) if generator.random() < 0.5 else 0)
        source = " ".join(words)
        span = len(" ".join(words[:start])) + (start > 0), len(" ".join(words[:end]))
        pairs.append((source, " ".join([*words[:start], *words[end:]]), (span,) if end > start else ()))
    return pairs


@pytest.fixture(scope="module")
def numbers(witness):
    pytest.importorskip("numpy")
    from capsule_mt.coverage.calibration import judging

    lost = pairs_with_losses(1, 80)
    marked = [judging.MarkedPair(source, target, spans, ()) for source, target, spans in lost]
    marked += [judging.MarkedPair(target, source, (), spans) for source, target, spans in lost]
    clean = [(source, source) for source, *_ in pairs_with_losses(2, 60)]
    values = judging.fit(witness, marked, {"one": clean[:30], "two": clean[30:]})
    assert values["words"]["left out"]["marked"] == values["words"]["made up"]["marked"] > 50
    return JudgeNumbers(
        encoder="a/b",
        layers=(1, LAYERS),
        probes=tuple(map(tuple, values["probes"])),
        left_out=judging.read_odds(values["words"]["left out"]),
        made_up=judging.read_odds(values["words"]["made up"]),
        thresholds={name: reason["threshold"] for name, reason in values["reasons"].items()},
    )


def test_fitted_numbers_find_the_words_that_are_lost_elsewhere(encoder, numbers):
    lost = pairs_with_losses(5, 60)
    judge = Judge(encoder, numbers)
    for sources, translations, side, name in (
        ([pair[0] for pair in lost], [pair[1] for pair in lost], "left_out", "left out"),
        ([pair[1] for pair in lost], [pair[0] for pair in lost], "made_up", "made up"),
    ):
        right = wrong = missed = 0
        for (source, _, spans), judgement in zip(lost, judge.score(sources, translations), strict=True):
            marks = {word.start for word in getattr(judgement, side)}
            starts = {start for start in range(len(source)) if any(a <= start < b for a, b in spans)}
            right, wrong = right + len(marks & starts), wrong + len(marks - starts)
            missed += sum(source[start - 1 : start] in ("", " ") for start in starts - marks)
            if not spans:
                assert name not in [reason.name for reason in judgement.reasons]
        assert right > 9 * (wrong + missed), (right, wrong, missed)


def judged(encoder, *pair, thresholds=(), odds=NO_ODDS, **languages):
    numbers = JudgeNumbers("a/b", (1, LAYERS), (), odds, odds, NO_THRESHOLDS | dict(thresholds))
    return Judge(encoder, numbers).score([pair[0]], [pair[1]], **languages)[0]


def test_each_reason_has_its_name_and_its_threshold(encoder):
    words = "bal den fir gom kun dal"
    translation = "gal ken dim"
    assert judged(encoder, words, translation).reasons == ()
    names = ["another text", "left out", "made up", "order"]
    reasons = [judged(encoder, words, translation, thresholds={name: -2.0}).reasons for name in names]
    assert [[reason.name for reason in row] for row in reasons] == [[name] for name in names]
    sure = NO_ODDS._replace(bias=9.0)
    assert judged(encoder, words, translation, odds=sure, thresholds={"left out": 0.5}).reasons[0].source == words
    assert judged(encoder, words, translation, odds=sure, thresholds={"made up": 0.5}).reasons[0].target == translation
    assert [reason.name for reason in judged(encoder, words, words.upper()).reasons] == ["copy"]
    assert judged(encoder, "bal den", "BAL DEN").reasons == ()  # a name, perhaps


def test_what_rules_find_is_a_reason_under_its_name(encoder):
    pair = "Am 3. Mai kamen 20 Leute.", "On 3 June 25 people came."
    judgement = judged(encoder, *pair, src_lang="de", tgt_lang="en")
    assert {"dates", "numbers"} <= {reason.name for reason in judgement.reasons if reason.is_fault}
    assert {check.kind for check in judgement.checks} >= {"months", "numbers"}
    assert "dates" not in {reason.name for reason in judged(encoder, *pair).reasons}  # which needs a language


def test_a_translation_in_another_language_has_a_reason(encoder):
    pytest.importorskip("py3langid")
    pair = "Der Zug fährt heute nicht nach Berlin.", "Le train ne va pas à Berlin aujourd'hui."
    names = [[reason.name for reason in judged(encoder, *pair, tgt_lang=code).reasons] for code in ("en", "fr", None)]
    assert names == [["another language"], [], []]
    record = judgement_record(judged(encoder, *pair, tgt_lang="eng_Latn"))
    assert [problem.reason for problem in problems_in(*pair, {"judgement": record})] == ["foreign"]


def test_a_share_is_printed_where_the_band_of_the_least_sure_mark_has_one(encoder):
    odds = NO_ODDS._replace(shares=((0.7, 0.8), (0.9, 0.95)))
    shares = [odds.share(row) for row in ([0.95, 0.6], [0.7, 0.99], [0.9, 0.99], [])]
    assert shares == [None, 0.8, 0.95, None]
    sure = odds._replace(bias=9.0)
    pair = "bal den fir", "gom kun dal"
    record = judgement_record(judged(encoder, *pair, odds=sure, thresholds={"left out": 0.5}))
    [problem] = problems_in(*pair, {"judgement": record})
    assert (problem.share, problem.message_with_share) == (
        0.95,
        "Probably left out: bal den fir (95 % of such marks are right)",
    )


def test_blank_texts_and_wrong_arguments(encoder, numbers):
    judge = Judge(encoder, numbers)
    assert judge.score(["", "bal den", " "], ["bal", "", "\t"]) == [None, None, None]
    assert judge.score([], []) == []
    with pytest.raises(ValueError, match="`translations` must be as many as the 1 sources, got 2"):
        judge.score(["bal"], ["bal", "den"])
    with pytest.raises(TypeError, match="`sources` must be a sequence of texts"):
        judge.score("bal", ["bal"])
    with pytest.raises(TypeError, match="`translations` must be a sequence of texts"):
        judge.score(["bal"], [None])


def test_a_batch_changes_nothing(encoder, numbers):
    judge, pairs = Judge(encoder, numbers), pairs_with_losses(7, 70)
    together = judge.score([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    assert together == [judge.score([source], [target])[0] for source, target, _ in pairs]


def test_another_encoder_is_refused_by_name(tmp_path):
    message = "a judge needs intfloat/multilingual-e5-small"
    with pytest.raises(UnsupportedModelError, match=f"has too few layers; {message}"):
        Judge.from_pretrained(write_encoder(tmp_path / "two"))
    deep = write_encoder(tmp_path / "twelve", num_layers=12)
    with pytest.raises(UnsupportedModelError, match=rf"gives two texts a cosine of .*, not 0\.\d+; {message}"):
        Judge.from_pretrained(deep)
    with pytest.raises(CatalogError, match=rf"^nowhere: no such folder; {message}"):
        Judge.from_pretrained("nowhere")


def test_an_encoder_is_known_by_its_probes(encoder, witness, numbers):
    Judge(encoder, numbers).check_encoder()
    first, *probes = numbers.probes
    moved = (first[0], first[1], first[2] - 1.5 * MAX_PROBE_DEVIATION)
    with pytest.raises(UnsupportedModelError, match="a judge needs a/b"):
        Judge(encoder, numbers._replace(probes=(moved, *probes))).check_encoder()


def test_the_numbers_of_the_package():
    numbers = read_numbers()
    assert numbers.encoder == "intfloat/multilingual-e5-small"
    assert numbers.thresholds.keys() == NO_THRESHOLDS.keys()
    for odds in (numbers.left_out, numbers.made_up):
        assert {len(odds.means), len(odds.deviations), len(odds.weights)} == {len(EVIDENCE)}
        assert min(odds.deviations) > 0
        assert odds.slope > 0


def test_the_largest_window_counts_missing_words_as_nothing():
    assert largest_window([0.9, 0.0, 0.3, 0.6, 0.2, 0.5]) == pytest.approx(0.4)
    assert largest_window([0.9]) == pytest.approx(0.18)
    assert largest_window([]) == 0.0


def test_spans_between_marks_are_offsets_into_the_text_without_them():
    pytest.importorskip("numpy")
    from capsule_mt.coverage.calibration.judging import spans_in

    text = "<<<ab>>> cd <<<e>>>"
    plain = text.replace("<<<", "").replace(">>>", "")
    assert [plain[start:end] for start, end in spans_in(text)] == ["ab", "e"]


def test_problems_say_what_a_judge_has_found(encoder):
    sure = NO_ODDS._replace(bias=9.0)
    thresholds = {"left out": 0.5, "another text": -2.0}
    pair = "bal den 20 fir", "gom 21 kun dal"
    record = judgement_record(judged(encoder, *pair, odds=sure, thresholds=thresholds))
    problems = problems_in(*pair, {"judgement": record})
    assert [problem.level for problem in problems] == sorted((problem.level for problem in problems), key=LEVELS.index)
    messages = [problem.message for problem in problems]
    assert "Probably a translation of another text." in messages
    assert "Probably left out: bal den 20 fir" in messages
    assert any("number" in message for message in messages)
    assert json.loads(json.dumps(record)) == record


def test_a_judge_needs_neither_torch_nor_numpy(folder):
    code = (
        "import sys\nfrom capsule_mt.judge.witness import Witness\nfrom capsule_mt import Encoder, Judge\n"
        f"print(len(Witness(Encoder.from_pretrained({str(folder)!r}), 2).compare(['bal den'], ['den'])))\n"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr

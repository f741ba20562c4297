"""`capsule-mt convert --to small`: what it writes, how it rounds, and what is refused."""

import json
import math
import os
import random
import re
import sys
from array import array

import pytest

from capsule_mt import Translator
from capsule_mt.commands import convert
from capsule_mt.conversions.to_int8 import write_checkpoint
from capsule_mt.engine.program import Codes, Tensor
from capsule_mt.models.checksums import write_facts
from capsule_mt.models.entropy_coding import coded
from capsule_mt.models.int8_weights import Int8File
from capsule_mt.models.loading import load_model, open_checkpoint
from capsule_mt.models.small_weights import FORMAT, SmallFile, write_small_weights
from capsule_mt.models.weights import CheckpointError, write_safetensors
from capsule_mt.translate import rounds
from tests.conftest import GOLDEN
from tests.fixtures.students import write_student

np = pytest.importorskip("numpy")
rounding = pytest.importorskip("capsule_mt.coverage.calibration.rounding")

TEXTS = ["The old man buys a red hat.", "He sleeps.", "A dog, and 3 cats."]
WORDS = ["balu desa fimo", "goni gore", "filu demo bare golu"]  # of the model word_for_word
ANY_LOSS = 1000  # for models that are too small to lose little


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.en"
    file.write_text("\n\n".join([*TEXTS, *WORDS]) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def small(tmp_path, text, call):
    folder = tmp_path / "small"
    call(convert, GOLDEN / "word_for_word", folder, "--to", "small", "--text", text)
    return folder


@pytest.mark.parametrize("name", ["word_for_word", "capsule_marian", "student"])
def test_a_converted_model(name, tmp_path, text, call):
    folder = write_student(tmp_path / "student") if name == "student" else GOLDEN / name
    max_loss = 0.001 if name == "word_for_word" else ANY_LOSS
    command = [folder, tmp_path / "out", "--to", "small", "--text", text, "--max-loss", max_loss]
    _, printed, message = call(convert, *command)
    size = (tmp_path / "out" / "small.safetensors").stat().st_size / 1e6
    assert f"{size:.2f} MB; a token of the translations of --text is " in message
    names = {os.path.basename(line) for line in printed.splitlines()}
    assert {"config.json", "generation_config.json", "small.json", "small.safetensors", "tokenizer.json"} <= names
    assert not {"model.safetensors", "int8.safetensors"} & names
    original, after = (Translator.from_pretrained(path, int8=True) for path in (folder, tmp_path / "out"))
    assert after.loaded.calibration == original.loaded.calibration
    if name == "word_for_word":  # whose margins are wide
        translations = [[result.text for result in model(WORDS)] for model in (original, after)]
        assert translations[0] == translations[1] != WORDS


def test_a_terminal_shows_the_progress_of_each_phase(tmp_path, text, call, monkeypatch):
    command = [convert, GOLDEN / "word_for_word", tmp_path / "piped", "--to", "small", "--text", text]
    assert len(call(*command)[2].splitlines()) == 1
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    command[2] = tmp_path / "shown"
    lines = call(*command)[2]
    for unit in ("lines translated", "matrices rounded", "translations scored"):
        assert re.search(rf"(\d+) of \1 {unit}, [\d,.]+ a second\n", lines), unit
    weights = [(folder / "small.safetensors").read_bytes() for folder in (tmp_path / "piped", tmp_path / "shown")]
    assert weights[0] == weights[1]


def test_steps_become_finer_until_the_loss_is_small(tmp_path, monkeypatch):
    """The loss is that of the file, against the model in int8."""
    folder, files = write_student(tmp_path / "student"), []
    reference = rounding.Reference(folder, TEXTS)
    assert reference.loss(open_checkpoint(os.fspath(folder)).weights) == 0
    coarse = rounding.write_small(folder, tmp_path / "coarse", TEXTS, max_loss=ANY_LOSS)
    assert coarse > 0
    loss = rounding.write_small(folder, tmp_path / "fine", TEXTS, max_loss=coarse / 10)
    assert loss <= coarse / 10
    for name, expected in (("coarse", coarse), ("fine", loss)):
        assert reference.loss(SmallFile(tmp_path / name)) == expected
        files.append((tmp_path / name / "small.safetensors").stat().st_size)
    assert files[0] < files[1]
    monkeypatch.setattr(rounding, "MAX_TRIES", 1)
    with pytest.raises(ValueError, match=r"nats a token, but it is .* after 1 tries: .* convert .*student to int8"):
        rounding.write_small(folder, tmp_path / "never", TEXTS, max_loss=coarse / 10)
    assert not (tmp_path / "never").exists()


def test_matrices_see_what_the_model_reads_in_use():
    """Texts go through the normal form, unless the caller turns it off."""
    folder = GOLDEN / "word_for_word"

    def moments(text, **settings):
        return {name: pair.mean.tolist() for name, pair in rounding.input_moments(folder, [text], **settings).items()}

    assert moments("ba\u00adlu desa fimo") == moments(WORDS[0])
    assert moments("ba\u00adlu desa fimo", copy=False) != moments(WORDS[0])


def test_matrices_do_not_see_second_searches(monkeypatch):
    beams, search = [], rounds.search

    def noted(pieces, plan):
        beams.append(plan.num_beams)
        return search(pieces, plan)

    monkeypatch.setattr(rounds, "search", noted)
    folder, doubled = GOLDEN / "word_for_word", "balu 7"  # the model says the word twice
    Translator.from_pretrained(folder)(doubled, num_beams=1)
    assert beams.pop() == rounds.RETRY_BEAMS
    beams.clear()
    rounding.input_moments(folder, [doubled])
    assert {*beams} == {1}


def test_text_of_another_language_is_refused(tmp_path):
    with pytest.raises(ValueError, match="translates none of the 1 sentences"):
        rounding.write_small(GOLDEN / "word_for_word", tmp_path / "out", ["Der alte Mann schläft."])


def test_codes_are_written_without_loss(tmp_path):
    folder = write_student(tmp_path / "student")
    write_checkpoint(folder, tmp_path / "out", write_small_weights)
    before, after = (Translator.from_pretrained(path, int8=True) for path in (folder, tmp_path / "out"))
    settings = {"max_new_tokens": 12, "num_beams": 2}
    assert before(TEXTS, **settings) == after(TEXTS, **settings)
    original = open_checkpoint(os.fspath(folder)).weights
    for name in original:
        values, again = original.read(name), SmallFile(tmp_path / "out").read(name)
        assert type(values) is type(again)
        if isinstance(values, Codes):
            assert bytes(values.codes.buffer) == bytes(again.codes.buffer)
            assert bytes(values.magnitudes.buffer) == bytes(again.magnitudes.buffer)


def test_a_small_checkpoint_becomes_one_in_int8(small, tmp_path, call):
    call(convert, small, tmp_path / "int8", "--to", "int8")
    first, second = SmallFile(small), Int8File(tmp_path / "int8")
    for name in first:
        if isinstance(first.read(name), Codes):
            assert bytes(first.read(name).codes.buffer) == bytes(second.read(name).codes.buffer)


def test_what_the_command_refuses(tmp_path, text, call, refusal_of):
    model, out = GOLDEN / "word_for_word", tmp_path / "out"
    assert "--to small needs --text FILE" in refusal_of(convert, model, out, "--to", "small")
    message = refusal_of(convert, model, out, "--to", "int8", "--text", text)
    assert "--text goes with --to small, --to web or --languages and --to int8, not with --to int8" in message
    message = refusal_of(convert, model, out, "--to", "marian", "--languages", "en-pt")
    assert "--languages goes with --to web or int8, not with --to marian" in message
    for loss in ("0", "-1", "nan"):
        message = refusal_of(convert, model, out, "--to", "small", "--text", text, "--max-loss", loss)
        assert f"--max-loss goes with --text, and must be above 0, got {loss}\n" in message
    message = refusal_of(convert, model, out, "--to", "int8", "--max-loss", "0.1")
    assert "--max-loss goes with --text, and must be above 0, got 0.1\n" in message
    text.write_text(" \n\n")
    with pytest.raises(ValueError, match=r"text\.en: has no sentence"):
        call(convert, model, out, "--to", "small", "--text", text)
    assert not out.exists()


def test_a_small_file_for_the_browser(small, tmp_path, text, call):
    """From a small checkpoint, or at once; the file has the codes of the checkpoint."""
    call(convert, small, tmp_path / "twice", "--to", "web", "--languages", "en-en")
    call(convert, GOLDEN / "word_for_word", tmp_path / "once", "--to", "web", "--languages", "en-en", "--text", text)
    call(convert, GOLDEN / "word_for_word", tmp_path / "int8", "--to", "web", "--languages", "en-en")
    twice, once, int8 = ((tmp_path / name / "model.capsule").read_bytes() for name in ("twice", "once", "int8"))
    assert once == twice
    assert len(once) < len(int8)


# ---- rounding


def one_by_one(weight, moments, step):
    """Codes of a matrix [outputs, inputs]: each column in turn, then least squares of its error over those left.

    This is what GPTQ's factors compute at once (Frantar et al. 2022, section 4; Hassibi and Stork 1993).
    """
    weight, codes = weight.copy(), np.zeros_like(weight)
    remaining = list(np.argsort(-np.diag(moments), kind="stable"))
    while remaining:
        column = remaining[0]
        codes[:, column] = np.clip(np.rint(weight[:, column] / step), -127, 127)
        inverse = np.linalg.inv(moments[np.ix_(remaining, remaining)])
        error = (weight[:, column] - codes[:, column] * step) / inverse[0, 0]
        weight[:, remaining] -= np.outer(error, inverse[0])
        remaining = remaining[1:]
    return codes


def correlated_inputs(width, rows=400):
    generator = np.random.default_rng(3)
    return generator.normal(size=(rows, 6)) @ generator.normal(size=(6, width)) + generator.normal(size=(rows, width))


def test_error_feedback_is_least_squares():
    inputs = correlated_inputs(150)  # more than a block of columns
    moments = inputs.T @ inputs
    weight = np.random.default_rng(4).normal(size=(20, 150))
    codes = rounding.rounded_with_feedback(weight, moments, np.full(20, 0.4))
    damped = moments + np.eye(150) * rounding.DAMPING * np.diag(moments).mean()
    assert (codes == one_by_one(weight, damped, 0.4)).mean() > 0.999  # float64 may round a tie otherwise
    lost, plainly_lost = (
        np.square(inputs @ (quantised * 0.4 - weight).T).sum() for quantised in (codes, np.rint(weight / 0.4))
    )
    assert lost < 0.5 * plainly_lost


def test_frequent_tokens_have_finer_steps_and_all_codes_fit():
    table = np.random.default_rng(5).normal(size=(5000, 8))
    table[3] = 1000
    steps = rounding.table_steps(table)
    assert len(set(steps)) <= rounding.TABLE_BLOCKS
    assert (np.abs(table) <= 127.5 * steps[:, None]).all()
    assert (np.diff(steps[100:]) >= 0).all()
    assert steps[-1] > 1.5 * steps[200]


# ---- damage


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("format", 1, "`format` must be 2, got 1: convert the model again"),
        ("checksum", "0", r"small\.safetensors: its checksum is \w{16}, but small\.json says '0'"),
    ],
)
def test_facts_are_checked(small, key, value, message):
    facts = json.loads((small / "small.json").read_text())
    (small / "small.json").write_text(json.dumps(facts | {key: value}))
    with pytest.raises(CheckpointError, match=message):
        load_model(small)
    (small / "small.json").unlink()
    with pytest.raises(CheckpointError, match=r"small\.json: no such file; it has the checksum of small\.safetensors"):
        load_model(small)


def test_the_size_is_checked_before_all_of_the_file_is_read(small, monkeypatch):
    """Reading a file that was made longer, which takes no room on the disk, would take minutes."""
    monkeypatch.setattr("capsule_mt.models.small_weights.check_facts", lambda *_: pytest.fail("the file is read"))
    os.truncate(small / "small.safetensors", 1 << 34)
    with pytest.raises(CheckpointError, match=r"small\.safetensors"):
        load_model(small)


def write_matrix(folder, changes):
    codes = Tensor(bytes(random.Random(1).choices(range(9), k=1200 * 4)), "I8", (1200, 4))
    tensors = coded(Codes(codes, Tensor(array("f", [1.0]) * 1200, "F32", (1200,)))) | changes
    named = {f"w.{part}": tensor for part, tensor in tensors.items()}
    file = folder / "small.safetensors"
    described = {name: (tensor.dtype, tensor.shape) for name, tensor in named.items()}
    write_safetensors(file, described, lambda name: named[name].buffer, {})
    write_facts(str(file), FORMAT)


@pytest.mark.parametrize(
    ("part", "tensor", "message"),
    [
        ("largest", Tensor(array("f", [-1.0]), "F32", (1,)), r"`w\.largest` has a negative number"),
        ("largest", Tensor(array("f", [math.inf]), "F32", (1,)), r"`w\.largest` has 1 of 1 numbers that are not"),
        ("frequencies", Tensor(bytes(36), "U16", (2, 9)), r"`w\.stream`: .* a damaged stream of codes"),
        ("classes", Tensor(bytes(600), "U8", (600,)), r"`w\.stream`: .* a damaged stream of codes"),
        ("classes", Tensor(b"", "U8", (0,)), r"`w` is not an entropy-coded matrix: `\.classes` has 0 bytes"),
        ("runs", Tensor(array("i", [1 << 30]), "I32", (1,)), r"`w` is not .*: `\.runs` has 1073741824 rows"),
    ],
)
def test_a_damaged_matrix_is_refused_by_name(tmp_path, part, tensor, message):
    write_matrix(tmp_path, {})
    assert SmallFile(tmp_path).shape("w") == SmallFile(tmp_path).read("w").codes.shape == (1200, 4)
    write_matrix(tmp_path, {part: tensor})
    with pytest.raises(CheckpointError, match=rf"small\.safetensors: {message}"):
        SmallFile(tmp_path).read("w")

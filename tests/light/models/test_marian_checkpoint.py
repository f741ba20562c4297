"""Folders of Marian's as they are: the numbers of its mathematics, what is refused by name, and damaged files."""

import json
import math
import os
import re
import shutil
import zlib

import pytest

from capsule_mt import CoverageOptions, Translator
from capsule_mt.commands import convert
from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_marian import write_marian_folder
from capsule_mt.coverage.methods import Calibration
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings
from capsule_mt.models import shipped
from capsule_mt.models.checking import check_calibration
from capsule_mt.models.loading import load_model
from capsule_mt.models.marian_yaml import read_yaml
from capsule_mt.models.weights import CheckpointError, read_json
from tests.fixtures.students import (
    HEADS,
    LAYERS,
    MALFORMED,
    OPTIONS,
    PIECES,
    WIDTH,
    Matrix,
    weights,
    write_binary,
    write_numpy,
    write_student,
    yaml,
)
from tests.light.engine.plain import dot, mix, sigmoid, softmax, split

SOURCES = ["the old man buys a red hat.", "a hat", "b, c. then"]
ATTENTION = OPTIONS | {"transformer-decoder-autoreg": "self-attention", "dec-cell": "gru"}
UNTIED = OPTIONS | {"tied-embeddings-all": False}
TARGETS = ["</s>", "<unk>", *reversed(PIECES[2:])]
KINDS = {
    "ssru": (OPTIONS, None),
    "attention": (ATTENTION, None),
    "swish": (OPTIONS | {"transformer-ffn-activation": "swish"}, None),
    "two vocabularies": (UNTIED | {"tied-embeddings": True}, TARGETS),
    "two of other sizes": (UNTIED | {"tied-embeddings": True}, TARGETS[:-3]),
    "nothing tied": (UNTIED, TARGETS),
    "sources tied": (UNTIED | {"tied-embeddings-src": True}, None),
    "no bias": (OPTIONS | {"output-omit-bias": True}, None),
    "no bias, two of other sizes": (UNTIED | {"output-omit-bias": True}, TARGETS[:-3]),
}


class Marian:
    """What Marian computes, from its own weights, in plain loops."""

    def __init__(self, options: dict, matrices: dict[str, Matrix]) -> None:
        self.options, self.matrices = options, matrices

    def map(self, row: list[float], weight: str, bias: str | None = None) -> list[float]:
        mapped = [dot(row, column) for column in self.columns(weight)]
        return mapped if bias is None else [a + b for a, b in zip(mapped, self.matrices[bias].values, strict=True)]

    def columns(self, name: str) -> list[list[float]]:
        matrix = self.matrices[name].transposed()
        return [matrix.row(number) for number in range(matrix.rows)]

    def norm(self, name: str, *rows: list[float]) -> list[float]:
        total = [sum(column) for column in zip(*rows, strict=True)]
        mean = sum(total) / WIDTH
        scale = math.sqrt(sum((value - mean) ** 2 for value in total) / WIDTH)
        gains, biases = (self.matrices[f"{name}_ln_{kind}"].values for kind in ("scale", "bias"))
        return [(v - mean) / scale * g + b for v, g, b in zip(total, gains, biases, strict=True)]

    def embed(self, side: str, token: int | None, position: int) -> list[float]:
        table = self.matrices.get("Wemb") or self.matrices[f"{side}_Wemb"]
        row = [0.0] * WIDTH if token is None else [math.sqrt(WIDTH) * value for value in table.row(token)]
        rates = [position * 10000 ** (-k / (WIDTH / 2 - 1)) for k in range(WIDTH // 2)]
        waves = [*map(math.sin, rates), *map(math.cos, rates)]
        return [a + b for a, b in zip(row, waves, strict=True)]

    def attend(self, name: str, row: list[float], rows: list[list[float]]) -> list[float]:
        query = split(self.map(row, f"{name}_Wq", f"{name}_bq"), WIDTH // HEADS)
        keys, values = (
            [split(self.map(other_row, f"{name}_W{k}", f"{name}_b{k}"), WIDTH // HEADS) for other_row in rows]
            for k in "kv"
        )
        heads = []
        for number, part in enumerate(query):
            shares = softmax([dot(part, key[number]) / math.sqrt(len(part)) for key in keys])
            heads += mix(shares, [value[number] for value in values])
        return self.norm(f"{name}_Wo", row, self.map(heads, f"{name}_Wo", f"{name}_bo"))

    def feed_forward(self, name: str, row: list[float]) -> list[float]:
        inner = self.map(row, f"{name}_W1", f"{name}_b1")
        relu = self.options["transformer-ffn-activation"] == "relu"
        inner = [max(value, 0.0) if relu else value * sigmoid(value) for value in inner]
        return self.norm(f"{name}_ffn", row, self.map(inner, f"{name}_W2", f"{name}_b2"))

    def encode(self, source: list[int]) -> list[list[float]]:
        rows = [self.embed("encoder", token, position) for position, token in enumerate(source)]
        for layer in range(1, LAYERS + 1):
            rows = [self.attend(f"encoder_l{layer}_self", row, rows) for row in rows]
            rows = [self.feed_forward(f"encoder_l{layer}_ffn", row) for row in rows]
        return rows

    def recur(self, name: str, rows: list[list[float]]) -> list[list[float]]:
        state, outputs = [0.0] * WIDTH, []
        for row in rows:
            forget = map(sigmoid, self.map(row, f"{name}_Wf", f"{name}_bf"))
            new = self.map(row, f"{name}_W")
            state = [f * c + (1 - f) * x for f, c, x in zip(forget, state, new, strict=True)]
            outputs.append(self.norm(f"{name}_ffn", row, [max(value, 0.0) for value in state]))
        return outputs

    def score(self, source: list[int], target: list[int]) -> list[float]:
        memory = self.encode(source)
        rows = [self.embed("decoder", token, position) for position, token in enumerate([None, *target[:-1]])]
        for layer in range(1, LAYERS + 1):
            name = f"decoder_l{layer}"
            if self.options["transformer-decoder-autoreg"] == "rnn":
                rows = self.recur(f"{name}_rnn", rows)
            else:
                rows = [self.attend(f"{name}_self", row, rows[: position + 1]) for position, row in enumerate(rows)]
            rows = [self.feed_forward(f"{name}_ffn", self.attend(f"{name}_context", row, memory)) for row in rows]
        table = self.matrices.get("Wemb") or self.matrices["decoder_Wemb"]
        outputs = [table.row(token) for token in range(table.rows)]
        if "decoder_ff_logit_out_W" in self.matrices:
            outputs = self.columns("decoder_ff_logit_out_W")
        has_bias, scores = "decoder_ff_logit_out_b" in self.matrices, []
        biases = self.matrices["decoder_ff_logit_out_b"].values if has_bias else [0.0] * len(outputs)
        for row, token in zip(rows, target, strict=True):
            logits = [dot(row, output) + bias for output, bias in zip(outputs, biases, strict=True)]
            top = max(logits)
            scores.append(logits[token] - top - math.log(sum(math.exp(value - top) for value in logits)))
        return scores


@pytest.mark.parametrize("kind", KINDS)
def test_the_numbers_of_marian(kind, tmp_path):
    options, targets = KINDS[kind]
    matrices = weights(options, (len(PIECES), len(targets or PIECES)))
    model = load_model(write_student(tmp_path / "student", options=options, targets=targets))
    source, target = model.tokenizer.encode(SOURCES[0]).ids, model.tokenizer.encode_target(SOURCES[2])
    assert [PIECES[token] for token in source[:3]] == ["\u2581the", "\u2581old", "\u2581man"]
    (forced,) = model.decoder.force([source], [target], Readings())
    assert forced.log_probs == pytest.approx(Marian(options, matrices).score(source, target), abs=1e-3)


@pytest.mark.parametrize("kind", ["ssru", "attention", "two vocabularies"])
def test_all_forms_translate_alike(kind, tmp_path):
    options, targets = KINDS[kind]
    texts = []
    for form, configuration in (("int8", True), ("int8", False), ("float32", True), ("npz", False)):
        folder = tmp_path / f"{form}-{configuration}"
        write_student(folder, form, options=options, targets=targets, configuration=configuration)
        texts.append(
            [translation.text for translation in Translator.from_pretrained(folder)(SOURCES, max_new_tokens=9)]
        )
    assert texts[1:] == texts[:1] * 3


@pytest.mark.parametrize("kind", ["ssru", "two of other sizes"])
def test_the_command_converts(kind, tmp_path, call, refusal_of):
    """There and back, with the vocabularies, the shortlist and the calibration."""
    options, targets = KINDS[kind]
    folder = write_student(tmp_path / "student", options=options, targets=targets)
    (folder / "coverage_calibration.json").write_text('{"attention": {"head": [1, 0]}}')
    for model, out, target_format in ((folder, "hub", "huggingface"), (tmp_path / "hub", "back", "marian")):
        _, printed, _ = call(convert, model, tmp_path / out, "--to", target_format)
    vocabularies = ["vocab.spm"] if targets is None else ["srcvocab.spm", "trgvocab.spm"]
    names = ["config.yml", "coverage.json", "lex.s2t.bin", "model.npz", *vocabularies]
    assert printed.splitlines() == [str(tmp_path / "back" / name) for name in names]
    for shortlist in (False, True):
        back, original = (load_model(folder_name, shortlist=shortlist) for folder_name in (tmp_path / "back", folder))
        assert back.calibration == original.calibration != {}
        texts = [Translator(model)(SOURCES, max_new_tokens=9) for model in (back, original)]
        assert texts[0] == texts[1]
    assert back.shortlist.of_source([9, 20]) == original.shortlist.of_source([9, 20])
    for text in (*SOURCES, "a </s> b<unk>", "  the  man ", "ox", "<pad>", ""):
        assert back.tokenizer.encode(text) == original.tokenizer.encode(text)
        assert back.tokenizer.encode_target(text) == original.tokenizer.encode_target(text)
    with pytest.raises(CheckpointError, match="hub: has no model of Marian"):
        write_huggingface(tmp_path / "hub", tmp_path / "again")
    message = refusal_of(convert, tmp_path / "hub", tmp_path / "back", "--to", "marian")
    assert "back: exists and is not empty; name a new folder\n" in message
    with pytest.raises(CheckpointError, match=r"back: is already a folder of Marian: use it as it is$"):
        call(convert, tmp_path / "back", tmp_path / "again", "--to", "marian")


def test_the_command_says_that_marian_names_no_languages(tmp_path, call):
    """A folder's name may: the rules for texts of a model go by its languages."""
    write_huggingface(write_student(tmp_path / "student"), tmp_path / "hub-en-de")
    for out, told in (("back", "put en-de into the folder's name"), ("back-en-de", "")):
        _, _, complaint = call(convert, tmp_path / "hub-en-de", tmp_path / out, "--to", "marian")
        assert told in complaint
        assert bool(complaint) == bool(told)


def test_vocabularies_that_marian_does_not_have(tmp_path):
    write_huggingface(write_student(tmp_path / "student"), tmp_path / "hub")
    content = read_json(str(tmp_path / "hub" / "tokenizer.json"))
    for change in (
        {"model": {"type": "BPE", "vocab": {}, "merges": []}},
        {"normalizer": {"type": "Lowercase"}},
        {"normalizer": "NFC"},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"pretokenizers": []}},
        {"model": {**content["model"], "vocab": content["model"]["vocab"][::-1]}},
    ):
        (tmp_path / "hub" / "tokenizer.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json: is not a SentencePiece vocabulary of"):
            write_marian_folder(tmp_path / "hub", tmp_path / "back")
    (tmp_path / "hub" / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"hub: has no tokenizer\.json, and vocab\.json numbers"):
        write_marian_folder(tmp_path / "hub", tmp_path / "back")
    assert not list((tmp_path / "back").glob("*.spm*"))


def test_a_shortlist_of_marian(tmp_path):
    model = load_model(write_student(tmp_path / "student"), shortlist=True)
    # the frequent ones, three for each token, and those after the frequent ones up to a multiple of eight
    assert model.shortlist.of_source([9, 20]) == [0, 1, 2, 3, *range(4, 9), 9, 10, 11, 12, 20, 21, 22]
    by_name = load_model(tmp_path / "student", shortlist=tmp_path / "student" / "lex.xxyy.s2t.bin")
    assert by_name.shortlist.of_source([9, 20]) == model.shortlist.of_source([9, 20])
    (tmp_path / "student" / "lex.xxyy.s2t.bin").unlink()
    (tmp_path / "student" / "config.yml").unlink()
    with pytest.raises(FileNotFoundError, match=r"no shortlist \(lex\.\*\.bin\) in"):
        load_model(tmp_path / "student", shortlist=True)


def test_a_calibration_beside_a_student(tmp_path):
    folder = write_student(tmp_path / "student")
    file, options = folder / "coverage.json", CoverageOptions(method="attention")
    with pytest.raises(ValueError, match="needs a head that aligns words"):
        Translator.from_pretrained(folder)("a hat", coverage=options)
    curves = {"words": [[0.0, 0.25], [1.0, 0.25]], "sentences": [[0.0, 0.0], [1.0, 1.0]], "threshold": 0.3}
    file.write_text(json.dumps({"attention": {"head": [1, 1], **curves}, "optional_words": ["a"]}))
    write_huggingface(folder, tmp_path / "out")
    for path in (folder, tmp_path / "out"):
        coverage = Translator.from_pretrained(path)(
            "the red hat buys a man", max_new_tokens=9, coverage=options
        ).coverage
        assert [(word.text, word.covered) for word in coverage.untranslated] == [
            (word, 0.25) for word in ("the", "red", "hat", "buys", "man")
        ]
    for content, message in (
        ('{"attention": {"head": [2, 0]}}', "`coverage_calibration.attention.head` must be a layer and"),
        ("{", "is not JSON"),
    ):
        file.write_text(content)
        for read in (load_model, lambda one: write_huggingface(one, tmp_path / "again")):
            with pytest.raises(CheckpointError, match=f"^{re.escape(f'{file}: {message}')}.*$"):
                read(folder)


def test_a_calibration_that_comes_with_the_package(tmp_path, monkeypatch):
    """It is for one file of weights, wherever that is, and gives way to one beside it."""
    folder = write_student(tmp_path / "student")
    weights_file, calibration = folder / "model.xxyy.bin", {"attention": {"head": [1, 0]}}
    key = (weights_file.stat().st_size, zlib.crc32(weights_file.read_bytes()))
    monkeypatch.setattr(shipped, "FOLDER", str(tmp_path))
    monkeypatch.setattr(shipped, "SHIPPED", {key: "ours.json"})
    (tmp_path / "ours.json").write_text(json.dumps(calibration))
    assert load_model(folder).calibration == calibration
    beside = {"attention": {"head": [0, 1]}}
    for name in ("coverage_calibration.json", "coverage.json"):  # the name up to 0.4, and today's
        (folder / name).write_text(json.dumps(beside))
        assert load_model(folder).calibration == beside
        (folder / name).unlink()
    weights_file.write_bytes(weights_file.read_bytes()[:-1] + b"\1")  # another version, of the same size
    assert load_model(folder).calibration == {}


def test_calibrations_that_come_with_the_package_are_sound():
    assert sorted(shipped.SHIPPED.values()) == sorted(os.listdir(shipped.FOLDER))
    for name in shipped.SHIPPED.values():
        values = read_json(os.path.join(shipped.FOLDER, name))
        check_calibration(values, (2, 8), name)
        calibration = Calibration.of_config(values)
        assert calibration.reverse is not None
        assert calibration.alarm("verified") is not None
        assert calibration.alarm("verified", is_given=True) < calibration.alarm("verified")
        # two readers labelled both sheets; docs/evidence.md has their counts
        assert calibration.marks_single_words == (name == "firefox-en-pt.json")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("type", "s2s", "`type` 's2s' is not supported, only 'transformer'"),
        ("transformer-postprocess", "ndx", "`transformer-postprocess` 'ndx' is not supported, only up to 8 of"),
        ("transformer-decoder-autoreg", "none", "'none' is not supported, only 'self-attention' or 'average-"),
        ("transformer-ffn-activation", "tanh", "`transformer-ffn-activation` 'tanh' is not supported, only 'relu' or"),
        ("transformer-attention-mask", "alibi", "`transformer-attention-mask` 'alibi' is not supported, only"),
        ("dim-emb", "wide", "`dim-emb` 'wide' is not supported, only a number from 0"),
        ("transformer-mirrors", 3, "`transformer-mirrors` 3 is not supported"),
    ],
)
def test_options_that_no_program_can_express(name, value, message, tmp_path):
    with pytest.raises(UnsupportedModelError, match=rf"model\.xxyy\.bin: special:model\.yml: .*{message}"):
        load_model(write_student(tmp_path / "student", options=OPTIONS | {name: value}))


def test_weights_that_do_not_fit_the_options(tmp_path):
    omits = OPTIONS | {"output-omit-bias": True, "dim-vocabs": [len(PIECES)] * 2}
    untied = UNTIED | {"dim-vocabs": [len(PIECES)] * 2}
    without, transposed = weights(omits), weights(untied)
    transposed["decoder_ff_logit_out_Wt"] = transposed.pop("decoder_ff_logit_out_W").transposed()
    folder = write_student(tmp_path / "student")
    for matrices, options, message in (
        (weights(), omits, r"has `decoder_ff_logit_out_b`, which special:model\.yml does not describe"),
        (
            without,
            omits | {"output-omit-bias": False},
            "lacks `decoder_ff_logit_out_b`, which special",
        ),
        (transposed, untied, "`decoder_ff_logit_out_Wt` in int8 is not read, only in float32"),
    ):
        write_binary(folder / "model.xxyy.bin", matrices, yaml(options), int8=True)
        with pytest.raises((CheckpointError, UnsupportedModelError), match=message):
            load_model(folder)


def test_an_empty_tensor_of_another_model_type(tmp_path):
    """Marian's files of other types of models have them: the option is named, not the tensor."""
    options = OPTIONS | {"dim-vocabs": [len(PIECES)] * 2}
    folder = write_student(tmp_path / "student", "npz")
    matrices = weights() | {"decoder_c_tt": Matrix(1, 0, [])}
    for model_type, message in (
        ("amun", "'amun' is not supported"),
        ("transformer", "has `decoder_c_tt`, which special"),
    ):
        write_numpy(folder / "model.npz", matrices, yaml(options | {"type": model_type}))
        with pytest.raises(UnsupportedModelError, match=message):
            load_model(folder)


def test_which_files_are_read(tmp_path):
    folder = write_student(tmp_path / "student", configuration=False)
    shutil.copy(folder / "model.xxyy.bin", folder / "model.zz.bin")
    with pytest.raises(UnsupportedModelError, match=r"has the models model\.xxyy\.bin, model\.zz\.bin; needs"):
        load_model(folder)
    (folder / "config.yml").write_text("models: [model.zz.bin]\nbeam-size: 3\nnormalize: 0.6\n")
    model = load_model(folder)
    assert (model.generation["num_beams"], model.generation["length_penalty"]) == (3, 0.6)
    (folder / "config.yml").write_text("models: [model.zz.bin]\nword-penalty: 0.5\n")
    with pytest.raises(UnsupportedModelError, match=r"`word-penalty` 0\.5 is not supported, only 0"):
        load_model(folder)
    for vocabularies, message in (
        ("vocab.fsv", r"the vocabularies vocab\.fsv are not read, only SentencePiece models \(\*\.spm\), or \*\.yml"),
        ("vocab.xxyy.spm, vocab.yml", r"vocab\.yml: is not a SentencePiece model \(\*\.spm\), but .*xxyy\.spm is"),
        ("vocab.yml", r"source\.spm: no such file, but vocab\.yml needs it to split text into pieces"),
        ("/one/vocab.yml, /two/vocab.yml", "`vocabs` of its configuration has two files of the same name"),
        ("/one/other.yml", "`vocabs` of its configuration has 'other.yml', which is not a file beside it"),
    ):
        (folder / "config.yml").write_text(f"models: [/trained/on/model.zz.bin]\nvocabs: [{vocabularies}]\n")
        for name in ("vocab.fsv", "vocab.yml"):
            (folder / name).write_text("a: 0\n")
        with pytest.raises((CheckpointError, UnsupportedModelError), match=message):
            load_model(folder)


@pytest.mark.parametrize("damage", MALFORMED)
def test_a_malformed_folder_is_refused(damage, tmp_path):
    folder = write_student(tmp_path / "student")
    change, message = MALFORMED[damage]
    change(folder)
    with pytest.raises((CheckpointError, UnsupportedModelError)) as refused:
        load_model(folder, shortlist=True)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_yaml_as_marian_writes_it():
    text = "---\na: 1\nb: -2.5e1\nc: true\nd: ~\ne: \"x: y\"\nf: 'it''s'\ng: []\nh: [a, 2, false]\n"
    expected = {"a": 1, "b": -25.0, "c": True, "d": None, "e": "x: y", "f": "it's", "g": [], "h": ["a", 2, False]}
    assert read_yaml(f"{text}i:\n  - one\n  - 2\n...\n", "file") == expected | {"i": ["one", 2]}
    assert read_yaml("time: v1 00:28:35 +0100  # said\n\n# no\n", "file") == {"time": "v1 00:28:35 +0100"}
    for text, message in (
        ("a: 1\na: 2", "file:2: `a` comes twice"),
        ("a: 1\n- b", "file:2: `a` has a value and a list"),
        ("a: {b: c}", "file:1: '{b: c}' is not read"),
        ("a: [b, [c]]", "is not read"),
        ("- a", "file:1: '- a' is neither"),
        ("a:\n  b: c", "file:2: 'b: c' is neither"),
        ("a: *b", r"file:1: '\*b' is not read"),
        ('a: "b\\"', "is not read"),
    ):
        with pytest.raises(CheckpointError, match=message):
            read_yaml(text, "file")

"""Models of CTranslate2, and packages of Argos Translate, held to what CTranslate2 itself says of them."""

import json
import random
import shutil
import struct
import zipfile

import pytest

from capsule_mt import Translator
from capsule_mt.catalog.entries import CatalogError
from capsule_mt.catalog.pairs import pair_of
from capsule_mt.commands import convert, translate
from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_int8 import write_int8
from capsule_mt.conversions.to_marian import write_marian_folder
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.files.digests import checkpoint_digests
from capsule_mt.models import probing
from capsule_mt.models.languages import ManyLanguages
from capsule_mt.models.loading import load_model
from capsule_mt.models.weights import CheckpointError
from tests.fixtures.ctranslate2 import (
    BYTE,
    FLOAT,
    INTEGER,
    LIMIT,
    SOURCES,
    TARGETS,
    VOCABULARIES,
    Variable,
    argos_package,
    ctranslate2_folder,
    flag,
    number,
    oracle_of,
    read_model,
    rewrite,
    text,
    write_model,
)

MODELS = sorted(VOCABULARIES)
SELF = "encoder/layer_0/self_attention"
TEXT = "Der Mann kauft einen Hut."


@pytest.fixture
def folder(tmp_path):
    return ctranslate2_folder("opennmt", tmp_path / "model")


def tokenizer_of(model):
    """Return the tokenizer of the direction that the fixtures were translated in."""
    is_many = isinstance(model.tokenizer, ManyLanguages)
    return model.tokenizer.for_pair("deu_Latn", "eng_Latn") if is_many else model.tokenizer


def greedy_of(model):
    """Return the ids of the greedy translations of `SOURCES`, without the end."""
    tokenizer = tokenizer_of(model)
    sources = [tokenizer.encode(line).ids for line in SOURCES]
    first = getattr(tokenizer, "first_ids", [])
    options = {
        name: model.generation[name] for name in ("min_new_tokens", "suppress_tokens") if name in model.generation
    }
    search = SearchOptions(limits=[LIMIT] * len(sources), prefixes=[first] * len(sources), **options)
    return [
        [token for token in best.ids if token != model.end] for best, *_ in model.decoder.translate(sources, search)
    ]


def scores_of(model):
    tokenizer = tokenizer_of(model)
    sources = [tokenizer.encode(line).ids for line in SOURCES]
    targets = [tokenizer.encode_target(line) for line in TARGETS]
    return [hypothesis.log_probs for hypothesis in model.decoder.force(sources, targets, Readings())]


def distance(scores, reference):
    """Return the mean difference of the scores of tokens."""
    pairs = [pair for lines in zip(scores, reference, strict=True) for pair in zip(*lines, strict=True)]
    return sum(abs(score - expected) for score, expected in pairs) / len(pairs)


def tokens_in(folder):
    (file,) = (path for path in folder.iterdir() if path.stem in ("shared_vocabulary", "target_vocabulary"))
    return json.loads(file.read_text("utf-8"))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_translates_and_scores_as_ctranslate2_does(name, tmp_path):
    folder, oracle = ctranslate2_folder(name, tmp_path / name), oracle_of(name)
    model, tokens = load_model(folder), tokens_in(folder)
    assert [[tokens[token] for token in ids] for ids in greedy_of(model)] == oracle["greedy"]
    assert len({tuple(line) for line in oracle["greedy"]}) > len(SOURCES) // 4
    for scores, expected in zip(scores_of(model), oracle["float32"], strict=True):
        assert scores == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_int8_differs_from_ctranslate2s_by_rounding(name, tmp_path):
    """Both round the inputs of matrices, which moves scores about as far as either moves from float32."""
    oracle = oracle_of(name)
    scores = scores_of(load_model(ctranslate2_folder(name, tmp_path / name), int8=True))

    assert distance(scores, oracle["int8"]) <= 2 * distance(oracle["int8"], oracle["float32"])


@pytest.mark.parametrize("version", [2, 3, 4, 5])
def test_older_files_are_read(version, tmp_path):
    """Their settings are variables: before revision 5 of the model and not of each side, before 3 not at all."""
    folder = ctranslate2_folder("marian", tmp_path / "model")
    expected = greedy_of(load_model(folder))
    (folder / "config.json").unlink()

    def change(variables, aliases):
        variables |= {"with_source_eos": flag(1), "with_target_bos": flag(0), "unk_token": text("<unk>")}
        for name in ("pre_norm", "activation"):
            variables[name] = variables.pop(f"encoder/{name}")
            del variables[f"decoder/{name}"]
        for side in ("encoder", "decoder"):
            del variables[f"{side}/num_heads"]
        if version >= 4:
            variables["num_heads"] = Variable((), 2, struct.pack("<h", 4))

    header = {"version": version, "revision": 4 if version >= 4 else 2}
    if version < 4:
        rewrite(folder, change, **header, specification="TransformerSpec")
        with pytest.raises(CheckpointError, match="lacks `encoder/num_heads`"):
            load_model(folder)
        shutil.copy(ctranslate2_folder("marian", tmp_path / "other") / "model.bin", folder)
    rewrite(folder, change, **header, specification="TransformerSpec" if version >= 4 else "TransformerBase")
    if version < 4:
        assert load_model(folder).head_shape[1] == 8
    else:
        assert greedy_of(load_model(folder)) == expected


def test_an_old_vocabulary_is_a_list_of_lines(tmp_path):
    folder = ctranslate2_folder("marian", tmp_path / "model")
    expected = greedy_of(load_model(folder))
    for name, end in (("source_vocabulary", "\n"), ("target_vocabulary", "\r\n")):
        tokens = json.loads((folder / f"{name}.json").read_text("utf-8"))
        (folder / f"{name}.json").unlink()
        (folder / f"{name}.txt").write_bytes("".join(f"{token}{end}" for token in tokens).encode())
    assert greedy_of(load_model(folder)) == expected
    lines = (folder / "target_vocabulary.txt").read_bytes()
    (folder / "target_vocabulary.txt").write_bytes(lines.replace(b"<unk>\r\n", b"<unk>\n", 1))
    with pytest.raises(CheckpointError, match=r"lacks '<s>'|lacks '</s>'"):  # tokens that end with a carriage return
        load_model(folder)


def test_bare_tables_of_int16_have_the_old_scale(folder):
    """CTranslate2 once multiplied all of them by 1000."""
    values = [0.25, -0.5, 0.125, 0.0] * 4

    def stored(kind, layout, scale):
        def change(variables, _):
            content = b"".join(struct.pack(layout, type(scale)(scale * value)) for value in values * 16)
            variables[f"{SELF}/linear_1/weight"] = Variable((16, 16), kind, content)
            del variables[f"{SELF}/linear_1/weight_scale"]

        return change

    rewrite(folder, stored(FLOAT, "<f", 1.0))
    expected = scores_of(load_model(folder))
    variables, aliases = read_model(folder / "model.bin")
    content = b"".join(struct.pack("<h", int(1000 * value)) for value in values * 16)
    variables[f"{SELF}/linear_1/weight"] = Variable((16, 16), 2, content)
    write_model(folder / "model.bin", variables, aliases)
    assert scores_of(load_model(folder)) == expected


REFUSED = {
    "encoder/layer_0/self_attention/relative_position_keys": (Variable((2, 4), FLOAT, bytes(32)), "relative_position"),
    "decoder/alibi": (flag(1), "`decoder/alibi` 1 is not supported"),
    "decoder/layer_0/self_attention/rotary_dim": (Variable((), INTEGER, bytes(4)), "rotary_dim` is not supported"),
    "activation": (flag(1), "GELU by the hyperbolic tangent"),
    "decoder/activation": (flag(2), "`activation` is 0 in the encoder and 2 in the decoder"),
    "encoder/scale_embeddings": (number(3.0), "`encoder/scale_embeddings` 3 is not supported"),
    "decoder/scale_embeddings": (flag(0), "`scale_embeddings` is 1 in the encoder and 0 in the decoder"),
    f"{SELF}/queries_scale": (number(0.25), "queries_scale` 0.25 is not supported, only 0.5"),
    "encoder/pre_norm": (flag(0), "`pre_norm` is 0 in the encoder and 1 in the decoder"),
    "decoder/final_logit_softcapping": (number(30.0), "final_logit_softcapping` 30"),
    "decoder/project_in/weight": (Variable((1, 1), FLOAT, bytes(4)), "project_in"),
    "encoder/embeddings_1/weight": (Variable((1, 1), FLOAT, bytes(4)), "embeddings_1/weight` is not supported"),
    "decoder/layer_0/ffn/linear_0_noact/weight": (Variable((1, 1), FLOAT, bytes(4)), "linear_0_noact"),
    "encoder/num_heads": (flag(5), "`encoder/num_heads` 5 must divide the width 16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_program_can_be_written_for_is_refused_by_name(name, folder):
    variable, message = REFUSED[name]
    names = [name] if "/" in name else [f"encoder/{name}", f"decoder/{name}"]
    rewrite(folder, lambda variables, _: variables.update(dict.fromkeys(names, variable)))
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"version": 7}, "is of version 7 of CTranslate2's files; 2 to 6 are read: update"),
        ({"revision": 8}, "is of revision 8 of CTranslate2's files; 2 to 7 are read: update"),
        ({"revision": 1}, r"is of revision 1 of CTranslate2's files; 2 to 7 are read$"),
        ({"specification": "WhisperSpec"}, "is a model of the kind 'WhisperSpec', which is not supported; only Trans"),
    ],
)
def test_unknown_files_are_refused_by_name(header, message, folder):
    rewrite(folder, **header)
    with pytest.raises(UnsupportedModelError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"quantization_type": 1}, "`quantization_type` 1 is not supported"),
        ({"multi_query_attention": True}, "`multi_query_attention` True is not supported"),
        ({"beams": 2}, "`beams` is not known"),
        ({"decoder_start_token": None}, "`decoder_start_token` is null"),
        ({"decoder_start_token": "<start>"}, "lacks '<start>', the `decoder_start_token` of the model"),
        ({"eos_token": 3}, "`eos_token` must be"),
        ({"layer_norm_epsilon": "1"}, "`layer_norm_epsilon` must be"),
    ],
)
def test_a_configuration_is_read_strictly(fields, message, folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(ValueError, match=message):
        load_model(folder)


@pytest.mark.parametrize("name", ["add_source_bos", "add_source_eos", "bos_token", "eos_token", "unk_token"])
def test_a_configuration_that_lacks_a_field_is_refused(name, folder):
    """CTranslate2 has no default for these: it ends with an error, or with what is in memory."""
    config = json.loads((folder / "config.json").read_text())
    del config[name]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=f"lacks `{name}`, which"):
        load_model(folder)


def test_a_model_without_a_start_token_is_refused(folder):
    """CTranslate2 then starts with the first token of a call's prefix."""
    config = json.loads((folder / "config.json").read_text())
    del config["decoder_start_token"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="`decoder_start_token` is null"):
        load_model(folder)


def test_languages_without_an_unknown_token_are_refused(tmp_path):
    """CTranslate2 adds the token after the languages, where it would hide them from us."""
    folder = ctranslate2_folder("nllb", tmp_path / "nllb")
    tokens = json.loads((folder / "shared_vocabulary.json").read_text("utf-8"))
    (folder / "shared_vocabulary.json").write_text(json.dumps([token for token in tokens if token != "<unk>"]))
    with pytest.raises(CheckpointError, match="lacks '<unk>'"):
        load_model(folder)


def test_files_that_are_missing_are_named(folder):
    pieces = folder / "sentencepiece.model"
    shutil.copy(pieces, folder / "other.spm")
    with pytest.raises(CheckpointError, match=r"has the SentencePiece models other\.spm, sentencepiece\.model, but"):
        load_model(folder)
    for name in ("source.spm", "target.spm"):
        shutil.copy(pieces, folder / name)
    assert greedy_of(load_model(folder))
    for file in (*folder.glob("*.spm"), pieces):
        file.unlink()
    with pytest.raises(CheckpointError, match=r"has no SentencePiece model, but .* needs source\.spm and target\.spm"):
        load_model(folder)
    (folder / "shared_vocabulary.json").rename(folder / "source_1_vocabulary.json")
    shutil.copy(ctranslate2_folder("opennmt", folder / "other") / "sentencepiece.model", folder)
    with pytest.raises(UnsupportedModelError, match="factors are not supported"):
        load_model(folder)
    (folder / "source_1_vocabulary.json").unlink()
    with pytest.raises(CheckpointError, match="has neither shared_vocabulary nor source_vocabulary"):
        load_model(folder)


def test_a_vocabulary_of_another_size_is_refused(folder):
    tokens = tokens_in(folder)
    for changed in ([*tokens, "a"], tokens[:-1]):
        (folder / "shared_vocabulary.json").write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match="but the configuration requires"):
            load_model(folder)
    for content, message in (
        ("{}", "must be a JSON list"),
        ("[1]", "must be a JSON list"),
        ('["\\ud800"]', "half of"),
    ):
        (folder / "shared_vocabulary.json").write_text(content)
        with pytest.raises(CheckpointError, match=message):
            load_model(folder)


def refusal_of(folder):
    """Return the error of loading a model; an empty text without one."""
    try:
        load_model(folder)
    except (CheckpointError, UnsupportedModelError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("seed", range(3))
def test_a_damaged_file_loads_or_is_one_error(seed, folder):
    """Cut off, longer, or with changed bytes; above all in sizes and names."""
    chance, content = random.Random(seed), (folder / "model.bin").read_bytes()
    starts = [content.index(name.encode()) for name in ("encoder/", "layer_norm/", "num_heads", "decoder/", "weight")]
    for _ in range(40):
        damaged = bytearray(content)
        kind = chance.randrange(3)
        if kind == 0:
            del damaged[chance.randrange(len(content)) :]
        elif kind == 1:
            damaged += b"x"
        else:
            for _ in range(chance.randint(1, 4)):
                damaged[(chance.choice(starts) + chance.randint(-12, 40)) % len(content)] = chance.randrange(256)
        (folder / "model.bin").write_bytes(damaged)
        message = refusal_of(folder)
        assert str(folder) in message if message else kind == 2


def test_numbers_that_are_not_finite_are_refused(folder):
    def change(variables, _):
        shape, kind, content = variables["decoder/projection/bias"]
        variables["decoder/projection/bias"] = Variable(shape, kind, struct.pack("<f", float("nan")) + content[4:])

    rewrite(folder, change)
    with pytest.raises(CheckpointError, match="`decoder/projection/bias` has 1 of 204 numbers that are not finite"):
        load_model(folder)
    folder = ctranslate2_folder("opennmt", folder.parent / "second")
    scale = f"{SELF}/linear_1/weight_scale"
    rewrite(folder, lambda variables, _: variables.update({scale: Variable((16,), FLOAT, bytes(64))}))
    with pytest.raises(CheckpointError, match="must have finite numbers above 0"):
        load_model(folder)
    codes = f"{SELF}/linear_1/weight"
    folder = ctranslate2_folder("opennmt", folder.parent / "third")
    rewrite(folder, lambda variables, _: variables.update({codes: Variable((16, 16), BYTE, b"\x80" * 256)}))
    with pytest.raises(CheckpointError, match="has the code -128"):
        load_model(folder)


# ---- packages of Argos Translate
def zipped(package, file):
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*")):
            archive.write(path, f"translate-de_en-1_0/{path.relative_to(package)}")
        archive.writestr("translate-de_en-1_0/stanza/de/tokenize/gsd.pt", "x")
    return file


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setenv("CAPSULE_MT_CACHE", str(tmp_path / "cache"))
    return argos_package(tmp_path / "translate-de_en-1_0")


def test_a_package_is_read_as_folder_and_as_archive(package, tmp_path, call):
    translator = Translator.from_pretrained(package)
    expected = translator(TEXT)
    assert expected.text
    assert translator.loaded.generation["num_beams"] == 4  # as Argos Translate searches
    assert pair_of(str(package)) == ("de", "en")
    archive = zipped(package, tmp_path / "translate-de_en-1_0.argosmodel")
    unpacked = Translator.from_pretrained(archive)
    assert unpacked(TEXT).text == expected.text
    assert pair_of(unpacked.loaded.name) == ("de", "en")
    assert call(translate, archive, text=f"{TEXT}\n")[1] == f"{expected.text}\n"
    with pytest.raises(
        CheckpointError, match=r"is a part of a package of Argos Translate: name .*translate-de_en-1_0$"
    ):
        load_model(package / "model")


def test_a_package_with_a_target_prefix_forces_it(package):
    metadata = json.loads((package / "metadata.json").read_text())
    prefix = tokens_in(package / "model")[20]
    (package / "metadata.json").write_text(json.dumps(metadata | {"target_prefix": prefix}))
    translator = Translator.from_pretrained(package)
    translation = translator(TEXT, copy=False)
    assert translator.loaded.generation["forced_bos_token_id"] == 20
    without = Translator.from_pretrained(argos_package(package.parent / "other"))(TEXT, copy=False)
    assert translation.text != without.text
    (package / "metadata.json").write_text(json.dumps(metadata | {"target_prefix": ">>xx<<"}))
    with pytest.raises(CheckpointError, match="lacks '>>xx<<', the `target_prefix` of the model"):
        load_model(package)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [({"type": "sbd"}, "`type` 'sbd' is not supported"), ({"target_prefix": 3}, "must be a text")],
)
def test_other_packages_are_refused_by_name(metadata, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        load_model(argos_package(tmp_path / "package", **metadata))


def test_a_package_with_words_of_moses_is_refused_by_name(package, tmp_path):
    (package / "sentencepiece.model").rename(package / "bpe.model")
    with pytest.raises(UnsupportedModelError, match=r"bpe\.model: is not read, as its words are those of Moses'"):
        load_model(package)
    archive = zipped(package, tmp_path / "old.argosmodel")
    with pytest.raises(UnsupportedModelError, match=r"old\.argosmodel.*bpe\.model: is not read"):
        Translator.from_pretrained(archive)
    with zipfile.ZipFile(archive, "w") as empty:
        empty.writestr("translate-de_en-1_0/metadata.json", "{}")
    with pytest.raises(CatalogError, match="has no model"):
        Translator.from_pretrained(archive)


def test_a_server_reads_it_in_a_process_of_its_own_first(package, monkeypatch):
    monkeypatch.setattr(probing, "_loaded", set())
    probing.probe(str(package))
    before, size = probing.identity_of(str(package)), probing.size_of(str(package))
    digests = checkpoint_digests(package)
    assert size > (package / "model" / "model.bin").stat().st_size
    assert {
        "metadata.json",
        "model/model.bin",
        "model/shared_vocabulary.json",
        "sentencepiece.model",
    } <= digests.keys()
    rewrite(package / "model", lambda variables, _: variables.update({"decoder/alibi": flag(1)}))
    assert probing.identity_of(str(package)) != before
    assert checkpoint_digests(package) != digests
    with pytest.raises(UnsupportedModelError, match="`decoder/alibi` 1"):
        probing.probe(str(package))


def test_it_is_not_converted(folder, package, tmp_path, call):
    for source in (folder, package):
        for write in (write_int8, write_huggingface, write_marian_folder):
            with pytest.raises(UnsupportedModelError, match="is a model of CTranslate2, which is not converted"):
                write(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UnsupportedModelError, match="is not converted: translate with it as it is, or convert"):
        call(convert, folder, tmp_path / "out", "--to", "web")


def test_a_text_without_tokens_is_translated(folder):
    """OpenNMT's sources have no end token, so an empty text has no token at all."""
    translator = Translator.from_pretrained(folder)
    assert translator(["", " ", TEXT])[0].text == ""
    assert translator("", copy=False, split_sentences=False).text == ""


def test_a_model_of_many_languages_needs_them_named(tmp_path):
    translator = Translator.from_pretrained(ctranslate2_folder("nllb", tmp_path / "nllb"))
    with pytest.raises(ValueError, match="`src_lang`"):
        translator(TEXT)
    english, french = (translator(TEXT, src_lang="de", tgt_lang=code, copy=False).text for code in ("en", "fr"))
    assert english
    assert english != french

"""Models as Marian itself wrote them, held to what Marian says of them."""

import json
import re
import shutil
import struct
import zipfile
from array import array

import pytest

from capsule_mt import Translator
from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.engine.program import Codes, UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from capsule_mt.models.marian_files import NumpyFile, open_marian, read_matrix
from capsule_mt.models.marian_yaml import read_vocabulary, read_yaml
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.weights import CheckpointError
from tests.fixtures.marian_models import (
    FOLDER,
    PRINTED_STEP,
    SOURCES,
    TARGETS,
    marian_folder,
    oracle_of,
    rewrite_options,
)
from tests.fixtures.students import OPTIONS, PIECES, shortlist, write_student

OTHER_SIZES = OPTIONS | {"tied-embeddings-all": False, "tied-embeddings": True}
READ = [
    *("default", "ssru", "two-spm", "untied", "yml", "mozilla-spm-ssru"),
    *("gelu", "ssru-ln-proj", "aan", "highway", "rnn-gru"),
]


def greedy_texts(model: LoadedModel) -> tuple[list[str], list[int]]:
    """Return the greedy translations of `SOURCES`, and the most tokens that each could have."""
    sources = [model.tokenizer.encode(text).ids for text in SOURCES]
    limits = [3 * len(ids) for ids in sources]
    options = SearchOptions(limits=limits, suppress_tokens=model.generation["suppress_tokens"])
    translations = model.decoder.translate(sources, options)
    return [
        model.tokenizer.decode([token for token in best.ids if token != model.end]) for best, *_ in translations
    ], limits


def assert_scores_are_marians(model: LoadedModel, name: str) -> None:
    """Compare the log-probabilities of all pairs."""
    oracle, tokenizer = oracle_of(name), model.tokenizer
    sources = [tokenizer.encode(text).ids for text in SOURCES]
    forced = model.decoder.force(sources, [tokenizer.encode_target(text) for text in TARGETS], Readings())
    for hypothesis, scores in zip(forced, oracle["scores"], strict=True):
        assert hypothesis.log_probs == pytest.approx(scores, abs=2 * PRINTED_STEP)


def assert_as_marian_says(model: LoadedModel, name: str) -> None:
    """Compare the scores, and the greedy translations that end before Marian's limit."""
    assert_scores_are_marians(model, name)
    num_compared = 0
    for text_and_score, limit, (text, scores) in zip(*greedy_texts(model), oracle_of(name)["beams1"], strict=True):
        if len(scores) < limit:
            text = text.replace(" ", "").replace("\u2581", " ") if name == "yml" else text  # Marian prints the pieces
            assert text_and_score == text.strip()
            num_compared += 1
    assert num_compared > 30


def npy(header):
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


@pytest.mark.parametrize("name", READ)
def test_scores_and_texts_are_marians(name, tmp_path):
    assert_as_marian_says(load_model(marian_folder(name, tmp_path / name)), name)


def two_vocabularies(folder, source="vocab.de.spm", target="vocab.en.spm", model="model.npz"):
    """Write a model from German to English, with two vocabularies of one size, under these names."""
    marian_folder("two-spm", folder, configuration=False)
    for old, new in (("de.spm", source), ("en.spm", target), ("model.npz", model)):
        (folder / old).rename(folder / new)
    return folder


@pytest.mark.parametrize(
    ("folder", "source", "target", "model"),
    [
        *((name, "vocab.zz.spm", "vocab.en.spm", "model.npz") for name in ("zzen", "zz-en", "opus-zz-en-tiny")),
        *((name, "vocab.de.spm", "vocab.en.spm", "model.npz") for name in ("deu_eng", "DE-EN", "student.de2en")),
        ("x", "vocab.zz.spm", "vocab.en.spm", "model.zzen.intgemm.npz"),
        ("x", "vocab_zz.spm", "vocab_en.spm", "model.zz-en.npz"),
        ("x", "zz.spm", "en.spm", "model.zzen.npz"),
        ("x", "vocab.zh_hant.spm", "vocab.en.spm", "model.zhen.npz"),
        ("x", "vocab.zz_hant.spm", "vocab.en.spm", "model.zz_hant-en.npz"),
        ("en-zz", "vocab.src.spm", "vocab.trg.spm", "model.npz"),
        ("x", "vocab.src.spm", "a.spm", "model.npz"),
        ("x", "vocab.spm", "target.spm", "model.npz"),
        ("x", "zz.source.spm", "zz.spm", "model.npz"),
        ("x", "srcvocab.spm", "avocab.spm", "model.npz"),
    ],
)
def test_the_order_of_two_vocabularies_of_one_size(folder, source, target, model, tmp_path):
    """The source's vocabulary is the last one by the alphabet, and has to be the first one."""
    assert_as_marian_says(load_model(two_vocabularies(tmp_path / folder, source, target, model)), "two-spm")


def test_the_order_of_a_shortlists_name_and_of_a_configuration(tmp_path):
    folder = two_vocabularies(tmp_path / "one", "vocab.zz.spm", "vocab.en.spm")
    (folder / "lex.50.50.zzen.s2t.bin").write_bytes(shortlist(340, 340))
    assert_as_marian_says(load_model(folder), "two-spm")
    folder = two_vocabularies(tmp_path / "en-zz", "vocab.zz.spm", "vocab.en.spm")  # the configuration wins
    (folder / "decoder.yml").write_text("vocabs:\n  - vocab.zz.spm\n  - vocab.en.spm\n")
    assert_as_marian_says(load_model(folder), "two-spm")


@pytest.mark.parametrize(
    ("folder", "source", "target", "model"),
    [
        ("model", "vocab.de.spm", "vocab.en.spm", "model.npz"),
        ("frit", "vocab.de.spm", "vocab.en.spm", "model.npz"),
        ("garden", "vocab.de.spm", "vocab.en.spm", "model.npz"),
        ("de-en", "vocab.de.spm", "vocab.en.spm", "model.ende.npz"),  # they contradict each other
        ("de-en", "one.spm", "two.spm", "model.npz"),
        ("de-en", "vocab.de.1.spm", "vocab.en.2.spm", "model.npz"),
        ("x", "src.trg.spm", "trg.src.spm", "model.npz"),
        # folders of caches, which digests name
        *(
            (f"{'0' * zeros}1defa2{suffix}", "vocab.de.spm", "vocab.fa.spm", "model.npz")
            for zeros, suffix in (
                (58, ""),
                (58, ".00112233445566aa.partial"),
                (58, ".00112233defa5566.partial"),
                (34, ""),
            )
        ),
    ],
)
def test_two_vocabularies_whose_order_is_not_known(folder, source, target, model, tmp_path):
    folder = two_vocabularies(tmp_path / folder, source, target, model)
    with pytest.raises(
        UnsupportedModelError,
        match=rf"cannot tell which of {re.escape(' and '.join(sorted((source, target))))}, of 340 tokens each, is the "
        r"source's vocabulary: list the source's and then the target's in `vocabs` of a decoder\.yml, name",
    ):
        load_model(folder)


@pytest.mark.parametrize(("source", "target"), [("z.spm", "a.spm"), ("a.spm", "z.spm")])
def test_vocabularies_of_different_sizes_are_in_the_order_of_the_model(source, target, tmp_path):
    folder = write_student(tmp_path / "x", "npz", options=OTHER_SIZES, targets=[*PIECES[:2], *PIECES[2:-3][::-1]])
    expected = [translation.text for translation in Translator.from_pretrained(folder)(["a hat", "the old man"])]
    for old, new in (("srcvocab.xxyy.spm", source), ("trgvocab.xxyy.spm", target)):
        (folder / old).rename(folder / new)
    (folder / "lex.xxyy.s2t.bin").unlink()
    assert [
        translation.text for translation in Translator.from_pretrained(folder)(["a hat", "the old man"])
    ] == expected
    (folder / "decoder.yml").write_text(f"vocabs: [{target}, {source}]\n")
    message = rf"`dim-vocabs` is \[{len(PIECES)}, {len(PIECES) - 3}\], but {target} has {len(PIECES) - 3} tokens and "
    with pytest.raises(CheckpointError, match=message + ".*: the source's vocabulary must be the first one"):
        load_model(folder)


def test_a_folder_as_training_leaves_it(tmp_path):
    """With the paths of another machine, the state of the optimiser, and all options of the training."""
    folder = marian_folder("default", tmp_path / "trained")
    assert "/data/training/models/default/model.npz" in (folder / "model.npz.decoder.yml").read_text()
    for name in ("model.npz.optimizer.npz", "model.npz.orig.npz"):
        shutil.copy(folder / "model.npz", folder / name)
    for name in ("model.npz.yml", "model.npz.progress.yml"):
        (folder / name).write_text("relative-paths: false\n")
    model = load_model(folder)
    assert (model.generation["num_beams"], model.generation["length_penalty"]) == (12, 0.0)
    assert_as_marian_says(model, "default")
    (folder / "model.npz.decoder.yml").unlink()
    assert_as_marian_says(load_model(folder), "default")
    shutil.move(folder / "model.npz", folder / "model.npz.best-ce.npz")  # the best model is read, and not the last one
    for name in ("model.npz", "model.iter100.npz"):
        shutil.copy(folder / "model.npz.orig.npz", folder / name)
        rewrite_options(folder / name, "type: transformer\n", "type: amun\n")
    assert_as_marian_says(load_model(folder), "default")
    for name in ("model.npz", "model.npz.best-ce.npz"):
        (folder / f"{name}.decoder.yml").write_text(f"models:\n  - /data/{name}\nvocabs:\n  - joint.spm\n")
    assert_as_marian_says(load_model(folder), "default")
    (folder / "model.npz.best-bleu.npz.decoder.yml").touch()
    with pytest.raises(
        UnsupportedModelError,
        match=r"has the configurations model\.npz\.best-bleu\.npz\.decoder\.yml, .*"
        "or name the model in `models` of a decoder.yml",
    ):
        load_model(folder)
    (folder / "decoder.yml").write_text("models: [model.npz.best-ce.npz]\n")
    assert_as_marian_says(load_model(folder), "default")


@pytest.mark.parametrize(("suffix", "command"), [("gz", "gunzip"), ("zst", "zstd -d")])
def test_a_compressed_model_is_refused_with_the_command(suffix, command, tmp_path):
    folder = marian_folder("default", tmp_path / "packed")
    for name in ("joint.spm", "model.npz"):
        (folder / name).rename(folder / f"{name}.{suffix}")
        message = rf"{name.replace('.', '[.]')}\.{suffix} is compressed: .* by `{command} \*\.{suffix}`"
        with pytest.raises(CheckpointError, match=message):
            load_model(folder)
        (folder / f"{name}.{suffix}").rename(folder / name)
    (folder / f"model.npz.{suffix}").touch()  # kept beside the unpacked file
    load_model(folder)


def test_a_vocabulary_is_found_by_its_usual_name(tmp_path):
    folder = marian_folder("yml", tmp_path / "yml")
    (folder / "decoder.yml").unlink()
    (folder / "joint.yml").rename(folder / "opus.spm32k-spm32k.vocab.yml")
    assert_as_marian_says(load_model(folder), "yml")


@pytest.mark.parametrize("name", ["vocab.yml", "vocab.deen.yml", "de_vocab.yaml", "model-vocab.yml", "joint.yml"])
def test_a_vocabulary_of_ids_is_not_passed_over_for_the_pieces_beside_it(name, tmp_path):
    """Both have as many tokens, in another order: the wrong one would translate, to nonsense."""
    folder = marian_folder("yml", tmp_path / "yml", configuration=False)
    (folder / "joint.yml").rename(folder / name)
    assert_scores_are_marians(load_model(folder), "yml")


def test_a_bin_has_the_numbers_of_the_npz(tmp_path):
    """As `marian convert --gemm-type float32` writes it."""
    scores = []
    for file in ("model.npz", "float32.bin"):
        model = load_model(marian_folder("default", tmp_path / file, file, configuration=False))
        sources = [model.tokenizer.encode(text).ids for text in SOURCES]
        targets = [model.tokenizer.encode_target(text) for text in TARGETS]
        scores.append([forced.log_probs for forced in model.decoder.force(sources, targets, Readings())])
    assert scores[0] == scores[1]


def test_the_codes_of_int8_are_the_rounded_weights(tmp_path):
    """Written by `marian convert --gemm-type intgemm8` of Marian 1.12; Bergamot's Marian has another type for them."""
    folder = marian_folder("default", tmp_path / "int8", "intgemm8.bin", configuration=False)
    stored, exact = (open_marian(file) for file in (folder / "model.bin", FOLDER / "default" / "model.npz"))
    num_matrices = 0
    for name in (name for name, item in stored.items.items() if item.dtype == "CODES"):
        codes, weights = read_matrix(stored, name), read_matrix(exact, name)
        assert isinstance(codes, Codes)
        largest, numbers = array("f", bytes(codes.magnitudes.buffer)), array("f", bytes(weights.buffer))
        step = largest[0] / 127
        for code, weight in zip(array("b", bytes(codes.codes.buffer)), numbers, strict=True):
            assert abs(code * step - weight) <= 0.501 * step
        num_matrices += 1
    assert num_matrices == 32
    assert load_model(folder, int8=True).decoder is not None


def test_rows_of_padding_do_not_reach_the_file(tmp_path):
    """They are written to a private map of the file, and the last tensor of a file has no room for them there."""
    folder = marian_folder("default", tmp_path / "int8", "intgemm8.bin", configuration=False)
    content = (folder / "model.bin").read_bytes()
    stored = open_marian(folder / "model.bin")
    for name in (name for name, item in stored.items.items() if item.dtype == "CODES"):
        plain, padded = read_matrix(stored, name), read_matrix(stored, name, 3)
        assert isinstance(plain, Codes)
        assert isinstance(padded, Codes)
        codes, (rows, columns) = bytes(plain.codes.buffer), plain.codes.shape
        assert (bytes(padded.codes.buffer), padded.codes.shape) == (codes + bytes(3 * columns), (rows + 3, columns))
    assert (folder / "model.bin").read_bytes() == content
    with open(folder / "model.bin", "r+b") as file:
        file.truncate(len(content) // 2)
    with pytest.raises(CheckpointError, match="was cut off while it was read"):
        stored.content(max(stored.items, key=lambda name: stored.items[name].start))


def test_codes_in_an_order_of_marians_own_are_refused(tmp_path):
    folder = write_student(tmp_path / "student")
    model = folder / "model.xxyy.bin"
    model.write_bytes(model.read_bytes().replace(struct.pack("<Q", 0x4101), struct.pack("<Q", 0x10001)))
    with pytest.raises(UnsupportedModelError, match=r"is \[\d+, \d+\] in int8, but only multiples of 16"):
        load_model(folder)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((0x802, "packed16"), (0x1801, "packed8avx2"), (0x2801, "packed8avx512"), (0x4102, "intgemm16")),
        *((0x10002, "intgemm16"), (0x13001, "intgemm8avx512vnni"), (0x14002, "intgemm16sse2"), (0x7777, "0x7777")),
    ],
)
def test_a_type_that_is_not_read_is_refused_by_name(kind, name, tmp_path):
    folder = write_student(tmp_path / "student")
    model = folder / "model.xxyy.bin"
    model.write_bytes(model.read_bytes().replace(struct.pack("<Q", 0x4101), struct.pack("<Q", kind)))
    with pytest.raises(
        UnsupportedModelError, match=f"is of type {name}, .*; only float32, float16, int8, intgemm8: convert the"
    ):
        load_model(folder)


def test_normalisation_before_a_layer(tmp_path):
    """Against `marian score` alone: from the second step on, `marian decode` forgets to normalise keys and values."""
    assert_scores_are_marians(load_model(marian_folder("pre-n", tmp_path / "pre-n")), "pre-n")


@pytest.mark.parametrize("name", ["pre-n", "gelu"])
def test_a_file_means_what_the_marian_that_wrote_it_computed(name, tmp_path):
    """Bergamot is a Marian 1.9: it leaves keys as they are, and has another gelu."""
    folder = marian_folder(name, tmp_path / "old")
    rewrite_options(folder / "model.npz", "version: v1.12.42", "version: v1.9.0  ")
    expected = json.loads((FOLDER / name / "bergamot.json").read_text("utf-8"))
    assert greedy_texts(load_model(folder))[0] == [text.strip() for text in expected]
    texts, _ = greedy_texts(load_model(marian_folder(name, tmp_path / "new")))
    assert texts != expected  # a newer file means something else


@pytest.mark.parametrize(
    ("name", "option"), [("pre-n", "transformer-preprocess"), ("gelu", "transformer-ffn-activation"), ("ssru", None)]
)
def test_a_file_without_a_version_is_read_where_the_version_has_no_effect(name, option, tmp_path):
    folder = marian_folder(name, tmp_path / name)
    rewrite_options(folder / "model.npz", "version: v1.12.42", "#")
    if option is None:
        assert_as_marian_says(load_model(folder), name)
        return
    with pytest.raises(UnsupportedModelError, match=rf"lacks `version`, on which the meaning of `{option}` depends"):
        load_model(folder)
    for version in ("v1.12.42", "v1.9.0"):
        (folder / "decoder.yml").write_text(f"version: {version}\n")
        if version == "v1.12.42":
            assert_scores_are_marians(load_model(folder), name)
    expected = json.loads((FOLDER / name / "bergamot.json").read_text("utf-8"))
    assert greedy_texts(load_model(folder))[0] == [text.strip() for text in expected]


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("v1.13.0", r"`version` 'v1\.13\.0 .* is newer than this program, .* Marian up to 1\.12: update capsule-mt"),
        ("v2.0.0", r"`version` 'v2\.0\.0 .* is newer than this program"),
        ("1.12", r"`version` must be one such as 'v1\.12\.42', got '1\.12"),
        ("v99999999999.1.1", r"`version` must be one"),
    ],
)
def test_a_version_that_is_not_read(version, message, tmp_path):
    folder = marian_folder("default", tmp_path / "newer")
    rewrite_options(folder / "model.npz", "version: v1.12.42 b7be0e964", f"version: {version}")
    with pytest.raises(ValueError, match=message):
        load_model(folder)


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("pre-n", "transformer-preprocess"),
        ("ssru-ln-proj", "layer-normalization"),
        ("aan", "transformer-decoder-autoreg"),
        ("rnn-gru", "transformer-decoder-autoreg"),
        ("highway", "transformer-postprocess"),
    ],
)
def test_a_checkpoint_of_transformers_refuses_what_it_lacks_by_name(name, option, tmp_path):
    folder = marian_folder(name, tmp_path / name)
    with pytest.raises(
        UnsupportedModelError, match=rf"`{option}` .* cannot be stored in a checkpoint of transformers"
    ):
        write_huggingface(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("preprocess: n", "preprocess: x", r"`transformer-preprocess` 'x' is not supported, only up to 8 of .* dnr$"),
        (
            "tied-layers:\n  []",
            "tied-layers: [1]",
            r"`transformer-tied-layers` has 1 layers, but `dec-depth` 2 needs",
        ),
        ("layers:\n  []\ntransformer-train-position-embeddings: false", "layers: [1, 9]", r"has `decoder_l2_.*`"),
        ("type: transformer\n", "type: s2s        \n", r"`type` 's2s' is not supported, only 'transformer'"),
        ("right-left: false", "right-left: true", r"`right-left` True is not supported"),
        ("ffn-activation: swish", "ffn-activation: tanh", r"`transformer-ffn-activation` 'tanh' is not supported"),
        ("ffn-depth: 2", "ffn-depth: x", r"`transformer-ffn-depth` 'x' is not supported, only a number"),
        ("ffn-depth: 2", "ffn-depth: 3", r"`model\.encoder\.layers\.0\.fc2\.weight` is \[32, 48\], but the config"),
        ("postprocess: da", "postprocess: n ", r"lacks `encoder_l1_self_Wo_ln_scale`"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(old, new, message, tmp_path):
    folder = marian_folder("pre-n", tmp_path / "pre-n")
    rewrite_options(folder / "model.npz", old, new)
    with pytest.raises(ValueError, match=message):
        load_model(folder)


def test_a_vocabulary_with_its_own_order_of_ids_does_not_become_a_tokenizer_json(tmp_path):
    with pytest.raises(
        UnsupportedModelError, match=r"joint\.yml: has its own order of ids, which a tokenizer\.json cannot"
    ):
        write_huggingface(marian_folder("yml", tmp_path / "yml"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_token_of_a_language(tmp_path):
    """OPUS-MT's models of several targets have them, and the text begins with one."""
    folder = marian_folder("yml", tmp_path / "yml")
    text = (folder / "joint.yml").read_text("utf-8")
    (folder / "joint.yml").write_text(text.replace('"\u2581auf": 2', '">>eng<<": 2'), "utf-8")
    tokenizer = load_model(folder).tokenizer
    assert tokenizer.language_tokens == [">>eng<<"]
    plain, named = (tokenizer.encode(f"{start}Mach mit!") for start in ("", ">>eng<< "))
    assert named.ids == [2, *plain.ids]
    assert named.offsets[0] == (0, 7)
    assert [span and (span[0] - 8, span[1] - 8) for span in named.offsets[1:]] == plain.offsets
    assert 2 not in tokenizer.encode(">>fra<< Mach mit!").ids


def test_a_folder_of_marian_with_several_target_languages(tmp_path):
    """A single vocabulary of OPUS-MT has the tokens; a text or `tgt_lang` chooses one of them."""
    folder = marian_folder("yml", tmp_path / "yml")
    text = (folder / "joint.yml").read_text("utf-8")
    for old, language in (("\u2581auf", "eng"), ("\u2581zu", "nld")):
        assert f'"{old}": ' in text
        text = text.replace(f'"{old}": ', f'">>{language}<<": ')
    (folder / "joint.yml").write_text(text, "utf-8")
    translator = Translator.from_pretrained(folder)
    plain = [translation.text for translation in translator(SOURCES, tgt_lang="en")]
    assert [translation.text for translation in translator([f">>eng<< {text}" for text in SOURCES])] == plain
    assert plain != [translation.text for translation in translator(SOURCES, tgt_lang="nl")]
    with pytest.raises(ValueError, match=r"^`tgt_lang` must be one of (eng, nld|nld, eng); got 'fr'$"):
        translator("Mach mit!", tgt_lang="fr")
    with pytest.raises(ValueError, match=r"^`tgt_lang` must be one of .*; it is missing"):
        translator("Mach mit!")


def test_a_vocabulary_in_yaml(tmp_path):
    file = tmp_path / "vocab.yml"
    tokens = ["</s>", "<unk>", "\u2581a", '"', "\\", ":", "'", "\U0001f600", "\x85", "\u2028", "#", "1", "a: b"]
    lines = [
        *("</s>: 0", "<unk>: 1", "\u2581a: 2", r'"\"": 3', r'"\\": 4', '":": 5', "'''': 6", r'"\ud83d\ude00": 7'),
        *(r'"\x85": 8', "\u2028: 9", '"#": 10', "1: 11\r", '"a: b": 12'),
    ]
    file.write_bytes("\n".join(["---", *reversed(lines), ""]).encode())
    assert read_vocabulary(str(file)) == {token: number for number, token in enumerate(tokens)}
    for content, message in (
        (b"a: 0\nb\n", r"vocab\.yml:2: 'b' is not a line `token: number`"),
        (b"a: 0\nb: -1\n", r"vocab\.yml:2: 'b: -1' is not a line `token: number`"),
        (b"a: 0\n'a': 1\n", r"vocab\.yml:2: 'a' comes twice"),
        (b"a: 0\nb: 2\n", r"vocab\.yml: its 2 tokens must have the numbers 0 to 1, each once"),
        (b'"\\ud83d": 0\n', r"vocab\.yml:1: .* is not a token in YAML"),
        (b'"\\Uffffffff": 0\n', r"vocab\.yml:1: .* is not a token in YAML"),
        (b"\xff: 0\n", r"vocab\.yml: is not UTF-8"),
    ):
        file.write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            read_vocabulary(str(file))
    with pytest.raises(CheckpointError, match="no such file"):
        read_vocabulary(str(tmp_path / "none.yml"))
    folder = marian_folder("yml", tmp_path / "yml")
    (folder / "joint.yml").write_bytes((folder / "joint.yml").read_bytes().replace(b'"</s>"', b'"</t>"'))
    with pytest.raises(CheckpointError, match=r"joint\.yml: lacks '</s>'"):
        load_model(folder)


@pytest.mark.parametrize("suffix", ["txt", "json"])
def test_a_vocabulary_in_another_format(suffix, tmp_path):
    tokens = ["</s>", "<unk>", "\u2581a", '"', "a: b", "\x85", "\U0001f600"]
    file = tmp_path / f"vocab.{suffix}"
    numbers = {token: number for number, token in enumerate(tokens)}
    file.write_bytes((json.dumps(numbers) if suffix == "json" else "\n".join([*tokens, ""])).encode())
    assert read_vocabulary(str(file)) == numbers
    folder = marian_folder("yml", tmp_path / "yml")
    numbers = read_vocabulary(str(folder / "joint.yml"))
    text = (
        json.dumps(numbers)
        if suffix == "json"
        else "".join(f"{token}\n" for token in sorted(numbers, key=numbers.get))
    )
    (folder / f"joint.{suffix}").write_text(text, "utf-8")
    (folder / "joint.yml").unlink()
    (folder / "decoder.yml").write_text((folder / "decoder.yml").read_text().replace("joint.yml", f"joint.{suffix}"))
    assert_as_marian_says(load_model(folder), "yml")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.txt", "a\n\nb\n", r"vocab\.txt:2: '' is empty, but needs a token"),
        ("vocab.txt", "a\nb\na\n", r"vocab\.txt:3: 'a' comes twice"),
        ("vocab.json", "{", r"vocab\.json: is not JSON"),
        ("vocab.json", "[" * 100000, r"vocab\.json: is not JSON"),
        ("vocab.json", '{"a": "0"}', r"vocab\.json: must be an object of tokens and their numbers"),
        ("vocab.json", '{"a": 0, "b": 2}', r"vocab\.json: its 2 tokens must have the numbers 0 to 1, each once"),
    ],
)
def test_a_damaged_vocabulary(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(CheckpointError, match=message):
        read_vocabulary(str(tmp_path / name))


def test_an_empty_list_on_a_line_of_its_own():
    assert read_yaml("a:\n  []\nb:\n  - 1\nc:\n  [x, 2]\n", "file") == {"a": [], "b": [1], "c": ["x", 2]}
    for text in ("a: 1\n  []", "a:\n  - 1\n  []", "a: []\n  []"):
        with pytest.raises(CheckpointError, match=r"'\[\]' is neither `name: value` nor an item of a list"):
            read_yaml(text, "file")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n" * 60_000, b"", r"model\.npz: the name of a tensor has 60000 bytes; at most 400 are read$"),
        (
            "a",
            npy("{'descr': '%s', 'fortran_order': False, 'shape': (1,), }" % ("d" * 50_000)),
            r"model\.npz: `a`: 'd{196}\.\.\. is not read; only",
        ),
    ],
)
def test_errors_of_a_npz_quote_a_part_of_what_is_long(name, content, message, tmp_path):
    with zipfile.ZipFile(tmp_path / "model.npz", "w") as archive:
        archive.writestr(f"{name}.npy", content)
    with pytest.raises(ValueError, match=message):
        NumpyFile(str(tmp_path / "model.npz"))


def test_the_error_of_a_npz_with_two_names_for_one_tensor_is_short(tmp_path):
    file = tmp_path / "model.npz"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("n" * 300 + ".npy", b"")
    file.write_bytes(file.read_bytes().replace(b"n" * 300, b"m" * 300, 1))
    with pytest.raises(CheckpointError, match=r"model\.npz: is not a `\.npz`, or it is damaged") as refusal:
        NumpyFile(str(file))
    assert len(str(refusal.value)) < len(str(file)) + 300

"""The options for Marian's decoder beside a model: read, without effect, refused, or named in a warning."""

import gzip
import json
import re

import pytest

from capsule_mt import Translator
from capsule_mt.commands import convert
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models import marian_decoder
from capsule_mt.models.loading import load_model
from capsule_mt.models.weights import CheckpointError
from capsule_mt.translate.search_plan import search_options
from tests.fixtures.marian_models import FOLDER, SOURCES, marian_folder, rewrite_options
from tests.fixtures.students import OPTIONS, PIECES, shortlist, vocabulary, weights, write_binary, write_student, yaml

# a value of each option that a decoder.yml may have
REFUSED = {
    "allow-unk": "true",
    "output-sampling": "[full, 1.0]",
    "output-approx-knn": "[100, 1024]",
    "force-decode": "true",
    "no-spm-encode": "true",
    "no-spm-decode": "true",
    "max-length-crop": "true",
    "tsv": "true",
    "ignore-model-config": "true",
    "config": "[other.yml]",
    "encryption-key-path": "key",
}
# the options of `marian decode --help` of Marian 1.12.42, and Bergamot's in the students of Firefox Translations
OPTIONS_OF_MARIAN = """
    version config workspace log log-level log-time-zone quiet quiet-translation seed check-nan
    interpolate-env-vars relative-paths dump-config models model-mmap ignore-model-config type dim-vocabs dim-emb
    factors-dim-emb factors-combine lemma-dependency lemma-dim-emb dim-rnn enc-type enc-cell enc-cell-depth
    enc-depth dec-cell dec-cell-base-depth dec-cell-high-depth dec-depth skip layer-normalization right-left
    input-types input-reorder input-join-fields best-deep tied-embeddings tied-embeddings-src tied-embeddings-all
    output-omit-bias transformer-heads transformer-no-projection transformer-rnn-projection transformer-pool
    transformer-dim-ffn transformer-decoder-dim-ffn transformer-ffn-depth transformer-decoder-ffn-depth
    transformer-ffn-activation transformer-dim-aan transformer-aan-depth transformer-aan-activation
    transformer-aan-nogate transformer-decoder-autoreg transformer-tied-layers transformer-guided-alignment-layer
    transformer-preprocess transformer-postprocess-emb transformer-postprocess transformer-postprocess-top
    transformer-train-position-embeddings transformer-depth-scaling transformer-attention-mask
    transformer-alibi-shift separator-symbol transformer-disable-position-embeddings transformer-alibi-trainable
    alibi transformer-no-bias transformer-no-affine bert-mask-symbol bert-type-vocab-size comet-pool comet-mix
    input output vocabs beam-size normalize max-length-factor word-penalty allow-unk allow-special n-best
    alignment force-decode word-scores stat-freq no-spm-decode no-spm-encode max-length max-length-crop tsv
    tsv-fields devices cpu-threads mini-batch mini-batch-words maxi-batch maxi-batch-sort data-threads fp16
    precision skip-cost shortlist weights output-sampling output-approx-knn optimize gemm-type quantize-range
    encryption-key-path gemm-precision max-length-break ssplit-mode ssplit-prefix-file quality
""".split()  # noqa: SIM905


def student(folder, configuration):
    """Write a student with these lines in its configuration."""
    write_student(folder)
    with open(folder / "config.yml", "a", encoding="utf-8") as file:
        file.write(configuration + "\n")
    return folder


@pytest.mark.parametrize("name", marian_decoder.REFUSED)
def test_an_option_that_would_change_translations_is_refused(name, tmp_path):
    with pytest.raises(UnsupportedModelError, match=rf"config\.yml: `{name}` .* is not supported: .*; remove it$"):
        load_model(student(tmp_path / "on", f"{name}: {REFUSED[name]}"))
    for number, off in enumerate(("false", "[]", "~", '""')):
        load_model(student(tmp_path / str(number), f"{name}: {off}"))


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ("weights: [0.5]", r"`weights` \[0\.5\] is not supported, only 1"),
        ("weights: 2", "`weights` 2 is not supported, only 1"),
        ("tsv-fields: 2", "`tsv-fields` 2 is not supported, only 1"),
        ("max-length-factor: 0", "`max-length-factor` must be a number from 0.001 to 1000, got 0"),
        ("max-length-factor: 0.0001", "`max-length-factor` must be a number from 0.001 to 1000, got 0.0001"),
        ("max-length-factor: true", "`max-length-factor` must be a number from 0.001 to 1000, got True"),
        ("max-length-factor: many", "`max-length-factor` must be a number from 0.001 to 1000, got 'many'"),
        ("max-length-factor: .inf", "`max-length-factor` must be a number from 0.001 to 1000"),
        ("max-length-factor: 1e400", "`max-length-factor` must be a number from 0.001 to 1000"),
        ("max-length-factor: [3]", "`max-length-factor` must be a number from 0.001 to 1000"),
    ],
)
def test_a_value_that_is_not_supported(configuration, message, tmp_path):
    with pytest.raises(ValueError, match=rf"config\.yml: {message}"):
        load_model(student(tmp_path / "student", configuration))


def test_costs_are_skipped_only_in_a_greedy_search(tmp_path):
    load_model(student(tmp_path / "greedy", "skip-cost: true"))
    folder = student(tmp_path / "beams", "skip-cost: true")
    configuration = (folder / "config.yml").read_text().replace("beam-size: 1", "beam-size: 4")
    (folder / "config.yml").write_text(configuration)
    with pytest.raises(
        UnsupportedModelError, match="`skip-cost` True is not supported with `beam-size` 4, only with 1"
    ):
        load_model(folder)


def test_options_that_change_no_translation(tmp_path, caplog):
    plain = Translator.from_pretrained(student(tmp_path / "plain", ""))("the old man buys a red hat.").text
    lines = [f"{name}: 1" for name in sorted(marian_decoder.HARMLESS - {"gemm-precision"})]
    lines += ["weights: [1.0]", "tsv-fields: 1", "skip-cost: true", "bert-mask-symbol: x", "comet-pool: avg"]
    folder = student(tmp_path / "all", "\n".join(lines))
    assert Translator.from_pretrained(folder)("the old man buys a red hat.").text == plain
    assert not [message for message in caplog.messages if "no effect" in message]


def test_an_unknown_option_is_named(tmp_path, caplog):
    folder = student(tmp_path / "typo", "beam_size: 6\nafter: 10e")
    load_model(folder)
    load_model(folder)
    file = folder / "config.yml"
    warning = f"{file}: `beam_size`, `after` are not options of Marian's decoder: no effect."
    assert [message for message in caplog.messages if "no effect" in message] == [warning]
    caplog.clear()
    load_model(student(tmp_path / "one", "beams: 6"))
    load_model(student(tmp_path / "many", "\n".join(f"train-{number}: 1" for number in range(30))))
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        "`beams` is not an option of Marian's decoder: no effect.",
        ", ".join(f"`train-{number}`" for number in range(8))
        + " and 22 more are not options of Marian's decoder: no effect.",
    ]


def test_every_option_of_marian_is_known():
    known = marian_decoder.READ | marian_decoder.HARMLESS | marian_decoder.MODEL_OPTIONS | {*marian_decoder.REFUSED}
    known |= {"weights", "tsv-fields", "skip-cost"}
    unknown = {name for name in OPTIONS_OF_MARIAN if name not in known}
    assert {name for name in unknown if not name.startswith(marian_decoder.OTHER_MODELS)} == set()
    groups = (marian_decoder.READ, marian_decoder.HARMLESS, {*marian_decoder.REFUSED})
    assert sum(map(len, groups)) == len(set().union(*groups))


@pytest.mark.parametrize("factor", ["0.1", "0.5"])
def test_a_translation_has_at_most_a_factor_of_its_source(factor, tmp_path):
    """As Marian cuts it there, without an end token."""
    folder = marian_folder("default", tmp_path / "default", configuration=False)
    (folder / "decoder.yml").write_text(f"max-length-factor: {factor}\nbeam-size: 1\n")
    model = load_model(folder)
    sources = [model.tokenizer.encode(text).ids for text in SOURCES]
    options = search_options(model, list(map(len, sources)), {})
    expected = json.loads((FOLDER / "default" / "max-length-factor.json").read_text("utf-8"))[factor]
    for limit, (best, *_), (text, count) in zip(
        options.limits, model.decoder.translate(sources, options), expected, strict=True
    ):
        assert model.tokenizer.decode([token for token in best.ids if token != model.end]) == text.strip()
        assert len(best.ids) == count <= limit
        assert best.was_cut == (count == limit)
    assert search_options(model, [9], {"max_new_tokens": 40}).limits == [40]


def test_a_factor_that_a_conversion_drops_is_said(tmp_path, call, caplog):
    folder = student(tmp_path / "student", "max-length-factor: 2.5")
    call(convert, folder, tmp_path / "out", "--to", "huggingface")
    assert any("`max-length-factor` 2.5 cannot be stored in a checkpoint" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("configuration", "beams", "penalty"),
    [
        ("models: [model.npz]", 1, 1.0),
        ("beam-size: 6", 6, 0.0),  # Marian's default
        ("beam-size: 6\nnormalize: 0.6", 6, 0.6),
    ],
)
def test_beams_and_length_penalty(configuration, beams, penalty, tmp_path):
    folder = write_student(tmp_path / "student", "npz")
    (folder / "decoder.yml").write_text(configuration + "\n")
    generation = load_model(folder).generation
    assert (generation["num_beams"], generation["length_penalty"]) == (beams, penalty)


def test_an_option_that_the_models_file_lacks_is_read_beside_it(tmp_path):
    folder = marian_folder("default", tmp_path / "default", configuration=False)
    (folder / "decoder.yml").write_text("right-left: true\n")
    load_model(folder)  # the file says false, which wins as in Marian
    rewrite_options(folder / "model.npz", "right-left: false", "#")
    with pytest.raises(UnsupportedModelError, match="`right-left` True is not supported"):
        load_model(folder)


# ---- refusals that name the real reason
@pytest.mark.parametrize(
    ("kind", "sizes"),
    [("multi-transformer", 3), ("lm-transformer", 1), ("lm", 1), ("char-s2s", 2), ("shared-multi-transformer", 3)],
)
@pytest.mark.parametrize("num_files", [1, 3])
def test_the_type_of_a_model_is_the_reason(kind, sizes, num_files, tmp_path):
    folder = write_student(tmp_path / "student", configuration=False)
    options = OPTIONS | {"type": kind, "dim-vocabs": [len(PIECES)] * sizes}
    write_binary(folder / "model.xxyy.bin", weights(), yaml(options), int8=True)
    for number in range(1, num_files):
        (folder / f"vocab.{number}.spm").write_bytes(vocabulary(PIECES))
    with pytest.raises(UnsupportedModelError, match=f"`type` '{kind}' is not supported, only 'transformer'$"):
        load_model(folder)
    names = [f"vocab.{number}.spm" for number in range(1, num_files)]
    (folder / "config.yml").write_text(f"vocabs: [{', '.join(['vocab.xxyy.spm', *names])}]\n")
    with pytest.raises(UnsupportedModelError, match=f"`type` '{kind}' is not supported, only 'transformer'$"):
        load_model(folder)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        (
            [20, 20],
            r"is \[20, 20\], but vocab\.xxyy\.spm has {} tokens: it is the vocabulary of another model, or it is",
        ),
        ([0, 0], r"is \[0, 0\], but vocab\.xxyy\.spm has {} tokens: it is the vocabulary of another model"),
        (["a", 3], r"is \['a', 3\], but .*: it must have the sizes of the source's and the target's vocabulary"),
        ([9], r"is \[9\], but .*: it must have the sizes of the source's and the target's vocabulary"),
        (None, r"is None, but .*: it must have the sizes of the source's and the target's vocabulary"),
    ],
)
def test_the_sizes_of_vocabularies_are_the_reason(sizes, message, tmp_path):
    folder = write_student(tmp_path / "student")
    options = OPTIONS if sizes is None else OPTIONS | {"dim-vocabs": sizes}
    write_binary(folder / "model.xxyy.bin", weights(), yaml(options), int8=True)
    with pytest.raises(CheckpointError, match="`dim-vocabs` " + message.format(len(PIECES))):
        load_model(folder)


def test_a_vocabulary_with_more_tokens_than_the_model_knows(tmp_path):
    folder = marian_folder("yml", tmp_path / "yml")
    rewrite_options(folder / "model.npz", "  - 500\n  - 500\n", "  - 400\n  - 400\n")
    with pytest.raises(
        CheckpointError,
        match=r"`dim-vocabs` is \[400, 400\], but joint\.yml has 500 tokens: the model knows only the first tokens, "
        "so remove the others",
    ):
        load_model(folder)


@pytest.mark.parametrize(("name", "names_it"), [("lex.s2t", True), ("lex.s2t", False), ("lex.txt.bin", False)])
def test_a_shortlist_in_text_is_the_reason(name, names_it, tmp_path):
    folder = marian_folder("default", tmp_path / "default", configuration=False)
    (folder / name).write_text("Haus house 0.5\nHund dog 1e-3\n")
    if names_it:
        (folder / "decoder.yml").write_text(f"shortlist: [{name}, 100, 100, 0]\n")
    load_model(folder)
    for requested in (True, folder / name):
        with pytest.raises(
            UnsupportedModelError,
            match=rf"{re.escape(name)}: is a shortlist in text, .*: convert it by `marian-conv --shortlist {name} 100",
        ):
            load_model(folder, shortlist=requested)
    (folder / name).unlink()
    (folder / "lex.s2t.gz").write_bytes(gzip.compress(b"Haus house 0.5\n"))
    (folder / "decoder.yml").write_text("beam-size: 1\n")
    load_model(folder)
    with pytest.raises(UnsupportedModelError, match=r"lex\.s2t\.gz: is compressed: unpack it; only .* in binary form"):
        load_model(folder, shortlist=True)
    (folder / "lex.s2t.bin").write_bytes(shortlist(500, 500))
    assert load_model(folder, shortlist=True).shortlist is not None

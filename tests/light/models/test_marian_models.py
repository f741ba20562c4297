"""Models as Marian itself wrote them, held to what Marian says of them."""

import shutil

import pytest

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from capsule_mt.models.marian_yaml import read_vocabulary, read_yaml
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.to_huggingface import write_huggingface
from capsule_mt.models.weights import CheckpointError
from tests.fixtures.marian_models import PRINTED, SOURCES, TARGETS, marian_folder, oracle_of

READ = ["default", "ssru", "two-spm", "untied", "yml", "mozilla-spm-ssru"]


def assert_as_marian_says(model: LoadedModel, name: str) -> None:
    """Compare the log-probabilities of all pairs, and the greedy translations that end before Marian's limit."""
    oracle, tokenizer = oracle_of(name), model.tokenizer
    sources = [tokenizer.encode(text).ids for text in SOURCES]
    forced = model.decoder.force(sources, [tokenizer.encode_target(text) for text in TARGETS], Readings())
    for hypothesis, scores in zip(forced, oracle["scores"], strict=True):
        assert hypothesis.log_probs == pytest.approx(scores, abs=2 * PRINTED)
    limits = [3 * len(ids) for ids in sources]
    options = SearchOptions(limits=limits, suppress_tokens=model.generation["suppress_tokens"])
    translations = model.decoder.translate(sources, options)
    num_compared = 0
    for (best, *_), (text, scores), limit in zip(translations, oracle["beams1"], limits, strict=True):
        if len(scores) < limit:
            text = text.replace(" ", "").replace("\u2581", " ") if name == "yml" else text  # Marian prints the pieces
            assert tokenizer.decode([token for token in best.ids if token != model.end]) == text.strip()
            num_compared += 1
    assert num_compared > 30


@pytest.mark.parametrize("name", READ)
def test_scores_and_texts_are_marians(name, tmp_path):
    assert_as_marian_says(load_model(marian_folder(name, tmp_path / name)), name)


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
    for name in ("model.npz.decoder.yml", "model.npz.best-ce.npz.decoder.yml"):
        (folder / name).touch()
    with pytest.raises(UnsupportedModelError, match=r"has model\.npz\.best-ce\.npz\.decoder\.yml, model\.npz"):
        load_model(folder)


def test_a_bin_has_the_numbers_of_the_npz(tmp_path):
    """As `marian convert --gemm-type float32` writes it."""
    scores = []
    for file in ("model.npz", "float32.bin"):
        model = load_model(marian_folder("default", tmp_path / file, file, configuration=False))
        sources = [model.tokenizer.encode(text).ids for text in SOURCES]
        targets = [model.tokenizer.encode_target(text) for text in TARGETS]
        scores.append([one.log_probs for one in model.decoder.force(sources, targets, Readings())])
    assert scores[0] == scores[1]


def test_normalisation_before_a_layer_is_refused_by_name(tmp_path):
    folder = marian_folder("pre-n", tmp_path / "pre-n")
    with pytest.raises(UnsupportedModelError, match=r"model\.yml: `transformer-postprocess` 'da' is not supported"):
        load_model(folder)


def test_numbers_of_their_own_have_no_tokenizer_json(tmp_path):
    with pytest.raises(
        UnsupportedModelError, match=r"joint\.yml: numbers tokens in an order of its own, which has no"
    ):
        write_huggingface(marian_folder("yml", tmp_path / "yml"), tmp_path / "out")


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


def test_an_empty_list_on_a_line_of_its_own():
    assert read_yaml("a:\n  []\nb:\n  - 1\nc:\n  [x, 2]\n", "file") == {"a": [], "b": [1], "c": ["x", 2]}
    for text in ("a: 1\n  []", "a:\n  - 1\n  []", "a: []\n  []"):
        with pytest.raises(CheckpointError, match=r"'\[\]' is neither `name: value` nor an item of a list"):
            read_yaml(text, "file")

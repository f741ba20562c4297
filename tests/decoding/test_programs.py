"""One writer a family: a live model and the folder that it is saved to give the same program, bit for bit."""

import pytest
import torch

from capsule_mt.conversions.to_int8 import write_int8
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.library import widened
from capsule_mt.engine.program import Codes, Positions
from capsule_mt.engine.search import SearchOptions
from capsule_mt.models.int8_weights import Int8File
from capsule_mt.models.loading import weights_in
from capsule_mt.models.registry import write_program
from capsule_mt.models.tensors import decoded
from capsule_mt.models.weights import read_json
from hf_capsule_mt import CapsuleMarianMTModel, to_fast
from hf_capsule_mt.decoding.state_dict import program_of
from hf_capsule_mt.loading import load_model
from tests.decoding.models import END, NAMES, PAD, SOURCES, VOCABULARY, batch, build


def numbers(tensor):
    return None if tensor is None else bytes(widened(decoded(tensor)).buffer)


def contents(program):
    """What the engine is told of a program, and every number that it packs."""
    linears = [
        [(linear.outputs, linear.inputs, *map(numbers, linear.read())) for linear in part] for part in program.linears
    ]
    vectors = [
        (one.count, one.width) if isinstance(one, Positions) else numbers(one.read()) for one in program.vectors
    ]
    fields = {name: value for name, value in vars(program).items() if name not in ("linears", "vectors")}
    return {**fields, "linears": linears, "vectors": vectors}


def of_folder(folder):
    return write_program(read_json(folder / "config.json"), weights_in(folder))[0]


def separate(name):
    """A model with a vocabulary of its own for each language, whose embeddings are tied to nothing else."""
    marian = build("plain").config
    settings = {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 150}
    settings |= {"pad_token_id": 149, "decoder_start_token_id": 149}
    tied = {"tie_word_embeddings": name == "tied"}
    model = CapsuleMarianMTModel(type(marian).from_dict(marian.to_dict() | settings | tied))
    return model.eval()


@pytest.mark.parametrize("name", [*NAMES, "separate", "separate, tied"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_folder_and_its_model_give_the_same_program(name, dtype, tmp_path):
    model = separate(name.removeprefix("separate, ")) if name.startswith("separate") else build(name)
    model.to(dtype).save_pretrained(tmp_path / "one")
    model.save_pretrained(tmp_path / "parts", max_shard_size="20KB")
    live = contents(program_of(model)[0])
    assert live["linears"]
    for folder in ("one", "parts"):
        actual = contents(of_folder(tmp_path / folder))
        assert [key for key in live if actual[key] != live[key]] == []
    assert len(list((tmp_path / "parts").glob("*.safetensors"))) > 1


@pytest.mark.parametrize("name", ["stock", "em_own", "guided", "capsules", "normalised", "rnmt_guided"])
def test_an_int8_folder_translates_as_the_model(name, tmp_path):
    """What it keeps in int8 are codes that the engine takes as they are."""
    model = build(name)
    fast = to_fast(model)
    fast.save(tmp_path)
    program = of_folder(tmp_path)
    kinds = [type(part.read()[0]) for linear in program.linears for part in linear]
    assert kinds.count(Codes) >= 5
    options = SearchOptions(limits=[14] * 4, num_beams=3, suppress_tokens=[PAD])
    results = Engine(program, int8=True).search(SOURCES, options, start=PAD, end=END, pad=PAD)
    expected = fast.generate(**batch(), num_beams=3, return_dict_in_generate=True)
    assert [part.scores[0] for part in results] == expected.sequences_scores.tolist()
    rows = expected.sequences[:, 1:].tolist()
    assert [part.tokens[0] for part in results] == [
        row[: len(part.tokens[0])] for row, part in zip(rows, results, strict=True)
    ]
    exact = Engine(program, int8=False).search(SOURCES, options, start=PAD, end=END, pad=PAD)
    rows = load_model(tmp_path).generate(**batch(), num_beams=3)[:, 1:].tolist()  # of the rounded weights
    assert all(part.tokens[0] == row[: len(part.tokens[0])] for row, part in zip(rows, exact, strict=True))


@pytest.mark.parametrize("name", ["stock", "guided", "capsules", "rnmt_guided", "m2m_100", "pegasus"])
@pytest.mark.parametrize("form", ["pickled", "parts"])
def test_folders_and_models_become_the_same_int8_folder(name, form, tmp_path):
    model = build(name)
    with torch.no_grad():
        for parameter in filter(lambda parameter: parameter.requires_grad, model.parameters()):
            parameter.copy_(parameter.half())  # so that float16 loses nothing
    to_fast(model).save(tmp_path / "live")
    source = tmp_path / "source"
    if form == "pickled":
        source.mkdir()
        torch.save(model.state_dict(), source / "pytorch_model.bin")
        model.config.save_pretrained(source)
    else:
        model.save_pretrained(source, max_shard_size="20KB")
    write_int8(source, tmp_path / "written")
    live, written = (Int8File(tmp_path / folder) for folder in ("live", "written"))
    assert {*written} >= {*live}
    assert all("embed_positions" in name for name in {*written} - {*live})  # sinusoids, which torch saves
    for name in live:
        expected, stored = live.read(name), written.read(name)
        assert isinstance(stored, Codes) == isinstance(expected, Codes)
        pairs = zip(expected, stored, strict=True) if isinstance(stored, Codes) else [(expected, stored)]
        for ours, theirs in pairs:
            assert ours.shape == theirs.shape
            assert bytes(widened(ours).buffer if ours.dtype != "I8" else ours.buffer) == bytes(
                widened(theirs).buffer if theirs.dtype != "I8" else theirs.buffer
            )


def test_weights_that_the_configuration_does_not_describe(tmp_path):
    model = build("plain")
    model.register_buffer("more", torch.ones(VOCABULARY))
    with pytest.raises(
        ValueError, match=r"has `more`, which the configuration does not describe \(`more` of the model\)"
    ):
        program_of(model)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"model\.safetensors: has `more`, which the configuration does not describe"):
        of_folder(tmp_path)

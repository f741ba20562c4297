"""Capsule Marian becomes transformers' Marian, or is refused with the names of what Marian cannot represent."""

import shutil

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, MarianMTModel

from hf_capsule_mt import CapsuleMarianMTModel, to_fast
from hf_capsule_mt.hub.conversion import to_marian
from hf_capsule_mt.loading import CheckpointError, load_model
from tests.decoding.models import batch, build
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian


def test_a_model_without_capsules_is_marians(tmp_path):
    model = build("plain")
    model.config.coverage_calibration = {"attention": {"head": [0, 1]}}
    to_marian(model).save_pretrained(tmp_path)
    marian = MarianMTModel.from_pretrained(tmp_path)
    assert marian.config.coverage_calibration == model.config.coverage_calibration
    assert type(marian) is MarianMTModel
    source = batch()
    assert torch.equal(marian.generate(**source, num_beams=3), model.generate(**source, num_beams=3))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("guided", 'it has guided_routing="guided"; only guided_routing="none" converts'),
        ("heads", 'it has head_aggregation="em_routing"; only head_aggregation="concat" converts'),
        ("em", 'it has layer_aggregation="em_routing"'),
        (
            "ssru",
            'it has decoder_self="ssru", marian_positions=true, layer_norm_eps=1e-06; only decoder_self="attention"',
        ),
        ("rnmt", "got a CapsuleRNMTForConditionalGeneration"),
        ("capsules", "got a CapsNMTForConditionalGeneration"),
    ],
)
def test_capsules_are_refused_by_name(name, message):
    with pytest.raises(ValueError, match=message):
        to_marian(build(name))


@pytest.fixture
def convert(monkeypatch, capsys):
    def run(*words):
        from hf_capsule_mt.commands import convert

        monkeypatch.setattr("sys.argv", ["capsule-mt convert", *map(str, words)])
        convert.main()

    return run


def test_the_command_goes_there_and_back(convert, tmp_path):
    there, back = tmp_path / "capsules", tmp_path / "marian"
    stock = save_tiny_marian(tmp_path / "stock")
    MarianMTModel.from_pretrained(stock).half().save_pretrained(stock)  # as some of OPUS-MT are
    convert(stock, there, "--from", "marian", "--set", "layer_aggregation=none", "dropout=0.2")
    model = AutoModelForSeq2SeqLM.from_pretrained(there)
    assert model.dtype == torch.float32  # half weights do not survive training
    assert type(model) is CapsuleMarianMTModel
    assert model.config.dropout == 0.2
    convert(there, back, "--to", "marianmt")
    expected = AutoModelForSeq2SeqLM.from_pretrained(stock, dtype=torch.float32).state_dict()
    weights = AutoModelForSeq2SeqLM.from_pretrained(back).state_dict()
    assert expected.keys() == weights.keys()
    assert all(torch.equal(expected[name], weights[name]) for name in expected)
    assert AutoTokenizer.from_pretrained(back)("The man")["input_ids"]


def test_the_command_starts_capsules_and_refuses_to_lose_them(convert, tmp_path, capsys):
    stock, guided = save_tiny_marian(tmp_path / "stock"), tmp_path / "guided"
    convert(stock, guided, "--from", "marian", "--set", "guided_routing=guided", "guided_capsule_dim=8")
    assert AutoModelForSeq2SeqLM.from_pretrained(guided).config.guided_capsule_dim == 8
    with pytest.raises(ValueError, match='guided_routing="guided"'):
        convert(guided, tmp_path / "lost", "--to", "marianmt")
    for words, message in (
        ((stock, guided, "--to", "marianmt"), "exists and is not empty; name a new folder"),
        ((stock, tmp_path / "x", "--to", "int8", "--set", "dropout=0"), "--set goes with --from marian"),
    ):
        with pytest.raises(SystemExit):
            convert(*words)
        assert message in capsys.readouterr().err


def test_transformers_is_told_what_an_int8_folder_is(tmp_path):
    plain, folder = save_tiny_checkpoint(tmp_path / "plain"), tmp_path / "int8"
    to_fast(load_model(plain)).save(folder)
    shutil.copy(plain / "config.json", folder)
    for model_class in (AutoModelForSeq2SeqLM, CapsuleMarianMTModel):
        with pytest.raises(
            OSError, match=r"`capsule-mt convert --to int8` has written, .* `capsule_mt\.Translator\.fr"
        ):
            model_class.from_pretrained(folder)
    shutil.copy(plain / "model.safetensors", folder)
    assert AutoModelForSeq2SeqLM.from_pretrained(folder).config.model_type == "capsule_marian"


def test_errors_of_int8(convert, tmp_path):
    stock, folder = save_tiny_marian(tmp_path / "stock"), tmp_path / "int8"
    convert(stock, folder, "--to", "int8")
    model = load_model(folder)
    with pytest.raises(ValueError, match="`int8` is False"):
        to_fast(model, int8=False).save(tmp_path / "x")
    with pytest.raises(ValueError, match="has weights already"):
        to_fast(model).save(stock)
    file, facts = folder / "int8.safetensors", folder / "int8.json"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(CheckpointError, match=r"int8\.safetensors: its checksum is [0-9a-f]{16}, but int8"):
        load_model(folder)
    file.write_bytes(content)
    facts.write_text('{"format": 1}')
    with pytest.raises(CheckpointError, match="`format` must be 3, got 1: convert the model again"):
        load_model(folder)
    facts.unlink()
    with pytest.raises(CheckpointError, match=r"int8\.json: no such file"):
        load_model(folder)

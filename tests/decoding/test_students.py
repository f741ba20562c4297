"""Students of Firefox Translations: what `capsule-mt convert` writes is a model of transformers, with its numbers."""

import subprocess
import sys

import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import capsule_mt
from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_marian import write_marian_folder
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import load_model
from hf_capsule_mt import CapsuleMarianMTModel, Translator
from hf_capsule_mt.data import SeparateVocabulariesTokenizer
from tests.fixtures.students import write_student
from tests.light.models.test_marian_checkpoint import KINDS, SOURCES


@pytest.mark.parametrize("kind", KINDS)
def test_a_converted_student_generates_what_the_engine_does(kind, tmp_path):
    options, targets = KINDS[kind]
    folder = write_student(tmp_path / "student", options=options, targets=targets)
    write_huggingface(folder, tmp_path / "out")
    model = CapsuleMarianMTModel.from_pretrained(tmp_path / "out")
    tokenizer, light = AutoTokenizer.from_pretrained(tmp_path / "out"), load_model(folder)
    never = light.generation["suppress_tokens"]
    batch = tokenizer(SOURCES, return_tensors="pt", padding=True)
    ids = [light.tokenizer.encode(text).ids for text in SOURCES]
    assert [row[: len(tokens)] for row, tokens in zip(batch["input_ids"].tolist(), ids, strict=True)] == ids
    for num_beams in (1, 3):
        search = SearchOptions(limits=[9] * 3, num_beams=num_beams, suppress_tokens=never)
        hypotheses = [best.ids for best, *_ in light.decoder.translate(ids, search)]
        settings = {"max_new_tokens": 9, "forced_eos_token_id": None, "num_beams": num_beams}
        rows = model.generate(**batch, **settings)[:, 1:].tolist()
        assert [row[: len(tokens)] for row, tokens in zip(rows, hypotheses, strict=True)] == hypotheses
    labels = tokenizer(text_target=SOURCES[:1], return_tensors="pt")["input_ids"]
    (forced,) = light.decoder.force(ids[:1], labels.tolist(), Readings())
    with torch.no_grad():
        loss = model(**tokenizer(SOURCES[:1], return_tensors="pt"), labels=labels).loss
    assert -sum(forced.log_probs) / len(forced.log_probs) == pytest.approx(loss.item(), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_training_starts_at_the_loss_of_evaluation(kind, tmp_path):
    """Students are trained without dropout, and transformers' own default would let them forget what they know."""
    options, targets = KINDS[kind]
    write_huggingface(write_student(tmp_path / "student", options=options, targets=targets), tmp_path / "out")
    model, info = CapsuleMarianMTModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    batch = tokenizer(SOURCES[:1], text_target=SOURCES[:1], return_tensors="pt")
    with torch.no_grad():
        assert model.train()(**batch).loss == model.eval()(**batch).loss


@pytest.mark.parametrize("kind", ["ssru", "nothing tied"])
def test_the_encoder_and_decoder_alone_load_without_a_report_of_unexpected_keys(kind, tmp_path):
    options, targets = KINDS[kind]
    write_huggingface(write_student(tmp_path / "student", options=options, targets=targets), tmp_path / "out")
    _, info = AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(info.values())


@pytest.mark.parametrize("penalty", ["1.0", "0.6"])
def test_a_converted_student_decodes_as_its_configuration_says_and_without_warnings(penalty, tmp_path, capfd):
    folder = write_student(tmp_path / "student")
    settings = (folder / "config.yml").read_text().replace("normalize: 1.0", f"normalize: {penalty}")
    (folder / "config.yml").write_text(settings)
    write_huggingface(folder, tmp_path / "greedy")
    (folder / "config.yml").write_text(settings.replace("beam-size: 1", "beam-size: 4"))
    write_huggingface(folder, tmp_path / "beams")
    for out, num_beams in ((tmp_path / "greedy", 1), (tmp_path / "beams", 4)):
        model = CapsuleMarianMTModel.from_pretrained(out)
        generation = model.generation_config
        # the penalty has no effect on a greedy search, and transformers saves no other than 1 for it
        assert (generation.num_beams, generation.length_penalty) == (num_beams, float(penalty) if num_beams > 1 else 1)
        assert (generation.max_length, generation.max_new_tokens) == (None, 511)
        capfd.readouterr()
        model.generate(**AutoTokenizer.from_pretrained(out)(SOURCES[:1], return_tensors="pt"), max_new_tokens=3)
        assert "max_length" not in capfd.readouterr().err
        model.save_pretrained(tmp_path / "saved")


def test_two_vocabularies_are_never_read_as_one(tmp_path):
    """Without the package, transformers would take the source's vocabulary for both languages, in silence."""
    options, targets = KINDS["two of other sizes"]
    write_huggingface(write_student(tmp_path / "student", options=options, targets=targets), tmp_path / "out")
    assert isinstance(AutoTokenizer.from_pretrained(tmp_path / "out"), SeparateVocabulariesTokenizer)
    program = f"from transformers import AutoTokenizer; AutoTokenizer.from_pretrained({str(tmp_path / 'out')!r})"
    run = subprocess.run([sys.executable, "-c", program], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert run.returncode != 0
    assert "trust_remote_code" in run.stderr


@pytest.mark.parametrize("kind", ["ssru", "two of other sizes"])
def test_what_transformers_saves_goes_back(kind, tmp_path):
    """Its tokenizer.json is still the SentencePiece vocabulary that it was made of."""
    options, targets = KINDS[kind]
    folder = write_student(tmp_path / "student", options=options, targets=targets)
    write_huggingface(folder, tmp_path / "hub")
    for part in (CapsuleMarianMTModel, AutoTokenizer):
        part.from_pretrained(tmp_path / "hub").save_pretrained(tmp_path / "saved")
    heavy = Translator.from_pretrained(tmp_path / "saved")(SOURCES, max_new_tokens=9)
    write_marian_folder(tmp_path / "saved", tmp_path / "back")
    original, back = (capsule_mt.Translator.from_pretrained(path) for path in (folder, tmp_path / "back"))
    assert back(SOURCES, max_new_tokens=9) == original(SOURCES, max_new_tokens=9)
    assert [path.text for path in heavy] == [path.text for path in original(SOURCES, max_new_tokens=9)]


def test_a_folder_of_marian_is_for_the_light_translator(tmp_path):
    folder = write_student(tmp_path / "student")
    with pytest.raises(ValueError, match=r"student: has files of Marian, which `capsule_mt\.Translator`"):
        Translator.from_pretrained(folder)
    with pytest.raises(ValueError, match=r"student: does not have a config\.json .*`capsule-mt convert"):
        CapsuleMarianMTModel.from_marian(folder)
    write_huggingface(folder, folder / "hub")  # and in a subfolder, as on the hub
    assert CapsuleMarianMTModel.from_marian(folder, subfolder="hub").config.marian_positions

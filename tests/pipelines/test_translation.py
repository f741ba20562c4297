"""The translation pipeline, for our models and for transformers' own Marian."""

import subprocess
import sys

import pytest
import torch
from transformers import MarianMTModel, pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from hf_capsule_mt import CapsuleMarianMTModel, TranslationPipeline
from hf_capsule_mt.pipelines import restore_translation_task
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian

TEXTS = ["The child sleeps.", "An old man buys twenty-three red apples at the market.", "Who laughs?", "No."]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_checkpoint(tmp_path_factory.mktemp("capsule"), layer_aggregation="em_routing"))


@pytest.fixture(scope="module")
def translator(checkpoint):
    return pipeline("translation", model=checkpoint)


def by_hand(translator, text, **settings):
    batch = translator.tokenizer(text, return_tensors="pt")
    ids = translator.model.generate(**batch, **settings)
    return translator.tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_shapes_of_the_results(translator):
    expected = [by_hand(translator, text)[0] for text in TEXTS]
    assert translator(TEXTS[0]) == [{"translation_text": expected[0]}]
    assert translator(TEXTS) == [{"translation_text": text} for text in expected]
    assert translator(TEXTS, batch_size=3) == [{"translation_text": text} for text in expected]
    several = translator(TEXTS, num_beams=3, num_return_sequences=2)
    assert [[record["translation_text"] for record in records] for records in several] == [
        by_hand(translator, text, num_beams=3, num_return_sequences=2) for text in TEXTS
    ]


def test_lazy_inputs(translator):
    from datasets import Dataset
    from transformers.pipelines.pt_utils import KeyDataset

    expected = translator(TEXTS)
    assert [records[0] for records in translator(text for text in TEXTS)] == expected
    dataset = Dataset.from_dict({"en": TEXTS})
    assert [records[0] for records in translator(KeyDataset(dataset, "en"), batch_size=2)] == expected


def test_token_ids(translator):
    (record,) = translator(TEXTS[0], return_tensors=True)
    assert set(record) == {"translation_token_ids"}
    assert (
        translator.tokenizer.decode(record["translation_token_ids"], skip_special_tokens=True)
        == by_hand(translator, TEXTS[0])[0]
    )
    assert set(translator(TEXTS[0], return_text=True)[0]) == {"translation_text"}
    with pytest.raises(ValueError, match="exclude each other"):
        translator(TEXTS[0], return_text=True, return_tensors=True)


def test_settings_at_init_and_at_call(checkpoint, translator):
    made = pipeline("translation", model=checkpoint, max_new_tokens=3, num_beams=2)
    expected = [by_hand(translator, text, max_new_tokens=3, num_beams=2)[0] for text in TEXTS]
    assert [record["translation_text"] for record in made(TEXTS)] == expected
    assert [record["translation_text"] for record in translator(TEXTS, max_new_tokens=3, num_beams=2)] == expected


@pytest.mark.parametrize("task", ["translation_en_to_de", "translation_eng_Latn_to_deu_Latn"])
def test_task_with_languages(checkpoint, translator, task):
    named = pipeline(task, model=checkpoint)
    assert named(TEXTS) == translator(TEXTS)
    preprocess, _, _ = named._sanitize_parameters()
    source, target = task.removeprefix("translation_").split("_to_")
    assert preprocess == {"src_lang": source, "tgt_lang": target}


def test_any_other_model(tmp_path):
    save_tiny_marian(tmp_path)
    translator = pipeline("translation", model=str(tmp_path))
    assert isinstance(translator.model, MarianMTModel)
    assert [record["translation_text"] for record in translator(TEXTS)] == [
        by_hand(translator, text)[0] for text in TEXTS
    ]


def test_a_saved_pipeline_needs_no_remote_code(translator, tmp_path):
    translator.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("*.py"))
    assert "custom_pipelines" not in (tmp_path / "config.json").read_text()
    assert pipeline("translation", model=str(tmp_path))(TEXTS) == translator(TEXTS)


def test_default_length(checkpoint):
    model = CapsuleMarianMTModel.from_pretrained(checkpoint)
    model.generation_config.max_new_tokens = None
    model.generation_config.max_length = 20
    translator = TranslationPipeline(model=model, tokenizer=pipeline("translation", model=checkpoint).tokenizer)
    inputs = {"input_ids": torch.ones(1, 3, dtype=torch.long)}
    assert translator._with_default_length(inputs, {}) == {"max_new_tokens": 199}  # as many as there are positions
    assert translator._with_default_length(inputs, {"max_length": 9}) == {"max_length": 9}
    model.generation_config.max_length = 50
    assert translator._with_default_length(inputs, {}) == {}


def test_errors(translator):
    with pytest.raises(ValueError, match="translates strings and lists of strings, got a int"):
        translator(3)
    with pytest.raises(KeyError):
        pipeline("translate", model=translator.model, tokenizer=translator.tokenizer)


def test_an_existing_task_is_left_alone(monkeypatch):
    tasks = {"translation": "native"}
    monkeypatch.setattr(PIPELINE_REGISTRY, "supported_tasks", tasks)
    restore_translation_task()
    assert tasks == {"translation": "native"}


def test_without_the_package_the_task_is_gone(checkpoint):
    # if this fails, transformers has the task again, and ours must step back
    program = f"from transformers import pipeline; pipeline('translation', model={checkpoint!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0

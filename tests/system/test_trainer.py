"""A stock `Seq2SeqTrainer` trains, evaluates with `generate()`, and refuses what is wrong."""

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)

from tests.fixtures.tiny import encoded_corpus, tiny_model, tiny_tokenizer

SETTINGS = {"layer_aggregation": "em_routing", "head_aggregation": "simple_routing"}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def corpus(tokenizer):
    return encoded_corpus(tokenizer)


def make_trainer(tokenizer, corpus, folder, model=None, trainer_settings=None, **arguments):
    if model is None:
        set_seed(0)
        model = tiny_model(tokenizer, **SETTINGS, label_smoothing=0.1)
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 8,
        "max_steps": 6,
        "learning_rate": 1e-3,
        "report_to": "none",
        "save_strategy": "no",
        "use_cpu": True,
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    return Seq2SeqTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(**{**defaults, **arguments}),
        train_dataset=corpus["train"],
        eval_dataset=corpus["validation"],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        processing_class=tokenizer,
        **(trainer_settings or {}),
    )


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


def test_the_loss_falls_and_the_checkpoint_loads(tokenizer, corpus, tmp_path):
    trainer = make_trainer(tokenizer, corpus, tmp_path, max_steps=30, learning_rate=5e-3)
    trainer.train()
    assert losses(trainer)[-1] < losses(trainer)[0] - 0.5
    trainer.save_model()
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert loaded.config == trainer.model.config
    for name, value in loaded.state_dict().items():
        torch.testing.assert_close(value, trainer.model.state_dict()[name])


def test_evaluation_with_generate(tokenizer, corpus, tmp_path):
    def count_words(prediction):
        assert prediction.predictions.shape[0] == len(corpus["validation"])
        return {"words": float((prediction.predictions != tokenizer.pad_token_id).sum())}

    settings = {"predict_with_generate": True, "generation_num_beams": 2, "generation_max_length": 12}
    settings["trainer_settings"] = {"compute_metrics": count_words}
    trainer = make_trainer(tokenizer, corpus, tmp_path, per_device_eval_batch_size=2, **settings)
    metrics = trainer.evaluate()
    assert metrics["eval_words"] > 0
    assert metrics["eval_loss"] > 0
    assert trainer.predict(corpus["validation"]).predictions.shape[0] == 5


def test_the_trainers_label_smoothing_is_refused_where_the_model_has_other_losses(tokenizer, corpus, tmp_path):
    model = tiny_model(tokenizer, guided_routing="guided")
    trainer = make_trainer(tokenizer, corpus, tmp_path, model, label_smoothing_factor=0.1)
    with pytest.raises(ValueError, match=r"set `model\.config\.label_smoothing` instead"):
        trainer.train()

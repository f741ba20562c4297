"""The trainer: losses, accumulation, evaluation, stopping; killed and resumed, it ends with the same bits."""

import json
import logging
import math
import os
import re
import signal
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSeq2SeqLM, MarianConfig, MarianMTModel, TrainerCallback
from transformers.integrations import integration_utils

from hf_capsule_mt.training import TranslationTrainer, TranslationTrainingArguments
from hf_capsule_mt.training.checkpoints import (
    average_weights,
    find_checkpoints,
    last_checkpoint,
    last_checkpoints,
    read_weights,
)
from hf_capsule_mt.training.encoder_variance import directions, token_variance
from hf_capsule_mt.training.models import build_model
from hf_capsule_mt.training.sharding import refuse_recomputed_dropout
from hf_capsule_mt.training.shown_translations import repeats_of, token_rows
from tests.fixtures.tiny import sizes_for, tiny_model
from tests.modeling.model_checks import randomize
from tests.training.small import (
    CHECKPOINTING,
    CORPUS,
    TOKENIZER,
    assert_same_bits,
    die,
    in_process,
    in_processes,
    make_trainer,
    weights,
)


def history(trainer, key):
    return [entry[key] for entry in trainer.state.log_history if key in entry]


def test_it_learns_and_logs_every_part(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=25, learning_rate=1e-2)
    trainer.train()
    losses = history(trainer, "loss")
    assert len(losses) == 25
    assert losses[-1] < losses[0] - 0.5
    assert history(trainer, "nll_loss")[-1] < losses[-1] - 0.05  # smoothing costs a share of every other word
    assert all(speed > 0 for speed in history(trainer, "tokens_per_second"))


def test_sentences_per_second_count_sentences(tmp_path):
    """The Trainer multiplies the steps by its own batch size, which batches of so many tokens do not have."""
    trainer = make_trainer(tmp_path, max_steps=7)
    num_sentences = []

    class Count(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **kwargs):
            num_sentences.append(logs.get("sentences_per_second"))

    trainer.add_callback(Count())
    seen = Mock(side_effect=trainer.data_collator)
    trainer.data_collator = seen
    metrics = trainer.train().metrics
    total = sum(len(call.args[0]) for call in seen.call_args_list[:7])
    # the Trainer rounds seconds to 4 digits, and speeds to 3
    assert metrics["train_samples_per_second"] == pytest.approx(total / metrics["train_runtime"], rel=1e-2)
    assert history(trainer, "train_samples_per_second") == [metrics["train_samples_per_second"]]
    assert all(speed > 0 for speed in num_sentences[:7])


class SpoilAt(TrainerCallback):
    """Makes the weights NaN, as a step with an infinite gradient does."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step == self.step:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))


@pytest.mark.parametrize(
    ("at", "pattern"), [(2, "shared.weight is not finite at step 2"), (3, "nll_loss .* at step 4")]
)
def test_a_training_that_diverges_is_stopped(tmp_path, at, pattern):
    """And no checkpoint of it is saved."""
    trainer = make_trainer(tmp_path, max_steps=9, save_strategy="steps", save_steps=2)
    trainer.add_callback(SpoilAt(at))
    with pytest.raises(FloatingPointError, match=f"{pattern}: .*diverged"):
        trainer.train()
    assert last_checkpoint(tmp_path) == (None if at == 2 else tmp_path / "checkpoint-2")


@pytest.mark.parametrize("is_stock", [False, True])
def test_accumulation_is_the_large_batch(tmp_path, is_stock):
    """The gradients of accumulated batches, unequal in tokens, equal those of one batch of the same examples.

    Models of transformers give the mean of a batch, whatever the number of targets in a step that they are told.
    """
    if is_stock:
        model = MarianMTModel(MarianConfig(**sizes_for(TOKENIZER), dropout=0.0)).double()
    else:
        model = tiny_model(TOKENIZER, dropout=0.0, label_smoothing=0.1, layer_aggregation="em_routing").double()
    gradients = []

    class Keep(TrainerCallback):
        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})

    trainer = make_trainer(tmp_path, model=model, max_steps=1, gradient_accumulation_steps=4, max_grad_norm=0)
    trainer.add_callback(Keep())
    loader = iter(trainer.get_train_dataloader())
    batches = [next(loader) for _ in range(4)]
    sizes = {int(batch["labels"].ne(-100).sum()) for batch in batches}
    assert len(sizes) > 1
    count = sum(batch["labels"].ne(-100).sum() for batch in batches)
    model.zero_grad()
    model.train()
    for batch in batches:
        if is_stock:
            logits, labels = model(**batch).logits, batch["labels"]
            (cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum") / count).backward()
        else:
            model(**batch, num_items_in_batch=count).loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    trainer.train()
    for name, value in expected.items():
        torch.testing.assert_close(gradients[0][name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("generate", [False, True])
def test_the_loss_of_an_evaluation_without_the_auxiliary_losses(tmp_path, generate):
    trainer = make_trainer(
        tmp_path,
        model_settings={"guided_routing": "guided", "dropout": 0.0},
        per_device_eval_batch_size=4,
        predict_with_generate=generate,
    )
    measured = trainer.evaluate()
    model, total = trainer.model.eval(), {"nll_loss": 0.0, "loss": 0.0}
    rows = [{key: CORPUS["validation"][number][key] for key in ("input_ids", "labels")} for number in range(6)]
    for batch in (rows[:4], rows[4:]):
        with torch.no_grad():
            outputs = model(**trainer.data_collator(batch))
        total = {key: value + outputs[key].item() * len(batch) / 6 for key, value in total.items()}
    assert measured["eval_nll_loss"] == pytest.approx(total["nll_loss"], rel=1e-5)
    assert measured["eval_loss"] == pytest.approx(total["loss"], rel=1e-5)
    assert measured["eval_nll_loss"] < measured["eval_loss"] - 0.1
    assert measured["eval_perplexity"] == pytest.approx(math.exp(total["nll_loss"]), rel=1e-5)
    assert {"eval_nll_loss", "eval_perplexity"} <= trainer.state.log_history[-1].keys()


def collapsed_lines(caplog):
    return [line for line in caplog.messages if "the encoder has collapsed" in line]


def variance_share(sentences):
    """The share of the variance between a sentence's tokens, from its sentences [S, d]."""
    between = sum((tokens - tokens.mean(dim=0)).square().sum() for tokens in sentences)
    return (between / sum(tokens.square().sum() for tokens in sentences)).item()


@pytest.mark.parametrize("generate", [False, True])
def test_the_share_of_variance_between_tokens_of_the_encoder(tmp_path, generate, caplog):
    trainer = make_trainer(tmp_path, per_device_eval_batch_size=2, predict_with_generate=generate)
    measured = trainer.evaluate()["eval_encoder_variance_share"]
    model = trainer.model.eval()
    rows = [CORPUS["validation"][number]["input_ids"] for number in range(6)]
    with torch.no_grad():
        states = [model.get_encoder()(torch.tensor([row])).last_hidden_state[0] for row in rows]
    assert measured == pytest.approx(variance_share(states), rel=1e-4)
    assert trainer.state.log_history[-1]["eval_encoder_variance_share"] == measured
    assert trainer.predict(CORPUS["validation"].select_columns(["input_ids", "labels"])).metrics[
        "test_encoder_variance_share"
    ] == pytest.approx(measured)
    assert not collapsed_lines(caplog)


def test_only_tokens_of_sentences_with_several_count_as_variance():
    torch.manual_seed(0)
    states, mask = torch.randn(3, 5, 4), torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [1, 1, 1, 1, 1]])
    states[mask == 0] = float("nan")  # padding
    total, scatter = token_variance(states, mask)
    assert (scatter.trace() / total).item() == pytest.approx(variance_share([states[0, :3], states[2]]), rel=1e-5)
    total, scatter = token_variance(states[1:2], mask[1:2])
    assert total == 0
    assert not scatter.any()


def test_in_how_many_directions_the_tokens_differ():
    basis = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(0)))[0]
    for number in (1, 3, 6):
        scatter = basis[:, :number] @ basis[:, :number].mT
        assert directions(7.0 * scatter) == pytest.approx(number, rel=1e-5)


def test_tokens_that_differ_in_one_direction_are_a_collapse(tmp_path, caplog):
    """Though most of the encoder's output is variance between them."""
    settings = {"d_model": 64}
    trainer = make_trainer(tmp_path, per_device_eval_batch_size=2, model_settings=settings)
    encoder = trainer.model.get_encoder()
    width = trainer.model.config.d_model
    direction = torch.linspace(-1, 1, width)

    def one_direction(module, inputs, output):
        states = output["last_hidden_state"][..., :1]
        output["last_hidden_state"] = (states - states.mean()) * direction
        return output

    assert trainer.evaluate()["eval_encoder_directions"] > 3
    assert collapsed_lines(caplog) == []
    encoder.register_forward_hook(one_direction)
    measured = trainer.evaluate()
    assert measured["eval_encoder_directions"] == pytest.approx(1, abs=1e-3)
    assert measured["eval_encoder_variance_share"] > 0.1
    (line,) = collapsed_lines(caplog)
    assert line.startswith("eval: the encoder has collapsed: `eval_encoder_directions` is 1, below 3.75")


def test_an_encoder_that_has_collapsed_is_reported_once(tmp_path, caplog):
    settings = {"layer_aggregation": "linear", "dropout": 0.0}
    trainer = make_trainer(tmp_path, model_settings=settings, per_device_eval_batch_size=2)
    aggregation = trainer.model.model.encoder.layer_aggregation
    torch.nn.init.normal_(aggregation.fc2.bias, std=100.0)  # LayerNorm divides the rest away
    for _ in range(2):
        assert trainer.evaluate()["eval_encoder_variance_share"] < 1e-3
    (line,) = collapsed_lines(caplog)
    assert line.startswith("eval: the encoder has collapsed: `eval_encoder_variance_share` is ")


def repeated_lines(caplog):
    return [line for line in caplog.messages if "translations are the same" in line]


def test_a_model_that_writes_one_sentence_for_all_sources_is_reported(tmp_path, caplog, monkeypatch):
    """At every evaluation that generates."""
    settings = {"compute_metrics": lambda prediction: {}}
    trainer = make_trainer(
        tmp_path, per_device_eval_batch_size=7, predict_with_generate=True, trainer_settings=settings
    )

    def same_sentence(model, inputs=None, input_ids=None, **kwargs):
        return torch.tensor([TOKENIZER.pad_token_id, 7, 8, TOKENIZER.eos_token_id]).repeat(len(input_ids), 1)

    monkeypatch.setattr(type(trainer.model), "generate", same_sentence)
    measured = trainer.evaluate(CORPUS["train"].select_columns(["input_ids", "labels"]))
    (line,) = repeated_lines(caplog)
    assert line.startswith("eval: 60 of 60 translations are the same")
    assert measured["eval_same_sentence_share"] == 1


def test_three_translations_at_each_evaluation(tmp_path, capsys, monkeypatch):
    """The same sentences each time, with source and reference."""
    settings = {"compute_metrics": lambda prediction: {}}  # without it, the Trainer keeps no translations
    trainer = make_trainer(
        tmp_path, per_device_eval_batch_size=4, predict_with_generate=True, trainer_settings=settings
    )

    def first_tokens(model, inputs=None, input_ids=None, **kwargs):
        start, end = torch.full((len(input_ids), 1), TOKENIZER.pad_token_id), input_ids[:, :1]
        return torch.cat([start, end], dim=1)

    monkeypatch.setattr(type(trainer.model), "generate", first_tokens)
    shown = []
    for _ in range(2):
        trainer.evaluate()
        shown.append(capsys.readouterr().out.splitlines()[:10])
    first, second = shown
    assert first == second
    assert re.fullmatch(r"eval at step 0: (\d of 6 translations are the same sentence: .*|all 6 .* differ)", first[0])
    for row, lines in zip((1, 3, 5), (first[1:4], first[4:7], first[7:10]), strict=True):
        example = CORPUS["validation"][row]
        first_word = TOKENIZER.decode(example["input_ids"][:1])
        texts = {"source": example["translation"]["en"], "reference": example["translation"]["de"]}
        assert [line.split(maxsplit=1) for line in lines] == [*map(list, texts.items()), ["translation", first_word]]


def generate_repeats(model, inputs=None, input_ids=None, num_return_sequences=1, **kwargs):
    """One sentence, with padding that depends on the batch."""
    tokens = torch.tensor([TOKENIZER.pad_token_id, 7, 8, TOKENIZER.eos_token_id])
    padding = torch.full((input_ids.shape[1],), TOKENIZER.pad_token_id)
    return torch.cat([tokens, padding]).repeat(num_return_sequences * len(input_ids), 1)


@pytest.mark.parametrize("concatenates", [True, False])
@pytest.mark.parametrize("num_return_sequences", [1, 2])
@pytest.mark.parametrize("has_processing_class", [True, False])
def test_repeats_are_reported_however_an_evaluation_is_set(
    concatenates, num_return_sequences, has_processing_class, tmp_path, caplog, monkeypatch
):
    """Batches of different widths, several translations of a source, and no tokenizer that names the padding."""
    trainer = make_trainer(
        tmp_path,
        per_device_eval_batch_size=7,
        predict_with_generate=True,
        eval_do_concat_batches=concatenates,
        trainer_settings={} if has_processing_class else {"processing_class": None},
    )
    monkeypatch.setattr(type(trainer.model), "generate", generate_repeats)
    data = CORPUS["train"].select_columns(["input_ids", "labels"])
    trainer.predict(data, num_return_sequences=num_return_sequences)
    lines = [line.split(":")[1] for line in repeated_lines(caplog)]
    assert lines == ([" 60 of 60 translations are the same sentence"] if num_return_sequences == 1 else [])


@pytest.mark.parametrize(
    ("num_equal", "num_references", "is_reported"),
    [(296, 300, True), (300, 300, True), (140, 300, False), (300, 1, False), (300, 100, True), (9, 9, False)],
)
def test_which_repeats_are_reported(num_equal, num_references, is_reported, caplog):
    """Not those of repeated sources, nor of a handful of sentences."""
    number = 300 if num_references > 9 or num_references == 1 else num_references
    references = np.array([[100 + row % num_references, 1, -100] for row in range(number)])
    translations = np.array([[5, 6, 0, 0] if row < num_equal else [row + 7, 6, 0, -100] for row in range(number)])
    repeats = repeats_of("eval", token_rows(translations, 0), token_rows(references, 0))
    assert (repeats.count, repeats.total) == (num_equal, number)
    assert [line.split(":")[1] for line in repeated_lines(caplog)] == (
        [f" {num_equal} of {number} translations are the same sentence"] if is_reported else []
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"average_last": -1}, "`average_last` must not be negative, got -1"),
        ({"report_to": "tensorbord"}, "`report_to` must be among none, all, .*tensorboard.*, got 'tensorbord'"),
        ({"early_stopping_patience": 2}, "needs `eval_strategy`"),
        ({"eval_strategy": "epoch", "save_strategy": "steps"}, "use the same for both"),
        ({"max_tokens_per_batch": 1}, "must be at least 2, got 1"),
        ({"average_tokens_across_devices": False}, "must be True"),
        ({"label_smoothing_factor": 0.1}, "must be 0, got 0.1"),
        ({"eval_strategy": "steps", "save_strategy": "best", "metric_for_best_model": "loss"}, "got best"),
        (
            {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 2}
            | {"load_best_model_at_end": True},
            r"needs `save_steps` to be `eval_steps` \(1\), got 2",
        ),
    ],
)
def test_arguments_that_contradict(tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, **arguments)


def test_a_logger_that_is_not_installed_is_named(tmp_path, monkeypatch):
    missing = Mock(side_effect=RuntimeError("requires tensorboard to be installed"))
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "tensorboard", missing)
    with pytest.raises(ValueError, match="`report_to` 'tensorboard' cannot be used: requires tensorboard"):
        TranslationTrainingArguments(output_dir=str(tmp_path), report_to="tensorboard", use_cpu=True)


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        ({"save_strategy": "no"}, 0),
        ({"save_strategy": "steps", "save_steps": 16}, 1),
        ({"save_strategy": "steps", "save_steps": 4}, 4),
        ({"save_strategy": "epoch", "max_steps": -1, "num_train_epochs": 1.5}, 2),
    ],
)
def test_an_average_of_more_checkpoints_than_the_run_saves_is_refused_at_the_start(tmp_path, arguments, count):
    trainer = make_trainer(tmp_path, average_last=count + 1, **arguments)
    noun = "checkpoint" if count == 1 else "checkpoints"
    with pytest.raises(ValueError, match=f"saves only {count} {noun}: set `average_last` to at most {count},"):
        trainer.train()
    assert trainer.state.global_step == 0
    trainer = make_trainer(tmp_path, average_last=count, **arguments)
    trainer.train()
    assert len(find_checkpoints(tmp_path, by_signal=False)) == count


def test_the_trainer_ends_with_the_average(tmp_path):
    settings = {"coverage_calibration": {"attention": {"head": [0, 1], "threshold": 0.3}}}
    arguments = {"max_steps": 4, "average_last": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = make_trainer(tmp_path, model_settings=settings, **arguments)
    trainer.train()
    assert trainer.dropped_measurements
    assert trainer.model.config.coverage_calibration == {"attention": {"head": [0, 1]}}
    assert [folder.name for folder in trainer.averaged] == ["checkpoint-2", "checkpoint-4"]
    expected = average_weights(trainer.averaged)
    assert_same_bits({name: weights(trainer)[name] for name in expected}, expected)
    again = make_trainer(tmp_path, **arguments)
    again.train(resume_from_checkpoint="last")  # which has no step left
    assert_same_bits(weights(again), weights(trainer))


def test_bpe_dropout_without_texts_is_refused(tmp_path):
    trainer = make_trainer(tmp_path, bpe_dropout=0.5)
    arguments = {"model": trainer.model, "args": trainer.args, "data_collator": trainer.data_collator}
    with pytest.raises(ValueError, match=r"`bpe_dropout` 0\.5 has no effect on a training set that is encoded"):
        TranslationTrainer(train_dataset=CORPUS["train"], **arguments)
    TranslationTrainer(eval_dataset=CORPUS["validation"], **arguments)


@pytest.mark.parametrize(("settings", "chosen"), [({}, "sdpa"), ({"bf16": True}, "eager")])
def test_attention_is_eager_on_a_cpu_where_onednn_multiplies(tmp_path, settings, chosen):
    assert make_trainer(tmp_path, **settings).model.config._attn_implementation == chosen


def test_evaluation_leaves_no_trace(tmp_path):
    """Evaluations change neither the weights nor the settings of decoding."""
    evaluating = {"eval_strategy": "steps", "eval_steps": 2, "predict_with_generate": True}
    settings = {"compute_metrics": lambda prediction: {"tokens": (prediction.predictions >= 0).sum()}}
    evaluated = make_trainer(tmp_path, max_steps=6, **evaluating, trainer_settings=settings)
    decoding = ("max_length", "max_new_tokens", "num_beams", "do_sample")
    settings_before = {key: getattr(evaluated.model.generation_config, key) for key in decoding}
    evaluated.train()
    assert len(history(evaluated, "eval_tokens")) == 3
    assert {key: getattr(evaluated.model.generation_config, key) for key in decoding} == settings_before
    plain = make_trainer(tmp_path, max_steps=6)
    plain.train()
    assert_same_bits(weights(evaluated), weights(plain))


def test_an_evaluation_of_several_batches_does_not_warn(tmp_path, caplog, monkeypatch):
    """The Trainer's own `max_length` of 20 made `generate()` warn of two limits at every batch but the first."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    trainer = make_trainer(tmp_path, per_device_eval_batch_size=2, predict_with_generate=True)
    assert trainer.model.generation_config.max_new_tokens == 8
    trainer.evaluate()
    trainer.predict(CORPUS["validation"], num_beams=2)
    assert [record.getMessage() for record in caplog.records if "max_" in record.getMessage()] == []


def scored_by(scores):
    return {"compute_metrics": lambda prediction: {"bleu": next(scores)}}


def test_early_stopping_and_what_is_kept(tmp_path):
    scores = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    evaluating = {"eval_strategy": "steps", "eval_steps": 2, "early_stopping_patience": 2}
    evaluating |= {"predict_with_generate": True, "trainer_settings": scored_by(scores)}
    saving = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 1}
    trainer = make_trainer(tmp_path, **evaluating, **saving)
    trainer.train()
    assert trainer.state.global_step == 8
    assert [folder.name for folder in find_checkpoints(tmp_path)] == ["checkpoint-4", "checkpoint-8"]
    assert not list(tmp_path.rglob("*.py"))  # checkpoints of a training do not contain code
    resumed = make_trainer(tmp_path, **evaluating)
    resumed.train("last")
    assert resumed.state.global_step == 8
    assert_same_bits(weights(resumed), weights(trainer))


@pytest.mark.parametrize(("scores", "step"), [([5, 10, 30], 6), ([20, 30, 10], 4)])
def test_the_best_checkpoint_is_loaded(tmp_path, scores, step):
    steps = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    at_end = {"load_best_model_at_end": True, "metric_for_best_model": "bleu", "greater_is_better": True}
    settings = scored_by(iter(scores))
    trainer = make_trainer(tmp_path, **steps, **at_end, save_total_limit=1, trainer_settings=settings)
    trainer.train()
    best = read_weights(tmp_path / f"checkpoint-{step}")
    assert all(torch.equal(value, weights(trainer)[name]) for name, value in best.items())


# ---- killed and resumed
RUN = {
    "save_strategy": "steps",
    "save_steps": 3,
    "save_total_limit": 2,
    "gradient_accumulation_steps": 2,
    "bpe_dropout": 0.1,
    "model_settings": {"dropout": 0.2, "layer_aggregation": "em_routing"},
}


class DieAt(TrainerCallback):
    """Sends SIGKILL at an event of a step, such as in the middle of accumulating a batch."""

    def __init__(self, event, step):
        self.step = step
        setattr(self, event, self._die)

    def _die(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            die()


def train_and_die(folder, event, step):
    trainer = make_trainer(folder, **RUN)
    if event == "while saving":  # after the weights, before the optimizer's state
        save_optimizer = trainer._save_optimizer_and_scheduler

        def dying(output_dir):
            if trainer.state.global_step == step:
                die()
            save_optimizer(output_dir)

        trainer._save_optimizer_and_scheduler = dying
    elif event == "while deleting":
        import hf_capsule_mt.training.checkpoints as checkpoints

        rmtree = checkpoints.shutil.rmtree

        def dying(path, **settings):
            if "checkpoint-" in str(path) and trainer.state.global_step == step and os.path.exists(path):
                os.unlink(os.path.join(path, "model.safetensors"))
                die()
            rmtree(path, **settings)

        checkpoints.shutil.rmtree = dying
    elif event is not None:
        trainer.add_callback(DieAt(event, step))
    trainer.train("last")
    torch.save(weights(trainer), folder / "weights.pt")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert in_process(train_and_die, folder, None, 0) == 0
    return torch.load(folder / "weights.pt")


@pytest.mark.parametrize(
    "deaths",
    [
        [("on_step_end", 2), ("on_substep_end", 4), ("on_step_end", 10)],  # before any checkpoint; mid-accumulation
        [("while saving", 3), ("while saving", 6), ("on_step_begin", 7)],
        pytest.param([("while deleting", 9), ("on_epoch_begin", 12), ("on_train_end", 14)], marks=pytest.mark.slow),
    ],
    ids=["steps", "saving", "deleting"],
)
def test_killed_and_resumed_is_uninterrupted_to_the_bit(tmp_path, uninterrupted, deaths):
    died = [in_process(train_and_die, tmp_path, event, step) for event, step in deaths]
    assert -signal.SIGKILL in died
    assert set(died) <= {-signal.SIGKILL, 0}
    assert in_process(train_and_die, tmp_path, None, 0) == 0
    assert_same_bits(torch.load(tmp_path / "weights.pt"), uninterrupted)
    assert not find_checkpoints(tmp_path, complete=False)


class Send(TrainerCallback):
    """Sends SIGTERM in the step after this one."""

    def __init__(self, step=4):
        self.step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_damaged_checkpoint_is_named_and_the_one_before_it_is_taken(tmp_path, caplog):
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}
    uninterrupted = make_trainer(tmp_path, **settings)
    uninterrupted.train()
    weights_file = tmp_path / "checkpoint-6" / "model.safetensors"
    content = bytearray(weights_file.read_bytes())
    content[-64:] = bytes(255 - byte for byte in content[-64:])
    weights_file.write_bytes(content)
    resumed = make_trainer(tmp_path, **settings)
    with caplog.at_level("WARNING"):
        resumed.train("last")
    (warning,) = [entry.message for entry in caplog.records if "damaged" in entry.message]
    assert "checkpoint-6 is damaged" in warning
    assert "model.safetensors" in warning
    assert "resumes from checkpoint-4" in warning
    assert (tmp_path / "damaged-checkpoint-6").exists()
    assert_same_bits(weights(resumed), weights(uninterrupted))


def test_the_checkpoint_of_a_signal_displaces_none_and_is_not_averaged(tmp_path):
    settings = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2, "max_steps": 8}
    stopped = make_trainer(tmp_path, **settings)
    stopped.add_callback(Send(4))
    stopped.train("last")
    names = [folder.name for folder in find_checkpoints(tmp_path)]
    assert names == ["checkpoint-2", "checkpoint-4", "checkpoint-5"]
    assert [folder.name for folder in last_checkpoints(tmp_path, 2)] == ["checkpoint-2", "checkpoint-4"]
    resumed = make_trainer(tmp_path, **settings)
    resumed.add_callback(Send(5))  # at a step that is saved anyway
    resumed.train("last")
    assert [folder.name for folder in find_checkpoints(tmp_path)] == ["checkpoint-4", "checkpoint-6"]
    assert find_checkpoints(tmp_path, by_signal=True) == []


def test_a_signal_in_the_last_step_of_an_epoch_leaves_its_checkpoint_as_it_is(tmp_path):
    stopped = make_trainer(tmp_path, max_steps=8, max_tokens_per_batch=1200, save_strategy="steps", save_steps=5)
    stopped.add_callback(Send(4))
    stopped.train("last")
    assert [folder.name for folder in find_checkpoints(tmp_path, by_signal=False)] == ["checkpoint-5"]


@pytest.mark.parametrize("step", [1, 4])  # of five in an epoch
def test_a_signal_adds_no_evaluation(tmp_path, step):
    """The Trainer takes a stop for the end of an epoch; the scores, and so the best checkpoint, must not change."""

    def trainer(folder):
        return make_trainer(
            folder,
            max_steps=8,
            max_tokens_per_batch=1200,
            save_strategy="epoch",
            eval_strategy="epoch",
        )

    uninterrupted = trainer(tmp_path / "whole")
    uninterrupted.train("last")
    stopped = trainer(tmp_path / "stopped")
    stopped.add_callback(Send(step))
    handler = signal.getsignal(signal.SIGTERM)
    stopped.train("last")
    assert stopped.stopped
    assert last_checkpoint(tmp_path / "stopped").name == f"checkpoint-{step + 1}"
    resumed = trainer(tmp_path / "stopped")
    resumed.train("last")
    assert not resumed.stopped
    assert signal.getsignal(signal.SIGTERM) is handler
    assert [entry["step"] for entry in resumed.state.log_history if "eval_loss" in entry] == [
        entry["step"] for entry in uninterrupted.state.log_history if "eval_loss" in entry
    ]
    assert_same_bits(weights(resumed), weights(uninterrupted))


def test_a_full_disk_is_one_sentence(tmp_path):
    trainer = make_trainer(tmp_path, save_strategy="steps", save_steps=2, max_steps=4)
    save_optimizer = trainer._save_optimizer_and_scheduler

    def fail(folder):
        if trainer.state.global_step == 4:
            raise RuntimeError("the disk is full")  # as torch says it
        save_optimizer(folder)

    trainer._save_optimizer_and_scheduler = fail
    with pytest.raises(OSError, match=r"checkpoint-4 could not be saved .*full.*; earlier checkpoints are undamaged"):
        trainer.train("last")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


# ---- processes
SIZES = {"encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0, "label_smoothing": 0.1}
GUIDED = {"guided_routing": "guided", "guided_capsule_dim": 8}
MODELS = {
    "marian": {
        **GUIDED,
        "model_type": "capsule_marian",
        "d_model": 16,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "guided_ffn_dim": 8,
        "layer_aggregation": "em_routing",
        "layer_aggregation_num_capsules": 4,
    },
    "rnmt": {**GUIDED, "model_type": "capsule_rnmt", "hidden_size": 16},
    "capsnmt": {"model_type": "capsnmt", "hidden_size": 16},
}


def train_together(folder, name, processes, is_sharded, checkpointing, die_at=None):
    """Train; write predictions and losses to `log.json`, and the final weights to `model`."""
    torch.manual_seed(0)
    model = randomize(build_model(SIZES | MODELS[name], TOKENIZER))
    model.generation_config.max_new_tokens, model.generation_config.max_length = 8, None
    trainer = make_trainer(
        folder,
        model=model.double(),
        max_steps=5,
        save_strategy="steps",
        save_steps=3,
        eval_strategy="steps",
        eval_steps=5,
        predict_with_generate=True,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=2 // processes,
        trainer_settings={"compute_metrics": lambda prediction: {"tokens": prediction.predictions.tolist()}},
        ddp_backend="gloo" if processes > 1 else None,
        fsdp=is_sharded,
        **(checkpointing if is_sharded else {}),
    )
    assert trainer.accelerator.num_processes == processes
    assert trainer.is_fsdp_enabled == is_sharded
    if die_at is not None:
        trainer.add_callback(DieAt("on_step_end", die_at))
    trainer.train("last")
    sizes = [getattr(weight, "_local_tensor", weight).numel() for weight in trainer.model.parameters()]
    if is_sharded:
        assert sum(sizes) < 0.6 * sum(weight.numel() for weight in trainer.model.parameters())
    trainer.save_model(str(folder / "model"))
    if trainer.is_world_process_zero():
        (folder / "log.json").write_text(json.dumps(trainer.state.log_history))


@pytest.mark.parametrize(
    ("name", "is_sharded", "checkpointing"),
    [
        ("marian", False, {}),
        ("marian", True, {}),
        ("marian", True, {CHECKPOINTING: True}),
        ("marian", True, {"fsdp_config": {"activation_checkpointing": True}}),
        ("rnmt", True, {CHECKPOINTING: True}),
        ("capsnmt", True, {CHECKPOINTING: True}),
    ],
)
@pytest.mark.slow
def test_two_processes_are_one_with_the_same_global_batch(tmp_path, name, is_sharded, checkpointing):
    """With DDP, and with FSDP2: training, generation in between, checkpoints, a kill and the end.

    The two processes alone recompute activations.
    """
    logs, models = [], []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        folder.mkdir()
        arguments = (train_together, folder, name, processes, is_sharded and processes > 1, checkpointing)
        if processes == 2:
            assert in_processes(2, *arguments, 4) == [-signal.SIGKILL] * 2
        assert in_processes(processes, *arguments) == [0] * processes
        logs.append(json.loads((folder / "log.json").read_text()))
        models.append(AutoModelForSeq2SeqLM.from_pretrained(folder / "model").state_dict())
    for key in ("loss", "nll_loss", "grad_norm", "eval_loss", "eval_nll_loss", "learning_rate"):
        values = [[entry[key] for entry in log if key in entry] for log in logs]
        assert values[0], key
        assert values[1] == pytest.approx(values[0], rel=1e-5), key
    tokens = [next(entry["eval_tokens"] for entry in log if "eval_tokens" in entry) for log in logs]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) == len(CORPUS["validation"])
    for weight, value in models[0].items():
        torch.testing.assert_close(models[1][weight], value, rtol=1e-5, atol=1e-7, msg=weight)
    assert (tmp_path / "2" / "checkpoint-3" / "rng_state_1.pth").exists()


def test_refuses_checkpointing_that_would_not_repeat_dropout():
    plugin = SimpleNamespace(activation_checkpointing=True, fsdp_version=2)
    accelerator = SimpleNamespace(state=SimpleNamespace(fsdp_plugin=plugin))
    refuse_recomputed_dropout(accelerator, tiny_model(TOKENIZER, dropout=0.0))
    model = tiny_model(TOKENIZER, dropout=0.1)
    with pytest.raises(ValueError, match=r"`activation_checkpointing` must be false .* got `dropout` 0.1: accelerate"):
        refuse_recomputed_dropout(accelerator, model)
    plugin.activation_checkpointing = False
    refuse_recomputed_dropout(accelerator, model)

"""A recipe from text to a checkpoint, twice, and in streams."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
import yaml
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from capsule_mt.files.lock import lock_output
from capsule_mt.models.opening import CheckpointError
from hf_capsule_mt import CapsuleMarianMTModel
from hf_capsule_mt.data import load_translation_data
from hf_capsule_mt.training import load_recipe, run, run_recipe
from hf_capsule_mt.training.checkpoints import find_checkpoints
from hf_capsule_mt.training.run_data import load_corpus
from hf_capsule_mt.training.trainer import TranslationTrainer
from tests.fixtures.tiny import SIZES

pytestmark = pytest.mark.usefixtures("own_cache_of_datasets")

ROOT = Path(__file__).resolve().parents[2]
SMALL = {
    "languages": {"source": "en", "target": "de"},
    "data": {"train": {"embedded": 80}, "validation": {"embedded": 6}, "test": {"embedded": 5}},
    "tokenizer": {"vocab_size": 500},
    "model": {"model_type": "capsule_marian", **{key: SIZES[key] for key in SIZES if key != "forced_eos_token_id"}},
    "training": {
        "max_steps": 6,
        "max_tokens_per_batch": 500,
        "eval_strategy": "steps",
        "eval_steps": 3,
        "save_strategy": "steps",
        "save_steps": 3,
        "logging_steps": 2,
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
    },
    "generation": {"num_beams": 2, "max_new_tokens": 8},
}


def recipe(folder, overrides=None, **values):
    merged = {key: {**SMALL[key], **values.get(key, {})} for key in SMALL} | {
        key: value for key, value in values.items() if key not in SMALL
    }
    file = folder / "recipe.yaml"
    file.write_text(yaml.safe_dump({"output_dir": str(folder / "run"), **merged}), encoding="utf-8")
    return load_recipe(file, overrides)


def test_from_text_to_a_checkpoint_and_again(tmp_path, capsys):
    first = recipe(tmp_path, training={"average_last": 2})
    result = run_recipe(first)
    output = Path(first.output_dir)
    assert {"validation_bleu", "test_bleu", "test_loss"} <= set(result["scores"])
    assert result["averaged"]
    assert result["steps"] == 6
    saved = json.loads((output / "train_result.json").read_text())
    assert saved["scores"] == result["scores"]
    assert saved["signature"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(output), AutoTokenizer.from_pretrained(output)
    assert (model.config.vocab_size, model.generation_config.num_beams) == (len(tokenizer), 2)
    assert tokenizer.model_max_length == model.config.max_position_embeddings
    assert (model.generation_config.max_new_tokens, model.generation_config.max_length) == (8, None)
    assert isinstance(pipeline("translation", model=str(output))("The man sleeps.")[0]["translation_text"], str)
    weights = (output / "model.safetensors").read_bytes()
    assert run_recipe(first)["scores"] == result["scores"]
    assert (output / "model.safetensors").read_bytes() == weights
    # without its test part the embedded corpus has other training data
    with pytest.raises(
        ValueError, match=r"holds a run of another recipe \(data\.test: \{'embedded': 5\} then, None now"
    ):
        run_recipe(dataclasses.replace(first, data=first.data | {"test": None}))
    with pytest.raises(ValueError, match=r"holds a run of another recipe \(model\.dropout: None then, 0\.3 now\)"):
        run_recipe(recipe(tmp_path, {"model.dropout": 0.3}, training={"average_last": 2}))
    capsys.readouterr()


def test_separate_vocabularies_and_dropout(tmp_path):
    settings = {"tokenizer": {"separate": True, "target_vocab_size": 600}, "training": {"bpe_dropout": 0.1}}
    settings["generation"] = {"num_beams": 1}  # beam search of transformers 5.15 takes both vocabularies to be one
    result = run_recipe(recipe(tmp_path, **settings))
    output = tmp_path / "run"
    model = AutoModelForSeq2SeqLM.from_pretrained(output)
    assert (model.config.vocab_size, model.config.decoder_vocab_size) == (500, 600)
    assert "test_bleu" in result["scores"]


FILES = {"train": {"text": ["a.en", "a.de"]}, "validation": {"tsv": "dev.tsv"}, "test": None}
FEW_STEPS = {"max_steps": 2, "eval_steps": 1, "save_steps": 1}


def write_data(folder):
    pairs = load_translation_data({"train": {"embedded": 30}}, "en", "de")["train"]["translation"]
    for language in ("en", "de"):
        folder.joinpath(f"a.{language}").write_text("".join(f"{pair[language]}\n" for pair in pairs[:26]))
    folder.joinpath("dev.tsv").write_text("".join(f"{pair['en']}\t{pair['de']}\n" for pair in pairs[26:]))
    return {"data": FILES, "data_dir": str(folder), "training": FEW_STEPS}


def test_a_recipe_that_names_what_cannot_be_read_leaves_no_run(tmp_path):
    settings = write_data(tmp_path)
    misspelt = FILES | {"train": {"text": ["b.en", "a.de"]}}
    with pytest.raises(FileNotFoundError, match=r"b\.en"):
        run_recipe(recipe(tmp_path, **settings | {"data": misspelt}))
    with pytest.raises(CheckpointError, match="the tokenizer does not load"):
        run_recipe(dataclasses.replace(recipe(tmp_path, **settings), init_from=str(tmp_path)))
    assert run_recipe(recipe(tmp_path, **settings))["steps"] == 2


def test_data_that_changed_since_the_run_began_are_named(tmp_path):
    settings = write_data(tmp_path)
    run_recipe(recipe(tmp_path, **settings))
    longer = recipe(tmp_path, {"max_steps": 3}, **settings)
    for name, line, message in (
        ("a.en", "Another sentence.", r"run on other data \(data\.train\.texts differs.*\): restore"),
        ("dev.tsv", "One\tEins", r"\(data\.validation\.texts differs"),
    ):
        file = tmp_path / name
        content = file.read_text()
        file.write_text(f"{line}\n" + content.partition("\n")[2])
        with pytest.raises(ValueError, match=message):
            run_recipe(longer)
        file.write_text(content)
    assert run_recipe(longer)["steps"] == 3


def test_a_run_tells_to_calibrate_anew(capsys):
    values = {"languages": {"source": "en", "target": "de"}, "init_from": "base", "output_dir": "outputs/a"}
    for adapter, command in (
        (None, "calibrate anew: `capsule-mt calibrate outputs/a dev.en dev.de --reverse REVERSE`"),
        ({"method": "em"}, "`capsule-mt export outputs/a MERGED`, then `capsule-mt calibrate MERGED dev.en dev.de "),
    ):
        run._tell_of_calibration(SimpleNamespace(**values, adapter=adapter))
        printed = capsys.readouterr().out
        assert printed.startswith("The calibration of base was measured with other weights and is dropped.")
        assert command in printed


def test_a_damaged_record_is_one_sentence(tmp_path):
    settings = write_data(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data.json").write_text("[]")
    with pytest.raises(ValueError, match=r"data\.json is damaged"):
        run_recipe(recipe(tmp_path, **settings))


def test_an_output_is_locked_while_it_is_written(tmp_path):
    settings = write_data(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml.1.0.partial").touch()  # of a killed process
    with lock_output(tmp_path / "run"), pytest.raises(OSError, match=r"run is being written by process \d+"):
        run_recipe(recipe(tmp_path, **settings))
    assert list((tmp_path / "run").glob("*.partial"))  # the holder may be writing it
    assert run_recipe(recipe(tmp_path, **settings))["steps"] == 2
    assert not list((tmp_path / "run").rglob("*.partial"))


def test_a_failure_after_the_last_step_leaves_the_weights(tmp_path, monkeypatch):
    settings = write_data(tmp_path)
    settings["training"] = FEW_STEPS | {"save_strategy": "no", "eval_strategy": "no"}
    with monkeypatch.context() as patch:
        patch.setattr(CapsuleMarianMTModel, "generate", Mock(side_effect=RuntimeError("the search fails")))
        with pytest.raises(RuntimeError, match="the search fails"):
            run_recipe(recipe(tmp_path, **settings))
    output = tmp_path / "run"
    assert not (output / "train_result.json").exists()
    AutoTokenizer.from_pretrained(output)
    saved = AutoModelForSeq2SeqLM.from_pretrained(output).state_dict()
    run_recipe(recipe(tmp_path, **settings))
    uninterrupted = AutoModelForSeq2SeqLM.from_pretrained(output).state_dict()
    assert all(torch.equal(saved[name], weight) for name, weight in uninterrupted.items())


@pytest.mark.parametrize(("where", "number"), [("load_corpus", signal.SIGTERM), ("_bleu_of", signal.SIGINT)])
def test_a_signal_while_data_are_read_or_translations_are_made_ends_the_run(tmp_path, monkeypatch, where, number):
    settings = write_data(tmp_path)
    settings["training"] = FEW_STEPS | {"save_strategy": "no", "eval_strategy": "no"}
    called = getattr(run, where)
    times = {"load_corpus": 1, "_bleu_of": 2}  # the second time for the last translations
    calls = []

    def kill(*arguments):
        calls.append(1)
        if len(calls) == times[where]:
            os.kill(os.getpid(), number)
        return called(*arguments)

    monkeypatch.setattr(run, where, kill)
    handlers = [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)]
    assert run_recipe(recipe(tmp_path, **settings)) is None
    assert [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)] == handlers
    saved = [folder.name for folder in find_checkpoints(tmp_path / "run")]
    assert saved == ([] if where == "load_corpus" else ["checkpoint-2"])
    monkeypatch.undo()
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    result = run_recipe(recipe(tmp_path, **settings))
    uninterrupted = run_recipe(recipe(tmp_path, {"output_dir": str(tmp_path / "whole")}, **settings))
    assert result["scores"] == uninterrupted["scores"]
    files = [tmp_path / folder / "model.safetensors" for folder in ("run", "whole")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_resumed_run_says_from_which_step(tmp_path, capsys):
    first = recipe(tmp_path, data={"test": None, "validation": None}, training={"eval_strategy": "no"})
    last = Path(first.output_dir) / "checkpoint-6"
    messages = []
    for _ in range(2):
        run_recipe(first)
        messages.append(capsys.readouterr().out)
        shutil.rmtree(last)
    run_recipe(first)
    run_recipe(first)
    messages.append(capsys.readouterr().out)
    assert "Resuming" not in messages[0]
    resumed = f"Resuming after step 3, from {last.with_name('checkpoint-3')}\n"
    assert resumed in messages[1]
    assert resumed in messages[2]
    assert f"{last} is complete: its step 6 was the last\n" in messages[2]


def test_a_second_signal_stops_at_once(tmp_path, monkeypatch, capsys):
    settings = write_data(tmp_path)

    def send_two(trainer):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(TranslationTrainer, "any_rank_stopping", send_two)
    with pytest.raises(SystemExit) as error:
        run_recipe(recipe(tmp_path, **settings))
    assert error.value.code == 128 + signal.SIGTERM
    assert "The same command resumes from the last checkpoint" in capsys.readouterr().out


def run_script(*words, launcher=(), **environment):
    return subprocess.run(
        [sys.executable, *launcher, *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=500,
    )


TORCHRUN = ["-m", "torch.distributed.run", "--nproc_per_node", "2"]
# `accelerate launch --cpu --num_processes 2` would run one process
ACCELERATE = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("launcher", "options"), [(TORCHRUN, []), (ACCELERATE, ["--fsdp", "true"])], ids=["torchrun", "accelerate, FSDP2"]
)
def test_the_script_with_two_processes(tmp_path, launcher, options):
    """The commands of docs/training.md."""
    recipe(tmp_path)
    words = [ROOT / "scripts/train.py", tmp_path / "recipe.yaml", "--ddp_backend", "gloo", *options]
    process = run_script(*words, launcher=launcher, ACCELERATE_USE_CPU="true")
    assert process.returncode == 0, process.stderr
    assert "test_bleu" in process.stdout
    assert AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").lm_head.weight.isfinite().all()
    checkpoint = tmp_path / "run" / "checkpoint-6"
    assert (checkpoint / "rng_state_1.pth").exists()
    assert (checkpoint / "pytorch_model_fsdp.bin").exists() == bool(options)


def test_a_finished_run_of_part_of_an_epoch_takes_no_further_step(tmp_path):
    settings = {"max_steps": -1, "num_train_epochs": 1.5, "eval_strategy": "no", "average_last": 2}
    first = recipe(tmp_path, data={"test": None, "validation": None}, training=settings)
    result = run_recipe(first)
    (Path(first.output_dir) / "train_result.json").unlink()
    again = run_recipe(first)
    assert (again["steps"], again["averaged"]) == (result["steps"], result["averaged"])


def test_files_are_in_the_data_dir_or_where_one_is(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    for folder, word in (("data", "there"), (".", "here")):
        (tmp_path / folder / "a.jsonl").write_text(json.dumps({"translation": {"en": word, "de": word}}) + "\n")
    monkeypatch.chdir(tmp_path)
    data = {"train": [{"jsonl": "./a.jsonl"}, {"jsonl": "a.jsonl"}, {"jsonl": str(tmp_path / "a.jsonl")}]}
    corpus = load_corpus(recipe(tmp_path, data=data, data_dir="data"))
    assert [pair["en"] for pair in corpus["train"]["translation"]] == ["here", "there", "here"]


def test_cleaning_may_meet_empty_sides_in_training_data_only(tmp_path, capsys):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("one\teins\n\tzwei\n" + "three\tdrei\n" * 8)
    data = {"train": {"tsv": "train.tsv"}, "validation": {"tsv": "train.tsv"}, "cleaning": {"drop_empty": True}}
    with pytest.raises(ValueError, match=r"train\.tsv, line 2: the en side is empty"):
        load_corpus(recipe(tmp_path, data=data, data_dir=str(tmp_path)))
    data["validation"] = {"embedded": 3}
    corpus = load_corpus(recipe(tmp_path, data=data, data_dir=str(tmp_path)))
    assert {name: len(part) for name, part in corpus.items()} == {"train": 9, "validation": 3, "test": 5}
    assert "kept 9 pairs; dropped 1 with an empty side" in capsys.readouterr().out

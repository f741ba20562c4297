"""A small training run for the tests in this folder, and processes that die or work together."""

import multiprocessing
import os
import random
import signal
import socket
import traceback

import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from transformers import DataCollatorForSeq2Seq, set_seed

from hf_capsule_mt.data import BPEDropout, DropoutDataset, embedded_corpus, encode
from hf_capsule_mt.training import TranslationTrainer, TranslationTrainingArguments
from tests.fixtures.tiny import tiny_model, tiny_tokenizer

# its name from transformers 5.23 on, and before
CHECKPOINTING = "activation_checkpointing"
if CHECKPOINTING not in TranslationTrainingArguments.__dataclass_fields__:
    CHECKPOINTING = "gradient_checkpointing"
TOKENIZER = tiny_tokenizer()
CORPUS = {
    name: encode(part, TOKENIZER, "en", "de", keep_text=True)
    for name, part in embedded_corpus(60, 6, 1).items()
    if name != "test"
}


def make_trainer(folder, *, model=None, bpe_dropout=0.0, model_settings=None, trainer_settings=None, **arguments):
    """Some ten updates in an epoch of 60 sentences, with dropout, on the CPU."""
    set_seed(0)
    if model is None:
        model = tiny_model(TOKENIZER, **{"label_smoothing": 0.1, **(model_settings or {})})
    defaults = {
        "output_dir": str(folder),
        "max_tokens_per_batch": 400,
        "max_steps": 14,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "inverse_sqrt",
        "warmup_steps": 3,
        "save_strategy": "no",
        "logging_steps": 1,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "seed": 5,
    }
    args = TranslationTrainingArguments(**{**defaults, **arguments, "bpe_dropout": bpe_dropout})
    train = CORPUS["train"]
    if bpe_dropout:
        train = DropoutDataset(train, BPEDropout(TOKENIZER, bpe_dropout, seed=args.seed), "en", "de")
    return TranslationTrainer(
        model=model,
        args=args,
        train_dataset=train,
        eval_dataset=CORPUS["validation"].select_columns(["input_ids", "labels"]),
        data_collator=DataCollatorForSeq2Seq(TOKENIZER),
        **{"processing_class": TOKENIZER, **(trainer_settings or {})},
    )


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_same_bits(first, second):
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert torch.equal(value, second[name]), name


def forget_accelerate():
    """accelerate keeps its state in the class; a forked process must make its own."""
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState._reset_state()
    GradientState._reset_state()


def in_process(function, *arguments):
    """Runs a function in a forked process; its exit code, negative if a signal ended it."""
    return _exit_codes(multiprocessing.get_context("fork"), 1, function, *arguments)[0]


def in_processes(number, function, *arguments):
    """The same in several at once, which find each other as under torchrun.

    They start from a process of their own: one forked from the tests' process, whose threads had
    worked on compiled models, once faulted in a collective of torch's.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # so that it imports torch once
    return _exit_codes(context, number, function, *arguments)


def _exit_codes(context, number, function, *arguments):
    with socket.socket() as reservation:  # while it is bound, the system gives the port to no other test
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does, which shares it
        reservation.bind(("127.0.0.1", 0))
        port = reservation.getsockname()[1]
        running = [
            context.Process(target=_run, args=(rank, number, port, function, arguments)) for rank in range(number)
        ]
        for process in running:
            process.start()
        for process in running:
            process.join(timeout=300)
    return [process.exitcode for process in running]


def _run(rank, number, port, function, arguments):
    torch.set_num_threads(1)
    random.seed(rank)
    if number > 1:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(number),
            "LOCAL_WORLD_SIZE": str(number),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "ACCELERATE_USE_CPU": "true",
        }
    forget_accelerate()
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def die():
    os.kill(os.getpid(), signal.SIGKILL)

"""How fast models train and translate beside each other, on the same sentences, measured in turns."""

from collections.abc import Callable
from typing import Any

import torch

from hf_capsule_mt.analysis.routing_statistics import encoded_batches
from lab.timing import steady_clock, time_in_turns

ON_THEIR_OWN = 4  # sentences


def milliseconds_in_turns(
    models: dict[str, Any],
    tokenizer: Any,
    sources: list[str],
    targets: list[str],
    repeats: int = 10,
    new_tokens: int = 20,
    progress: Callable[[], None] | None = None,
) -> dict[str, dict[str, float]]:
    """For each model the milliseconds of three things, the least of several turns: other work only adds to it.

    "train": forward, backward and Adam on one batch. "decode": greedy search of that batch, a fixed number of words.
    "sentence": one of the first sentences on its own, by beam search with 8 beams (CapsNMT's Table 3), as many words
    as its reference has. No length depends on what a model says, so that it need not be trained. `progress` is called
    `(repeats + 1) * 3` times for each model.
    """
    device = str(next(iter(models.values())).device)
    batch = next(encoded_batches(tokenizer, sources, targets, len(sources), device))
    alone = list(encoded_batches(tokenizer, sources[:ON_THEIR_OWN], targets[:ON_THEIR_OWN], 1, device))
    runs = {
        "train": {name: _training_step(model, batch) for name, model in models.items()},
        "decode": {
            name: _decoding(model, [batch], num_beams=1, new_tokens=new_tokens) for name, model in models.items()
        },
        "sentence": {name: _decoding(model, alone, num_beams=8) for name, model in models.items()},
    }
    synchronize = torch.cuda.synchronize if device != "cpu" else None
    timings = {
        what: time_in_turns(of_models, repeats, 1, synchronize, progress, steady_clock(device))
        for what, of_models in runs.items()
    }
    for timing in timings["sentence"].values():
        timing.minimum /= len(alone)
    return {name: {what: 1000 * timings[what][name].minimum for what in runs} for name in models}


def _training_step(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)  # the weights stay as they are

    def run() -> None:
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def _decoding(
    model: Any, batches: list[dict[str, torch.Tensor]], num_beams: int, new_tokens: int | None = None
) -> Any:
    """Translates each batch, to a fixed number of words, by default as many as its longest reference has."""

    def run() -> None:
        model.eval()
        for batch in batches:
            length = new_tokens or batch["labels"].shape[1]
            model.generate(
                batch["input_ids"],
                attention_mask=batch["attention_mask"],
                num_beams=num_beams,
                do_sample=False,
                min_new_tokens=length,
                max_new_tokens=length,
            )

    return run

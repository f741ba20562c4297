"""How fast a model trains and translates beside another, on the same sentences, measured in turns."""

from statistics import median
from typing import Any

import torch

from hf_capsule_mt.analysis.routing_statistics import encoded_batches
from hf_capsule_mt.analysis.timing import steady_clock, time_in_turns

BASELINE, MODEL = "baseline", "model"


def relative_speeds(
    model: Any,
    baseline: Any,
    tokenizer: Any,
    baseline_tokenizer: Any,
    sources: list[str],
    targets: list[str],
    repeats: int = 3,
    new_tokens: int = 20,
) -> dict[str, float]:
    """The speed of a model as a multiple of the baseline's: "train_speed" and "decode_speed".

    A training step is forward, backward and Adam on one batch; decoding is greedy, of a fixed number of words.
    """
    batches = {
        name: next(encoded_batches(tokenizer_of, sources, targets, len(sources), str(one.device)))
        for name, one, tokenizer_of in ((BASELINE, baseline, baseline_tokenizer), (MODEL, model, tokenizer))
    }
    models = {BASELINE: baseline, MODEL: model}
    settings: dict[str, Any] = {
        "repeats": repeats,
        "synchronize": torch.cuda.synchronize if model.device.type == "cuda" else None,
        "clock": steady_clock(model.device.type),
    }
    train = time_in_turns({name: _training_step(one, batches[name]) for name, one in models.items()}, **settings)
    decode = time_in_turns(
        {name: _decoding(one, batches[name], new_tokens) for name, one in models.items()}, **settings
    )
    return {
        "train_speed": train[BASELINE].median / train[MODEL].median,
        "decode_speed": decode[BASELINE].median / decode[MODEL].median,
    }


def milliseconds_per_sentence(model: Any, tokenizer: Any, sources: list[str], num_beams: int = 8) -> float:
    """The median time of one sentence on its own, beam search, after one to warm up: Table 3 of CapsNMT.

    On a CPU with one thread it is processor time.
    """
    seconds = []
    clock = steady_clock(model.device.type)
    for source in (sources[0], *sources):
        batch = tokenizer(source, return_tensors="pt").to(model.device)
        start = clock()
        model.eval().generate(**batch, num_beams=num_beams).cpu()  # waits for the device
        seconds.append(clock() - start)
    return 1000 * median(seconds[1:])


def _training_step(model: Any, batch: dict[str, torch.Tensor]) -> Any:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.0)  # the weights stay as they are

    def run() -> None:
        model.train()
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def _decoding(model: Any, batch: dict[str, torch.Tensor], new_tokens: int) -> Any:
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}

    def run() -> None:
        model.eval()
        model.generate(**source, num_beams=1, do_sample=False, min_new_tokens=new_tokens, max_new_tokens=new_tokens)

    return run

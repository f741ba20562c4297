"""How fast a step of training is beside stock Marian's, and where an aggregation of layers spends its time.

    python -m tests.modeling.training_speed --rounds 6

Medians of the CPU time of one thread, in turns, so that other work of the machine counts little. The sizes are those
of the recipe `tatoeba/plain`, a batch has 32 sentences of 20 tokens.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from transformers import MarianConfig, MarianMTModel

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from tests.mixes import NO_LOSSES, Mix

SIZES: Mix = {
    "vocab_size": 8000,
    "d_model": 256,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 1024,
    "decoder_ffn_dim": 1024,
    "max_position_embeddings": 128,
    "activation_function": "relu",
    "pad_token_id": 0,
    "eos_token_id": 1,
    "forced_eos_token_id": 1,
    "decoder_start_token_id": 0,
}
SENTENCES, TOKENS, WIDTH, LAYERS = 32, 20, SIZES["d_model"], SIZES["encoder_layers"]
GUIDED: Mix = {"guided_routing": "guided", "guided_capsule_dim": 64, "guided_ffn_dim": 256}
METHODS: dict[str, Mix] = {
    "nothing": {},
    "linear": {"layer_aggregation": "linear"},
    "dynamic": {"layer_aggregation": "dynamic_routing"},
    "em": {"layer_aggregation": "em_routing"},
    "guided": GUIDED,
    "guided without losses": GUIDED | NO_LOSSES,
}
STOCK = "stock"


def cpu_time(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def step_of(model: Any, words: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4)

    def step() -> None:
        model(input_ids=words, labels=words).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def parts_of(aggregation: Any) -> dict[str, Callable[[], None]]:
    """Return the two halves of a routing of layers, each with its backward pass."""
    layers = torch.randn(SENTENCES, TOKENS, LAYERS * WIDTH, requires_grad=True)
    maps = [module for module in (aggregation.votes, aggregation.input_activation) if module is not None]

    def mapped() -> list[torch.Tensor]:
        input_capsules = aggregation.input_capsules(layers)
        return [module(input_capsules) for module in maps]

    votes, *activation = (tensor.detach().unflatten(-1, (LAYERS, -1)).requires_grad_() for tensor in mapped())

    def route() -> None:
        presence = activation[0].sigmoid() if activation else None
        aggregation.route(
            votes.unsqueeze(-1), input_activation=presence, return_weights=False
        ).capsules.sum().backward()

    return {"maps": lambda: sum(tensor.sum() for tensor in mapped()).backward(), "routing": route}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6, help="steps of each model; the first is not counted")
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    words = torch.randint(5, SIZES["vocab_size"], (SENTENCES, TOKENS))
    models: dict[str, Any] = {STOCK: MarianMTModel(MarianConfig(**SIZES))}
    models |= {name: CapsuleMarianMTModel(CapsuleMarianConfig(**SIZES | mix)) for name, mix in METHODS.items()}
    calls = {name: step_of(model, words) for name, model in models.items()}
    for name in ("dynamic", "em"):
        aggregation = models[name].model.encoder.layer_aggregation
        calls |= {f"{name}: {part} of a stack": call for part, call in parts_of(aggregation).items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(rounds):
        for name, call in calls.items():
            seconds = cpu_time(call)
            if turn > 0:
                times[name].append(seconds)
    stock = statistics.median(times[STOCK])
    for name, seconds_of_turns in times.items():
        median = statistics.median(seconds_of_turns)
        speed = f"{stock / median:.2f} of stock Marian's speed" if name in models else ""
        print(f"{name:<28} {1000 * median:6.0f} ms  {speed}")


if __name__ == "__main__":
    main()

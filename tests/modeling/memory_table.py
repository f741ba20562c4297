"""How much memory a step of training takes with each method, by PyTorch's `MemTracker` on a GPU that computes nothing.

python -m tests.modeling.memory_table --write     # into docs/capsules.md, too
"""

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensorMode

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from tests.mixes import NO_LOSSES, Mix
from tests.modeling.fake_gpu import DEVICE, Memory, memory_of_a_step, moved, on_a_fake_gpu
from tests.modeling.test_parameter_counts import BASE

PAGE = Path(__file__).resolve().parents[2] / "docs/capsules.md"
SECTION = re.compile(r"(?<=<!-- memory -->\n\n).*?(?=\n\n<!-- end of memory -->)", re.DOTALL)
MIB = 2**20
# Transformer-base, and a batch of about 4,000 tokens on each side
SIZES: Mix = BASE | {"vocab_size": 32000, "max_position_embeddings": 256, "forced_eos_token_id": 1}
SENTENCES, TOKENS = 128, 32
PAST_AND_FUTURE: Mix = {"guided_routing": "guided"}
METHODS: dict[str, Mix] = {
    "plain": {},
    "layers: linear combination": {"layer_aggregation": "linear"},
    "layers: dynamic routing": {"layer_aggregation": "dynamic_routing"},
    "layers: EM routing": {"layer_aggregation": "em_routing"},
    "layers: EM routing, `own`": {
        "layer_aggregation": "em_routing",
        "layer_aggregation_capsule_input": "own",
        "layer_aggregation_vote_input": "own",
    },
    "layers: dense sum": {"layer_aggregation": "dense"},
    "layers: GRN": {"layer_aggregation": "grn"},
    "PAST and FUTURE": PAST_AND_FUTURE,
    "PAST and FUTURE, without losses": PAST_AND_FUTURE | NO_LOSSES,
}


def rows() -> Iterator[str]:
    yield "| method | weights, MiB | activations | together | beside plain |"
    yield "|---|---|---|---|---|"
    plain: Memory | None = None
    for title, settings in METHODS.items():
        with FakeTensorMode():
            model = moved(CapsuleMarianMTModel(CapsuleMarianConfig(**SIZES | settings)), DEVICE)
            memory = memory_of_a_step(model, SENTENCES, TOKENS)
        plain = plain or memory
        sizes = (memory.weights, memory.activations, memory.total)
        yield f"| {title} | {' | '.join(f'{size / MIB:,.0f}' for size in sizes)} | {memory.total / plain.total:.2f} |"


def table() -> str:
    with warnings.catch_warnings(), enable_python_dispatcher():
        warnings.simplefilter("ignore")
        return "\n".join(rows())


if __name__ == "__main__":
    on_a_fake_gpu()
    current = table()
    sys.stdout.write(current + "\n")
    if "--write" in sys.argv:
        PAGE.write_text(SECTION.sub(lambda _: current, PAGE.read_text(encoding="utf-8")), encoding="utf-8")

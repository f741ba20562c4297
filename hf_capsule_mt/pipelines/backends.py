"""What decodes in the place of `generate()`: the fast backends of the package."""

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import PreTrainedModel

from hf_capsule_mt.modeling.coverage import CoverageScore

BACKENDS = ("auto", "native", "torch", "transformers")
FAST_ROOM = "hf_capsule_mt.fast"


class FastDecoder(Protocol):
    """What the pipelines need of a `hf_capsule_mt.fast.FastTranslator`."""

    int8: bool

    @property
    def backend(self) -> str: ...

    def decode(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        limits: torch.Tensor | None,
        options: Mapping[str, Any],
        *,
        coverage: bool | Sequence[int] = False,
    ) -> tuple[torch.Tensor, torch.Tensor, CoverageScore | torch.Tensor | None] | None: ...


def choose_backend(
    model: PreTrainedModel, members: list[PreTrainedModel], int8: bool, backend: str, shortlist: bool | str | Path
) -> FastDecoder | None:
    """Return what decodes in the place of `generate()`, if anything does."""
    if backend not in BACKENDS:
        raise ValueError(f"`backend` must be {', '.join(map(repr, BACKENDS[:-1]))} or 'transformers', got {backend!r}")
    fast = _fast_decoder(model, members, int8, backend, shortlist)
    if shortlist and fast is None:
        raise ValueError(
            "`shortlist` is for one float32 model on a CPU that `to_fast` takes, with another `backend` than "
            f'"transformers"; got `backend={backend!r}` and a {type(model).__name__}'
        )
    return fast


def _fast_decoder(
    model: PreTrainedModel, members: list[PreTrainedModel], int8: bool, backend: str, shortlist: bool | str | Path
) -> FastDecoder | None:
    if backend == "transformers":
        if int8:
            raise ValueError('`int8=True` needs another `backend` than "transformers"')
        return None
    weight = next(model.parameters())
    if not (weight.is_cpu and weight.dtype == torch.float32):
        if int8 or backend != "auto":
            wanted = "int8" if int8 else f"`backend={backend!r}`"
            raise ValueError(f"{wanted} is for float32 models on a CPU, got {weight.dtype} on {weight.device}")
        return None
    if backend != "auto" and members:
        raise ValueError(f'an ensemble needs `backend="auto"` or "transformers", got {backend!r}')
    fast = _fast_room()
    if fast is None:
        if int8 or backend != "auto":
            raise ImportError("`int8` and `backend` need the package hf_capsule_mt: `pip install .` in a clone")
        return None
    if backend != "auto" or (not members and fast.takes_fast(model)):
        translator: FastDecoder = fast.to_fast(model, int8=int8, backend=backend, shortlist=shortlist)
        return translator
    for member in (model, *members):
        fast.use_fast_linears(member, int8=int8)
    return None


def _fast_room() -> Any:
    """Import `hf_capsule_mt.fast`, which an exported checkpoint does not bring along."""
    try:
        return importlib.import_module(FAST_ROOM)
    except ImportError:
        return None

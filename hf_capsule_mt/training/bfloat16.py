"""bfloat16 training on a processor that cannot multiply in it: by float32 kernels, with bfloat16's rounding."""

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only


class Float32Products(TorchFunctionMode):
    """Compute what is a product of bfloat16 matrices, or becomes one under autocast, by float32 kernels.

    The arguments and the result are rounded to bfloat16, and so are their gradients; the sums are float32. A kernel of
    bfloat16 does the same, up to the order of its sums. A GRU's steps stay in float32: its weights and inputs are
    rounded.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Iterable[type], args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _PRODUCTS or "out" in kwargs or not _is_bfloat16((args, kwargs)):
            return func(*args, **kwargs)
        result = args[0].dtype if func is torch.gru else torch.bfloat16
        args, kwargs = tree_map_only(torch.Tensor, _rounded, (args, kwargs))
        with torch.autocast("cpu", enabled=False):
            return tree_map_only(torch.Tensor, lambda tensor: tensor.to(result), func(*args, **kwargs))


_PRODUCTS = {
    F.linear,
    torch.gru,
    torch.einsum,
    torch.functional.einsum,
    torch.Tensor.__matmul__,
    torch.Tensor.__rmatmul__,
    *(getattr(module, name) for module in (torch, torch.Tensor) for name in ("matmul", "mm", "bmm")),
    *(getattr(module, name) for module in (torch, torch.Tensor) for name in ("addmm", "baddbmm")),
}


def _rounded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.bfloat16().float() if tensor.is_floating_point() else tensor


def _is_bfloat16(given: Any) -> bool:
    """Return whether a product of these would be computed in bfloat16 on a CPU."""
    tensors = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor)]
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if not dtypes or torch.float64 in dtypes or any(not tensor.is_cpu for tensor in tensors):
        return False
    if torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu") == torch.bfloat16
    return dtypes == {torch.bfloat16}


def multiplies_bfloat16() -> bool:
    """Return whether PyTorch has kernels that multiply in bfloat16 on this processor.

    Without them a product took 31 to 92 times as long as in float32, on an AMD EPYC of the Zen 3 generation.
    """
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def bfloat16_products() -> contextlib.AbstractContextManager[object]:
    """Return the context in which a CPU computes products of bfloat16 matrices."""
    return contextlib.nullcontext() if multiplies_bfloat16() else Float32Products()

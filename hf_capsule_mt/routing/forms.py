"""Choose the form of a routing: plain or chunked."""

import enum
import os

import torch


class RoutingForm(enum.Enum):
    """The forms, which give the same numbers.

    PLAIN: the reference, a few lines per equation. It keeps every intermediate tensor for the backward pass, and a
        compiler can fuse it.
    CHUNKED: the same arithmetic over a few positions at a time, in buffers that stay in the processor's cache, with
        a backward pass written by hand that recomputes them. Several times faster in eager PyTorch, and its memory
        is the votes' and their gradient's.
    """

    PLAIN = "plain"
    CHUNKED = "chunked"

    @classmethod
    def _missing_(cls, value: object) -> "RoutingForm":
        raise ValueError(f"the form of routing must be one of {[form.value for form in cls]}, got {value!r}")


_preferred = RoutingForm(os.environ.get("HF_CAPSULE_MT_ROUTING", "chunked"))


def use_routing_form(form: RoutingForm | str) -> RoutingForm:
    """Prefer a form from now on, and return the previous one. HF_CAPSULE_MT_ROUTING sets the first.

    The plain form runs anyway when routing weights are returned or a compiler traces the call. Guided routing returns
    weights from its chunked form too.
    """
    global _preferred
    previous, _preferred = _preferred, RoutingForm(form)
    return previous


def choose_form(votes: torch.Tensor, *, return_weights: bool, detach_routing: bool) -> RoutingForm:
    """Return the plain form for weights, detached weights and compilers, else the preferred one."""
    if return_weights or detach_routing or torch.compiler.is_compiling() or votes.device.type == "meta":
        return RoutingForm.PLAIN
    return _preferred

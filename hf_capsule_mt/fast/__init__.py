"""Faster decoding on CPUs, opt-in: other products in the place of a model's own."""

from hf_capsule_mt.fast.transform import undo_fast_linears, use_fast_linears

__all__ = ["undo_fast_linears", "use_fast_linears"]

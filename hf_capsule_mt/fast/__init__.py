"""Faster decoding on CPUs, opt-in: whole models in a backend of their own, or other products inside `generate()`."""

from hf_capsule_mt.fast.shortlist import Shortlist
from hf_capsule_mt.fast.transform import undo_fast_linears, use_fast_linears
from hf_capsule_mt.fast.translator import FastTranslator, UnsupportedOptionError, takes_fast, to_fast

__all__ = [
    "FastTranslator",
    "Shortlist",
    "UnsupportedOptionError",
    "takes_fast",
    "to_fast",
    "undo_fast_linears",
    "use_fast_linears",
]

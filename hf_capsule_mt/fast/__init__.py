"""Faster decoding on CPUs: whole models as programs of the native engine."""

from hf_capsule_mt.fast.shortlist import Shortlist
from hf_capsule_mt.fast.translator import FastTranslator, UnsupportedOptionError, takes_fast, to_fast

__all__ = [
    "FastTranslator",
    "Shortlist",
    "UnsupportedOptionError",
    "takes_fast",
    "to_fast",
]

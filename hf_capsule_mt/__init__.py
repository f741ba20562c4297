"""Capsule networks for machine translation, as models of Hugging Face transformers.

Importing the package registers its models with the Auto classes, and the task "translation" with
`transformers.pipeline`. The program `capsule-mt` imports it to list its commands: then nothing is imported until a
command needs it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from capsule_mt import __version__
from capsule_mt.commands import is_program

if TYPE_CHECKING:
    from capsule_mt import CoverageOptions
    from hf_capsule_mt.adapters import CapsuleConfig, aggregate
    from hf_capsule_mt.configuration import CapsNMTConfig, CapsuleMarianConfig, CapsuleRNMTConfig
    from hf_capsule_mt.decoding.fast import to_fast
    from hf_capsule_mt.decoding.pipeline import TranslationPipeline
    from hf_capsule_mt.decoding.translator import Translator
    from hf_capsule_mt.modeling import (
        CapsNMTForConditionalGeneration,
        CapsNMTModel,
        CapsuleMarianModel,
        CapsuleMarianMTModel,
        CapsuleRNMTForConditionalGeneration,
        CapsuleRNMTModel,
    )

# where each public name is
_HOMES = {
    "CapsNMTConfig": "hf_capsule_mt.configuration",
    "CapsNMTForConditionalGeneration": "hf_capsule_mt.modeling",
    "CapsNMTModel": "hf_capsule_mt.modeling",
    "CapsuleConfig": "hf_capsule_mt.adapters",
    "CapsuleMarianConfig": "hf_capsule_mt.configuration",
    "CapsuleMarianMTModel": "hf_capsule_mt.modeling",
    "CapsuleMarianModel": "hf_capsule_mt.modeling",
    "CapsuleRNMTConfig": "hf_capsule_mt.configuration",
    "CapsuleRNMTForConditionalGeneration": "hf_capsule_mt.modeling",
    "CapsuleRNMTModel": "hf_capsule_mt.modeling",
    "CoverageOptions": "capsule_mt",
    "TranslationPipeline": "hf_capsule_mt.decoding.pipeline",
    "Translator": "hf_capsule_mt.decoding.translator",
    "aggregate": "hf_capsule_mt.adapters",
    "to_fast": "hf_capsule_mt.decoding.fast",
}
__all__ = [
    "CapsNMTConfig",
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
    "CapsuleConfig",
    "CapsuleMarianConfig",
    "CapsuleMarianMTModel",
    "CapsuleMarianModel",
    "CapsuleRNMTConfig",
    "CapsuleRNMTForConditionalGeneration",
    "CapsuleRNMTModel",
    "CoverageOptions",
    "TranslationPipeline",
    "Translator",
    "__version__",
    "aggregate",
    "to_fast",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


if not is_program:
    from hf_capsule_mt.decoding.pipeline import restore_translation_task

    restore_translation_task()

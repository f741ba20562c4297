"""Capsule networks for machine translation, as models of Hugging Face transformers.

Importing the package registers its models with the Auto classes, and the task "translation" with
`transformers.pipeline`.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from capsule_mt import CoverageOptions, __version__
from hf_capsule_mt.configuration import CapsNMTConfig, CapsuleMarianConfig, CapsuleRNMTConfig
from hf_capsule_mt.decoding.fast import to_fast
from hf_capsule_mt.decoding.pipeline import TranslationPipeline, restore_translation_task
from hf_capsule_mt.decoding.translator import Translator
from hf_capsule_mt.modeling import (
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    CapsuleMarianModel,
    CapsuleMarianMTModel,
    CapsuleRNMTForConditionalGeneration,
    CapsuleRNMTModel,
)

AutoConfig.register(CapsuleMarianConfig.model_type, CapsuleMarianConfig, exist_ok=True)
AutoModel.register(CapsuleMarianConfig, CapsuleMarianModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(CapsuleMarianConfig, CapsuleMarianMTModel, exist_ok=True)
AutoConfig.register(CapsuleRNMTConfig.model_type, CapsuleRNMTConfig, exist_ok=True)
AutoModel.register(CapsuleRNMTConfig, CapsuleRNMTModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(CapsuleRNMTConfig, CapsuleRNMTForConditionalGeneration, exist_ok=True)
AutoConfig.register(CapsNMTConfig.model_type, CapsNMTConfig, exist_ok=True)
AutoModel.register(CapsNMTConfig, CapsNMTModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(CapsNMTConfig, CapsNMTForConditionalGeneration, exist_ok=True)
restore_translation_task()

__all__ = [
    "CapsNMTConfig",
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
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
    "to_fast",
]

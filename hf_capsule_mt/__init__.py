"""Capsule networks for machine translation, as models of Hugging Face transformers."""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from hf_capsule_mt.configuration import CapsuleMarianConfig
from hf_capsule_mt.modeling import CapsuleMarianModel, CapsuleMarianMTModel

__version__ = "0.1.0"

AutoConfig.register(CapsuleMarianConfig.model_type, CapsuleMarianConfig, exist_ok=True)
AutoModel.register(CapsuleMarianConfig, CapsuleMarianModel, exist_ok=True)
AutoModelForSeq2SeqLM.register(CapsuleMarianConfig, CapsuleMarianMTModel, exist_ok=True)

__all__ = ["CapsuleMarianConfig", "CapsuleMarianMTModel", "CapsuleMarianModel", "__version__"]

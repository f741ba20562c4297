"""The models: one file for each family, and the modules they are made of.

Importing this subpackage, or a module of it, registers the models with the Auto classes.
"""

from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from hf_capsule_mt.configuration import CapsNMTConfig, CapsuleMarianConfig, CapsuleRNMTConfig
from hf_capsule_mt.modeling.modeling_capsnmt import (
    CapsNMTForConditionalGeneration,
    CapsNMTModel,
    CapsNMTPreTrainedModel,
)
from hf_capsule_mt.modeling.modeling_capsule_marian import (
    CapsuleMarianModel,
    CapsuleMarianMTModel,
    CapsuleMarianPreTrainedModel,
)
from hf_capsule_mt.modeling.modeling_capsule_rnmt import (
    CapsuleRNMTForConditionalGeneration,
    CapsuleRNMTModel,
    CapsuleRNMTPreTrainedModel,
)

for _config, _model, _translating in (
    (CapsuleMarianConfig, CapsuleMarianModel, CapsuleMarianMTModel),
    (CapsuleRNMTConfig, CapsuleRNMTModel, CapsuleRNMTForConditionalGeneration),
    (CapsNMTConfig, CapsNMTModel, CapsNMTForConditionalGeneration),
):
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModel.register(_config, _model, exist_ok=True)
    AutoModelForSeq2SeqLM.register(_config, _translating, exist_ok=True)

__all__ = [
    "CapsNMTForConditionalGeneration",
    "CapsNMTModel",
    "CapsNMTPreTrainedModel",
    "CapsuleMarianMTModel",
    "CapsuleMarianModel",
    "CapsuleMarianPreTrainedModel",
    "CapsuleRNMTForConditionalGeneration",
    "CapsuleRNMTModel",
    "CapsuleRNMTPreTrainedModel",
]

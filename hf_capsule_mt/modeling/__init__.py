"""The models: one file for each family, and the modules they are made of."""

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

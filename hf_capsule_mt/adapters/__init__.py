"""Layer aggregation on any transformers model: a PEFT method, "CAPSULE", beside the layers of a stock model.

Importing this package registers the method, so that `PeftModel.from_pretrained` finds it.
"""

from hf_capsule_mt.adapters.config import CapsuleConfig
from hf_capsule_mt.adapters.tuner import CapsuleModel, aggregate, routing_weights

__all__ = ["CapsuleConfig", "CapsuleModel", "aggregate", "routing_weights"]

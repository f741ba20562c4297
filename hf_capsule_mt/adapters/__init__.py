"""Layer aggregation beside the layers of a stock model of transformers: a PEFT method, "CAPSULE".

Importing this package registers the method, so that `PeftModel.from_pretrained` finds it.
"""

try:
    from hf_capsule_mt.adapters.registration import register
except ImportError as error:
    from hf_capsule_mt.extras import explain

    raise ImportError(explain(error) or str(error), name=error.name) from error

from hf_capsule_mt.adapters.config import CapsuleConfig
from hf_capsule_mt.adapters.tuner import CapsuleModel, aggregate, routing_weights

__all__ = ["CapsuleConfig", "CapsuleModel", "aggregate", "routing_weights"]

register(CapsuleConfig, CapsuleModel)

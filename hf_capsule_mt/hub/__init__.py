"""Publishing: self-contained checkpoints, model cards, the hub."""

from hf_capsule_mt.hub.cards import model_card
from hf_capsule_mt.hub.exporting import LoadTestError, check_export, export
from hf_capsule_mt.hub.pushing import push

__all__ = ["LoadTestError", "check_export", "export", "model_card", "push"]

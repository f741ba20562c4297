"""Publishing: self-contained checkpoints, model cards, the hub."""

from hf_capsule_mt.hub.cards import model_card
from hf_capsule_mt.hub.exporting import LoadTestError, export
from hf_capsule_mt.hub.firefox import push_from_firefox
from hf_capsule_mt.hub.pushing import push, write_folder
from hf_capsule_mt.hub.trainer_pushes import PushedCode

__all__ = ["LoadTestError", "PushedCode", "export", "model_card", "push", "push_from_firefox", "write_folder"]

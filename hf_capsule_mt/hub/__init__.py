"""Publishing: self-contained checkpoints, model cards, the hub."""

from hf_capsule_mt.hub.export import LoadTestError, check_export, export

__all__ = ["LoadTestError", "check_export", "export"]

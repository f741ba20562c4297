"""Configuration classes, one file for each model family."""

from hf_capsule_mt.configuration.configuration_capsnmt import CapsNMTConfig
from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig

__all__ = ["CapsNMTConfig", "CapsuleMarianConfig"]

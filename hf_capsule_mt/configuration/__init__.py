"""Configuration classes, one file for each model family."""

from hf_capsule_mt.configuration.configuration_capsnmt import CapsNMTConfig
from hf_capsule_mt.configuration.configuration_capsule_marian import CapsuleMarianConfig
from hf_capsule_mt.configuration.configuration_capsule_rnmt import CapsuleRNMTConfig

__all__ = ["CapsNMTConfig", "CapsuleMarianConfig", "CapsuleRNMTConfig"]

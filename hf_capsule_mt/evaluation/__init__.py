"""Measurements and the files they are kept in."""

from hf_capsule_mt.evaluation.results import describe_environment, read_result, write_result

__all__ = ["describe_environment", "read_result", "write_result"]

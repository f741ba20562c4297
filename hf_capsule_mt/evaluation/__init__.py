"""Scores, significance, adequacy, and the result files.

Import the rest from its module: reading a result file does not need sacreBLEU.
"""

from hf_capsule_mt.evaluation.results import describe_environment, read_result, write_result

__all__ = ["describe_environment", "read_result", "write_result"]

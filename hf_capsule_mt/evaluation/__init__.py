"""Measurements and the files they are kept in.

Every name here is in a module of its own, so that reading a result file needs neither sacreBLEU nor numpy.
"""

from hf_capsule_mt.evaluation.results import describe_environment, read_result, write_result

__all__ = ["describe_environment", "read_result", "write_result"]

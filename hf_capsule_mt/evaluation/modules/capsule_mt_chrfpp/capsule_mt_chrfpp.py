"""`chrf++` for `evaluate.load`; see `hf_capsule_mt.evaluation.metrics`."""

from hf_capsule_mt.evaluation.modules import common  # the module: evaluate takes the first metric class that it sees


class ChrfPlusPlus(common.TranslationMetric):
    metric_name = "chrf++"

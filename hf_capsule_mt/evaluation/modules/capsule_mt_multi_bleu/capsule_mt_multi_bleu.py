"""`multi_bleu` for `evaluate.load`; see `hf_capsule_mt.evaluation.metrics`."""

from hf_capsule_mt.evaluation.modules import common  # the module: evaluate takes the first metric class that it sees


class MultiBleu(common.TranslationMetric):
    metric_name = "multi_bleu"

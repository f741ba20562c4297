"""The base class of our modules for the library `evaluate`: `metric_path` writes one module for each metric."""

from typing import Any

import datasets
import evaluate

from hf_capsule_mt.evaluation.metrics import score_corpus

CITATION = """@inproceedings{post-2018-call,
    title = "A Call for Clarity in Reporting {BLEU} Scores", author = "Post, Matt", booktitle = "WMT", year = "2018"
}"""
INPUTS = """
Args:
    predictions: translations, a list of strings.
    references: a string for each translation, or a list of strings, of the same length for all.
    tokenize: sacreBLEU's tokenizer for BLEU, "13a" by default.
Returns:
    score, signature, text: the number, its signature, and the line that sacreBLEU prints.
"""


class TranslationMetric(evaluate.Metric):
    """The metric `metric_name` of `METRICS`, with its signature; `evaluate.load` takes the subclass in a module."""

    metric_name = ""

    def _info(self) -> evaluate.MetricInfo:
        string = datasets.Value("string")
        return evaluate.MetricInfo(
            description=f"{self.metric_name} of translations, with its signature.",
            citation=CITATION,
            inputs_description=INPUTS,
            features=[
                datasets.Features({"predictions": string, "references": datasets.Sequence(string)}),
                datasets.Features({"predictions": string, "references": string}),
            ],
        )

    def _compute(self, predictions: list[str], references: list[Any], tokenize: str = "13a") -> dict[str, Any]:
        alternatives = [[item] if isinstance(item, str) else list(item) for item in references]
        counts = {len(item) for item in alternatives}
        if len(counts) != 1:
            raise ValueError(f"items of `references` must have equally many translations, got {sorted(counts)}")
        reference_sets = [list(lines) for lines in zip(*alternatives, strict=True)]
        score = score_corpus(predictions, reference_sets, [self.metric_name], tokenize)[self.metric_name]
        return {"score": score.score, "signature": score.signature, "text": score.text}

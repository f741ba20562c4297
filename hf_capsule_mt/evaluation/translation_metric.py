"""The base of our modules of the library `evaluate`, one a metric, which `metric_path` writes."""

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
    references: for each translation a string, or a list of strings, equally many for each.
    tokenize: sacreBLEU's tokenizer for BLEU, "13a" by default.
Returns:
    score, signature, text: the number, its signature, and the line that sacreBLEU prints.
"""


class TranslationMetric(evaluate.Metric):
    """The metric `metric_name` of `METRICS`, with its signature; `evaluate.load` finds its subclasses."""

    metric_name = ""

    def _info(self) -> evaluate.MetricInfo:
        text = datasets.Value("string")
        return evaluate.MetricInfo(
            description=f"{self.metric_name} of translations, with its signature.",
            citation=CITATION,
            inputs_description=INPUTS,
            features=[
                datasets.Features({"predictions": text, "references": datasets.Sequence(text)}),
                datasets.Features({"predictions": text, "references": text}),
            ],
        )

    def _compute(self, predictions: list[str], references: list[Any], tokenize: str = "13a") -> dict[str, Any]:
        alternatives = [[lines] if isinstance(lines, str) else list(lines) for lines in references]
        sizes = {len(lines) for lines in alternatives}
        if len(sizes) != 1:
            raise ValueError(f"items of `references` must have equally many translations, got {sorted(sizes)}")
        sets = [list(lines) for lines in zip(*alternatives, strict=True)]
        score = score_corpus(predictions, sets, [self.metric_name], tokenize)[self.metric_name]
        return {"score": score.score, "signature": score.signature, "text": score.text}

"""sacreBLEU's (Post 2018) BLEU, chrF, chrF++ and TER, each with a signature that makes the number reproducible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric

from capsule_mt.files.outputs import write_output
from hf_capsule_mt.evaluation.choices import DEFAULT_METRICS, METRICS

if TYPE_CHECKING:  # scoring text does not need transformers
    from transformers import EvalPrediction, PreTrainedTokenizerBase

# imports the module and not the class: `evaluate` takes the first class of a metric that it sees
MODULE = '''"""{name} for `evaluate.load`; see `hf_capsule_mt.evaluation.metrics`."""

from hf_capsule_mt.evaluation import translation_metric


class Metric(translation_metric.TranslationMetric):
    metric_name = "{name}"
'''


@dataclass(frozen=True)
class Score:
    """A score with its signature as sacreBLEU writes it, and `text` for people to read."""

    name: str
    score: float
    signature: str
    text: str


def sacrebleu_metric(name: str, tokenize: str = "13a") -> Metric:
    """Return sacreBLEU's metric for one of our names, as the significance tests need it."""
    if tokenize not in BLEU.TOKENIZERS:
        raise ValueError(f"`tokenize` must be one of {', '.join(BLEU.TOKENIZERS)}, got {tokenize!r}")
    if name in ("bleu", "bleu_uncased"):
        return BLEU(tokenize=tokenize, lowercase=name.endswith("uncased"))
    if name in ("chrf", "chrf++"):
        return CHRF(word_order=2 if name == "chrf++" else 0)
    if name == "ter":
        return TER()
    raise ValueError(f"`name` must be one of {', '.join(METRICS)}, got {name!r}")


def metric_signature(name: str, num_references: int = 1, tokenize: str = "13a") -> str:
    """Return the signature that `score_corpus` gives to a metric's scores, without scoring anything."""
    metric = sacrebleu_metric(name, tokenize)
    metric.num_refs = num_references  # which sacreBLEU learns from the references that it scores
    return str(metric.get_signature())


def score_corpus(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str] = DEFAULT_METRICS,
    tokenize: str = "13a",
) -> dict[str, Score]:
    """Score a whole test set.

    Args:
        hypotheses: a translation for each sentence.
        references: one list of translations for each set of references, each as long as the hypotheses.
        metrics: some of `METRICS`.
        tokenize: sacreBLEU's tokenizer for BLEU; "none" for text that is tokenised already.
    """
    check_parallel(hypotheses, references)
    return {name: _score(name, hypotheses, references, tokenize) for name in metrics}


def check_parallel(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise an error for text that is not parallel, and for a single string in the place of a list."""
    if isinstance(hypotheses, str) or any(isinstance(lines, str) for lines in references):
        raise TypeError("`hypotheses` must be a list of strings, and `references` a list of such lists")
    if not references or not hypotheses:
        raise ValueError(
            f"got {len(references)} set(s) of references for {len(hypotheses)} hypotheses: give at least one of each"
        )
    for number, lines in enumerate(references):
        if len(lines) != len(hypotheses):
            raise ValueError(
                f"`references[{number}]` must have a line for each of the {len(hypotheses)} hypotheses, "
                f"got {len(lines)}"
            )


def _score(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenize: str) -> Score:
    metric = sacrebleu_metric(name, tokenize)
    result = metric.corpus_score(list(hypotheses), [list(lines) for lines in references])
    return Score(name, float(result.score), str(metric.get_signature()), str(result))


def metric_path(name: str) -> str:
    """Write a module with one of our metrics, and return its path, which `evaluate.load` takes without a network.

    The module is in `evaluate`'s cache, where `evaluate` copies every module that it loads.
    """
    if name not in METRICS:
        raise ValueError(f"`name` must be one of {', '.join(METRICS)}, got {name!r}")
    from evaluate.config import HF_MODULES_CACHE  # scoring does not need `evaluate`

    module = f"capsule_mt_{name.replace('+', 'p')}"
    path = Path(HF_MODULES_CACHE) / "capsule_mt" / module / f"{module}.py"
    write_output(path, MODULE.format(name=name))
    return str(path)


def compute_metrics(
    tokenizer: "PreTrainedTokenizerBase",
    metrics: Sequence[str] = ("bleu", "chrf"),
    decode: Callable[[list[int]], str] | None = None,
) -> "Callable[[EvalPrediction], dict[str, float]]":
    """Return a `compute_metrics` for a `Seq2SeqTrainer` with `predict_with_generate=True`.

    It also reports the mean number of generated tokens.

    Args:
        tokenizer: the target's, if there are two.
        decode: the text of token ids from the start token on. A `MarianTokenizer` with two vocabularies needs
            `partial(decode_target, tokenizer)` of `hf_capsule_mt.modeling.target_text`: by itself it leaves out target
            words that have the ids of the source's special tokens.
    """
    unknown = [metrics] if isinstance(metrics, str) else [name for name in metrics if name not in METRICS]
    if unknown:
        raise ValueError(f"`metrics` takes a list of {', '.join(METRICS)}, got {unknown[0]!r}")
    if decode is None and getattr(tokenizer, "separate_vocabs", False):
        raise ValueError(
            "`decode` must be given for a tokenizer with `separate_vocabs`: partial(decode_target, tokenizer)"
        )
    pad = tokenizer.pad_token_id

    def text(ids: list[int]) -> str:
        return (decode(ids) if decode else str(tokenizer.decode(ids, skip_special_tokens=True))).strip()

    def compute(prediction: "EvalPrediction") -> dict[str, float]:
        generated = np.asarray(_first(prediction.predictions))
        generated = np.where(generated < 0, pad, generated)
        hypotheses = [text(ids.tolist()) for ids in generated]
        references = [text([pad, *ids[ids >= 0].tolist()]) for ids in np.asarray(prediction.label_ids)]
        scores = score_corpus(hypotheses, [references], metrics)
        lengths = [np.flatnonzero(ids != pad).max(initial=0) for ids in generated]  # without the start token
        return {name: score.score for name, score in scores.items()} | {"generated_tokens": float(np.mean(lengths))}

    return compute


def _first(predictions: np.ndarray | tuple[np.ndarray, ...]) -> np.ndarray:
    return predictions[0] if isinstance(predictions, tuple) else predictions

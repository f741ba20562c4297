"""How much of each source word given translations cover: by attention, by PAST and FUTURE, or by deleting the word."""

from typing import Any, NamedTuple, cast

import torch
from transformers import PreTrainedModel

from capsule_mt.text.words import WordLists
from hf_capsule_mt.modeling.coverage import CoverageScore
from hf_capsule_mt.pipelines.attention import cross_attentions, received_attention
from hf_capsule_mt.pipelines.deletion import deletion_log_probs
from hf_capsule_mt.pipelines.results import CoverageMethod, CoveredBy
from hf_capsule_mt.pipelines.source_batch import SourceBatch, WordTokens

# the logit of a share that float32 cannot tell from 0 or 1
LARGEST_EVIDENCE = 16.0
CALIBRATED_THRESHOLD = 0.5  # of curves that were fitted before they had one

Calibration = dict[str, Any]


def calibration_of(config: Any, method: str) -> Calibration | None:
    """Return the curves of one method, its "threshold", and the "head" of "attention", if there are any."""
    found: Calibration | None = (getattr(config, "coverage_calibration", None) or {}).get(method)
    return found


def word_lists_of(config: Any) -> WordLists:
    """Return the words that calibration found optional, and those so frequent that it calls them function words."""
    found = getattr(config, "coverage_calibration", None) or {}
    return WordLists(*(frozenset(found.get(name, ())) for name in ("optional_words", "function_words")))


def head_of(model: PreTrainedModel) -> list[int]:
    """Return the layer and the head of "attention"."""
    calibration = calibration_of(model.config, "attention")
    if calibration is None:
        raise RuntimeError("no head was chosen")
    return cast(list[int], calibration["head"])


def evidence_of(covered: torch.Tensor) -> torch.Tensor:
    """Return the logit of shares, which is finite: by deletion, how much a word helps the translation, in nats."""
    return covered.logit(eps=torch.finfo(covered.dtype).tiny).clamp(-LARGEST_EVIDENCE, LARGEST_EVIDENCE)


def on_curve(points: list[list[float]], values: torch.Tensor) -> torch.Tensor:
    """Read a curve of points (x, y) at these values, by linear interpolation; constant beyond its ends."""
    x, y = (torch.tensor(column, device=values.device, dtype=values.dtype) for column in zip(*points, strict=True))
    if len(x) == 1:
        return y.expand_as(values)
    right = torch.searchsorted(x, values.contiguous()).clamp(1, len(x) - 1)
    share = ((values - x[right - 1]) / (x[right] - x[right - 1])).clamp(0, 1)
    return y[right - 1] + share * (y[right] - y[right - 1])


# below this, a word of a model without guidance counts as untranslated: the translation is as probable without it
DELETION_THRESHOLD = 0.5
# the same for the attention that a word receives, until curves are fitted
ATTENTION_THRESHOLD = 0.2


class WordCoverage(NamedTuple):
    """What R translations of each of B sources cover.

    Of each word, [B, R, W]: its shares of `past` and `future` at the end, how much of it is `covered`, whether it is
    `untranslated`. Of each translation, [B, R]: the mean coverage of the words that count in `score`, and the mean
    share of a source token that is `left` in FUTURE.
    """

    past: torch.Tensor
    future: torch.Tensor
    covered: torch.Tensor
    untranslated: torch.Tensor
    score: torch.Tensor
    left: torch.Tensor


def coverage_method(model: PreTrainedModel, method: CoverageMethod) -> CoveredBy:
    """Return what "auto" stands for with this model, and refuse a method that the model does not have."""
    has_head = calibration_of(model.config, "attention") is not None
    if method == "auto":
        is_guided = bool(getattr(model, "has_coverage", False))
        return "attention" if has_head else "guided" if is_guided else "deletion"
    if method == "guided" and not hasattr(model, "score_coverage"):
        raise ValueError(
            f'`method="guided"` needs a model with guided routing, got a {type(model).__name__}; "deletion" takes any'
        )
    if method == "attention" and not cross_attentions(model):
        raise ValueError(
            '`method="attention"` needs a decoder built like Marian\'s, '
            f'got a {type(model).__name__}; "deletion" takes any'
        )
    if method == "attention" and not has_head:
        raise ValueError(
            '`method="attention"` needs a head that aligns words, which `capsule-mt calibrate` chooses; "deletion" '
            "needs none"
        )
    return method


def score_coverage(model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor) -> CoverageScore:
    """Return the coverage of translations [B * R, T] by a guided model, by one more pass of its decoder."""
    copies = len(sequences) // len(batch.input_ids)
    scored: CoverageScore = cast(Any, model).score_coverage(
        batch.input_ids.repeat_interleave(copies, dim=0),
        batch.attention_mask.repeat_interleave(copies, dim=0),
        labels=sequences[:, 1:],
        encoder_outputs=batch.encoded(model, copies),
    )
    return scored


def guided_coverage(batch: SourceBatch, scored: CoverageScore, calibration: Calibration | None = None) -> WordCoverage:
    """Return the coverage of the words of B sources from that of the tokens of B * R."""
    copies = len(scored.past) // len(batch.input_ids)
    words = _words(batch)
    past, future, covered, untranslated = (
        _mean_of_tokens(values.float().unflatten(0, (-1, copies)), words.tokens)
        for values in (scored.past, scored.future, scored.covered, scored.untranslated)
    )
    num_words = scored.words.sum(dim=-1).clamp(min=1)
    left = scored.future.masked_fill(~scored.words, 0).sum(dim=-1) / num_words
    left = left.unflatten(0, (-1, copies))
    # most tokens of the word are
    return _finished(words, past, future, covered, untranslated >= 0.5, left, calibration)


def attention_coverage(
    model: PreTrainedModel,
    batch: SourceBatch,
    sequences: torch.Tensor,
    lengths: torch.Tensor,
    log_probs: torch.Tensor | None = None,
    received: torch.Tensor | None = None,
) -> tuple[torch.Tensor, WordCoverage]:
    """Return the mean log-probability of a token [B * R] of translations [B * R, T], and their coverage.

    A word is covered by the most attention that it receives from the chosen head: `log_probs` and what source tokens
    have `received` [B * R, S] are computed where they are not known.
    """
    words = _words(batch)
    if log_probs is None or received is None:
        log_probs, received = received_attention(model, batch, sequences, lengths, head_of(model))
    of_tokens = received.unflatten(0, (len(batch.input_ids), -1))[:, :, None]  # [B, R, 1, S]
    covered = of_tokens.masked_fill(~words.tokens[:, None], 0.0).amax(dim=-1)
    counts = words.counts[:, None]
    covered = covered.masked_fill(~counts, 1.0)
    left = (1 - covered).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)
    calibration = calibration_of(model.config, "attention") or {}
    curves = calibration if "words" in calibration else None  # there are none while `capsule-mt calibrate` fits them
    return log_probs, _finished(words, covered, 1 - covered, covered, covered < ATTENTION_THRESHOLD, left, curves)


def deletion_coverage(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> tuple[torch.Tensor, WordCoverage]:
    """Return the mean log-probability of a token [B * R] of translations [B * R, T], and their coverage.

    A word is covered by p / (p + q), where p is the probability of the translation, and q that without the word.
    """
    words = _words(batch)
    whole, without = deletion_log_probs(model, batch, sequences, lengths)
    counts = words.counts[:, None]
    covered = (whole[..., None] - without).sigmoid().masked_fill(~counts, 1.0)
    left = (1 - covered).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)
    calibration = calibration_of(model.config, "deletion")
    coverage = _finished(words, covered, 1 - covered, covered, covered < DELETION_THRESHOLD, left, calibration)
    return whole.flatten() / lengths.clamp(min=1).to(whole.device), coverage


def _finished(
    words: WordTokens,
    past: torch.Tensor,
    future: torch.Tensor,
    covered: torch.Tensor,
    untranslated: torch.Tensor,
    left: torch.Tensor,
    calibration: Calibration | None,
) -> WordCoverage:
    """Calibrate, count unknown words as missing, and average over the words that count.

    Marks and optional words do not, and function words only where they are `untranslated`. A calibrated score is at
    most the share of these words that is not `untranslated`.
    """
    unknown, optional = words.is_unknown[:, None], words.is_optional[:, None]
    if calibration is not None:
        covered = on_curve(calibration["words"], evidence_of(covered)).masked_fill(~words.counts[:, None], 1.0)
        untranslated = (covered < calibration.get("threshold", CALIBRATED_THRESHOLD)) & ~optional
    covered, untranslated = covered.masked_fill(unknown, 0.0), untranslated | unknown
    counts = words.counts[:, None] & ~optional & (untranslated | ~words.is_function[:, None])
    total = covered.masked_fill(~counts, 0.0).sum(dim=-1)
    score = total / counts.sum(dim=-1).clamp(min=1)
    if calibration is not None:
        missing = (untranslated & counts).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)
        score = on_curve(calibration["sentences"], score).minimum(1 - missing)
    score = torch.where(counts.any(dim=-1), score, 1.0)
    return WordCoverage(past, future, covered, untranslated, score, left)


def _mean_of_tokens(values: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """[B, R, S] of tokens -> [B, R, W] of the words that they make up, `tokens` [B, W, S]."""
    total = torch.einsum("brs,bws->brw", values, tokens.to(values.dtype))
    return total / tokens.sum(dim=-1).clamp(min=1)[:, None]


def _words(batch: SourceBatch) -> WordTokens:
    if batch.words is None:
        raise RuntimeError("the batch has no words")
    return batch.words

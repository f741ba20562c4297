"""Which source words a translation left out, as the model's PAST and FUTURE tell (Zheng et al. 2019).

Legend: B batch, S source positions, T target positions, n capsules of each of PAST and FUTURE, M all capsules.
"""

from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import nn
from transformers import PreTrainedConfig
from transformers.modeling_outputs import BaseModelOutput

from hf_capsule_mt.configuration.guided import GuidedConfig
from hf_capsule_mt.modeling.generation import TranslationModel
from hf_capsule_mt.modeling.guided_losses import GuidedLosses
from hf_capsule_mt.modeling.losses import check_labels, token_log_probs
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX

# a word whose FUTURE falls by less has not been seen to be translated
SMALLEST_FALL = 1e-3
# the coverage of a word is multiplied by min(1, 2.5 (1 - FUTURE at the end)), which is below 1 from FUTURE > 0.6 on
SHARE_AT_THE_END = 2.5


class PastFutureCurves(NamedTuple):
    """For each source word, how its assignment changes as the translation grows: [B, S, T] each, summing to one.

    At step t the words before the t-th have been read, and the t-th is predicted. Padded source words are 0 in all.
    """

    past: torch.Tensor
    future: torch.Tensor
    redundant: torch.Tensor


def past_future_curves(weights: torch.Tensor, num_capsules: int) -> PastFutureCurves:
    """Return the assignment probabilities of one iteration, `routing_weights["decoder.guidance"][-1]`, as curves.

    Args:
        weights: [B, T, S, M], the first `num_capsules` of the M for PAST, as many for FUTURE, the rest redundant.
        num_capsules: `model.capsules_per_group`.
    """
    if num_capsules < 1 or weights.shape[-1] < 2 * num_capsules:
        raise ValueError(
            f"`num_capsules` ({num_capsules}) of each of PAST and FUTURE do not fit `weights` of shape "
            f"{list(weights.shape)}"
        )
    groups = weights.split([num_capsules, num_capsules, weights.shape[-1] - 2 * num_capsules], dim=-1)
    return PastFutureCurves(*(group.sum(dim=-1).transpose(1, 2) for group in groups))


@dataclass
class CoverageScore:
    """The coverage of given translations, by PAST and FUTURE.

    past, future, redundant: [B, S], the shares of each source word when the whole translation has been read; 0 for
        padding.
    covered: [B, S], of what left FUTURE, the share that left it at words that the model agreed to; less if more than
        0.6 of the source word is FUTURE at the end; 0 for padding.
    words: [B, S], which positions count: neither padding nor one of the special tokens.
    untranslated: [B, S], the words whose coverage is below the threshold.
    score: [B], the mean coverage of the words of a sentence; 1 for a sentence without words.
    balance: [B], the mean of PAST less FUTURE over the words of a sentence, when the whole translation has been read;
        1 for a sentence without words.
    log_prob: [B], the average log-probability of a token of the translation, of its end token too if it has one.
    """

    past: torch.Tensor
    future: torch.Tensor
    redundant: torch.Tensor
    covered: torch.Tensor
    words: torch.Tensor
    untranslated: torch.Tensor
    score: torch.Tensor
    balance: torch.Tensor
    log_prob: torch.Tensor


class PastFutureReading(NamedTuple):
    """What a forced pass sees of the source words [B, S], and the mean log-probability of a token [B].

    past, future: when the whole translation has been read; 0 for padding.
    fall: the sum of the falls of FUTURE.
    agreed: the same sum, each fall times the agreement of its step.
    """

    past: torch.Tensor
    future: torch.Tensor
    fall: torch.Tensor
    agreed: torch.Tensor
    log_prob: torch.Tensor


class PastFutureModel(TranslationModel):
    """Base of the generation models with guidance: coverage of given translations, and dropping the guided losses."""

    guided_losses: GuidedLosses | None

    @property
    def _guided_config(self) -> GuidedConfig:
        return cast(GuidedConfig, self.config)

    @torch.no_grad()
    def score_coverage(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        labels: torch.Tensor,
        threshold: float = 0.8,
        encoder_outputs: BaseModelOutput | None = None,
    ) -> CoverageScore:
        """Return how much of each source word given translations cover, by forced decoding.

        At the end most words are PAST, even if the translation left some out: the model sees the full stop, and
        believes it. What tells is how a word left FUTURE: while its translation was read, which the model expected, or
        while the next words were read instead, which it expected less or not. So each step's fall of a word's
        FUTURE counts by the step's agreement, the odds of the word read against the best other one, and coverage is
        the part of the fall that is agreed to:

            agreement_t = p(word read) / (p(word read) + max p(another word))
            covered_s = sum_t fall_ts agreement_t / sum_t fall_ts

        A word that never was in FUTURE is covered. One that is more than 0.6 FUTURE at the end is covered less.

        Args:
            input_ids: source tokens [B, S].
            attention_mask: [B, S]; without it everything but `pad_token_id` is kept.
            labels: the translations [B, T], padded on the right with -100 or `pad_token_id`, with or without an end
                token.
            threshold: words whose coverage is less count as untranslated.
            encoder_outputs: of these sources, where they are already there.
        """
        if attention_mask is None:
            attention_mask = input_ids.ne(self.config.pad_token_id).long()
        past, future, fall, agreed, log_prob = self.past_future_reading(
            input_ids, attention_mask, labels=labels, encoder_outputs=encoder_outputs
        )
        keep = attention_mask.bool()
        words = keep & ~torch.isin(input_ids, _special_tokens(self.config, input_ids))
        covered = torch.where(fall > SMALLEST_FALL, agreed / fall.clamp(min=SMALLEST_FALL), 1)
        covered = covered * (SHARE_AT_THE_END * (1 - future)).clamp(max=1) * keep
        return CoverageScore(
            past=past,
            future=future,
            redundant=(1 - past - future) * keep,
            covered=covered,
            words=words,
            untranslated=words & (covered < threshold),
            score=_mean_of_words(covered, words),
            balance=_mean_of_words(past - future, words),
            log_prob=log_prob,
        )

    @torch.no_grad()
    def past_future_reading(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        labels: torch.Tensor,
        encoder_outputs: BaseModelOutput | None = None,
    ) -> PastFutureReading:
        """Return how each source word left FUTURE, by forced decoding: see `score_coverage`."""
        config = self._guided_config
        if not self.has_coverage:
            raise ValueError(
                '`score_coverage` reads PAST and FUTURE, which need `guided_routing` "guided" or "classifier", got '
                f'"{config.guided_routing}"'
            )
        if attention_mask is None:
            attention_mask = input_ids.ne(config.pad_token_id).long()
        forced, last = _decoder_inputs(labels.to(input_ids.device), config)
        if len(labels) != len(input_ids):
            raise ValueError(f"`labels` are {len(labels)} translations, but `input_ids` {len(input_ids)} sources")
        check_labels(labels, self.model.decoder.num_tokens)
        was_training = self.training
        self.eval()
        try:
            output = self(
                input_ids,
                attention_mask=attention_mask,
                decoder_input_ids=forced,
                encoder_outputs=encoder_outputs,
                use_cache=False,
                output_routing_weights=True,
                return_dict=True,
            )
        finally:
            self.train(was_training)
        weights = output.routing_weights["decoder.guidance"][-1].float()  # [B, T, S, M]
        curves = past_future_curves(weights, self.capsules_per_group)
        steps = last[:, None, None].expand(-1, input_ids.shape[1], 1)
        was_read = torch.arange(forced.shape[1] - 1, device=last.device) < last.unsqueeze(-1)  # [B, T - 1]
        logits = output.logits.float()
        log_prob = _mean_log_prob(logits, labels.to(last.device), last, config)
        logits, read = logits[:, :-1], forced[:, 1:].unsqueeze(-1)
        read_logits = logits.gather(-1, read).squeeze(-1)  # [B, T - 1]
        best_other_logits = logits.scatter_(-1, read, -torch.inf).amax(dim=-1)  # in place: nobody reads them again
        agreement = (read_logits - best_other_logits).sigmoid()
        falls = (curves.future[..., :-1] - curves.future[..., 1:]).clamp(min=0)  # [B, S, T - 1]
        falls = falls * was_read.unsqueeze(1)
        past, future = (curve.gather(-1, steps).squeeze(-1) for curve in (curves.past, curves.future))
        agreed = (falls * agreement.unsqueeze(1)).sum(dim=-1)
        return PastFutureReading(past, future, falls.sum(dim=-1), agreed, log_prob)

    @property
    def has_coverage(self) -> bool:
        """Return whether the model assigns words to PAST and FUTURE, which `score_coverage` reads."""
        return self._guided_config.guided_routing in ("guided", "classifier")

    @property
    def capsules_per_group(self) -> int:
        """Return how many columns of `routing_weights["decoder.guidance"]` belong to PAST; FUTURE has as many."""
        config = self._guided_config
        return config.guided_num_capsules if config.guided_routing == "guided" else 1

    def drop_guided_losses(self) -> None:
        """Drop the parameters of the guided losses, which decoding does not need: an export becomes smaller."""
        self.guided_losses = None
        self._guided_config.guided_bow_weight = 0.0
        self._guided_config.guided_bca_weight = 0.0


def _mean_of_words(values: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """The mean over the words of each sentence [B]; 1 for a sentence without words."""
    total = torch.where(words, values, 0).sum(dim=-1)
    return total / words.sum(dim=-1).clamp(min=1) + (~words.any(dim=-1)).float()


def _mean_log_prob(
    logits: torch.Tensor, labels: torch.Tensor, last: torch.Tensor, config: PreTrainedConfig
) -> torch.Tensor:
    """The average log-probability [B] of the first `last` labels, and of the end token if one follows them."""
    labels = nn.functional.pad(labels, (0, 1), value=config.pad_token_id)[:, : logits.shape[1]]
    positions = torch.arange(labels.shape[1], device=labels.device)
    follows = (positions == last.unsqueeze(-1)) & torch.isin(labels, _end_tokens(config, labels))
    counts = (positions < last.unsqueeze(-1)) | follows
    log_probs = token_log_probs(logits, labels.masked_fill(~counts, config.pad_token_id))
    return log_probs.masked_fill(~counts, 0).sum(dim=-1) / counts.sum(dim=-1).clamp(min=1)


def _decoder_inputs(labels: torch.Tensor, config: PreTrainedConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels [B, T] -> what the decoder reads [B, T + 1], and the position [B] at which it has read all words."""
    if labels.dim() != 2 or labels.shape[1] == 0:
        raise ValueError(f"`labels` must be [batch, target], an end token at least, got shape {list(labels.shape)}")
    ends = _end_tokens(config, labels)
    words = labels.ne(IGNORE_INDEX) & labels.ne(config.pad_token_id) & ~torch.isin(labels, ends)
    positions = torch.arange(1, labels.shape[1] + 1, device=labels.device)
    last = (words * positions).amax(dim=-1)  # [B]
    start = labels.new_full((len(labels), 1), config.decoder_start_token_id)
    read = labels.masked_fill(positions > last.unsqueeze(-1), config.pad_token_id)
    return torch.cat([start, read], dim=-1)[:, : int(last.max()) + 1], last


def _end_tokens(config: PreTrainedConfig, like: torch.Tensor) -> torch.Tensor:
    ends = config.eos_token_id if isinstance(config.eos_token_id, (list, tuple)) else [config.eos_token_id]
    return torch.tensor([end for end in ends if end is not None], device=like.device, dtype=like.dtype)


def _special_tokens(config: PreTrainedConfig, like: torch.Tensor) -> torch.Tensor:
    """The tokens of a source sentence that no translation has to cover."""
    special = (config.pad_token_id, config.bos_token_id, config.decoder_start_token_id)
    ids = [token for token in special if token is not None]
    return torch.cat([_end_tokens(config, like), torch.tensor(ids, device=like.device, dtype=like.dtype)])

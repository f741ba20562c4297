"""One batch of sources through the model: search, limits, ensembles, scores and coverage, with one encoder pass."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel

from hf_capsule_mt.modeling.coverage import CoverageScore
from hf_capsule_mt.pipelines.backends import FastDecoder
from hf_capsule_mt.pipelines.ensemble import EnsembleLogits
from hf_capsule_mt.pipelines.limits import (
    TargetPrefix,
    check_constraints,
    end_token_ids,
    generated_lengths,
    given_limit,
    limits_for_backend,
    setting_of,
    with_limits,
)
from hf_capsule_mt.pipelines.results import CoverageOptions
from hf_capsule_mt.pipelines.source_batch import SourceBatch, sequence_log_probs
from hf_capsule_mt.pipelines.word_coverage import (
    WordCoverage,
    attention_coverage,
    calibration_of,
    coverage_method,
    deletion_coverage,
    guided_coverage,
    head_of,
    score_coverage,
)


class Hypotheses(NamedTuple):
    """R translations of each of B sources, the best first; those of one piece are without the dimension B.

    Shapes: `sequences` [B, R, T], from the start token on and padded on the right; `was_cut` [B, R]; `log_probs`
    [B, R], the mean log-probability of a token.
    """

    sequences: torch.Tensor
    was_cut: torch.Tensor
    log_probs: torch.Tensor | None = None
    coverage: WordCoverage | None = None

    def select(self, best: torch.Tensor) -> "Hypotheses":
        """Keep the translations with the indices `best` [B, R'], in this order."""

        def chosen(values: torch.Tensor) -> torch.Tensor:
            return values.take_along_dim(best.reshape(*best.shape, *[1] * (values.dim() - 2)), dim=1)

        return Hypotheses(
            chosen(self.sequences),
            chosen(self.was_cut),
            None if self.log_probs is None else chosen(self.log_probs),
            None if self.coverage is None else self.coverage.map(chosen),
        )

    def of_source(self, row: int) -> "Hypotheses":
        """Take the translations of one source, on the CPU."""

        def own(values: torch.Tensor) -> torch.Tensor:
            return values[row].cpu()

        return Hypotheses(
            own(self.sequences),
            own(self.was_cut),
            None if self.log_probs is None else own(self.log_probs),
            None if self.coverage is None else self.coverage.map(own),
        )


class FiniteLogits(LogitsProcessor):
    """Raises an error where the logits of a step are not numbers; a hidden state that is none makes all of them so."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T]; scores [B * beams, V], of which it looks at every 64th."""
        _refuse_nan(scores[:, ::64])
        return scores


def _refuse_nan(scores: torch.Tensor) -> None:
    if scores.isnan().any():
        raise ValueError("the model's logits are not finite: its weights are damaged, or overflow in this dtype")


@dataclass
class BatchDecoder:
    """Translates batches with one model, or with the other `members` of an ensemble too."""

    model: PreTrainedModel
    members: list[PreTrainedModel]
    fast: FastDecoder | None = None

    @torch.no_grad()
    def __call__(
        self,
        batch: SourceBatch,
        generate_kwargs: Mapping[str, object],
        *,
        scores: bool = False,
        coverage: CoverageOptions | None = None,
    ) -> Hypotheses:
        """Translate a batch; with a `weight`, rank the hypotheses of beam search by what they leave out."""
        check_constraints(generate_kwargs)
        weight = None if coverage is None else coverage.weight
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        settings = with_limits(self.model, inputs, generate_kwargs)
        limits = settings.pop("limits", None)
        if self.members:
            ensemble = EnsembleLogits(self.members, **inputs)
            settings["logits_processor"] = LogitsProcessorList([ensemble, *(settings.get("logits_processor") or ())])
        if batch.prefixes:
            prefix = TargetPrefix(batch.prefixes, 1 + self._forces_first_token({**batch.settings, **settings}))
            settings["logits_processor"] = LogitsProcessorList([*(settings.get("logits_processor") or ()), prefix])
        returned = self.num_returned(settings)
        if weight:
            settings["num_return_sequences"] = self._num_beams(settings)
        method = None if coverage is None else coverage_method(self.model, coverage.method)
        followed: bool | Sequence[int] = method == "guided"
        if method == "attention":
            followed = head_of(self.model)
        sequences, log_probs, scored = self._decode(
            batch, settings, encodes=scores or coverage is not None, coverage=followed
        )
        lengths = generated_lengths(sequences, end_token_ids(self.model, settings))
        if limits is None:
            limits = torch.full((len(batch.input_ids),), given_limit(self.model, settings))
        copies = len(sequences) // len(batch.input_ids)
        was_cut = lengths >= limits.to(lengths.device).repeat_interleave(copies)
        word_coverage = None
        if method is not None:
            log_probs, word_coverage = self.cover(batch, sequences, lengths, method, scored, log_probs)
        elif not scores:
            log_probs = None
        elif log_probs is None:
            log_probs = sequence_log_probs(self.model, batch, sequences, lengths) / lengths.clamp(min=1)
        found = Hypotheses(
            sequences.unflatten(0, (-1, copies)),
            was_cut.unflatten(0, (-1, copies)),
            None if log_probs is None else log_probs.unflatten(0, (-1, copies)),
            word_coverage,
        )
        if not weight or found.log_probs is None or found.coverage is None:
            return found
        # beam search's own score, which divides by a power of the length
        powers = lengths.clamp(min=1).reshape_as(found.log_probs) ** (1 - self._length_penalty(settings))
        return found.select((found.log_probs * powers - weight * found.coverage.left).topk(returned, dim=1).indices)

    def cover(
        self,
        batch: SourceBatch,
        sequences: torch.Tensor,
        lengths: torch.Tensor,
        method: Literal["attention", "guided", "deletion"],
        scored: CoverageScore | torch.Tensor | None = None,
        log_probs: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, WordCoverage]:
        """Return the mean log-probability of a token [B * R] of translations [B * R, T], and their coverage.

        scored, log_probs: what the search has said already of these translations, by this method and at all.
        """
        if method == "attention":
            received = scored if isinstance(scored, torch.Tensor) else None
            return attention_coverage(self.model, batch, sequences, lengths, log_probs, received)
        if method == "deletion":
            return deletion_coverage(self.model, batch, sequences, lengths)
        if not isinstance(scored, CoverageScore):
            scored = score_coverage(self.model, batch, sequences)
        return scored.log_prob, guided_coverage(batch, scored, calibration_of(self.model.config, "guided"))

    def _decode(
        self, batch: SourceBatch, settings: dict[str, Any], *, encodes: bool, coverage: bool | Sequence[int]
    ) -> tuple[torch.Tensor, torch.Tensor | None, CoverageScore | torch.Tensor | None]:
        """Search: sequences [B * R, T] and, from a fast backend, log-probabilities of a token [B * R] and coverage."""
        if self.fast is not None:
            options, limits = limits_for_backend({**batch.settings, **settings})
            decoded = self.fast.decode(batch.input_ids, batch.attention_mask, limits, options, coverage=coverage)
            if decoded is not None:
                _refuse_nan(decoded[1])
                return decoded
        if encodes:
            settings = {**settings, "encoder_outputs": batch.encoded(self.model)}
        settings["logits_processor"] = LogitsProcessorList([*(settings.get("logits_processor") or ()), FiniteLogits()])
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        output = self.model.generate(**inputs, **{**batch.settings, **settings})  # type: ignore[operator]
        return (output if isinstance(output, torch.Tensor) else output["sequences"]), None, None

    def num_returned(self, generate_kwargs: Mapping[str, Any]) -> int:
        """Return how many translations each text has."""
        return int(setting_of(self.model, generate_kwargs, "num_return_sequences") or 1)

    def _forces_first_token(self, generate_kwargs: Mapping[str, Any]) -> bool:
        """Return whether `generate()` begins with a token of its own, such as the language."""
        return setting_of(self.model, generate_kwargs, "forced_bos_token_id") is not None

    def _num_beams(self, generate_kwargs: Mapping[str, Any]) -> int:
        beams = int(setting_of(self.model, generate_kwargs, "num_beams") or 1)
        if beams < 2:
            raise ValueError(f"the `weight` of coverage needs at least 2 beams: `num_beams` is {beams}")
        return beams

    def _length_penalty(self, generate_kwargs: Mapping[str, Any]) -> float:
        penalty = setting_of(self.model, generate_kwargs, "length_penalty")
        return 1.0 if penalty is None else float(penalty)

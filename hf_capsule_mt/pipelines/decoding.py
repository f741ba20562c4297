"""One batch of sources through the model: search, limits, ensembles, scores and coverage, with one encoder pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel
from transformers.utils import ModelOutput

from hf_capsule_mt.modeling.coverage import CoverageScore
from hf_capsule_mt.modeling.losses import token_log_probs
from hf_capsule_mt.pipelines.backends import FastDecoder
from hf_capsule_mt.pipelines.ensemble import EnsembleLogits
from hf_capsule_mt.pipelines.limits import (
    end_token_ids,
    generated_lengths,
    given_limit,
    limits_for_backend,
    with_limits,
)


class TokenCoverage(NamedTuple):
    """What a model with guided routing says of R translations of each of B sources.

    Of each source token, [B, R, S]: its shares of `past` and `future` at the end, how much of it is `covered`, whether
    it is `untranslated`, whether it counts as one of the `words`. Of each translation, [B, R]: the mean coverage of a
    word in `score`, and the mean share of a word that is `left` in FUTURE.
    """

    past: torch.Tensor
    future: torch.Tensor
    covered: torch.Tensor
    untranslated: torch.Tensor
    words: torch.Tensor
    score: torch.Tensor
    left: torch.Tensor


class Hypotheses(NamedTuple):
    """R translations of each of B sources, the best first; those of one piece are without the dimension B.

    Shapes: `sequences` [B, R, T], from the start token on and padded on the right; `was_cut` [B, R]; `log_probs`
    [B, R], the mean log-probability of a token.
    """

    sequences: torch.Tensor
    was_cut: torch.Tensor
    log_probs: torch.Tensor | None = None
    coverage: TokenCoverage | None = None

    def select(self, best: torch.Tensor) -> "Hypotheses":
        """Keep the translations with the indices `best` [B, R'], in this order."""

        def chosen(values: torch.Tensor) -> torch.Tensor:
            return values.take_along_dim(best.reshape(*best.shape, *[1] * (values.dim() - 2)), dim=1)

        return Hypotheses(
            chosen(self.sequences),
            chosen(self.was_cut),
            None if self.log_probs is None else chosen(self.log_probs),
            None if self.coverage is None else TokenCoverage(*map(chosen, self.coverage)),
        )

    def of_source(self, row: int, tokens: torch.Tensor) -> "Hypotheses":
        """Take the translations of one source, on the CPU, without the padding where `tokens` [S] is False."""

        def own(values: torch.Tensor) -> torch.Tensor:
            return values[row].cpu() if values.dim() == 2 else values[row].cpu()[..., tokens]

        return Hypotheses(
            self.sequences[row].cpu(),
            self.was_cut[row].cpu(),
            None if self.log_probs is None else own(self.log_probs),
            None if self.coverage is None else TokenCoverage(*map(own, self.coverage)),
        )


@dataclass
class SourceBatch:
    """Sources [B, S] and their mask [B, S], 1 keeps. The encoder's outputs are kept once they are computed."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    # what the tokenizer gives for `generate()`, such as the language of the translation
    settings: Mapping[str, object] = field(default_factory=dict)
    encoder_outputs: ModelOutput | None = None

    def rows(self, indices: list[int]) -> "SourceBatch":
        """Return the batch of some of the sources."""
        index = torch.tensor(indices, device=self.input_ids.device)
        encoded = self.encoder_outputs
        if encoded is not None:
            encoded = type(encoded)(**{name: values[index] for name, values in encoded.items()})
        return SourceBatch(self.input_ids[index], self.attention_mask[index], self.settings, encoded)

    @torch.no_grad()
    def encoded(self, model: PreTrainedModel, copies: int = 1) -> ModelOutput:
        """Return the encoder's outputs, each row `copies` times. The encoder runs at the first call."""
        if self.encoder_outputs is None:
            outputs = model.get_encoder()(
                input_ids=self.input_ids, attention_mask=self.attention_mask, return_dict=True
            )
            tensors = {name: value for name, value in outputs.items() if isinstance(value, torch.Tensor)}
            self.encoder_outputs = type(outputs)(**tensors)
        kept = self.encoder_outputs
        return type(kept)(**{name: value.repeat_interleave(copies, dim=0) for name, value in kept.items()})


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
        coverage: bool = False,
        weight: float | None = None,
    ) -> Hypotheses:
        """Translate a batch; with `weight`, rank the hypotheses of beam search by what they leave in FUTURE."""
        inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
        settings = with_limits(self.model, inputs, generate_kwargs)
        limits = settings.pop("limits", None)
        if self.members:
            ensemble = EnsembleLogits(self.members, **inputs)
            settings["logits_processor"] = LogitsProcessorList([ensemble, *(settings.get("logits_processor") or ())])
        returned = self.num_returned(settings)
        if weight:
            settings["num_return_sequences"] = self._num_beams(settings)
        sequences, log_probs, scored = self._decode(batch, settings, encodes=scores or coverage, coverage=coverage)
        lengths = generated_lengths(sequences, end_token_ids(self.model, settings))
        if limits is None:
            limit = given_limit(self.model, settings)
            limits = torch.full((len(batch.input_ids),), torch.iinfo(torch.long).max if limit is None else limit)
        copies = len(sequences) // len(batch.input_ids)
        was_cut = lengths >= limits.to(lengths.device).repeat_interleave(copies)
        token_coverage = None
        if coverage:
            scored = score_coverage(self.model, batch, sequences) if scored is None else scored
            log_probs, token_coverage = scored.log_prob, _by_source(scored, copies)
        elif not scores:
            log_probs = None
        elif log_probs is None:
            log_probs = score_sequences(self.model, batch, sequences, lengths)
        found = Hypotheses(
            sequences.unflatten(0, (-1, copies)),
            was_cut.unflatten(0, (-1, copies)),
            None if log_probs is None else log_probs.unflatten(0, (-1, copies)),
            token_coverage,
        )
        if not weight or found.log_probs is None or found.coverage is None:
            return found
        # beam search's own score, which divides by a power of the length
        powers = lengths.clamp(min=1).reshape_as(found.log_probs) ** (1 - self._length_penalty(settings))
        return found.select((found.log_probs * powers - weight * found.coverage.left).topk(returned, dim=1).indices)

    def _decode(
        self, batch: SourceBatch, settings: dict[str, Any], *, encodes: bool, coverage: bool
    ) -> tuple[torch.Tensor, torch.Tensor | None, CoverageScore | None]:
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
        config = generate_kwargs.get("generation_config") or self.model.generation_config
        return int(generate_kwargs.get("num_return_sequences") or config.num_return_sequences or 1)

    def _num_beams(self, generate_kwargs: Mapping[str, Any]) -> int:
        config = generate_kwargs.get("generation_config") or self.model.generation_config
        beams = int(generate_kwargs.get("num_beams") or config.num_beams or 1)
        if beams < 2:
            raise ValueError(f"the `weight` of coverage needs at least 2 beams: `num_beams` is {beams}")
        return beams

    def _length_penalty(self, generate_kwargs: Mapping[str, Any]) -> float:
        config = generate_kwargs.get("generation_config") or self.model.generation_config
        given = (generate_kwargs.get("length_penalty"), config.length_penalty, 1.0)
        return float(next(penalty for penalty in given if penalty is not None))


def score_coverage(model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor) -> CoverageScore:
    """Return the coverage of the translations [B * R, T], by one more pass of the decoder."""
    scorer = getattr(model, "score_coverage", None)
    if scorer is None:
        raise ValueError(f"coverage needs a model with guided routing, got a {type(model).__name__}")
    copies = len(sequences) // len(batch.input_ids)
    scored: CoverageScore = scorer(
        batch.input_ids.repeat_interleave(copies, dim=0),
        batch.attention_mask.repeat_interleave(copies, dim=0),
        labels=sequences[:, 1:],
        encoder_outputs=batch.encoded(model, copies),
    )
    return scored


def _by_source(scored: CoverageScore, copies: int) -> TokenCoverage:
    """[B * R, S] -> [B, R, S]."""
    num_words = scored.words.sum(dim=-1).clamp(min=1)
    left = scored.future.masked_fill(~scored.words, 0).sum(dim=-1) / num_words
    values = (scored.past, scored.future, scored.covered, scored.untranslated, scored.words, scored.score, left)
    return TokenCoverage(*(value.unflatten(0, (-1, copies)) for value in values))


@torch.no_grad()
def score_sequences(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Return the mean log-probability of a token, the end token included, of each sequence: [B * R].

    Args:
        batch: B sources.
        sequences: the translations [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
    """
    copies = len(sequences) // len(batch.input_ids)
    logits = model(
        encoder_outputs=batch.encoded(model, copies),
        attention_mask=batch.attention_mask.repeat_interleave(copies, dim=0),
        decoder_input_ids=sequences[:, :-1],
        use_cache=False,
    ).logits.float()
    targets = sequences[:, 1:]
    log_probs = token_log_probs(logits, targets)  # [B * R, T - 1]
    lengths = lengths.to(log_probs.device)
    counts = torch.arange(targets.shape[1], device=log_probs.device) < lengths[:, None]
    return log_probs.masked_fill(~counts, 0.0).sum(dim=1) / lengths.clamp(min=1)

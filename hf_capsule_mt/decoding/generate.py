"""`GenerateDecoder`: the decoder that runs in transformers, for any sequence-to-sequence model on any device.

Legend: B sources, R translations of each, N = B * R rows, S source tokens, T target tokens.
"""

import contextlib
from collections.abc import Collection, Sequence
from typing import Any, cast

import torch
from transformers import LogitsProcessorList, PreTrainedModel

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.search import Forced, Hypothesis, Ids, Readings, Restriction, SearchOptions
from capsule_mt.options.table import SEARCH_FIELDS
from hf_capsule_mt.decoding.attention import read_head
from hf_capsule_mt.decoding.ensemble import EnsembleLogits
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.decoding.processors import FiniteLogits, ForcedEnds, TargetPrefix
from hf_capsule_mt.modeling.losses import token_log_probs

# how many logits are computed at once
LOGITS_AT_ONCE = 2**23


class GenerateDecoder:
    """Implements `capsule_mt.engine.search.Decoder`.

    Args:
        model: the model that decodes.
        members: other models of one vocabulary, whose probabilities are averaged with the model's.
        fast: the engine of the model, where it has one: it takes what it knows, and `generate()` the rest.
        pads_left: whether the tokenizer pads on the left.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        members: Sequence[PreTrainedModel] = (),
        fast: FastTranslator | None = None,
        *,
        pads_left: bool = False,
    ) -> None:
        self.model: Any = model
        self.members, self.fast, self.pads_left = list(members), fast, pads_left

    # ---- the tokens of the model
    @property
    def start(self) -> int:
        start = self._setting("decoder_start_token_id")
        return int(self._setting("bos_token_id") if start is None else start)  # as `generate()` does

    @property
    def ends(self) -> list[int]:
        return _listed(self._setting("eos_token_id"))

    @property
    def pad(self) -> int:
        return int(self._setting("pad_token_id") or 0)

    def _setting(self, name: str) -> Any:
        """Return a setting of the generation config, or else of the model's config."""
        value = getattr(self.model.generation_config, name)
        return getattr(self.model.config, name, None) if value is None else value

    # ---- Decoder
    prefers_no_scores = False

    def translate(self, sources: Sequence[Ids], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the best translations of each source, the best first."""
        engine = None if self.fast is None else self.fast.decoder_for(options)
        if engine is not None:
            return engine.translate(sources, options)
        end_tokens = cast("int | list[int] | None", options.transformers_only.get("eos_token_id"))
        ends = self.ends if end_tokens is None else _listed(end_tokens)
        sequences = self._generate(sources, options, ends)
        bodies = [_body(row, ends) for row in sequences.tolist()]
        copies = len(bodies) // len(sources)
        hypotheses = [
            [
                Hypothesis(ids, [], was_cut=len(ids) >= limit or (bool(ends) and ids[-1] not in ends))
                for ids in bodies[number * copies : (number + 1) * copies]
            ]
            for number, limit in enumerate(options.limits)
        ]
        if options.scores or options.readings is not None:
            rows = [source for source in sources for _ in range(copies)]
            forced = iter(self.force(rows, bodies, options.readings or Readings()))
            for hypothesis in (hypothesis for of_source in hypotheses for hypothesis in of_source):
                hypothesis.rescore(next(forced), ends[0] if ends else -1)
        return hypotheses

    @torch.no_grad()
    def force(
        self,
        sources: Sequence[Ids],
        targets: Sequence[Ids],
        readings: Readings,
        positions: Sequence[Collection[int]] | None = None,
        restriction: Restriction | None = None,
    ) -> list[Forced]:
        """Score given translations, from the first token after the start token on.

        Only the engine reads `positions` and `restriction`. PyTorch scores all tokens, among the whole vocabulary, as
        in its searches.
        """
        engine: EngineDecoder | None = None if self.fast is None else self.fast.decoder_for(readings)
        if engine is not None:
            return engine.force(sources, targets, readings, positions, restriction)
        vocabulary = self.model.get_output_embeddings()
        width = self.model.config.vocab_size if vocabulary is None else len(vocabulary.weight)
        longest = max(map(len, targets), default=1)
        at_once = max(1, LOGITS_AT_ONCE // (max(longest, 1) * width))
        forced: list[Forced] = []
        for first in range(0, len(sources), at_once):
            rows = slice(first, first + at_once)
            forced += self._force(sources[rows], targets[rows], readings)
        return forced

    # ---- in tensors
    def _generate(self, sources: Sequence[Ids], options: SearchOptions, ends: list[int]) -> torch.Tensor:
        """Search: sequences [N, T] from the start token on."""
        input_ids, mask = self._collate(sources)
        generate_options = dict(options.transformers_only)
        processors = list(cast(Any, generate_options.pop("logits_processor", None)) or ())
        if self.members:
            processors.insert(0, EnsembleLogits(self.members, input_ids, mask))
        if any(options.forces_end) and ends:
            processors.append(ForcedEnds(options.limits, options.forces_end, ends[0]))
        if any(options.prefixes):
            begins = (
                generate_options.get("forced_bos_token_id", self.model.generation_config.forced_bos_token_id)
                is not None
            )
            processors.append(TargetPrefix(options.prefixes, 1 + begins))
        settings: dict[str, Any] = {
            "num_beams": options.num_beams,
            "num_return_sequences": options.num_return_sequences,
            "logits_processor": LogitsProcessorList([*processors, FiniteLogits()]),
        }
        longest = max(options.limits)
        if self.model.generation_config.max_length is None:  # with both, transformers warns
            settings["max_new_tokens"] = longest
        else:
            settings["max_length"] = longest + 1
        for option in SEARCH_FIELDS:
            if option.ours or (option.beams_only and options.num_beams == 1):
                continue
            value, default = getattr(options, option.name), getattr(self.model.generation_config, option.name, None)
            if value != (option.default if default is None else default):
                settings.setdefault(option.name, list(value) if option.kind == "tokens" else value)
        outputs = self.model.generate(input_ids=input_ids, attention_mask=mask, **{**settings, **generate_options})
        return cast(torch.Tensor, outputs if isinstance(outputs, torch.Tensor) else outputs["sequences"])

    def _force(self, sources: Sequence[Ids], targets: Sequence[Ids], readings: Readings) -> list[Forced]:
        input_ids, mask = self._collate(sources)
        lengths = [len(target) for target in targets]
        labels = torch.full((len(targets), max(max(lengths, default=0), 1)), self.pad)
        for row, target in enumerate(targets):
            labels[row, : len(target)] = torch.tensor(target, dtype=torch.long)
        labels = labels.to(input_ids.device)
        start = labels.new_full((len(labels), 1), self.start)
        was_training = self.model.training
        self.model.eval()
        attention: list[torch.Tensor] = []
        with contextlib.ExitStack() as stack:
            stack.callback(self.model.train, was_training)
            if readings.head is not None:
                attention = stack.enter_context(read_head(self.model, readings.head, mask.bool()))
            logits = self.model(
                input_ids=input_ids,
                attention_mask=mask,
                decoder_input_ids=torch.cat([start, labels[:, :-1]], dim=1),
                use_cache=False,
            ).logits
        log_probs = token_log_probs(logits.float(), labels).tolist()
        forced = []
        for row in range(len(sources)):
            rows = attention[0][row, : lengths[row]][:, mask[row].bool()].tolist() if attention else None
            forced.append(Forced(log_probs[row][: lengths[row]], rows))
        return forced

    def _collate(self, sources: Sequence[Ids]) -> tuple[torch.Tensor, torch.Tensor]:
        """Pad sources on the side that the tokenizer pads on: tokens and mask [B, S], 1 keeps."""
        longest = max(map(len, sources))
        input_ids = torch.full((len(sources), longest), self.pad)
        mask = torch.zeros_like(input_ids)
        for row, source in enumerate(sources):
            columns = slice(longest - len(source), longest) if self.pads_left else slice(0, len(source))
            input_ids[row, columns] = torch.tensor(source, dtype=torch.long)
            mask[row, columns] = 1
        return input_ids.to(self.model.device), mask.to(self.model.device)


def _listed(tokens: int | list[int] | None) -> list[int]:
    return [] if tokens is None else [tokens] if isinstance(tokens, int) else list(tokens)


def _body(sequence: list[int], ends: list[int]) -> list[int]:
    """Return the tokens after the start token, up to the first end token."""
    body = sequence[1:]
    return next((body[: index + 1] for index, token in enumerate(body) if token in ends), body)

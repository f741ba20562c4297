"""How long a source and a translation may become, and whether a translation was cut at its limit."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.modeling.generation import generation_setting

LIMIT_NAMES = ("max_length", "max_new_tokens")
# what transformers puts into a generation config by itself, which nobody has chosen
TRANSFORMERS_MAX_LENGTH = 20
# a tokenizer's `model_max_length` above this says that it knows none
NO_LIMIT = 1_000_000

# where transformers has moved constrained beam search
CONSTRAINED_SEARCH = "transformers-community/constrained-beam-search"


class SourceLengthLimit(LogitsProcessor):
    """Ends each translation at a limit of its own, by leaving nothing but the end token.

    A translation then does not depend on the other sources of its batch.
    """

    def __init__(self, limits: torch.Tensor, last_limit: int | None, end_token_id: int) -> None:
        """limits [B]: how many tokens may follow the decoder's start token, the end token included.

        At `last_limit`, and so at a limit beyond it, `generate()` stops by itself, without an end token.
        """
        self.limits = limits
        self.last_limit = last_limit
        self.lowest = int(limits.min())
        self.end_token_id = end_token_id

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        length = input_ids.shape[1]
        if length < self.lowest or length == self.last_limit:
            return scores
        at_limit = (self.limits <= length).repeat_interleave(len(scores) // len(self.limits))
        ended = torch.full_like(scores, -torch.inf)
        ended[:, self.end_token_id] = 0.0
        return torch.where(at_limit[:, None], ended, scores)


class TargetPrefix(LogitsProcessor):
    """Begins each translation with given tokens, by leaving nothing else at its first steps."""

    def __init__(self, prefixes: list[list[int]], first: int) -> None:
        """prefixes: the tokens of each of B sources, which may be none; `first`: how many tokens come before them."""
        self.prefixes = prefixes
        self.first = first

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The tokens of each hypothesis [B * beams, T], the start token included; scores [B * beams, V]."""
        place, copies = input_ids.shape[1] - self.first, len(scores) // len(self.prefixes)
        given = [prefix[place] if 0 <= place < len(prefix) else -1 for prefix in self.prefixes]
        if max(given) < 0:
            return scores
        tokens = torch.tensor(given, device=scores.device).repeat_interleave(copies)[:, None]
        only = torch.full_like(scores, -torch.inf).scatter(1, tokens.clamp(min=0), 0.0)
        return torch.where(tokens >= 0, only, scores)


def limits_for_backend(settings: dict[str, Any]) -> tuple[dict[str, Any], torch.Tensor | None]:
    """Turn a `SourceLengthLimit` among the settings of `generate()` into the `limits` of a fast backend."""
    processors = list(settings.get("logits_processor") or ())
    if len(processors) != 1 or not isinstance(processors[0], SourceLengthLimit):
        return settings, None
    limit = processors[0]
    longest = settings.get("max_new_tokens") or settings["max_length"] - 1
    kept = {name: value for name, value in settings.items() if name not in ("logits_processor", "max_length")}
    # below the checkpoint's limit the end token is forced for the longest translation, too
    kept["max_new_tokens"] = longest + int(longest != limit.last_limit)
    return kept, limit.limits


def max_source_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int | None:
    """Return the longest source in tokens that the model has positions for, or `None` if neither knows one."""
    known = (getattr(model.config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    limits = [limit for limit in known if limit is not None and 0 < limit < NO_LIMIT]
    return min(limits, default=None)


def max_target_tokens(model: PreTrainedModel) -> int | None:
    """Return how many tokens after the start token the model has positions for: the last one needs none."""
    return getattr(model.config, "max_position_embeddings", None)


def limits_by_source(source_lengths: torch.Tensor) -> torch.Tensor:
    """Return how many tokens the translations of sources with so many tokens [B] may have: [B].

    Three times the source and thirty more is beyond any real translation: what gets there repeats itself.
    """
    return 3 * source_lengths + 30


def limit_of_checkpoint(model: PreTrainedModel) -> int | None:
    """Return how many tokens after the start token the checkpoint allows, or has positions for."""
    saved = model.generation_config
    positions = getattr(model.config, "max_position_embeddings", None)
    limits = [] if positions is None else [positions - 1]
    if saved.max_new_tokens is not None:
        limits.append(saved.max_new_tokens)
    elif saved.max_length is not None and saved.max_length != TRANSFORMERS_MAX_LENGTH:
        limits.append(saved.max_length - 1)
    return max(min(limits), 1) if limits else None


def with_limits(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor], generate_kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Add a limit for each source by its own length to the settings of `generate()`, unless they have one.

    `limits` [B] among the result is not for `generate()`: how many tokens may follow each start token.
    """
    settings = dict(generate_kwargs)
    config = settings.get("generation_config")
    if any(settings.get(name) is not None or getattr(config, name, None) is not None for name in LIMIT_NAMES):
        return settings
    by_source = limits_by_source(inputs["attention_mask"].sum(dim=1))
    of_checkpoint = limit_of_checkpoint(model)
    limits = by_source if of_checkpoint is None else by_source.clamp(max=of_checkpoint)
    settings["limits"] = limits
    # both of them would give a warning, and so would one beside a generation config
    own = {"max_new_tokens": int(limits.max())}
    if setting_of(model, generate_kwargs, "max_length") is not None:
        own = {"max_length": int(limits.max()) + 1}
    if config is None:
        settings |= own
    else:
        settings["generation_config"] = copy.deepcopy(config)
        settings["generation_config"].update(**own)
    ends = end_token_ids(model, generate_kwargs)
    if ends and (of_checkpoint is None or bool((by_source < of_checkpoint).any())):
        processors = settings.get("logits_processor") or ()
        settings["logits_processor"] = LogitsProcessorList(
            [*processors, SourceLengthLimit(by_source, of_checkpoint, ends[0])]
        )
    return settings


def check_constraints(generate_kwargs: Mapping[str, Any]) -> None:
    """Refuse words that a translation must contain, which transformers leaves to code from the Hub."""
    for name in ("force_words_ids", "constraints"):
        given = generate_kwargs.get(name) or getattr(generate_kwargs.get("generation_config"), name, None)
        if given and generate_kwargs.get("custom_generate") is None:
            raise ValueError(
                f"`{name}` is no longer a part of transformers: with a network, add "
                f'`custom_generate="{CONSTRAINED_SEARCH}", trust_remote_code=True`, which runs code from the Hub. '
                "What a translation begins with needs no such code: give a `PrefixedText`"
            )


def setting_of(model: PreTrainedModel, generate_kwargs: Mapping[str, Any], name: str) -> Any:
    """Return what `generate()` takes for a setting: the argument, which may be None, or a generation config's."""
    if name in generate_kwargs:
        return generate_kwargs[name]
    return generation_setting(model, generate_kwargs.get("generation_config"), name)


def given_limit(model: PreTrainedModel, generate_kwargs: Mapping[str, Any]) -> int:
    """Return how many tokens after the start token `generate()` stops at under these settings."""
    new_tokens, length = (setting_of(model, generate_kwargs, name) for name in ("max_new_tokens", "max_length"))
    if new_tokens is not None:
        return int(new_tokens)
    if length is not None:
        return int(length) - 1
    positions = getattr(model.config, "max_position_embeddings", None)
    return TRANSFORMERS_MAX_LENGTH if positions is None else min(TRANSFORMERS_MAX_LENGTH, positions - 1)


def end_token_ids(model: PreTrainedModel, generate_kwargs: Mapping[str, Any]) -> list[int]:
    """Return the tokens that end a translation under these settings."""
    ids = setting_of(model, generate_kwargs, "eos_token_id")
    if ids is None:
        ids = getattr(model.config, "eos_token_id", None)
    if ids is None:
        return []
    return [int(ids)] if isinstance(ids, int) else [int(token_id) for token_id in ids]


def generated_lengths(sequences: torch.Tensor, end_ids: list[int]) -> torch.Tensor:
    """Count the tokens after the start token of each sequence [N, T], to the first end token, which counts: [N]."""
    body = sequences[:, 1:]
    is_end = torch.isin(body, torch.tensor(end_ids, device=body.device))
    before_first_end = is_end.cumsum(dim=1).eq(0)
    return before_first_end.sum(dim=1) + is_end.any(dim=1).long()

"""Ensembles: several models of one vocabulary decode together, by the average of their probabilities."""

import math
import os
from collections.abc import Iterable
from typing import Any, cast

import torch
from transformers import LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import EncoderDecoderCache
from transformers.utils import ModelOutput

from hf_capsule_mt.loading import CheckedSeq2SeqLM, check_weights, load_tokenizer
from hf_capsule_mt.modeling.cache_names import CACHE_NAME, cache_field
from hf_capsule_mt.modeling.target_text import vocabularies_of


def load_members(
    first: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    members: Iterable[PreTrainedModel | str | os.PathLike[str]],
) -> list[PreTrainedModel]:
    """Load the other models of an ensemble where they are paths, and put them on the device of the first.

    A path's tokenizer must be `tokenizer`, the first model's; a loaded model has none to compare.
    """
    loaded: list[PreTrainedModel] = []
    if isinstance(members, (str, os.PathLike)):
        raise TypeError(f"`ensemble` must be a list of models or paths, got {os.fspath(members)!r} alone")
    if not isinstance(members, Iterable):
        raise TypeError(f"`ensemble` must be a list of models or paths, got {members!r}")
    for source in members:
        if not isinstance(source, (str, os.PathLike, PreTrainedModel)):
            raise TypeError(f"`ensemble` must be a list of models or paths, got {source!r} in the list")
        member: Any = source
        if isinstance(source, (str, os.PathLike)):
            check_same_vocabulary(tokenizer, source)
            member = CheckedSeq2SeqLM.from_pretrained(source, dtype=first.dtype)
        check_weights(member)
        ours, theirs = (len(model.get_output_embeddings().weight) for model in (first, member))
        if ours != theirs:
            raise ValueError(
                f"the models of an ensemble must have one vocabulary, got {ours} and {theirs} tokens ({source})"
            )
        loaded.append(member.to(first.device).eval())
    return loaded


def check_same_vocabulary(tokenizer: PreTrainedTokenizerBase, path: str | os.PathLike[str]) -> None:
    """Raise if the tokens of the checkpoint at a path stand for other words."""
    if vocabularies_of(load_tokenizer(path)) != vocabularies_of(tokenizer):
        raise ValueError(
            f"{path}: its tokens stand for other words than those of {tokenizer.name_or_path}; the models of an "
            "ensemble need one tokenizer"
        )


class EnsembleLogits(LogitsProcessor):
    """Averages, at every step, the probabilities of the model that decodes with those of the other members.

    Each member keeps a cache of its own. A member's cache of a hypothesis depends on its tokens alone, so after a step
    of beam search a row takes the cache of any row of the step before with the same tokens.
    """

    def __init__(self, members: list[PreTrainedModel], input_ids: torch.Tensor, attention_mask: torch.Tensor) -> None:
        """input_ids, attention_mask: the sources [B, S] and their mask [B, S], 1 keeps."""
        self.members = members
        self.input_ids = input_ids
        self.attention_mask = attention_mask
        self.encoded: list[ModelOutput] = []
        self.caches: list[EncoderDecoderCache | None] = [None] * len(members)
        self.previous_ids: torch.Tensor | None = None

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The hypotheses [B * beams, T] and the scores of the next token [B * beams, V] -> log-probabilities."""
        rows = len(input_ids)
        if not self.encoded:
            repeats = rows // len(self.input_ids)
            self.attention_mask = self.attention_mask.repeat_interleave(repeats, dim=0)
            for member in self.members:
                encoded = member.get_encoder()(
                    input_ids=self.input_ids, attention_mask=self.attention_mask[::repeats], return_dict=True
                )
                for key, value in encoded.items():
                    if isinstance(value, torch.Tensor):
                        encoded[key] = value.repeat_interleave(repeats, dim=0)
                self.encoded.append(encoded)
        elif self.previous_ids is not None:
            self._reorder(input_ids, self.previous_ids)
        self.previous_ids = input_ids
        logs = [scores.float().log_softmax(dim=-1)]
        for number, member in enumerate(self.members):
            output = member(
                encoder_outputs=self.encoded[number],
                attention_mask=self.attention_mask,
                decoder_input_ids=input_ids if self.caches[number] is None else input_ids[:, -1:],
                use_cache=True,
                **cache_field(self.caches[number]),
            )
            self.caches[number] = getattr(output, CACHE_NAME)
            logs.append(output.logits[:, -1].float().log_softmax(dim=-1))
        average = torch.stack(logs).logsumexp(dim=0) - math.log(len(logs))
        return average.masked_fill(scores == -torch.inf, -torch.inf).to(scores.dtype)  # what is forbidden stays so

    def _reorder(self, input_ids: torch.Tensor, previous_ids: torch.Tensor) -> None:
        """Give each row the caches of a row of its source that had its tokens at the step before."""
        rows, sources = len(input_ids), len(self.input_ids)
        source = torch.arange(rows, device=input_ids.device) // (rows // sources)
        has_tokens = (input_ids[:, None, :-1] == previous_ids[None]).all(dim=2)  # [rows, rows]
        is_parent = has_tokens & (source[:, None] == source[None])
        parents = is_parent.long().argmax(dim=1)
        if not torch.equal(parents, torch.arange(rows, device=parents.device)):
            for cache in self.caches:
                if cache is not None:
                    cache.reorder_cache(cast(torch.LongTensor, parents))

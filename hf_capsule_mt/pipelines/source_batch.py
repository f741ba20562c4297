"""A batch of sources: their tokens and words, and the encoder's outputs, which are computed once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from capsule_mt.text.words import SourceWord
from hf_capsule_mt.modeling.losses import token_log_probs


class WordTokens(NamedTuple):
    """The words of B sources, W at most, of S tokens at most.

    Shapes: `tokens` [B, W, S], True where a token is a part of a word; `counts` [B, W], True for words that are no
    marks; `is_unknown`, `is_optional`, `is_function` [B, W].
    """

    tokens: torch.Tensor
    counts: torch.Tensor
    is_unknown: torch.Tensor
    is_optional: torch.Tensor
    is_function: torch.Tensor

    @classmethod
    def of(cls, sources: Sequence[Sequence[SourceWord]], attention_mask: torch.Tensor) -> "WordTokens":
        """Collect the words of each source, whose tokens stand where the mask [B, S] is 1."""
        most = max((len(words) for words in sources), default=0)
        tokens = torch.zeros(len(sources), most, attention_mask.shape[1], dtype=torch.bool)
        flags = torch.zeros(4, len(sources), most, dtype=torch.bool)
        first = attention_mask.argmax(dim=1).tolist()  # padding may stand on the left
        places = [(row, number, word) for row, words in enumerate(sources) for number, word in enumerate(words)]
        if places:
            of_tokens = [(row, number, first[row] + token) for row, number, word in places for token in word.tokens]
            tokens[torch.tensor(of_tokens).unbind(dim=1)] = True
            rows, numbers = torch.tensor([(row, number) for row, number, _ in places]).unbind(dim=1)
            flags[:, rows, numbers] = torch.tensor(
                [(not word.is_mark, word.is_unknown, word.is_optional, word.is_function) for _, _, word in places]
            ).T
        return cls(*(values.to(attention_mask.device) for values in (tokens, *flags)))


@dataclass
class SourceBatch:
    """Sources [B, S] and their mask [B, S], 1 keeps. The encoder's outputs are kept once they are computed."""

    input_ids: torch.Tensor
    attention_mask: torch.Tensor
    # what the tokenizer gives for `generate()`, such as the language of the translation
    settings: Mapping[str, object] = field(default_factory=dict)
    encoder_outputs: ModelOutput | None = None
    words: WordTokens | None = None
    # the tokens that the translation of each source begins with; empty if no source has any
    prefixes: list[list[int]] = field(default_factory=list)

    def rows(self, indices: list[int]) -> "SourceBatch":
        """Return the batch of some of the sources."""
        index = torch.tensor(indices, device=self.input_ids.device)
        encoded, words = self.encoder_outputs, self.words
        if encoded is not None:
            encoded = type(encoded)(**{name: values[index] for name, values in encoded.items()})
        if words is not None:
            words = WordTokens(*(values[index] for values in words))
        prefixes = [self.prefixes[row] for row in indices] if self.prefixes else []
        return SourceBatch(self.input_ids[index], self.attention_mask[index], self.settings, encoded, words, prefixes)

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


@torch.no_grad()
def target_log_probs(model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor) -> torch.Tensor:
    """Return the log-probability of each token of translations [B * R, T] after the start token: [B * R, T - 1]."""
    copies = len(sequences) // len(batch.input_ids)
    logits = model(
        encoder_outputs=batch.encoded(model, copies),
        attention_mask=batch.attention_mask.repeat_interleave(copies, dim=0),
        decoder_input_ids=sequences[:, :-1],
        use_cache=False,
    ).logits.float()
    return token_log_probs(logits, sequences[:, 1:])


@torch.no_grad()
def sequence_log_probs(
    model: PreTrainedModel, batch: SourceBatch, sequences: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """Return the log-probability of each translation, the end token included: [B * R].

    Args:
        batch: B sources.
        sequences: the translations [B * R, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * R].
    """
    log_probs = target_log_probs(model, batch, sequences)
    counts = torch.arange(log_probs.shape[1], device=log_probs.device) < lengths.to(log_probs.device)[:, None]
    return log_probs.masked_fill(~counts, 0.0).sum(dim=1)

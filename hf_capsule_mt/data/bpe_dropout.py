"""BPE-dropout (Provilkov et al. 2020): random segmentations as a pure function of (seed, epoch, index, side).

The dropout of `tokenizers` cannot be seeded and is saved into the tokenizer.
"""

import functools
import hashlib
import itertools
import json
import random

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase

from hf_capsule_mt.data.separate_tokenizer import SeparateVocabulariesTokenizer

ATTEMPTS = 4


class BPEDropout:
    """Encode texts with a random part of the merges dropped.

    Batches are planned with `longest`, the upper bound on a segmentation's length. A segmentation beyond it is drawn
    again, and after `ATTEMPTS` draws replaced by the one without dropout.

    Args:
        tokenizer: a fast tokenizer whose model is BPE.
        dropout: the probability of dropping a merge.
        seed: determines the segmentation of an example, together with the epoch and the example's index.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, dropout: float, seed: int = 0) -> None:
        if not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be a probability in [0, 1), got {dropout}")
        backends = {"source": getattr(tokenizer, "backend_tokenizer", None)}
        if isinstance(tokenizer, SeparateVocabulariesTokenizer):
            backends["target"] = tokenizer._target_backend
        self.segmenters = {}
        for side, backend in backends.items():
            kind = json.loads(backend.to_str())["model"]["type"] if isinstance(backend, Tokenizer) else None
            if not isinstance(backend, Tokenizer) or kind != "BPE":
                raise ValueError(
                    f"BPE-dropout needs a fast tokenizer of type BPE, got {type(tokenizer).__name__} ({kind})"
                )
            self.segmenters[side] = _Segmenter(backend, tokenizer.eos_token_id)
        self.segmenters.setdefault("target", self.segmenters["source"])
        self.dropout = dropout
        self.seed = seed

    def longest(self, length: int) -> int:
        """Return the most tokens that dropout may make of a text of `length` tokens, end token included."""
        return length + int(2 * self.dropout * length) + 2 if self.dropout else length

    def encode(self, text: str, *, epoch: int, index: int, side: str = "source") -> list[int]:
        """Return the token ids of a text, end token included."""
        segmenter = self.segmenters[side]
        plain = segmenter.plain(text)
        if not self.dropout:
            return plain
        key = f"{self.seed} {epoch} {index} {side}".encode()
        chance = random.Random(hashlib.blake2b(key, digest_size=8).digest())
        for _ in range(ATTEMPTS):
            ids = segmenter.with_dropout(text, self.dropout, chance)
            if len(ids) <= self.longest(len(plain)):
                return ids
        return plain


class _Segmenter:
    """Apply the merges of one vocabulary in Python."""

    def __init__(self, backend: Tokenizer, eos_token_id: int) -> None:
        self.backend = backend
        model = json.loads(backend.to_str())["model"]
        self.ranks = {tuple(merge): rank for rank, merge in enumerate(model["merges"])}
        self.vocabulary: dict[str, int] = model["vocab"]
        self.unknown = self.vocabulary.get(model.get("unk_token"))
        self.eos_token_id = eos_token_id
        self._ids_of_piece = functools.lru_cache(maxsize=100_000)(self._find_ids)

    def plain(self, text: str) -> list[int]:
        return self.backend.encode(text).ids

    def with_dropout(self, text: str, dropout: float, chance: random.Random) -> list[int]:
        normalized = self.backend.normalizer.normalize_str(text) if self.backend.normalizer else text
        ids: list[int] = []
        for word, _ in self.backend.pre_tokenizer.pre_tokenize_str(normalized):
            pieces = list(word)
            while len(pieces) > 1:
                # the possible merges that dropout keeps; the one learned first is applied
                candidates = [
                    (self.ranks[pair], index)
                    for index, pair in enumerate(itertools.pairwise(pieces))
                    if pair in self.ranks and chance.random() >= dropout
                ]
                if not candidates:
                    break
                _, index = min(candidates)
                pieces[index : index + 2] = [pieces[index] + pieces[index + 1]]
            for piece in pieces:
                ids.extend(self._ids_of_piece(piece))
        return [*ids, self.eos_token_id]

    def _find_ids(self, piece: str) -> tuple[int, ...]:
        """Return the id of a piece, or the ids of its bytes."""
        if piece in self.vocabulary:
            return (self.vocabulary[piece],)
        spelled = [self.vocabulary.get(f"<0x{byte:02X}>", self.unknown) for byte in piece.encode("utf-8")]
        if None in spelled:
            raise ValueError(f"the tokenizer has no token for {piece!r}, no byte tokens and no unknown token")
        return tuple(index for index in spelled if index is not None)

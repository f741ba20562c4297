"""Cut the vocabulary of a multilingual encoder to some languages: its table may be most of its weights."""

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from capsule_mt.conversions.to_int8 import write_checkpoint
from capsule_mt.engine.program import DTYPES, Codes, Tensor, UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.fairseq_tokenizer import FIRST_TOKENS, NUM_CONTROLS, XlmRobertaTokenizer
from capsule_mt.models.int8_weights import write_int8_weights
from capsule_mt.models.loading import FAIRSEQ_PIECES, HubCheckpoint
from capsule_mt.models.opening import read_file
from capsule_mt.models.parts import Parts
from capsule_mt.models.registry import ENCODERS
from capsule_mt.models.scripts import is_written_in, names_of
from capsule_mt.models.sentencepiece import raw_fields, read_sentencepiece
from capsule_mt.models.weights import Weights

PIECE_FIELD = 1  # of a SentencePiece model's message
TABLE = "embeddings.word_embeddings.weight"
TESTED_EVERY = 10  # each such line is not looked at, so that the tokens that it loses tell what other texts lose


class Cut(NamedTuple):
    """What a cut of a vocabulary has left.

    pieces, kept: how many pieces there were, and how many are left.
    tokens: of the lines that were held back. split: how many of these fell into smaller pieces.
    """

    pieces: int
    kept: int
    tokens: int
    split: int

    def __str__(self) -> str:
        message = f"{self.kept:,} of {self.pieces:,} pieces are left"
        if not self.tokens:
            return message
        return (
            f"{message}; of {self.tokens:,} tokens of each {TESTED_EVERY}th line of --text, which chose nothing, "
            f"{self.split:,} fall into smaller pieces"
        )


def write_languages(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], languages: Sequence[str], lines: Sequence[str] = ()
) -> Cut:
    """Write the encoder in `folder` to the folder `out`, in int8, with the pieces that some languages need.

    Those are single characters, and the pieces without letters of other scripts; with `lines`, of the latter only
    those in nine of ten of these lines.

    Args:
        languages: codes such as "de" or "deu_Latn".

    Raises:
        UnsupportedModelError: a model that is not an encoder, or one with another kind of vocabulary.
    """
    folder = os.fspath(folder)
    config = HubCheckpoint(folder).config
    if config.get("model_type") not in [*ENCODERS]:
        raise UnsupportedModelError(
            f"{folder}: a model of type {shown(config.get('model_type'))} is not cut to languages, only encoders: "
            f"{', '.join(ENCODERS)}"
        )
    file = os.path.join(folder, FAIRSEQ_PIECES)
    if not os.path.lexists(file):
        raise UnsupportedModelError(f"{folder}: only a vocabulary in {FAIRSEQ_PIECES} is cut to languages")
    tokenizer, texts = XlmRobertaTokenizer(folder), read_sentencepiece(file).texts
    shift = len(FIRST_TOKENS) - NUM_CONTROLS
    used = {token for line in _learned(lines) for token in tokenizer.encode(line).ids}
    scripts = frozenset(name for language in languages for name in names_of(language))
    kept = [
        index
        for index, text in enumerate(texts)
        if index < NUM_CONTROLS
        or (is_written_in(text, scripts) and (not lines or index + shift in used or len(text.strip("\u2581")) <= 1))
    ]
    rows = [*range(len(FIRST_TOKENS)), *(index + shift for index in kept[NUM_CONTROLS:]), tokenizer.size - 1]

    def write_weights(out: str | os.PathLike[str], weights: Weights, parts: Parts) -> None:
        table = next(name for name in parts.tables if name.endswith(TABLE))
        write_int8_weights(out, _Rows(weights, table, rows), parts)

    write_checkpoint(folder, out, write_weights, vocab_size=len(rows))
    with open(os.path.join(out, FAIRSEQ_PIECES), "wb") as stream:
        stream.write(_with_pieces(read_file(file), kept))
    for name in ("tokenizer.json", "vocab.json"):  # of the whole vocabulary
        if os.path.lexists(path := os.path.join(out, name)):
            os.remove(path)
    held_back = [tokenizer.encode(line).ids for line in lines[::TESTED_EVERY]]
    left = set(rows)
    return Cut(
        len(texts), len(kept), sum(map(len, held_back)), sum(token not in left for ids in held_back for token in ids)
    )


def _learned(lines: Sequence[str]) -> Iterator[str]:
    return (line for number, line in enumerate(lines) if number % TESTED_EVERY)


def _with_pieces(content: bytes, kept: Iterable[int]) -> bytes:
    """Return a SentencePiece model with only these of its pieces."""
    indices, parts, index = frozenset(kept), [], 0
    for field, raw in raw_fields(content):
        if field != PIECE_FIELD or index in indices:
            parts.append(raw)
        index += field == PIECE_FIELD
    return b"".join(parts)


class _Rows:
    """Weights of which one matrix has only some of its rows."""

    def __init__(self, weights: Weights, name: str, rows: Sequence[int]) -> None:
        self._weights, self._name, self._rows = weights, name, rows

    def __contains__(self, name: object) -> bool:
        return name in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._weights)

    def shape(self, name: str) -> tuple[int, ...]:
        shape = self._weights.shape(name)
        return (len(self._rows), *shape[1:]) if name == self._name else shape

    def read(self, name: str) -> Tensor | Codes:
        values = self._weights.read(name)
        if name != self._name:
            return values
        if isinstance(values, Codes):
            return Codes(*(self._gathered(part) for part in values))
        return self._gathered(values)

    def problem(self, name: str, message: str) -> ValueError:
        return self._weights.problem(name, message)

    def _gathered(self, tensor: Tensor) -> Tensor:
        content, size = memoryview(tensor.buffer).cast("B"), DTYPES[tensor.dtype] * (tensor.size // tensor.shape[0])
        rows = b"".join(content[row * size : (row + 1) * size] for row in self._rows)
        return Tensor(rows, tensor.dtype, (len(self._rows), *tensor.shape[1:]))

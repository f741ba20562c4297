"""The tokenizer of a stock Marian checkpoint such as OPUS-MT's: source.spm, target.spm and vocab.json.

Text is cut into pieces by the SentencePiece model of its language. vocab.json has the ids of both languages, unless
target_vocab.json has those of the target language.
"""

import os
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.checkpoint_tokenizer import cleaned_up, read_tokenizer_config, token_content
from capsule_mt.models.piece_tokenizer import LANGUAGE_PREFIX, Pieces, TokenEncoder, tokenizer_json
from capsule_mt.models.sentencepiece import SentencePieceEncoder, Span, joined_pieces, read_sentencepiece
from capsule_mt.models.weights import CheckpointError, read_json
from capsule_mt.text.tokenizer_protocol import Encoded, byte_ids_of

SOURCE_FILE, TARGET_FILE = "source.spm", "target.spm"
VOCABULARY_FILE, TARGET_VOCABULARY_FILE = "vocab.json", "target_vocab.json"
DEFAULT_TOKENS = {"unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>"}


class MarianTokenizer:
    """Gives the ids and texts of transformers' `MarianTokenizer`, but for ties that `SentencePieceEncoder` names."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = os.fspath(folder)
        config = read_tokenizer_config(folder)
        self._vocabulary = _vocabulary(os.path.join(folder, VOCABULARY_FILE))
        self._target_vocabulary = self._vocabulary
        if config.get("separate_vocabs", False):
            self._target_vocabulary = _vocabulary(os.path.join(folder, TARGET_VOCABULARY_FILE))
        names = {name: token_content(config.get(name)) or default for name, default in DEFAULT_TOKENS.items()}
        for token in names.values():
            for vocabulary in (self._vocabulary, self._target_vocabulary):
                if token not in vocabulary:
                    raise CheckpointError(f"{os.path.join(folder, VOCABULARY_FILE)}: lacks the token {shown(token)}")
        self._unknown, self._end = names["unk_token"], names["eos_token"]
        self._special = set(names.values())
        added = config.get("added_tokens_decoder")
        for added_token in map(token_content, added.values() if isinstance(added, dict) else ()):
            if added_token not in self._special:
                raise UnsupportedModelError(
                    f"{self._folder}: {shown(added_token)} was added to the tokenizer, which only transformers reads"
                )
        self._splits_special = bool(config.get("split_special_tokens", False))
        self._special_in_text = re.compile("|".join(map(re.escape, sorted(self._special, key=len, reverse=True))))
        self._cleans_up = bool(config.get("clean_up_tokenization_spaces", False))
        self._source = self._encoder(SOURCE_FILE, self._vocabulary)
        self.unknown_id: int | None = self._vocabulary[self._unknown]
        self.special_ids = frozenset(self._vocabulary[token] for token in self._special) - {self.unknown_id}

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """The numbers of source and target tokens."""
        return len(self._vocabulary), len(self._target_vocabulary)

    @cached_property
    def _target(self) -> TokenEncoder:
        return self._encoder(TARGET_FILE, self._target_vocabulary)

    def _encoder(self, file: str, vocabulary: dict[str, int]) -> TokenEncoder:
        encoder = SentencePieceEncoder(read_sentencepiece(os.path.join(self._folder, file)))
        unknown = vocabulary[self._unknown]
        return TokenEncoder(encoder, lambda piece: vocabulary.get(piece, unknown))

    @cached_property
    def _target_tokens(self) -> dict[int, str]:
        return {index: token for token, index in self._target_vocabulary.items()}

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._vocabulary.get, self.unknown_id)

    @cached_property
    def target_byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._target_vocabulary.get, self.unknown_id)

    @cached_property
    def language_tokens(self) -> Sequence[str]:
        return [token for token in self._vocabulary if token.startswith(">>") and token.endswith("<<")]

    def encode(self, text: str) -> Encoded:
        ids, offsets = self._tokens(text, self._source, self._vocabulary)
        return Encoded([*ids, self._vocabulary[self._end]], [*offsets, None])

    def encode_target(self, text: str) -> list[int]:
        ids, _ = self._tokens(text, self._target, self._target_vocabulary)
        return [*ids, self._target_vocabulary[self._end]]

    def decode(self, ids: Sequence[int]) -> str:
        tokens = (self._target_tokens.get(index, self._unknown) for index in ids)
        text = joined_pieces([token for token in tokens if token not in self._special])
        return cleaned_up(text) if self._cleans_up else text

    def tokenizer_jsons(self) -> list[dict[str, Any]]:
        """Return a tokenizer.json for the pieces of each language, with the ids of its tokens as `vocabulary`."""
        if self.language_tokens:
            examples = ", ".join(self.language_tokens[:3])
            raise UnsupportedModelError(
                f"{self._folder}: tokens of languages, such as {examples}, have no tokenizer.json"
            )
        sides = ((SOURCE_FILE, self._vocabulary), (TARGET_FILE, self._target_vocabulary))
        jsons = []
        for name, vocabulary in sides:
            pieces = Pieces(os.path.join(self._folder, name))
            jsons.append({**tokenizer_json(pieces, len(pieces.texts) + 1), "vocabulary": vocabulary})
        return jsons

    def _tokens(
        self, text: str, encoder: TokenEncoder, vocabulary: dict[str, int]
    ) -> tuple[list[int], list[Span | None]]:
        """Encode a text, special tokens and a language token at its start; return the ids and their offsets."""
        ids: list[int] = []
        offsets: list[Span | None] = []
        offset = 0

        def add(start: int, end: int) -> None:
            language = LANGUAGE_PREFIX.match(text, start, end)
            if language:
                ids.append(vocabulary.get(language[0], vocabulary[self._unknown]))
                offsets.append(language.span())
                start = language.end()
            part_ids, part_offsets, _ = encoder.encode(text[start:end])
            ids.extend(part_ids)
            offsets.extend(span and (start + span[0], start + span[1]) for span in part_offsets)

        for special in () if self._splits_special else self._special_in_text.finditer(text):
            add(offset, special.start())
            ids.append(vocabulary[special[0]])
            offsets.append(special.span())
            offset = special.end()
        add(offset, len(text))
        return ids, offsets


def _vocabulary(file: str) -> dict[str, int]:
    """Read the ids of tokens."""
    vocabulary = read_json(file)
    for token, index in vocabulary.items():
        if type(index) is not int or index < 0:
            raise CheckpointError(f"{file}: the id of {shown(token)} must be a number from 0 on, got {shown(index)}")
    return vocabulary

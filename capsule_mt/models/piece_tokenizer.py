"""The tokenizer of Marian's folders: tokens are the pieces of SentencePiece models. Also as tokenizer.json.

The token id of a piece is its index in its model, or its number in a list of tokens, such as Marian's *.yml.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.checkpoint_tokenizer import CONFIG_FILE, TARGET_TOKENIZER_FILE, TOKENIZER_FILE
from capsule_mt.models.checksums import PIECES_CHECKSUMS, file_checksum
from capsule_mt.models.opening import open_file
from capsule_mt.models.sentencepiece import (
    CONTROL,
    NORMAL,
    SPACE,
    UNKNOWN,
    UNMATCHED,
    UNUSED,
    Normaliser,
    SentencePieceEncoder,
    SentencePieceModel,
    Span,
    indices_of,
    joined_pieces,
    of_kinds,
    read_sentencepiece,
    scores_of,
    symbols_of,
)
from capsule_mt.models.weights import CheckpointError, read_json, write_json
from capsule_mt.text.tokenizer_protocol import Encoded, LaterOffsets, byte_ids_of

END, UNKNOWN_TOKEN, PAD = "</s>", "<unk>", "<pad>"
MAX_CACHED_WORDS, MAX_CACHED_LENGTH = 50_000, 40
PIECES_FILES = "source.spm", "target.spm"  # as OPUS-MT and `capsule-mt convert` name them
LANGUAGE_PREFIX = re.compile(r">>(?s:.*?)<<")


class TokenIds(dict[str, int]):
    """The ids of tokens by their texts. It keeps what `find` finds; other texts have the id of the unknown token."""

    def __init__(self, ids: Mapping[str, int], unknown: int, find: Callable[[str], int | None]) -> None:
        super().__init__(ids)
        self._unknown, self._find = unknown, find

    def __missing__(self, text: str) -> int:
        token = self._find(text)
        if token is None:
            return self._unknown  # not kept: there is no end of such texts
        self[text] = token
        return token


class TokenTexts(dict[int, str]):
    """The texts of the tokens that were decoded so far, by their ids; "" for hidden ones and those beyond the last."""

    def __init__(self, texts: Sequence[str], hidden: Collection[int]) -> None:
        self._texts, self._hidden = texts, hidden

    def __missing__(self, token: int) -> str:
        has_text = token < len(self._texts) and token not in self._hidden
        self[token] = text = self._texts[token] if has_text else ""
        return text


class WordTokens(NamedTuple):
    """The tokens of a word, and the characters of the word that each stands for; `None` for none."""

    ids: tuple[int, ...]
    spans: tuple[Span | None, ...]
    length: int  # of the word


class TokenEncoder:
    """Encodes text as the ids of its pieces; the tokens of short words are cached for a while.

    id_of: returns the id of a piece.
    """

    def __init__(self, encoder: SentencePieceEncoder, id_of: Callable[[str], int]) -> None:
        self._encoder, self._id_of = encoder, id_of
        self._words: dict[str, WordTokens] = {}

    def encode(self, text: str, end: Sequence[int] = ()) -> Encoded:
        """Encode a text, with these tokens at its end."""
        cached = self._words
        words = [cached.get(word) or self._encoded(word) for word in self._encoder.words_of(text)]
        ids = [token for word in words for token in word.ids]
        ids += end
        offsets = LaterOffsets(lambda: [*_offsets_of(words), *[None] * len(end)])
        return Encoded(ids, offsets, self._encoder.byte_fallback)

    def _encoded(self, word: str) -> WordTokens:
        pieces, spans = self._encoder.encode_word(word)
        with_text = [span if span[0] < span[1] else None for span in spans]
        tokens = WordTokens(tuple(map(self._id_of, pieces)), tuple(with_text), len(word))
        if len(word) <= MAX_CACHED_LENGTH:
            if len(self._words) >= MAX_CACHED_WORDS:
                self._words.clear()
            self._words[word] = tokens
        return tokens


def _offsets_of(words: Iterable[WordTokens]) -> list[Span | None]:
    """Return the offsets of the tokens of a text, whose words have one space between two."""
    offsets: list[Span | None] = []
    start = 0
    for word in words:
        offsets += [span and (start + span[0], start + span[1]) for span in word.spans]
        start += word.length + 1
    return offsets


class Pieces:
    """A vocabulary whose pieces are tokens; the id of each is its index.

    encoder: cuts text into the pieces.
    tokens: the ids of the pieces that text is cut into.
    hidden: the ids of tokens without text.
    """

    def __init__(self, file: str) -> None:
        self.model = read_sentencepiece(file)
        self.encoder = SentencePieceEncoder(self.model)
        self.texts, kinds = self.model.texts, self.model.kinds
        if self.encoder.table.num_distinct != len(self.texts):
            raise CheckpointError(f"{file}: has a piece twice")
        end = self.encoder.table.find(END)
        if end is None or kinds[end] != CONTROL:
            raise CheckpointError(f"{file}: lacks the control piece {END!r}")
        if UNUSED in kinds:
            raise UnsupportedModelError(
                f"{file}: `unused pieces` {shown(self.texts[kinds.index(UNUSED)])} are not known"
            )
        self.end, self.unknown = end, kinds.index(UNKNOWN)
        self.hidden = set(indices_of(self.model, CONTROL))
        self.tokens = TokenIds({}, self.unknown, self.encoder.token_of)


class NumberedPieces:
    """Pieces whose token ids come from a list of tokens, as in OPUS-MT; it has the attributes of `Pieces` but `model`.

    A token of such a list may also name a language, such as ">>fra<<"; `tokens` has its id, too.

    Args:
        tokens: by their ids; of equal ones, the first counts.
        origin: the file of the tokens, for errors.
        hidden: further tokens without text.
    """

    def __init__(
        self,
        file: str,
        tokens: Sequence[str],
        origin: str,
        *,
        end: str = END,
        unknown: str = UNKNOWN_TOKEN,
        hidden: Collection[str] = (),
    ) -> None:
        self.encoder = SentencePieceEncoder(read_sentencepiece(file))
        numbers = {token: index for index, token in reversed([*enumerate(tokens)])}
        for token in (end, unknown):
            if token not in numbers:
                raise CheckpointError(f"{origin}: lacks {shown(token)}")
        self.texts = tokens
        self.end, self.unknown = numbers[end], numbers[unknown]
        self.hidden = {self.end, *(numbers[token] for token in hidden if token in numbers)}
        self.tokens = TokenIds(numbers, self.unknown, lambda _: None)


class PieceTokenizer:
    """A tokenizer by the pieces of two vocabularies: see `capsule_mt.text.tokenizer_protocol.Tokenizer`.

    Args:
        sizes: the numbers of source and target tokens, with those beside the pieces.
        special_ids: the tokens without text.
        source_ends: the tokens before and after a source; by default, the end token follows it.
    """

    def __init__(
        self,
        source: Pieces | NumberedPieces,
        target: Pieces | NumberedPieces,
        sizes: tuple[int, int],
        special_ids: Iterable[int],
        source_ends: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> None:
        self._end, self.unknown_id = source.end, source.unknown
        self.special_ids = frozenset(special_ids)
        self.vocabulary_sizes = sizes
        self._before, self._after = source_ends or ((), (source.end,))
        self._texts = TokenTexts(target.texts, target.hidden)
        is_numbered = isinstance(source, NumberedPieces)  # others cut names of languages as they cut any text
        self.language_tokens = list(filter(LANGUAGE_PREFIX.fullmatch, source.texts)) if is_numbered else []
        self._source_tokens, self._target_tokens = source.tokens, target.tokens
        self._source = TokenEncoder(source.encoder, source.tokens.__getitem__)
        self._target = TokenEncoder(target.encoder, target.tokens.__getitem__)

    def encode(self, text: str) -> Encoded:
        language = self._language_of(text)
        if not language and not self._before:
            return self._source.encode(text, self._after)
        start = len(language)
        encoded = self._source.encode(text[start:], self._after)
        moved = [span and (start + span[0], start + span[1]) for span in encoded.offsets]
        ids, offsets = [*self._before], list[Span | None]([None] * len(self._before))
        if language:
            ids.append(self._source_tokens[language])
            offsets.append((0, start))
        return encoded._replace(ids=[*ids, *encoded.ids], offsets=[*offsets, *moved])

    def _language_of(self, text: str) -> str:
        """Return the language token that a text begins with, or an empty string."""
        match = LANGUAGE_PREFIX.match(text) if self.language_tokens else None
        return match[0] if match and match[0] in self.language_tokens else ""

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._source_tokens.__getitem__, self.unknown_id)

    @cached_property
    def target_byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._target_tokens.__getitem__, self.unknown_id)

    def encode_target(self, text: str) -> list[int]:
        return self._target.encode(text, [self._end]).ids

    def decode(self, ids: Sequence[int]) -> str:
        texts = self._texts
        return joined_pieces([texts[token] for token in ids])


def write_pieces_beside_json(folder: str, vocabularies: Iterable[str]) -> None:
    """Write the SentencePiece models of a tokenizer beside its tokenizer.json, which takes longer to read."""
    for name, file in zip(PIECES_FILES, vocabularies, strict=False):
        with open_file(file) as source, open(os.path.join(folder, name), "wb") as target:
            target.write(source.read())
    write_json(os.path.join(folder, PIECES_CHECKSUMS), _checksums(folder))


def read_pieces_beside_json(folder: str, size: int) -> PieceTokenizer | None:
    """Read what `write_pieces_beside_json` wrote; `None` if a file of the tokenizer is missing or has changed.

    size: the number of tokens in tokenizer.json.
    """
    checksums = _checksums(folder)
    if PIECES_FILES[0] not in checksums or read_json(os.path.join(folder, PIECES_CHECKSUMS)) != checksums:
        return None
    vocabularies = [Pieces(os.path.join(folder, name)) for name in PIECES_FILES if name in checksums]
    return PieceTokenizer(vocabularies[0], vocabularies[-1], (size, size), (vocabularies[0].end, size - 1))


def _checksums(folder: str) -> dict[str, str]:
    """Return the checksums of the files of the tokenizer in a folder, by name."""
    names = (*PIECES_FILES, TOKENIZER_FILE, TARGET_TOKENIZER_FILE, CONFIG_FILE)
    files = {name: os.path.join(folder, name) for name in names}
    return {name: file_checksum(file) for name, file in files.items() if os.path.lexists(file)}


def tokenizer_json(vocabulary: Pieces, size: int) -> dict[str, Any]:
    """Return a tokenizer.json with the pieces of a vocabulary, filled up to `size` tokens; the last one pads.

    SentencePiece never matches control pieces in a text, but `tokenizers` would. So the tokenizer.json has a
    pre-tokenizer that splits text inside such pieces.
    """
    fill = [f"<unused {number}>" for number in range(len(vocabulary.texts), size - 1)]
    texts = [*vocabulary.texts, *fill, PAD]
    special = (vocabulary.end, vocabulary.unknown, size - 1)
    special_token_flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    unmatched = list(of_kinds(vocabulary.model, vocabulary.texts, *UNMATCHED))
    _check_symbols(vocabulary.model, unmatched)
    metaspace = {"type": "Metaspace", "replacement": SPACE, "split": True}
    metaspace["prepend_scheme"] = "always" if vocabulary.model.add_dummy_prefix else "never"
    end_token = {"SpecialToken": {"id": END, "type_id": 0}}
    first, second = ({"Sequence": {"id": letter, "type_id": 0}} for letter in "AB")
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": texts[index], **special_token_flags} for index in sorted(special)],
        "normalizer": _normalizer(vocabulary.model),
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [metaspace, _splitter([*unmatched, *fill, PAD])],
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, end_token],
            "pair": [first, end_token, second, end_token],
            "special_tokens": {END: {"id": END, "ids": [vocabulary.end], "tokens": [END]}},
        },
        "decoder": _decoder(vocabulary.model),
        "model": _model(vocabulary, texts),
    }


def _check_symbols(model: SentencePieceModel, unmatched: Sequence[str]) -> None:
    """Refuse user-defined symbols that normalising or splitting would change before pieces are matched."""
    normaliser = Normaliser(model._replace(kinds=bytearray(len(model.kinds))))  # without symbols
    for symbol in symbols_of(model):
        is_unchanged = normaliser(symbol)[0].removeprefix(SPACE) == symbol and SPACE not in symbol
        if model.model_type != "unigram" or not is_unchanged or any(text in symbol for text in unmatched):
            raise UnsupportedModelError(
                f"{model.file}: the symbol {symbol!r} of `user_defined_symbols` cannot be stored in a tokenizer.json"
            )


def _splitter(texts: Sequence[str]) -> dict[str, Any]:
    """Return the pre-tokenizer that breaks these texts after their first character, so that none becomes a token."""
    suffixes: dict[str, list[str]] = {}
    for text in filter(lambda text: len(text) > 1, texts):
        suffixes.setdefault(text[0], []).append(re.escape(text[1:]))
    pattern = "|".join(f"{re.escape(first)}(?=(?:{'|'.join(endings)}))" for first, endings in suffixes.items())
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "MergedWithPrevious", "invert": False}


def _normalizer(model: SentencePieceModel) -> dict[str, Any] | None:
    steps: list[dict[str, Any]] = []
    if model.charsmap:
        import binascii  # late: only `convert` writes tokenizers

        charsmap = binascii.b2a_base64(model.charsmap, newline=False).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": charsmap})
    if model.remove_extra_whitespaces:
        steps.append({"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""})
        steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    return {"type": "Sequence", "normalizers": steps} if steps else None


def _decoder(model: SentencePieceModel) -> dict[str, Any]:
    scheme = "always" if model.add_dummy_prefix else "never"
    if not model.byte_fallback:
        return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": True}
    decoders = [
        {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": int(model.add_dummy_prefix), "stop": 0},
    ]
    return {"type": "Sequence", "decoders": decoders}


def _model(vocabulary: Pieces, texts: Sequence[str]) -> dict[str, Any]:
    model, unknown = vocabulary.model, vocabulary.unknown
    scores = [*scores_of(model), *[0.0] * (len(texts) - len(model.scores))]
    if model.model_type == "unigram":
        vocab = [[text, score] for text, score in zip(texts, scores, strict=True)]
        return {"type": "Unigram", "unk_id": unknown, "vocab": vocab, "byte_fallback": model.byte_fallback}
    piece_ids = {text: index for index, text in enumerate(texts)}
    normal = (index for index, kind in enumerate(model.kinds) if kind == NORMAL)
    merges = [
        [texts[index][:middle], texts[index][middle:]]
        for index in sorted(normal, key=lambda index: -scores[index])
        for middle in range(1, len(texts[index]))
        if texts[index][:middle] in piece_ids and texts[index][middle:] in piece_ids
    ]
    further = {"unk_token": texts[unknown], "fuse_unk": True, "byte_fallback": model.byte_fallback}
    return {"type": "BPE", "vocab": piece_ids, "merges": merges, **further}

"""Texts, the pieces they are translated in, and the order of the work."""

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, NamedTuple, TypeVar, cast

from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from capsule_mt.text.sentences import UNSPACED_STOPS, Span, split_sentences, split_to_fit
from hf_capsule_mt.pipelines.decoding import Hypotheses
from hf_capsule_mt.pipelines.words import (
    NO_LISTS,
    SourceWord,
    WordLists,
    is_mark,
    source_words,
    token_offsets,
    without_prefix,
)

pipeline_logger = logging.get_logger("hf_capsule_mt.pipelines")

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
LANGUAGE_TOKEN = re.compile(r"\s*(>>[^<\s]+<<)\s*")  # a multilingual OPUS-MT source begins with its target language
Result = TypeVar("Result")


class EncodedText(NamedTuple):
    """The token ids of a text, what else the tokenizer gives for `generate()`, and the characters of each token."""

    token_ids: list[int]
    settings: dict[str, object]
    offset_mapping: list[tuple[int, int]] | None
    was_cut: bool = False


@dataclass
class Piece:
    """What goes through the model at once: a sentence of a text, or a part of one that is too long.

    Its words are known where coverage is asked for.
    """

    span: Span
    source: EncodedText
    words: list[SourceWord] = field(default_factory=list)
    target_prefix: list[int] = field(default_factory=list)
    hypotheses: Hypotheses | None = None

    @property
    def translations(self) -> Hypotheses:
        """The hypotheses of this piece, which has been translated."""
        if self.hypotheses is None:
            raise RuntimeError(f"the piece {self.span} has not been translated yet")
        return self.hypotheses


class PrefixedText(str):
    """A text whose translation begins with `target_prefix`; of several sentences, the first translation does.

        translator(PrefixedText("The old man buys a red hat.", "Der alte"))

    The prefix is forced token by token, so it should end where a word ends.
    """

    target_prefix: str

    def __new__(cls, text: str, target_prefix: str) -> "PrefixedText":
        prefixed = super().__new__(cls, text)
        prefixed.target_prefix = target_prefix
        return prefixed


@dataclass
class Document:
    """One of the texts that the user gave, and the pieces it is translated in."""

    text: str
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class Segmenter:
    """Turns texts into documents: cuts them, tokenises each piece once.

    limit: the most tokens of a source. prefix: what a T5 checkpoint reads before each source.
    """

    tokenizer: PreTrainedTokenizerBase
    limit: int | None
    prefix: str = ""
    split_sentences: bool = True
    truncation: bool | str = False
    src_lang: str | None = None
    tgt_lang: str | None = None
    with_words: bool = False
    lists: WordLists = NO_LISTS

    def document(self, text: str) -> Document:
        """Cut a text into pieces that fit, and leave out those without a token, and unknown marks."""
        if not isinstance(text, str):
            raise TypeError(f"a text must be a string, got a {type(text).__name__}")
        document = Document(LONE_SURROGATES.sub("\ufffd", text))
        of_text, unknown_id = self._language_of(document.text), self.tokenizer.unk_token_id
        for start, end in self._sentences(document.text):
            begins, token = self.language_token(document.text[start:end])
            segmenter, special = self, set(self.tokenizer.all_special_ids)
            if token := token or of_text:
                segmenter = replace(self, prefix=f"{self.prefix}{token} ")
                special.add(cast(int, self.tokenizer.convert_tokens_to_ids(token)))
            if start + begins == end:
                continue
            for span, source in segmenter._fitting(document.text, Span(start + begins, end)):
                is_unknown = unknown_id in source.token_ids and not is_mark(document.text[span.start : span.end])
                if is_unknown or set(source.token_ids) - special:
                    words = segmenter._words(document.text, span, source) if self.with_words else []
                    document.pieces.append(Piece(span, source, words))
        if isinstance(text, PrefixedText) and document.pieces:
            encoded = self.tokenizer(text_target=text.target_prefix, add_special_tokens=False)
            document.pieces[0].target_prefix = list(encoded["input_ids"])
        return document

    def language_token(self, text: str) -> tuple[int, str]:
        """Return the token of a target language that a text begins with, or "", and where the rest begins."""
        given = LANGUAGE_TOKEN.match(text)
        is_one = given is not None and given[1] in language_tokens(self.tokenizer)
        return (given.end(), given[1]) if given is not None and is_one else (0, "")

    def _language_of(self, text: str) -> str:
        """Return the token of the target language for the sentences of a text that have none of their own."""
        tokens, token = language_tokens(self.tokenizer), self.language_token(text)[1] or f">>{self.tgt_lang}<<"
        if token in tokens:
            return token
        if tokens and self.tgt_lang is not None:
            shown = ", ".join(known.strip("<>") for known in tokens[:8])
            pipeline_logger.warning_once(f"`tgt_lang` {self.tgt_lang!r} is none of the tokenizer's: {shown}")
        return ""

    def _words(self, text: str, span: Span, source: EncodedText) -> list[SourceWord]:
        if source.offset_mapping is None:
            offsets = token_offsets(self.tokenizer, text[span.start : span.end], source.token_ids, self.prefix)
        else:
            offsets = without_prefix(source.offset_mapping, self.prefix)
        return source_words(text, span, offsets, source.token_ids, self.tokenizer.unk_token_id, self.lists)

    def _sentences(self, text: str) -> list[Span]:
        if self.split_sentences:
            return split_sentences(text, self.src_lang)
        start = len(text) - len(text.lstrip())
        return [Span(start, max(start, len(text.rstrip())))] if text.strip() else []

    def _fitting(self, text: str, sentence: Span) -> list[tuple[Span, EncodedText]]:
        """Encode a sentence; if it is too long, cut it (`truncation`) or split it into parts that fit."""
        source = self.encode(text[sentence.start : sentence.end])
        length = len(source.token_ids)
        if self.limit is None or length <= self.limit:
            return [(sentence, source)]
        if self.truncation:
            pipeline_logger.warning(f"A source of {length} tokens was cut to {self.limit} (`truncation`).")
            return [(sentence, self.encode(text[sentence.start : sentence.end], truncate=True))]
        if not self.split_sentences:
            raise ValueError(
                f"a source of {length} tokens is longer than the {self.limit} that the model takes: "
                f"{text[sentence.start : sentence.start + 40]!r}... Leave `split_sentences` on, or set "
                "`truncation=True` to cut it."
            )
        encoded = {text[sentence.start : sentence.end]: source}

        def fits(part: str) -> bool:
            if part not in encoded:
                encoded[part] = self.encode(part)
            return len(encoded[part].token_ids) <= cast(int, self.limit)

        parts = split_to_fit(text, sentence, fits)
        for span in parts:
            part = text[span.start : span.end]
            if not fits(part):
                raise ValueError(
                    f"the character {part!r} alone is {len(encoded[part].token_ids)} tokens, more than the "
                    f"{self.limit} that a source may have (`max_source_tokens`)"
                )
        return [(span, encoded[text[span.start : span.end]]) for span in parts]

    def encode(self, text: str, truncate: bool = False) -> EncodedText:
        """Tokenise a text, after the prefix if there is one."""
        options: dict[str, object] = {"truncation": self.truncation, "max_length": self.limit} if truncate else {}
        if self.with_words and self.tokenizer.is_fast:
            options["return_offsets_mapping"] = True
        build = getattr(self.tokenizer, "_build_translation_inputs", None)
        if build is not None:  # tokenizers of many languages
            for name in ("src_lang", "tgt_lang"):
                check_language(self.tokenizer, name, getattr(self, name))
            encoded = build(
                self.prefix + text, return_tensors=None, src_lang=self.src_lang, tgt_lang=self.tgt_lang, **options
            )
        else:
            encoded = self.tokenizer(self.prefix + text, verbose=False, **options)
        taken = ("input_ids", "attention_mask", "token_type_ids", "offset_mapping")
        settings = {key: value for key, value in encoded.items() if key not in taken}
        return EncodedText(list(encoded["input_ids"]), settings, encoded.get("offset_mapping"), was_cut=truncate)


def language_tokens(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the tokens of target languages of a multilingual OPUS-MT model; none for any other."""
    return list(getattr(tokenizer, "supported_language_codes", None) or ())


def check_language(tokenizer: PreTrainedTokenizerBase, name: str, code: str | None) -> None:
    """Raise where a tokenizer of many languages, whose tokens are special or added ones, does not have this one."""
    if code is None or {code, f"__{code.strip('_')}__"} & tokenizer.get_added_vocab().keys():
        return
    tokens = {*tokenizer.all_special_tokens, *(getattr(tokenizer, "lang_code_to_id", None) or ())}
    known = sorted(token.strip("_") for token in tokens if not token.startswith(("<", "[")))
    if not known or code.strip("_") in known:
        return
    near = [word for word in known if word.startswith(code[:2])] or known
    raise ValueError(
        f"`{name}` {code!r} is no language of {type(tokenizer).__name__}; it has {', '.join(near[:8])}"
        + (", ..." if len(near) > 8 else "")
    )


def source_length(piece: Piece) -> int:
    """Return how many tokens the source of a piece has."""
    return len(piece.source.token_ids)


def batches_of(
    pieces: list[Piece],
    batch_size: int,
    batch_tokens: int | None,
    length: Callable[[Piece], int] = source_length,
) -> Iterator[list[Piece]]:
    """Yield batches of pieces of similar length, longest first, of so many pieces or padded tokens."""
    in_order = sorted(pieces, key=length, reverse=True)
    first = 0
    while first < len(in_order):
        size = batch_size if batch_tokens is None else max(1, batch_tokens // length(in_order[first]))
        yield in_order[first : first + size]
        first += size


def join_translations(document: Document, translations: list[str]) -> str:
    """Join the translations of the pieces with the space that is between them in the text.

    Where there is none, as in Chinese, there is one in a translation that does not end as Chinese does.
    """
    joined = ""
    for number, (piece, translation) in enumerate(zip(document.pieces, translations, strict=True)):
        if number > 0:
            between = document.text[document.pieces[number - 1].span.end : piece.span.start]
            joined += between or ("" if joined.endswith(tuple(UNSPACED_STOPS)) else " ")
        joined += translation
    return joined


class TranslationIterator(Generic[Result]):
    """Reads texts in windows, translates each window at once, and gives its results one by one."""

    def __init__(self, texts: object, translate: Callable[[list[str]], list[Result]], window: int) -> None:
        """`texts`: an iterable, or what only has a length and `[]`, such as a `KeyDataset`."""
        self.texts = texts
        self.translate = translate
        self.window = window

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))  # a generator has no length, and says so

    def __iter__(self) -> Iterator[Result]:
        texts = iter(self.texts) if hasattr(self.texts, "__iter__") else self._items()
        while window := list(islice(texts, self.window)):
            yield from self.translate(window)

    def _items(self) -> Iterator[str]:
        texts = cast("Dataset[str]", self.texts)
        return (texts[index] for index in range(len(self)))


class TextsOf(Dataset[str]):
    """A sized iterable, as what transformers' base class reads lazily."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(cast(Sized, self.texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

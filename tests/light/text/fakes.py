"""Tokenizers for tests. Token 1 ends a text."""

import re

from capsule_mt.text.finishing import with_marks, without_marks
from capsule_mt.text.reading import Piece, parts_in
from capsule_mt.text.rewriting import Form, Rewriter, keep_edits
from capsule_mt.text.rules import COPIED_KINDS
from capsule_mt.text.tokenizer_protocol import Encoded
from capsule_mt.text.vocabulary import NEVER_LACKED, Vocabulary


class WordTokenizer:
    """Each word is a token."""

    unknown_id, special_ids, byte_ids, target_byte_ids = 0, frozenset({1}), frozenset(), frozenset()

    def __init__(self, language_tokens=(), unknown=()):
        self.words = ["<unk>", "</s>", *language_tokens]
        self.language_tokens, self.unknown = list(language_tokens), unknown

    def encode(self, text):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
        return Encoded([*(self.id(text[start:end]) for start, end in spans), 1], [*spans, None])

    def encode_target(self, text):
        return self.encode(text).ids

    def id(self, word):
        if word in self.unknown:
            return 0
        if word not in self.words:
            self.words.append(word)
        return self.words.index(word)

    def decode(self, ids):
        return " ".join(self.words[number] for number in ids if number != 1)


class CharacterTokenizer:
    """A token for each of these texts; other texts are cut into characters."""

    unknown_id, special_ids, byte_ids, target_byte_ids = 0, frozenset({1}), frozenset(), frozenset()
    language_tokens = ()

    def __init__(self, texts):
        self.tokens = ["<unk>", "</s>", *texts]

    def encode(self, text):
        texts = [text] if text in self.tokens else list(text)
        ids = [self.tokens.index(part) if part in self.tokens else 0 for part in texts]
        offsets = [(0, len(text))] if len(texts) == 1 else [(n, n + 1) for n in range(len(text))]
        return Encoded([*ids, 1], [*offsets, None])

    def encode_target(self, text):
        return self.encode(text).ids

    def decode(self, ids):
        return "".join(self.tokens[token] for token in ids if token > 1)


class ByteTokenizer(CharacterTokenizer):
    """A token for each letter, digit and common mark, and the piece of a byte for each of some signs of ASCII."""

    def __init__(self, signs):
        super().__init__([*NEVER_LACKED, *signs])
        self.byte_ids = self.target_byte_ids = frozenset(map(self.tokens.index, signs))


def form_of(text, tokenizer, kinds=COPIED_KINDS, **options):
    """Return what the rules make of a text."""
    return Rewriter(Vocabulary(tokenizer), tuple(kinds), **options).read(text)


def reading_of(text, kinds=COPIED_KINDS):
    """Return a text as a model reads it of which items of these kinds are kept, and nothing else changes."""
    return whole(Form(text, keep_edits(text, kinds), kinds))


def outside_items(change, text, *arguments):
    """Apply a step of `finishing` to a translation."""
    marked, items = with_marks(text)
    return without_marks(change(marked, *arguments), items)


def whole(form):
    """Return a form as one piece."""
    return Piece(form, parts_in(form, 0, len(form.text)))


def plain_piece(text, span=None, ids=(), words=(), offsets=()):
    """Return a span of a text as a piece in which nothing changes."""
    form = Form(text)
    piece = Piece(form, parts_in(form, *(span or (0, len(text)))))
    piece.encoded, piece.words = Encoded(list(ids), offsets), words
    return piece


def with_items(form):
    """Return the text of a form, with the user's characters of its items and tags."""
    written, end = "", 0
    for offset, edit in zip(form.offsets, form.edits, strict=True):
        stop = offset + len(edit.in_form)
        written += form.text[end:offset]
        written += form.text[offset:stop] if edit.back is None else form.source[edit.start : edit.end]
        end = stop
    return written + form.text[end:]

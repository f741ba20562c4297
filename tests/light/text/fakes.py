"""Tokenizers for tests. Token 1 ends a text."""

import re

from capsule_mt.text.tokenizer_protocol import Encoded


class WordTokenizer:
    """Each word is a token."""

    unknown_id, special_ids = 0, frozenset({1})

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

    unknown_id, special_ids, language_tokens = 0, frozenset({1}), ()

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

"""A tokenizer for tests: each word is a token, and 1 is the end."""

import re

from capsule_mt.text.tokenizer import Encoded


class WordTokenizer:
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

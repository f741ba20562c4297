"""The tokenizer of a checkpoint: tokenizer.json, and target_tokenizer.json where each language has its own."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as FastTokenizer

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.weights import CheckpointError, read_json
from capsule_mt.text.tokenizer import Encoded

TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
# what transformers joins again where a tokenizer asks for it
CLEAN_UP = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))  # fmt: skip


class FileTokenizer:
    """The tokenizer of a checkpoint, without transformers: see `capsule_mt.text.tokenizer.Tokenizer`.

    Args:
        source, target: what tokenizer.json and target_tokenizer.json say.
        config: what tokenizer_config.json says.
    """

    def __init__(self, source: FastTokenizer, target: FastTokenizer, config: Mapping[str, Any]) -> None:
        self._source, self._target = source, target
        for tokenizer in (source, target):
            tokenizer.no_padding()
            tokenizer.no_truncation()
            tokenizer.encode_special_tokens = bool(config.get("split_special_tokens", False))
        self._cleans_up = bool(config.get("clean_up_tokenization_spaces", False))
        unknown = _content(config.get("unk_token"))
        self.unknown_id: int | None = None if unknown is None else self._source.token_to_id(unknown)
        added = self._source.get_added_tokens_decoder()
        self.special_ids = frozenset(number for number, token in added.items() if token.special) - {self.unknown_id}
        # special tokens have the same ids in both vocabularies

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> "FileTokenizer":
        """Load the tokenizer in the folder of a checkpoint."""
        folder = os.fspath(folder)
        config_file = os.path.join(folder, CONFIG_FILE)
        config = read_json(config_file) if os.path.exists(config_file) else {}
        source = _load(os.path.join(folder, TOKENIZER_FILE))
        target = os.path.join(folder, TARGET_TOKENIZER_FILE)
        return cls(source, _load(target) if os.path.exists(target) else source, config)

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """How many tokens the source has, and the target."""
        return self._source.get_vocab_size(), self._target.get_vocab_size()

    def encode(self, text: str) -> Encoded:
        encoding = self._source.encode(text)
        return Encoded(encoding.ids, [place if place[0] < place[1] else None for place in encoding.offsets])

    def encode_target(self, text: str) -> list[int]:
        return self._target.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        text = self._target.decode(ids, skip_special_tokens=True)
        for apart, joined in CLEAN_UP if self._cleans_up else ():
            text = text.replace(apart, joined)
        return text

    @cached_property
    def language_tokens(self) -> Sequence[str]:
        return [token for token in self._source.get_vocab() if token.startswith(">>") and token.endswith("<<")]


def _load(file: str) -> FastTokenizer:
    if not os.path.isfile(file):
        raise UnsupportedModelError(f"{file}: no such file; a tokenizer of another kind needs hf-capsule-mt")
    try:
        return FastTokenizer.from_file(file)
    except Exception as error:  # `tokenizers` raises nothing more special
        raise CheckpointError(f"{file}: does not load: {error}") from None


def _content(token: Any) -> str | None:
    """Return the text of a token in tokenizer_config.json: a string, or an object with it."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None

"""The tokenizer of a checkpoint: tokenizer.json, and target_tokenizer.json where each language has its own."""

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.files.line_failures import may_be_line_error
from capsule_mt.messages import cut, shown
from capsule_mt.models.languages import ManyLanguages, language_codes_of
from capsule_mt.models.opening import read_file
from capsule_mt.models.weights import CheckpointError, read_json
from capsule_mt.text.tokenizer_protocol import Encoded, byte_ids_of

if TYPE_CHECKING:  # imported late: it takes 7 MB, and most tokenizers do without
    from tokenizers import Tokenizer as FastTokenizer

TOKENIZER_FILE = "tokenizer.json"
TARGET_TOKENIZER_FILE = "target_tokenizer.json"
CONFIG_FILE, MODEL_CONFIG_FILE = "tokenizer_config.json", "config.json"
# what `clean_up_tokenization_spaces` of transformers joins again
CLEAN_UP = ((" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"), (" 'm", "'m"),
            (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"))  # fmt: skip


class FileTokenizer(ManyLanguages):
    """The tokenizer in a checkpoint's folder: see `Tokenizer` of `capsule_mt.text.tokenizer_protocol`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        folder = os.fspath(folder)
        config = read_tokenizer_config(folder)
        self._file = os.path.join(folder, TOKENIZER_FILE)
        splits = bool(config.get("split_special_tokens", False))
        self._source = self._target = _load(self._file, splits)
        if os.path.lexists(target := os.path.join(folder, TARGET_TOKENIZER_FILE)):
            self._target = _load(target, splits)
        self.cleans_up = bool(config.get("clean_up_tokenization_spaces", False))
        unknown = token_content(config.get("unk_token"))
        try:
            self.unknown_id = None if unknown is None else self._source.token_to_id(unknown)
        except UnicodeEncodeError:
            raise CheckpointError(
                f"{folder}/tokenizer_config.json: `unk_token` must be text, got {shown(unknown)}"
            ) from None
        added = self._source.get_added_tokens_decoder()
        special = {token.content: index for index, token in added.items() if token.special}
        self.special_ids = frozenset(special.values()) - {self.unknown_id}
        # special tokens have the same ids in both vocabularies
        self.language_codes = language_codes_of(special)
        self.source_language = config.get("src_lang")
        self.ends_with_language = _ends_with_language(folder, config)
        self.end_id = special.get(token_content(config.get("eos_token")) or "</s>", -1)
        self._texts: dict[int, str] = {}  # of target tokens alone, which coverage reads one by one

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """The numbers of source and target tokens."""
        return self._source.get_vocab_size(), self._target.get_vocab_size()

    @property
    def target_texts(self) -> dict[int, str]:
        return {index: text for text, index in self._target.get_vocab().items() if index not in self.special_ids}

    def encode(self, text: str) -> Encoded:
        return self._encoded(text, add_special_tokens=True)

    def _encoded(self, text: str, *, add_special_tokens: bool) -> Encoded:
        try:
            encoding = self._source.encode(text, add_special_tokens=add_special_tokens)
        except BaseException as error:  # `tokenizers` panics, say, if a regular expression takes too long
            if not may_be_line_error(error):
                raise
            raise CheckpointError(f"{self._file}: does not tokenise {text[:40]!r}: {cut(error)}") from None
        return Encoded(encoding.ids, [span if span[0] < span[1] else None for span in encoding.offsets])

    def encode_text(self, text: str) -> Encoded:
        return self._encoded(text, add_special_tokens=False)

    def encode_target(self, text: str) -> list[int]:
        return self._target.encode(text).ids

    def decode(self, ids: Sequence[int]) -> str:
        if len(ids) != 1:
            return self._decode(ids)
        text = self._texts.get(ids[0])
        if text is None:
            text = self._texts[ids[0]] = self._decode(ids)
        return text

    def _decode(self, ids: Sequence[int]) -> str:
        text = self._target.decode(ids, skip_special_tokens=True)
        return cleaned_up(text) if self.cleans_up else text

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._source.token_to_id, self.unknown_id)

    @cached_property
    def target_byte_ids(self) -> frozenset[int]:
        return byte_ids_of(self._target.token_to_id, self.unknown_id)

    @cached_property
    def language_tokens(self) -> Sequence[str]:
        return [token for token in self._source.get_vocab() if token.startswith(">>") and token.endswith("<<")]


def _ends_with_language(folder: str | os.PathLike[str], config: Mapping[str, Any]) -> bool:
    """Return whether a source ends with its language, as for mBART; for mBART-50 and NLLB-200 it begins with it.

    Without a `tokenizer_class`, transformers takes that of the model's type.
    """
    name = config.get("tokenizer_class")
    model_file = os.path.join(folder, MODEL_CONFIG_FILE)
    if name is None and os.path.lexists(model_file):
        model = read_json(model_file)
        name = model.get("tokenizer_class") or ("MBartTokenizer" if model.get("model_type") == "mbart" else None)
    if str(name).startswith("MBart"):
        return not str(name).startswith("MBart50")
    return bool(config.get("legacy_behaviour"))


def _load(file: str, splits_special_tokens: bool) -> "FastTokenizer":
    from tokenizers import Tokenizer as FastTokenizer

    if not os.path.lexists(file):
        raise UnsupportedModelError(f"{file}: no such file; a tokenizer of another kind needs hf-capsule-mt")
    content = read_file(file)
    try:
        tokenizer = FastTokenizer.from_buffer(content)
    except BaseException as error:  # `tokenizers` raises nothing more specific, or panics
        if not may_be_line_error(error):
            raise
        raise CheckpointError(f"{file}: does not load: {cut(error)}") from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    tokenizer.encode_special_tokens = splits_special_tokens
    return tokenizer


def read_tokenizer_config(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Return what tokenizer_config.json says; an empty dictionary without this file."""
    file = os.path.join(folder, CONFIG_FILE)
    return read_json(file) if os.path.lexists(file) else {}


def cleaned_up(text: str) -> str:
    """Remove spaces before punctuation and contractions, as transformers does: those of `CLEAN_UP`."""
    for apart, joined in CLEAN_UP:
        text = text.replace(apart, joined)
    return text


def token_content(token: Any) -> str | None:
    """Return the text of a token in tokenizer_config.json: a string, or an object with it; `None` for others."""
    token = token.get("content") if isinstance(token, dict) else token
    return token if isinstance(token, str) else None

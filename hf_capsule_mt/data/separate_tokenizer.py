"""A tokenizer with one vocabulary for the source and another for the target, as `MarianTokenizer` can have them.

`save_pretrained` copies this file beside the tokenizer, so it must not import from the package. Where the package is
not installed, load the tokenizer with `AutoTokenizer.from_pretrained(path, trust_remote_code=True)`.
"""

import os
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

TARGET_TOKENIZER_FILE = "target_tokenizer.json"


class SeparateVocabulariesTokenizer(PreTrainedTokenizerFast):
    """Encode each side of `tokenizer(text, text_target=...)` with its own vocabulary; decode with the target's.

    Special tokens have the same ids in both. `len(tokenizer)` is the size of the source vocabulary,
    `tokenizer.target_vocab_size` the size of the target vocabulary.
    """

    vocab_files_names = {"tokenizer_file": "tokenizer.json", "target_tokenizer_file": TARGET_TOKENIZER_FILE}

    def __init__(
        self,
        *args: object,
        target_tokenizer_object: Tokenizer | None = None,
        target_tokenizer_file: str | None = None,
        **kwargs: object,
    ) -> None:
        if target_tokenizer_object is None:
            if target_tokenizer_file is None:
                raise ValueError(
                    f"a target tokenizer is needed: `target_tokenizer_object`, or {TARGET_TOKENIZER_FILE}"
                )
            target_tokenizer_object = Tokenizer.from_file(target_tokenizer_file)
        super().__init__(*args, **kwargs)
        self._source_backend = self._tokenizer
        self._target_backend = target_tokenizer_object
        self._target_backend.encode_special_tokens = self.split_special_tokens

    @classmethod
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: object) -> dict[str, object]:
        """Pass the files to `__init__` unchanged when loading; transformers would rebuild the vocabulary."""
        return kwargs

    @property
    def target_vocab_size(self) -> int:
        return self._target_backend.get_vocab_size()

    def _switch_to_input_mode(self) -> None:
        self._tokenizer: Any = self._source_backend

    def _switch_to_target_mode(self) -> None:
        self._tokenizer = self._target_backend

    def _decode(
        self, token_ids: int | list[int], *args: Any, use_source_tokenizer: bool = False, **kwargs: Any
    ) -> str:
        if not use_source_tokenizer:
            self._switch_to_target_mode()
        try:
            return super()._decode(token_ids, *args, **kwargs)
        finally:
            self._switch_to_input_mode()

    def _save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        file_names: tuple[str, ...],
        legacy_format: bool | None = None,
        filename_prefix: str | None = None,
    ) -> tuple[str, ...]:
        target_file = os.path.join(str(save_directory), TARGET_TOKENIZER_FILE)
        self._target_backend.save(target_file)
        return (*super()._save_pretrained(save_directory, file_names, legacy_format, filename_prefix), target_file)


SeparateVocabulariesTokenizer.register_for_auto_class("AutoTokenizer")

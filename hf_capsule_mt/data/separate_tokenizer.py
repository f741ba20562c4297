"""A tokenizer with one vocabulary for the source and another for the target, as `MarianTokenizer` can have them.

This file is saved with such a tokenizer, so it imports nothing of the package: without the package,
`AutoTokenizer.from_pretrained(path, trust_remote_code=True)` loads it.
"""

import os
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

TARGET_TOKENIZER_FILE = "target_tokenizer.json"


class SeparateVocabulariesTokenizer(PreTrainedTokenizerFast):
    """`tokenizer(text, text_target=...)` encodes each side with its own vocabulary; decoding takes the target's.

    The special tokens have the same ids in both. `len(tokenizer)` is the size of the source vocabulary,
    `tokenizer.target_vocab_size` that of the target's.
    """

    vocab_files_names = {"tokenizer_file": "tokenizer.json", "target_tokenizer_file": TARGET_TOKENIZER_FILE}

    def __init__(
        self,
        *args: Any,
        target_tokenizer_object: Tokenizer | None = None,
        target_tokenizer_file: str | None = None,
        **kwargs: Any,
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
    def convert_to_native_format(cls, trust_remote_code: bool = False, **kwargs: Any) -> dict[str, Any]:
        """What `__init__` gets when loading: the files as they are. transformers would rebuild the vocabulary."""
        return kwargs

    @property
    def target_vocab_size(self) -> int:
        return self._target_backend.get_vocab_size()

    def _switch_to_input_mode(self) -> None:
        self._tokenizer: Any = self._source_backend

    def _switch_to_target_mode(self) -> None:
        self._tokenizer = self._target_backend

    def _decode(self, token_ids: Any, *args: Any, use_source_tokenizer: bool = False, **kwargs: Any) -> str:
        if not use_source_tokenizer:
            self._switch_to_target_mode()
        try:
            return super()._decode(token_ids, *args, **kwargs)
        finally:
            self._switch_to_input_mode()

    def _save_pretrained(self, save_directory: Any, file_names: tuple[str, ...], *args: Any, **kwargs: Any) -> Any:
        target_file = os.path.join(str(save_directory), TARGET_TOKENIZER_FILE)
        self._target_backend.save(target_file)
        return (*super()._save_pretrained(save_directory, file_names, *args, **kwargs), target_file)


SeparateVocabulariesTokenizer.register_for_auto_class("AutoTokenizer")

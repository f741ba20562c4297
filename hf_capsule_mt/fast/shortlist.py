"""Lexical shortlists: the few target tokens that a source may become. The rest of the vocabulary is not scored.

As in Marian and CTranslate2: the most likely translations of each source token, and the most frequent target tokens.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

FILE_NAME = "shortlist.safetensors"


@dataclass(frozen=True)
class Shortlist:
    """What each source token may become.

    starts: [source vocabulary + 1], where the translations of each token begin among `tokens`.
    tokens: [translations], the most likely translations of each source token.
    frequent: tokens that every translation may have.
    vocabulary: how many target tokens there are.
    """

    starts: torch.Tensor
    tokens: torch.Tensor
    frequent: torch.Tensor
    vocabulary: int

    @classmethod
    def of_translations(
        cls, translations: Mapping[int, Sequence[int]], frequent: Sequence[int], vocabularies: tuple[int, int]
    ) -> "Shortlist":
        """Make a shortlist from the translations of each source token, and the sizes of both vocabularies."""
        sources, vocabulary = vocabularies
        lists = [list(translations.get(token, ())) for token in range(sources)]
        lengths = torch.tensor([0, *map(len, lists)])
        tokens = [token for of_source in lists for token in of_source]
        return cls(lengths.cumsum(0).int(), torch.tensor(tokens).int(), torch.tensor(list(frequent)).int(), vocabulary)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Shortlist":
        """Load a file, or the file in the folder of a checkpoint."""
        file = Path(path) / FILE_NAME if Path(path).is_dir() else Path(path)
        if not file.is_file():
            raise FileNotFoundError(
                f"there is no shortlist {file}: `capsule-mt shortlist CHECKPOINT SOURCE TARGET` makes one"
            )
        with safe_open(file, "pt") as stored:
            metadata = stored.metadata() or {}
            if "vocabulary" not in metadata:
                raise ValueError(f"{file} is not a shortlist")
            tensors = [stored.get_tensor(name) for name in ("starts", "tokens", "frequent")]
        starts, tokens, frequent = tensors
        return cls(starts, tokens, frequent, int(metadata["vocabulary"]))

    def save(self, path: str | os.PathLike[str]) -> None:
        tensors = {"starts": self.starts, "tokens": self.tokens, "frequent": self.frequent}
        save_file(tensors, path, metadata={"vocabulary": str(self.vocabulary)})

    def check(self, num_source_tokens: int, num_target_tokens: int) -> None:
        """Refuse the vocabularies of another model, and a list that is none."""
        tensors = (self.starts, self.tokens, self.frequent)
        is_list = all(tensor.dim() == 1 and not tensor.is_floating_point() for tensor in tensors) and (
            len(self.starts) > 0
            and self.starts[0] == 0
            and self.starts[-1] == len(self.tokens)
            and bool((self.starts.diff() >= 0).all())
            and all(bool((tokens >= 0).all()) and bool((tokens < self.vocabulary).all()) for tokens in tensors[1:])
        )
        if not is_list:
            raise ValueError("`shortlist` is damaged: its tokens are not in its vocabulary, or its places do not fit")
        if (len(self.starts) - 1, self.vocabulary) != (num_source_tokens, num_target_tokens):
            raise ValueError(
                f"`shortlist` is for vocabularies of {len(self.starts) - 1} and {self.vocabulary} tokens, but the "
                f"model's are of {num_source_tokens} and {num_target_tokens}"
            )

    def of_source(self, source: Sequence[int], *further: int) -> torch.Tensor:
        """Return the tokens that the translation of a source may have, int32, ascending; with `further` tokens."""
        parts = [self.tokens[self.starts[token] : self.starts[token + 1]] for token in set(source)]
        more = torch.tensor([token for token in further if token >= 0], dtype=torch.int32)
        return torch.cat([*parts, self.frequent, more]).unique().int()

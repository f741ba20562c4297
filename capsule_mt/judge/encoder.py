"""`Encoder`: texts in, vectors out, by BERT, XLM-R and their relatives."""

import os
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from capsule_mt.catalog.entries import FACTS_FILE
from capsule_mt.engine.library import product
from capsule_mt.engine.program import Tensor, UnsupportedModelError
from capsule_mt.messages import with_unit
from capsule_mt.models.encoder_loading import LoadedEncoder, load_encoder
from capsule_mt.models.opening import check_name_or_folder
from capsule_mt.models.tensors import of_floats
from capsule_mt.text.tokenizer_protocol import Encoded


class HiddenStates(NamedTuple):
    """What an encoder makes of a text.

    ids: of its tokens, with special ones. offsets: the characters that each token stands for; `None` for special ones.
    states: of each layer, by its number, [tokens, width] in F32.
    """

    ids: list[int]
    offsets: Sequence[tuple[int, int] | None]
    states: dict[int, Tensor]


class Encoder:
    """Turns texts into vectors on a CPU, by a model of transformers without a decoder.

    >>> encoder = Encoder.from_pretrained("intfloat/multilingual-e5-small", int8=True)
    >>> [first, second] = encoder.encode(["query: Where is the key?", "passage: Der Schlüssel liegt hier."])

    layers: those that `hidden_states` returns, ascending; 0 is the output of the embeddings.
    width: how many numbers a vector has.
    max_tokens: the most tokens of a text, special ones included.
    """

    def __init__(self, loaded: LoadedEncoder) -> None:
        self.loaded = loaded
        self.layers, self.width, self.max_tokens = loaded.layers, loaded.width, loaded.max_tokens

    @classmethod
    def from_pretrained(
        cls,
        folder: str | os.PathLike[str],
        *,
        int8: bool = False,
        layers: Sequence[int] | None = None,
        num_threads: int | None = None,
    ) -> "Encoder":
        """Load an encoder by its folder, or by its name on the Hugging Face hub, which is downloaded once.

        Args:
            int8: multiply in int8, which is faster.
            layers: the layers to return, ascending; what follows the highest one is not loaded. `None`: the last one.
            num_threads: how many threads share a call; `None`: OMP_NUM_THREADS, or one for each processor.
        """
        from capsule_mt.models.probing import probe_if_required

        check_name_or_folder(folder, "folder")
        if not os.path.isdir(folder):
            from capsule_mt.catalog.store import model_folder  # late: a folder needs no catalog

            folder = model_folder(folder, "an encoder is one model")
        folder = os.fspath(folder)
        if is_download := os.path.lexists(os.path.join(folder, FACTS_FILE)):
            from capsule_mt.translate.first_use import check_files, record_check  # late: few folders are

            times = check_files(folder, int8=int8, shortlist=False)
        else:
            probe_if_required(folder, int8=int8, shortlist=False)
        loaded = load_encoder(folder, int8=int8, layers=layers, num_threads=num_threads)
        if is_download:
            record_check(folder, times)
        return cls(loaded)

    def hidden_states(self, texts: Sequence[str]) -> list[HiddenStates]:
        """Return the hidden states of each text; refuse a text with more than `max_tokens`."""
        if isinstance(texts, str):
            raise TypeError("`texts` must be a sequence of texts, got one text: put it into a list")
        encodings = [self.tokenize(text) for text in texts]
        for index, encoding in enumerate(encodings):
            if len(encoding.ids) > self.max_tokens:
                raise ValueError(
                    f"`texts`: number {index} has {with_unit(len(encoding.ids), 'tokens')}, and the model reads at "
                    f"most {self.max_tokens}: cut it"
                )
        states = self.states_of([encoding.ids for encoding in encodings])
        return [
            HiddenStates(encoding.ids, encoding.offsets, by_layer)
            for encoding, by_layer in zip(encodings, states, strict=True)
        ]

    def tokenize(self, text: str) -> Encoded:
        """Return the tokens of a text between special ones, and the characters that each stands for."""
        return self.loaded.tokenizer.encode(text)

    def states_of(self, sources: Sequence[Sequence[int]]) -> list[dict[int, Tensor]]:
        """Return the states of texts by their tokens, for each layer [tokens, width]."""
        joined = self.loaded.encode(sources)
        return [self._by_layer(numbers, len(ids)) for ids, numbers in zip(sources, joined, strict=True)]

    def encode(self, texts: Sequence[str]) -> "list[array[float]]":
        """Return the vector of each text: the mean over its tokens in the highest of `layers`, not normalised.

        Raises:
            UnsupportedModelError: a model whose files say that it represents a text otherwise.
        """
        if not self.loaded.pools_mean:
            raise UnsupportedModelError(
                f"{self.loaded.name}: does not represent a text by the mean over its tokens, which is the only way "
                "here; `hidden_states` gives all tokens"
            )
        layer = self.layers[-1]
        return [mean_of(hidden.states[layer]) for hidden in self.hidden_states(texts)]

    def _by_layer(self, numbers: "array[float]", count: int) -> dict[int, Tensor]:
        """Split the rows of a text, which have the layers side by side."""
        shape, width, stride = (count, self.width), self.width, self.width * len(self.layers)
        if len(self.layers) == 1:
            return {self.layers[0]: Tensor(numbers, "F32", shape)}
        states = {}
        for index, layer in enumerate(self.layers):
            rows = array("f")
            for start in range(index * width, count * stride, stride):
                rows += numbers[start : start + width]
            states[layer] = Tensor(rows, "F32", shape)
        return states


def mean_of(states: Tensor) -> "array[float]":
    """Return the mean of the rows of a tensor [rows, width], summed in double precision."""
    count, width = states.shape
    weights = of_floats([1.0] * count, (1, count))
    sums = array("f", bytes(product(states, weights).buffer))
    return array("f", [number / count for number in sums[:width]])

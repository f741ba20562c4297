"""From the folder of a checkpoint to an encoder, without torch and transformers."""

import os
from array import array
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from capsule_mt.engine.engine import Engine
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.loading import CONFIG_FILE, FAIRSEQ_PIECES, HubCheckpoint, open_checkpoint
from capsule_mt.models.registry import ENCODERS, write_encoder
from capsule_mt.models.weights import CheckpointError, read_json
from capsule_mt.text.tokenizer_protocol import Encoded

# as sentence-transformers writes it, and as a download has it
POOLING_FILES = f"1_Pooling/{CONFIG_FILE}", "1_Pooling.json"
MEAN_POOLING = "pooling_mode_mean_tokens"


class EncoderTokenizer(Protocol):
    """A tokenizer that puts a model's special tokens around a text."""

    def encode(self, text: str) -> Encoded: ...


class LoadedEncoder(NamedTuple):
    """An engine that encodes, its tokenizer, and facts about the model.

    layers: those whose output the engine returns side by side, each of `width` numbers a token.
    max_tokens: the most tokens of a text, special ones included.
    pools_mean: whether the model's authors represent a text by the mean over its tokens; True if no file says it.
    """

    engine: Engine
    tokenizer: EncoderTokenizer
    name: str
    layers: tuple[int, ...]
    width: int
    max_tokens: int
    pools_mean: bool

    def encode(self, sources: Sequence[Sequence[int]]) -> "list[array[float]]":
        return self.engine.encode(sources)


def is_encoder(folder: str) -> bool:
    """Return whether the folder of a checkpoint has an encoder that the engine runs, without a decoder."""
    file = os.path.join(folder, CONFIG_FILE)
    return os.path.lexists(file) and read_json(file).get("model_type") in [*ENCODERS]


def load_encoder(
    folder: str | os.PathLike[str],
    *,
    int8: bool = False,
    layers: Sequence[int] | None = None,
    num_threads: int | None = None,
) -> LoadedEncoder:
    """Load the encoder in a folder.

    Args:
        int8: multiply in int8, with a scale for each row.
        layers: the layers whose output is returned, ascending: 0 for the embeddings, `None` for the last layer.

    Raises:
        UnsupportedModelError: a model that translates, a family or a method that the engine lacks.
        CheckpointError: a damaged file, or files that do not fit together.
    """
    folder = os.fspath(folder)
    checkpoint = open_checkpoint(folder)
    if not isinstance(checkpoint, HubCheckpoint):
        raise UnsupportedModelError(f"{folder}: a model of Marian translates, and is not an encoder")
    config = checkpoint.config
    program, _ = write_encoder(config, checkpoint.weights, checkpoint.origin, layers)
    tokenizer, size = _tokenizer(folder)
    if size > program.embeddings:
        raise CheckpointError(
            f"{folder}: the tokenizer has {size} tokens, but the vocabulary of the model has {program.embeddings}"
        )
    engine = Engine(program, int8=int8, num_threads=num_threads)
    num_layers = config["num_hidden_layers"]
    return LoadedEncoder(
        engine=engine,
        tokenizer=tokenizer,
        name=folder,
        layers=(num_layers,) if layers is None else tuple(layers),
        width=config["hidden_size"],
        max_tokens=program.longest_source or 0,
        pools_mean=_pools_mean(folder),
    )


def _tokenizer(folder: str) -> tuple[EncoderTokenizer, int]:
    """Return the tokenizer of a folder, and the number of its tokens."""
    if os.path.lexists(os.path.join(folder, FAIRSEQ_PIECES)):
        from capsule_mt.models.fairseq_tokenizer import XlmRobertaTokenizer

        pieces = XlmRobertaTokenizer(folder)
        return pieces, pieces.size
    from capsule_mt.models.checkpoint_tokenizer import FileTokenizer

    tokenizer = FileTokenizer(folder)
    return tokenizer, tokenizer.vocabulary_sizes[0]


def _pools_mean(folder: str) -> bool:
    """Return whether a model represents a text by the mean over its tokens: yes, unless a file says otherwise."""
    files = (os.path.join(folder, *name.split("/")) for name in POOLING_FILES)
    file = next(filter(os.path.lexists, files), None)
    if file is None:
        return True
    value = read_json(file).get(MEAN_POOLING, False)
    if not isinstance(value, bool):
        raise CheckpointError(f"{file}: `{MEAN_POOLING}` must be true or false, got {shown(value)}")
    return value

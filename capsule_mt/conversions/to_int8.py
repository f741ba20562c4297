"""Write a model of transformers or of Marian as a checkpoint with fewer bits, without torch."""

import os
import re
import shutil
from typing import Any

from capsule_mt.conversions.to_huggingface import WriteWeights, write_huggingface
from capsule_mt.models.int8_weights import write_int8_weights
from capsule_mt.models.loading import CONFIG_FILE, HubCheckpoint, is_marian, refuse_ctranslate2
from capsule_mt.models.opening import open_file
from capsule_mt.models.registry import ENCODERS, write_encoder, write_program
from capsule_mt.models.weights import write_json

# beside config.json and the weights: how to generate, the tokenizer, the shortlist, and who may use it for what
COPIED = re.compile(
    r"generation_config\.json|shortlist\.safetensors|(special_tokens_map|added_tokens)\.json|merges\.txt"
    r"|(target_)?(tokenizer(_config)?|vocab)\.json|(source|target)\.spm|pieces\.json|(sentencepiece\.bpe|spiece)\.model"
    r"|README\.md|(LICENSE|LICENCE|NOTICE)(\.\w+)?"
)


def write_int8(folder: str | os.PathLike[str], out: str | os.PathLike[str]) -> None:
    """Write the model in `folder` to the folder `out`, with the matrices in int8 that `int8=True` rounds.

    With `int8=True` it translates as the original then does, bit for bit, without Marian's `max-length-factor`. The
    matrices to round are read one at a time.

    Raises:
        UnsupportedModelError: a model that the engine does not support, or a feature of Marian that Capsule Marian
            lacks.
        CheckpointError: a damaged file, or files that do not fit together.
    """
    write_checkpoint(folder, out, write_int8_weights)


def write_checkpoint(
    folder: str | os.PathLike[str], out: str | os.PathLike[str], write_weights: WriteWeights, **fields: Any
) -> None:
    """Write the model in `folder` to the folder `out`, with its weights as `write_weights` writes them.

    fields: of config.json, where they differ from those of the model; not for a folder of Marian's.
    """
    refuse_ctranslate2(folder)
    if is_marian(folder):
        write_huggingface(folder, out, write_weights)
        return
    checkpoint = HubCheckpoint(os.fspath(folder))
    write = write_encoder if checkpoint.config.get("model_type") in [*ENCODERS] else write_program
    _, parts = write(checkpoint.config, checkpoint.weights, checkpoint.origin)
    os.makedirs(out, exist_ok=True)
    write_weights(out, checkpoint.weights, parts)
    config = {name: value for name, value in checkpoint.config.items() if name != "torch_dtype"}
    write_json(os.path.join(out, CONFIG_FILE), {**config, "dtype": "float32", **fields})
    for name in sorted(filter(COPIED.fullmatch, os.listdir(folder))):
        with open_file(os.path.join(folder, name)) as source, open(os.path.join(out, name), "wb") as target:
            shutil.copyfileobj(source, target)

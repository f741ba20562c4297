"""A folder of Marian's as a checkpoint of transformers: a Capsule Marian in float32, its tokenizer, its shortlist."""

import os
from collections.abc import Callable
from typing import Any

from capsule_mt.engine.library import widened
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.messages import warn
from capsule_mt.models.checking import check_calibration
from capsule_mt.models.checkpoint_tokenizer import CONFIG_FILE as TOKENIZER_CONFIG_FILE
from capsule_mt.models.checkpoint_tokenizer import TARGET_TOKENIZER_FILE, TOKENIZER_FILE
from capsule_mt.models.loading import CONFIG_FILE, GENERATION_FILE, refuse_ctranslate2
from capsule_mt.models.marian_checkpoint import MarianCheckpoint
from capsule_mt.models.marian_files import options_of
from capsule_mt.models.marian_folder import MarianFolder
from capsule_mt.models.parts import Parts
from capsule_mt.models.piece_tokenizer import write_pieces_beside_json
from capsule_mt.models.registry import write_program
from capsule_mt.models.shortlist import FILE_NAME
from capsule_mt.models.weights import WEIGHTS_FILE, CheckpointError, Weights, write_json, write_safetensors

# as Marian trains students; without these fields, transformers would train with those of its own default
NO_DROPOUT = dict.fromkeys(
    ("dropout", "attention_dropout", "activation_dropout", "encoder_layerdrop", "decoder_layerdrop"), 0.0
)
# with which transformers asks for code instead of reading both languages by the source's vocabulary
TWO_VOCABULARIES: dict[str, Any] = {
    "auto_map": {"AutoTokenizer": ["separate_tokenizer.SeparateVocabulariesTokenizer", None]},
}
# writes weights to a folder; `Parts` are those of the model's program
WriteWeights = Callable[[str | os.PathLike[str], Weights, Parts], None]


def write_float_weights(folder: str | os.PathLike[str], weights: Weights, parts: Parts) -> None:
    """Write the weights of a model to a folder in float32."""
    write_safetensors(
        os.path.join(folder, WEIGHTS_FILE),
        {name: ("F32", weights.shape(name)) for name in weights},
        lambda name: widened(weights.read(name)).buffer,
        {"format": "pt"},
    )


def write_huggingface(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    write_weights: WriteWeights = write_float_weights,
    *,
    languages: tuple[str, str] | None = None,
) -> None:
    """Write the model in a folder of Marian's to the folder `out`.

    Args:
        languages: the codes of the source and the target language, which the tokenizer's configuration then names.

    Raises:
        UnsupportedModelError: a feature that Capsule Marian lacks, by name.
        CheckpointError: a damaged file, or no model of Marian.
    """
    refuse_ctranslate2(folder)
    files = MarianFolder.find(folder)
    if files is None:
        problem = "has no model of Marian" if os.path.isdir(folder) else "no such folder"
        raise CheckpointError(f"{os.fspath(folder)}: {problem}")
    checkpoint = MarianCheckpoint(files)
    variant = checkpoint.config.pop("marian_variant")
    if option := variant.first_option_beyond_capsule_marian():
        raise UnsupportedModelError(
            f"{checkpoint.origin}: `{option}` {options_of(checkpoint.stored).get(option)!r} cannot be stored in a "
            "checkpoint of transformers: translate with this folder itself"
        )
    if (factor := checkpoint.length_factor) is not None:
        warn(
            f"{files.settings_file}: `max-length-factor` {factor:g} cannot be stored in a checkpoint of transformers: "
            "translations may have three times as many tokens as their sources, plus thirty."
        )
    # both refuse what cannot be written before any file is: a vocabulary, and a name or shape
    tokenizer_jsons = checkpoint.tokenizer_jsons()
    program, parts = write_program(checkpoint.config, checkpoint.weights, checkpoint.origin)
    check_calibration(checkpoint.config.get("coverage_calibration", {}), program.head_shape, checkpoint.calibrated_by)
    shortlist = checkpoint.read_shortlist() if checkpoint.has_shortlist else None
    os.makedirs(out, exist_ok=True)
    write_weights(out, checkpoint.weights, parts)
    tokenizers = zip((TOKENIZER_FILE, TARGET_TOKENIZER_FILE), tokenizer_jsons, strict=False)
    for name, content in (
        *tokenizers,
        (CONFIG_FILE, {**checkpoint.config, **NO_DROPOUT, "dtype": "float32"}),
        (GENERATION_FILE, _generation(checkpoint)),
        (TOKENIZER_CONFIG_FILE, _tokenizer_config(checkpoint, languages)),
    ):
        write_json(os.path.join(out, name), content)
    write_pieces_beside_json(os.fspath(out), dict.fromkeys(files.vocabularies))
    if shortlist is not None:
        shortlist.save(os.path.join(out, FILE_NAME))


def _generation(checkpoint: MarianCheckpoint) -> dict[str, Any]:
    """Return how Marian decodes, in settings that transformers saves again and does not warn of."""
    generation = dict(checkpoint.generation)
    # beside the `max_new_tokens` of a call, `max_length` makes `generate()` warn
    generation["max_new_tokens"] = generation.pop("max_length") - 1
    if generation["num_beams"] == 1:  # without effect; a value other than 1 keeps transformers from saving
        generation["length_penalty"] = 1.0
    return generation


def _tokenizer_config(checkpoint: MarianCheckpoint, languages: tuple[str, str] | None) -> dict[str, Any]:
    config: dict[str, Any] = dict(checkpoint.tokenizer_config)
    if config["tokenizer_class"] == "SeparateVocabulariesTokenizer":
        config |= TWO_VOCABULARIES
    return config if languages is None else config | dict(zip(("source_lang", "target_lang"), languages, strict=True))

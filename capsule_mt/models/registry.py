"""The families that programs can be written for."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, cast

from capsule_mt.engine.program import Program, Tensor, UnsupportedModelError
from capsule_mt.messages import shown
from capsule_mt.models.parts import TIED, Parts
from capsule_mt.models.settings import ModelSettings
from capsule_mt.models.weights import Weights

# each family's module and function (ModelSettings, Weights) -> (Program, Parts); imported when a folder needs it
WRITERS = {
    "marian": ("marian", "marian_program"),
    "capsule_marian": ("marian", "marian_program"),
    **dict.fromkeys(("m2m_100", "mbart", "bart", "pegasus", "blenderbot"), ("bart", "bart_program")),
    "capsnmt": ("capsnmt", "capsnmt_program"),
    "capsule_rnmt": ("capsule_rnmt", "rnmt_program"),
}
# those of encoders without a decoder also take the layers to return
ENCODERS = dict.fromkeys(("bert", "xlm-roberta"), ("bert", "bert_program"))
TRAINED_ONLY = ("guided_losses.",)  # tensors that only training uses
# those, and other names of a tied embedding
UNUSED = (
    *(*TRAINED_ONLY, *TIED),
    # of older checkpoints of BART and M2M100: sinusoids, and a version
    *(f"model.{side}.{name}" for side in ("encoder", "decoder") for name in ("embed_positions.weights", "version")),
)
# of an encoder: what a head or a trained pooler adds, and numbers from 0 on
UNUSED_OF_ENCODERS = ("pooler.", "embeddings.position_ids", "cls.", "lm_head.", "classifier.")


def write_program(
    config: Mapping[str, Any], weights: Weights, origin: str = "the configuration"
) -> tuple[Program, Parts]:
    """Write the program of a model that translates; return it with the weights that it uses.

    Args:
        config: what config.json says, or `config.to_dict()` of a live model.
        origin: the file of the configuration, for errors.

    Raises:
        UnsupportedModelError: a family, a method or a module without operations in the engine.
        CheckpointError: a wrong field of the configuration, or weights of a file that do not fit it.
    """
    model_type = config.get("model_type")
    writer = WRITERS.get(model_type) if isinstance(model_type, str) else None
    if isinstance(model_type, str) and model_type in ENCODERS:
        raise UnsupportedModelError(
            f"{origin}: a model of type {shown(model_type)} encodes text and does not translate: load it by "
            "`capsule_mt.Encoder`"
        )
    if writer is None:
        families = ", ".join(WRITERS)
        raise UnsupportedModelError(
            f"{origin}: a model of type {shown(model_type)} is not supported by the engine, only {families}"
        )
    settings = ModelSettings(config, origin)
    program, parts = _writer(config, writer)(settings, weights)
    _check_names(weights, parts, UNUSED)
    if settings.flag("tie_word_embeddings", True):
        _check_tied(weights, parts)
    return program, parts


def write_encoder(
    config: Mapping[str, Any],
    weights: Weights,
    origin: str = "the configuration",
    layers: Sequence[int] | None = None,
) -> tuple[Program, Parts]:
    """Write the program of an encoder; arguments, result and errors are those of `write_program`.

    Args:
        layers: those whose output the program returns: see `capsule_mt.models.bert`; a `ValueError` for others.
    """
    model_type = config.get("model_type")
    writer = ENCODERS.get(model_type) if isinstance(model_type, str) else None
    if writer is None:
        raise UnsupportedModelError(
            f"{origin}: a model of type {shown(model_type)} is not an encoder that the engine runs, only "
            f"{', '.join(ENCODERS)}"
        )
    program, parts = _writer(config, writer)(ModelSettings(config, origin), weights, layers)
    prefixes = {name.partition("embeddings.word_embeddings.weight")[0] for name in parts.tables}
    _check_names(weights, parts, tuple(prefix + name for prefix in ("", *prefixes) for name in UNUSED_OF_ENCODERS))
    return program, parts


def _writer(config: Mapping[str, Any], writer: tuple[str, str]) -> Callable[..., tuple[Program, Parts]]:
    if config.get("quantization_config") is not None:
        raise UnsupportedModelError("a quantised model (`quantization_config`) is not supported by the engine")
    module, function = writer
    return cast(
        "Callable[..., tuple[Program, Parts]]", getattr(import_module(f"capsule_mt.models.{module}"), function)
    )


def _check_names(weights: Weights, parts: Parts, unused: tuple[str, ...]) -> None:
    for name in weights:
        if name not in parts.used and not name.startswith(unused):
            raise weights.problem(name, f"has `{name}`, which the configuration does not describe")


def _check_tied(weights: Weights, parts: Parts) -> None:
    """Refuse an embedding that is stored a second time with other numbers: transformers would not tie it."""
    names = [f"{module}.weight" for module in TIED]
    used_names = [name for name in names if name in parts.used]
    for name in weights:
        if name not in names or name in used_names:
            continue
        if not any(_are_equal(weights, name, used_name) for used_name in used_names):
            raise weights.problem(
                name,
                f"`{name}` differs from `{used_names[0]}`, but the configuration ties them: set `tie_word_embeddings` "
                "to false to use both",
            )


def _are_equal(weights: Weights, name: str, other_name: str) -> bool:
    first, second = weights.read(name), weights.read(other_name)
    if not isinstance(first, Tensor) or not isinstance(second, Tensor):
        return False
    return memoryview(first.buffer) == memoryview(second.buffer)

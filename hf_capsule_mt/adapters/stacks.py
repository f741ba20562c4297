"""The stacks of layers of a transformers model: their names in it, their layers, and the norms beside these."""

from typing import Any, NamedTuple

from torch import nn

LISTS_OF_LAYERS = ("layers", "block", "h")  # Marian, BART, M2M100, Llama and most others; T5; GPT-2


class Layers(NamedTuple):
    """The layers of a stack in the order in which they run, its norms, and the width.

    norms: modules of the stack without matrices, one of which may follow the last layer. Names do not tell which:
        `layernorm_embedding` ends the stack of BigBirdPegasus, and begins that of BART.
    """

    layers: list[nn.Module]
    norms: list[nn.Module]
    width: int


def layers_of(stack: nn.Module) -> Layers:
    """Return the layers of a stack; raise a `ValueError` unless it has one list of them, and a `hidden_size`."""
    lists = [getattr(stack, name, None) for name in LISTS_OF_LAYERS]
    layers = [layer_list for layer_list in lists if isinstance(layer_list, nn.ModuleList) and len(layer_list)]
    if len(layers) != 1:
        raise ValueError(
            f"{type(stack).__name__} must have one list of layers named {' or '.join(LISTS_OF_LAYERS)}, "
            f"has {len(layers)}"
        )
    width = getattr(getattr(stack, "config", None), "hidden_size", None)
    if width is None:
        raise ValueError(f"{type(stack).__name__} must have a `config` with `hidden_size`, the width of its layers")
    # not a projection: of one with LoRA, a hook may be on the base's part alone, and LoRA would read the old states
    norms = [module for module in stack.children() if all(weight.dim() < 2 for weight in module.parameters())]
    return Layers(list(layers[0]), norms, width)


def stacks_of(model: Any, side: str) -> list[str]:
    """Return the names of the model's encoder, its decoder or both."""
    stacks: dict[str, nn.Module] = {"decoder": model.get_decoder()}
    if model.config.is_encoder_decoder:
        stacks["encoder"] = model.get_encoder()
    if any(stack is model for stack in stacks.values()):
        raise ValueError(
            f"{type(model).__name__} must have an encoder or a decoder that is one of its modules: give an adapter "
            "an encoder-decoder, or a decoder with its head, as AutoModelForSeq2SeqLM and AutoModelForCausalLM load"
        )
    wanted = [stack for name, stack in stacks.items() if side in (name, "both")]
    if not wanted:
        raise ValueError(f'`side` "{side}" needs an encoder-decoder, got {type(model).__name__}: leave `side` out')
    return sorted(name for name, module in model.named_modules() if any(module is stack for stack in wanted))

"""The stacks of layers of a transformers model: their names in it, their layers, and the norm that follows them."""

from typing import Any, NamedTuple

from torch import nn

LISTS_OF_LAYERS = ("layers", "block", "h")  # Marian, BART, M2M100, Llama and most others; T5; GPT-2
LAST_NORMS = ("layer_norm", "final_layer_norm", "norm", "ln_f", "final_norm")


class Layers(NamedTuple):
    """The layers of a stack in the order in which they run, the norm after them in a pre-norm stack, and the width."""

    layers: list[nn.Module]
    last_norm: nn.Module | None
    width: int


def layers_of(stack: nn.Module) -> Layers:
    """Raise a `ValueError` where the stack is not built as those of transformers are."""
    lists = [getattr(stack, name, None) for name in LISTS_OF_LAYERS]
    layers = [layer_list for layer_list in lists if isinstance(layer_list, nn.ModuleList) and len(layer_list)]
    if len(layers) != 1:
        raise ValueError(
            f"{type(stack).__name__} must have one list of layers named {' or '.join(LISTS_OF_LAYERS)}, "
            f"has {len(layers)}"
        )
    norms = [getattr(stack, name) for name in LAST_NORMS if isinstance(getattr(stack, name, None), nn.Module)]
    config: Any = stack.config
    return Layers(list(layers[0]), norms[0] if norms else None, config.hidden_size)


def stacks_of(model: Any, side: str) -> list[str]:
    """Return the names of the model's encoder, its decoder or both."""
    stacks: dict[str, nn.Module] = {"decoder": model.get_decoder()}
    if model.config.is_encoder_decoder:
        stacks["encoder"] = model.get_encoder()
    wanted = [stack for name, stack in stacks.items() if side in (name, "both")]
    if not wanted:
        raise ValueError(f'`side` is "{side}", but {type(model).__name__} has only {" and ".join(stacks)}')
    return sorted(name for name, module in model.named_modules() if any(module is stack for stack in wanted))

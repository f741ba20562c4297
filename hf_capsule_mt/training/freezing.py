"""Train a part of a model and freeze the rest, such as the weights of the OPUS-MT model that it started from."""

from collections.abc import Iterable

from transformers import PreTrainedModel


def train_only(model: PreTrainedModel, weights: Iterable[str]) -> PreTrainedModel:
    """Freeze all parameters but those of some names; return the model.

    model, info = CapsuleMarianMTModel.from_marian(name, guided_routing="guided", output_loading_info=True)
    train_only(model, info["new_weights"])
    """
    names = set(weights)
    if not names & dict(model.named_parameters()).keys():
        raise ValueError("nothing is left to train: the model has none of these weights. Switch capsules on first")
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    return model

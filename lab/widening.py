"""Widen the feed-forward layers of a trained Marian model, whose translations stay the same."""

import copy
from pathlib import Path

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedModel


@torch.no_grad()
def widen(model: PreTrainedModel, size: int, seed: int) -> PreTrainedModel:
    """Return a model with all weights of another and further hidden units in each feed-forward layer.

    The new units start as in a new model, and what they add starts at zero.

    Args:
        size: units of each feed-forward layer, at least as many as there are.
        seed: of the new units.
    """
    config = copy.deepcopy(model.config)
    narrow = max(config.encoder_ffn_dim, config.decoder_ffn_dim)
    if size < narrow:
        raise ValueError(f"`size` must be at least {narrow}, the units that the model has, got {size}")
    config.encoder_ffn_dim = config.decoder_ffn_dim = size
    torch.manual_seed(seed)
    wide = type(model)(config)
    old = model.state_dict()
    for name, weight in wide.state_dict().items():
        if name.endswith("fc2.weight"):
            weight.zero_()
        weight[tuple(map(slice, old[name].shape))] = old[name]
    wide.generation_config = copy.deepcopy(model.generation_config)
    return wide.train(model.training)


def widen_checkpoint(folder: Path, output: Path, size: int, seed: int) -> None:
    """Write a widened checkpoint with its tokenizer at once: `output` is there complete or not at all."""
    partial = output.with_name(f"{output.name}.partial")
    widen(AutoModelForSeq2SeqLM.from_pretrained(folder), size, seed).save_pretrained(partial)
    AutoTokenizer.from_pretrained(folder).save_pretrained(partial)
    partial.replace(output)

"""What a model thinks of translations that are already there: forced decoding."""

from typing import Any

import torch

from hf_capsule_mt.modeling.losses import token_log_probs


@torch.no_grad()
def encode_for_each(model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, returned: int) -> Any:
    """The encoder's outputs, computed once for each source, with a row for each of its translations."""
    encoded = model.get_encoder()(input_ids=input_ids, attention_mask=attention_mask, return_dict=True)
    rows = {
        name: value.repeat_interleave(returned, dim=0)
        for name, value in encoded.items()
        if isinstance(value, torch.Tensor)
    }
    return type(encoded)(**rows)


@torch.no_grad()
def score_sequences(
    model: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    sequences: torch.Tensor,
    lengths: torch.Tensor,
) -> torch.Tensor:
    """The average log-probability of a token, the end token included, of each sequence: [B * returned].

    Args:
        input_ids, attention_mask: the sources [B, S]; the mask keeps where it is 1.
        sequences: the translations [B * returned, T], each after its start token; those of a source stand together.
        lengths: how many tokens after the start token count [B * returned].
    """
    returned = len(sequences) // len(input_ids)
    logits = model(
        encoder_outputs=encode_for_each(model, input_ids, attention_mask, returned),
        attention_mask=attention_mask.repeat_interleave(returned, dim=0),
        decoder_input_ids=sequences[:, :-1],
        use_cache=False,
    ).logits.float()
    targets = sequences[:, 1:]
    log_probs = token_log_probs(logits, targets)  # [B * returned, T - 1]
    lengths = lengths.to(log_probs.device)
    counts = torch.arange(targets.shape[1], device=log_probs.device) < lengths[:, None]
    return log_probs.masked_fill(~counts, 0.0).sum(dim=1) / lengths.clamp(min=1)

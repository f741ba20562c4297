"""What a model thinks of translations that are already there: forced decoding."""

from typing import Any

import torch


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
        input_ids=input_ids.repeat_interleave(returned, dim=0),
        attention_mask=attention_mask.repeat_interleave(returned, dim=0),
        decoder_input_ids=sequences[:, :-1],
        use_cache=False,
    ).logits.float()
    targets = sequences[:, 1:]
    log_probs = logits.gather(2, targets[..., None])[..., 0] - logits.logsumexp(dim=2)  # [B * returned, T - 1]
    lengths = lengths.to(log_probs.device)
    counts = torch.arange(targets.shape[1], device=log_probs.device) < lengths[:, None]
    return log_probs.masked_fill(~counts, 0.0).sum(dim=1) / lengths.clamp(min=1)

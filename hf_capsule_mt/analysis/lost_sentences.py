"""Ask which of several joined sentences a translation left out: of PAST and FUTURE, and of a head of attention.

PAST and FUTURE are said to hold what is translated and what is not (Zheng et al. 2019). If they follow the content of
a source, they name a lost sentence wherever it stood. If they only count how far the translation has come, they name
the last one. The question needs neither training nor readers: short pairs are joined, and one reference is left out.

Legend: K joined sentences, B = K sources of a group, S source words, T target words, H heads of all layers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_capsule_mt.modeling.coverage import past_future_curves
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX


class LostSentence(NamedTuple):
    """How often a lost sentence is named, by where it stood.

    joined: how many sentences a source has; chance names one in `joined`.
    lost: which of them the translation left out, from 1.
    cases: how many sources.
    past_future: in how many its words are the least PAST and the most FUTURE at the end; `None` without such routing.
    attention: in how many its words got the least attention of `head`.
    head: the layer and the head, from 1, that name most in the groups that are not counted.
    """

    joined: int
    lost: int
    cases: int
    past_future: int | None
    attention: int
    head: tuple[int, int]


class _Group(NamedTuple):
    """Which sentence is named, [K] by which one was lost; by each head [K, H]."""

    past_future: torch.Tensor | None
    heads: torch.Tensor


@torch.no_grad()
def lost_sentences(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sources: Sequence[str],
    targets: Sequence[str],
    joined: int = 2,
) -> list[LostSentence]:
    """Join consecutive pairs, and count how often the sentence whose reference is left out is named.

    The head is chosen on every other group, from the first; the counts are of the rest.
    """
    if joined < 2:
        raise ValueError(f"`joined` must be at least 2, got {joined}")
    starts = range(0, len(sources) - joined + 1, joined)
    if len(starts) < 2:
        raise ValueError(f"{len(sources)} sentences are too few: two groups of {joined} need {2 * joined}")
    source_ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in sources]
    target_ids = [tokenizer(text_target=text, add_special_tokens=False)["input_ids"] for text in targets]
    layers: list[int] = []
    groups = []
    for start in starts:
        group = slice(start, start + joined)
        named, layers = _name_lost(model, tokenizer.eos_token_id, source_ids[group], target_ids[group])
        groups.append(named)
    lost = torch.arange(joined)
    hits_of_heads = torch.stack([group.heads == lost[:, None] for group in groups])  # [groups, K, H]
    best = int(hits_of_heads[::2].sum(dim=(0, 1)).argmax())
    by_attention = hits_of_heads[1::2, :, best].sum(dim=0).tolist()
    named_by_guidance = [group.past_future == lost for group in groups[1::2] if group.past_future is not None]
    by_guidance = torch.stack(named_by_guidance).sum(dim=0).tolist() if named_by_guidance else [None] * joined
    head = (layers[best] + 1, best - layers.index(layers[best]) + 1)
    return [
        LostSentence(joined, index + 1, len(groups) // 2, by_guidance[index], by_attention[index], head)
        for index in range(joined)
    ]


def _name_lost(model: Any, eos: int, sources: list[list[int]], targets: list[list[int]]) -> tuple[_Group, list[int]]:
    """Return what is named if each of a group's references is left out in turn, and the layer of each head."""
    joined = len(sources)
    source = [token for ids in sources for token in ids] + [eos]
    rows = [[token for index, ids in enumerate(targets) if index != lost for token in ids] for lost in range(joined)]
    length = max(map(len, rows)) + 1
    labels = torch.tensor([[*row, eos] + [IGNORE_INDEX] * (length - 1 - len(row)) for row in rows])
    output = model.eval()(
        input_ids=torch.tensor([source] * joined, device=model.device),
        attention_mask=torch.ones(joined, len(source), dtype=torch.long, device=model.device),
        decoder_input_ids=model.prepare_decoder_input_ids_from_labels(labels.to(model.device)),
        output_attentions=True,
        output_routing_weights=True,
        use_cache=False,
    )
    if not output.cross_attentions:
        raise ValueError(f"{type(model).__name__} with this configuration does not attend to the source")
    sizes = [len(ids) for ids in sources]
    real = labels.ne(IGNORE_INDEX)
    attention = torch.cat([weights.cpu() for weights in output.cross_attentions], dim=1)  # [B, H, T, S]
    received = (attention * real[:, None, :, None]).amax(dim=2)[..., :-1]
    by_heads = torch.stack([part.mean(dim=-1) for part in received.split(sizes, dim=-1)], dim=-1).argmin(dim=-1)
    layers = [layer for layer, weights in enumerate(output.cross_attentions) for _ in range(weights.shape[1])]
    guidance = (output.routing_weights or {}).get("decoder.guidance")
    if guidance is None or not hasattr(model, "capsules_per_group"):
        return _Group(None, by_heads), layers
    curves = past_future_curves(guidance[-1].cpu(), model.capsules_per_group)
    ends = real.sum(dim=1) - 1
    balance = (curves.past - curves.future)[torch.arange(joined), :, ends][:, :-1]  # [B, S]
    by_balance = torch.stack([part.mean(dim=-1) for part in balance.split(sizes, dim=-1)], dim=-1).argmin(dim=-1)
    return _Group(by_balance, by_heads), layers

"""The auxiliary losses of PAST and FUTURE (Zheng et al. 2019, section 3.3): bag of words, and bilingual content
agreement.

Legend: B batch, T target positions, n capsules of each group, D width of a capsule, d width of the decoder's state, e
that of embeddings, V vocabulary, R rows: the steps of all sentences, once for PAST and once for FUTURE.
"""

from typing import Any, NamedTuple

import torch
from torch import nn

from hf_capsule_mt.configuration.guided import GuidedConfig
from hf_capsule_mt.modeling.summed_losses import IGNORE_INDEX
from hf_capsule_mt.routing.common import without_autocast

# how many logits one product computes: many, as each product reads all embeddings again
PRODUCT_ON_CPU, PRODUCT_ELSEWHERE = 2**22, 2**26


class GuidedLossParts(NamedTuple):
    """The two losses, weighted and normalised as they are added to the cross entropy; `None` where the weight is 0."""

    bow_loss: torch.Tensor | None
    bca_loss: torch.Tensor | None


class GuidedLosses(nn.Module):
    """Both losses and their parameters, which exist where a weight is not 0, and which only training needs.

    The cross entropy is summed over the tokens of a batch and divided by their number N. A guided loss is averaged
    over the steps of a sentence, summed over the sentences, and divided by the same N: the proportions of the paper,
    whose sentences count their cross entropy as a sum over steps and the other two as averages.
    """

    def __init__(self, config: GuidedConfig, width: int, embedding_width: int | None = None) -> None:
        """`width`: of the decoder's states; `embedding_width`: of the target words, if it differs."""
        super().__init__()
        # Deviation: both losses average where the paper prints a sum: over the words of a bag, and over the squares of
        # a difference. With weights of 1 the sums would outweigh the cross entropy by the length of a sentence and by
        # the width of the capsules; the authors' code averages as well
        self.bow_weight = config.guided_bow_weight
        self.bca_weight = config.guided_bca_weight
        self.bow_bags = config.guided_bow_bags
        group_width = config.guided_num_capsules * config.guided_capsule_dim
        if self.bow_weight > 0:  # W_BoW, applied to the sum of a group's capsules
            self.past_words = nn.Linear(config.guided_capsule_dim, embedding_width or width, bias=False)
            self.future_words = nn.Linear(config.guided_capsule_dim, embedding_width or width, bias=False)
        if self.bca_weight > 0:  # W_BCA, to the concatenation of a group's capsules
            self.past_content = nn.Linear(width, group_width, bias=False)
            self.future_content = nn.Linear(width, group_width, bias=False)

    def forward(
        self,
        capsules: torch.Tensor,
        state: torch.Tensor,
        labels: torch.Tensor,
        embeddings: torch.Tensor,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> GuidedLossParts:
        """Compute the losses of a batch.

        Args:
            capsules: PAST (the first half) and FUTURE [B, T, 2 n, D].
            state: the decoder's states z [B, T, d] before guidance.
            labels: [B, T], `IGNORE_INDEX` where there is no target.
            embeddings: of the target words [V, e], those that the output projection multiplies with.
            num_items_in_batch: as in `cross_entropy`.
        """
        labels = labels.to(capsules.device)
        keep = labels.ne(IGNORE_INDEX)  # [B, T]
        lengths = keep.sum(dim=-1, keepdim=True).clamp(min=1)  # [B, 1]
        if num_items_in_batch is None:
            num_items_in_batch = keep.sum().clamp(min=1)
        elif isinstance(num_items_in_batch, torch.Tensor):
            num_items_in_batch = num_items_in_batch.to(capsules.device)
        shares = keep / (lengths * num_items_in_batch)  # of each step in the losses [B, T]
        bow_loss = bca_loss = None
        if self.bow_weight > 0:
            words = torch.stack(self.word_states(capsules))  # [2, B, T, e]
            bags = torch.stack(bag_shares(keep, self.bow_bags))  # [2, B, T, T]
            bow_loss = bag_of_words_loss(words, embeddings, labels, self.bow_weight * shares.unsqueeze(-1) * bags)
        if self.bca_weight > 0:
            bca_loss = self.bca_weight * (self.disagreement(capsules, state, keep) * shares).sum()
        return GuidedLossParts(bow_loss, bca_loss)

    def word_states(self, capsules: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return W_BoW Omega [B, T, e] of PAST and of FUTURE; times the embeddings they are the logits of the bags."""
        if self.bow_weight == 0:
            raise ValueError("`guided_bow_weight` is 0: the model has no weights to predict bags of words")
        # Deviation: the paper multiplies Omega^P by W_BoW and is silent on how its J/2 capsules become one vector.
        # Here it is their sum: its numbers of parameters (+0.3M) leave W_BoW the inputs of one capsule.
        past, future = (group.sum(dim=-2) for group in capsules.chunk(2, dim=-2))  # [B, T, D]
        return self.past_words(past), self.future_words(future)

    def disagreement(self, capsules: torch.Tensor, state: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """(Omega^P - W^P mean(z_1..z_t))^2 + (Omega^F - W^F mean(z_t..z_T))^2, averaged over the width [B, T]."""
        groups = torch.stack([group.flatten(-2) for group in capsules.chunk(2, dim=-2)])  # [2, B, T, n D]
        past_state, future_state = (average.to(state.dtype) for average in running_averages(state, keep))
        contents = torch.stack([self.past_content(past_state), self.future_content(future_state)])
        dtype = torch.promote_types(state.dtype, torch.float32)
        return (groups.to(dtype) - contents.to(dtype)).square().mean(dim=-1).sum(dim=0)


def running_averages(state: torch.Tensor, keep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the means of z_1..z_t and of z_t..z_T [B, T, d] over the positions that `keep` [B, T] keeps."""
    values = state.to(torch.promote_types(state.dtype, torch.float32)) * keep.unsqueeze(-1)
    counts = keep.cumsum(dim=-1).unsqueeze(-1)  # [B, T, 1]
    sums = values.cumsum(dim=1)
    remaining_counts = counts[:, -1:] - counts + keep.unsqueeze(-1)
    remaining_sums = sums[:, -1:] - sums + values
    return sums / counts.clamp(min=1), remaining_sums / remaining_counts.clamp(min=1)


def bag_shares(keep: torch.Tensor, bags: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the share of each target word [B, step, word] in the PAST and the FUTURE bag of each step.

    Args:
        keep: [B, T], the positions of real target words.
        bags: "inclusive" if the word that a step predicts is in both bags, "exclusive" if it is in neither.

    The shares of a bag sum to one; an empty bag's are zero.
    """
    pairs = keep.unsqueeze(1) & keep.unsqueeze(2)  # [B, T, T]
    offset = 0 if bags == "inclusive" else 1
    shares = []
    for bag in (pairs.tril(-offset), pairs.triu(offset)):
        share = bag.float()
        shares.append(share / share.sum(dim=-1, keepdim=True).clamp(min=1))
    return shares[0], shares[1]


def bag_of_words_loss(
    states: torch.Tensor, embeddings: torch.Tensor, labels: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """-sum share log p(word) over all words of all bags, with p = softmax(embeddings . state) of the bag's step.

    Args:
        states: [2, B, T, e].
        embeddings: [V, e].
        labels: the words [B, T].
        shares: of each word in each bag [2, B, T steps, T words]; 0 where the label is `IGNORE_INDEX`.

    The logits [R, V] exist a few rows at a time: the gradients are computed with them in the forward pass.
    """
    num_groups, batch_size, length = states.shape[:3]
    sentences = torch.arange(batch_size, device=states.device).expand(num_groups, batch_size)
    sentences = sentences.unsqueeze(-1).expand(-1, -1, length).flatten()  # [R]
    states, shares = states.flatten(0, 2), shares.flatten(0, 2)  # [R, e], [R, T]
    return _BagOfWordsLoss.apply(states, embeddings, labels.clamp(min=0)[sentences], shares)


class _BagOfWordsLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: torch.Tensor, embeddings: torch.Tensor, words: torch.Tensor, shares: torch.Tensor
    ) -> torch.Tensor:
        """States [R, e], embeddings [V, e], the words of each row's sentence [R, T] and their shares -> the loss."""
        dtype = torch.promote_types(states.dtype, torch.float32)
        # in float16 small gradients would underflow before loss scaling
        exact, stored = (dtype if kind == torch.float16 else kind for kind in (states.dtype, embeddings.dtype))
        wants_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        grad_states = torch.empty_like(states, dtype=exact) if wants_grad else None
        grad_embeddings = torch.zeros_like(embeddings, dtype=stored) if wants_grad else None
        matrix = embeddings.to(states.dtype)
        loss = states.new_zeros((), dtype=dtype)
        rows_at_once = max(1, (PRODUCT_ON_CPU if states.is_cpu else PRODUCT_ELSEWHERE) // len(embeddings))
        with without_autocast(states):
            for start in range(0, len(states), rows_at_once):
                rows = slice(start, start + rows_at_once)
                logits = torch.mm(states[rows], matrix.t()).to(dtype)  # [r, V]
                share = shares[rows].to(dtype)  # [r, T]
                mass = share.sum(dim=-1, keepdim=True)  # [r, 1]
                loss -= (share * logits.gather(1, words[rows])).sum()
                peak = logits.amax(dim=-1, keepdim=True)
                exponentials = logits.sub_(peak).exp_()
                total = exponentials.sum(dim=-1, keepdim=True)
                loss += (mass * (peak + total.log())).sum()
                if grad_states is not None and grad_embeddings is not None:
                    grad_logits = exponentials.mul_(mass / total).scatter_add_(1, words[rows], -share)
                    grad_logits = grad_logits.to(exact)
                    grad_states[rows] = torch.mm(grad_logits, matrix.to(exact))
                    if stored == exact:
                        grad_embeddings.addmm_(grad_logits.t(), states[rows].to(exact))
                    else:
                        grad_embeddings += torch.mm(grad_logits.t(), states[rows].to(exact))
        ctx.save_for_backward(grad_states, grad_embeddings)
        ctx.dtypes = states.dtype, embeddings.dtype
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_loss: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        grad_states, grad_embeddings = ctx.saved_tensors
        states_dtype, embeddings_dtype = ctx.dtypes
        return (
            (grad_states * grad_loss).to(states_dtype),
            (grad_embeddings * grad_loss).to(embeddings_dtype),
            None,
            None,
        )


def build_guided_losses(config: GuidedConfig, width: int, embedding_width: int | None = None) -> GuidedLosses | None:
    """Return the configured losses, or `None` if there are none."""
    return GuidedLosses(config, width, embedding_width) if config.has_guided_losses else None

"""Depth aggregation without agreement: one weighted sum of the layers' outputs at each position.

The successors of the layer aggregation of Dou et al. 2019, as pure functions. Legend: L sources h_1 ... h_L, which are
the embedding and the outputs of the layers; d model width; K hidden units.
RMSNorm(h) = h / sqrt(mean(h^2) + eps), without a gain.

Deviation, of all four: the papers combine the residual stream of pre-norm language models. Marian is post-norm, and
its sources are the normalised outputs of whole layers, as in DLCL (Wang et al. 2019, arXiv:1906.01787).
"""

import torch

from hf_capsule_mt.routing.common import iteration_dtype, without_autocast


def weighted_sum(sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return H = sum_l a_l h_l [..., d] of sources [..., L, d].

    DenseFormer's depth-weighted average (Pagliardini et al. 2024, arXiv:2402.02622) has learnt weights [L, 1].

    Args:
        sources: h [..., L, d].
        weights: a, one for each source [..., L, 1], or one for each source and unit [..., L, d].

    Relations: with a = (0 ... 0, 1) it is the top layer, with a = 1 / L the mean.
    """
    with without_autocast(sources):
        wide = sources.to(iteration_dtype(sources))
        return (weights.to(wide.dtype) * wide).sum(dim=-2).to(sources.dtype)


def depth_attention(
    sources: torch.Tensor, query: torch.Tensor, gain: torch.Tensor, *, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend from one learnt query to the layers (Attention Residuals, arXiv:2603.15031).

        a = softmax_l(w . (g * RMSNorm(h_l))),    H = sum_l a_l h_l

    Args:
        sources: h [..., L, d].
        query: w [d], the same for all positions.
        gain: g [d], that of the RMSNorm.
        epsilon: eps of the RMSNorm.

    Returns:
        H [..., d] in the dtype of the sources, and a [..., L].

    Relations: with w = 0 it is the mean of the sources. The order of the sources does not matter.

    Deviation: the paper attends before each attention and each feed-forward layer, and to what each of them adds to
    the stream. Here the sources are whole layers.
    """
    with without_autocast(sources):
        scores = normalized(sources, epsilon) @ (query * gain).to(iteration_dtype(sources))  # [..., L]
        weights = scores.softmax(dim=-1)
    return weighted_sum(sources, weights.unsqueeze(-1)), weights


def multiway_dense(
    sources: torch.Tensor, inner: torch.Tensor, outer: torch.Tensor, offsets: torch.Tensor, *, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Let the top source weigh all sources, at each position (MUDD connections, Xiao et al. 2025, arXiv:2502.12170).

        a = W_2 GELU(W_1 RMSNorm(h_L)) + b,    H = sum_l a_l h_l

    Args:
        sources: h [..., L, d].
        inner: W_1 [K, d].
        outer: W_2 [L, K].
        offsets: b [L].
        epsilon: eps of the RMSNorm.

    Returns:
        H [..., d] in the dtype of the sources, and a [..., L].

    Relations: with W_2 = 0 it is `weighted_sum` with b: DenseFormer's.

    Deviation: the paper has four such sums before every layer, for query, key, value and residual. Here is one, after
    the top layer, with K = L.
    """
    with without_autocast(sources):
        hidden = torch.nn.functional.gelu(
            normalized(sources[..., -1, :], epsilon) @ inner.t().to(iteration_dtype(sources))
        )
        weights = hidden @ outer.t().to(hidden.dtype) + offsets.to(hidden.dtype)  # [..., L]
    return weighted_sum(sources, weights.unsqueeze(-1)), weights


def generalized_residual(
    sources: torch.Tensor, direction: torch.Tensor, offsets: torch.Tensor, *, epsilon: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weigh each unit of each source, by the source itself (GRN of DeepCrossAttention, Heddes et al. 2025).

        a_l = b_l + relu(w . RMSNorm(h_l)),    H = sum_l a_l * h_l        elementwise, arXiv:2502.06785

    Args:
        sources: h [..., L, d].
        direction: w [d].
        offsets: b [L, d].
        epsilon: eps of the RMSNorm.

    Returns:
        H [..., d] in the dtype of the sources, and a [..., L, d].

    Relations: with w = 0 and equal numbers in each row of b it is `weighted_sum` with these: DenseFormer's.

    Deviation: the paper has three such sums before every layer, for query, key and value. Here is one, after the top
    layer.
    """
    with without_autocast(sources):
        scores = normalized(sources, epsilon) @ direction.to(iteration_dtype(sources))
        weights = scores.relu().unsqueeze(-1) + offsets.to(scores.dtype)  # [..., L, d]
    return weighted_sum(sources, weights), weights


def normalized(hidden: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return RMSNorm(h) of [..., d], in float32 at least."""
    return torch.nn.functional.rms_norm(hidden.to(iteration_dtype(hidden)), hidden.shape[-1:], eps=epsilon)

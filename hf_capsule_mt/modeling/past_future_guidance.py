"""PAST and FUTURE (Zheng et al. 2019): the translated and the untranslated part of the source, between decoder and
vocabulary.

At each step, capsules gather the source words that are translated (PAST) and those that are not yet (FUTURE); a small
network adds them to the decoder's state, from which the next word is predicted.

Legend: B batch, S source positions, T target positions, n capsules of each group, M all capsules, D width of a
capsule, d width of the decoder's state. In every mask `True` keeps.
"""

from typing import NamedTuple

import torch
from torch import nn

from hf_capsule_mt.configuration.guided import GuidedConfig
from hf_capsule_mt.modeling.matrices import matrix_of
from hf_capsule_mt.modeling.outputs import IterationWeights
from hf_capsule_mt.modeling.sentence_cache import SentenceConstants
from hf_capsule_mt.routing.additive import additive_scores
from hf_capsule_mt.routing.guided import GuidedScorer, GuidedVotes, project_votes, route_guided_votes

# What guidance computes once per sentence: two tensors [B, capsules, S, D], and their names in a decoding cache
GuidanceSources = tuple[torch.Tensor, torch.Tensor]
SOURCE_NAMES = ("guidance_0", "guidance_1")


class GuidanceOutput(NamedTuple):
    """The result of guidance.

    state: o [B, T, d], which takes the place of the decoder's state.
    capsules: PAST (the first half) and FUTURE [B, T, 2 n, D]; `None` without guidance.
    weights: assignment probabilities [B, T, S, M] for each iteration, if they were asked for and there are any.
    """

    state: torch.Tensor
    capsules: torch.Tensor | None
    weights: IterationWeights | None


class NoGuidance(nn.Module):
    """No PAST and no FUTURE: the decoder's state as it is."""

    def forward(self, state: torch.Tensor, *_: object) -> GuidanceOutput:
        return GuidanceOutput(state, None, None)


class PastFutureGuidance(nn.Module):
    """Section 3.2: o_t = z_t + FF(z_t, PAST, FUTURE). Subclasses gather the capsules of PAST and FUTURE."""

    def __init__(self, config: GuidedConfig, width: int) -> None:
        """`width`: of the decoder's states and of the encoder's."""
        super().__init__()
        self.num_capsules = config.guided_num_capsules
        self.capsule_dim = config.guided_capsule_dim
        # Deviation: dropout before the residual, as after the models' other feed-forward networks; none is printed
        self.dropout = config.dropout
        self.fc1 = nn.Linear(width + 2 * self.num_capsules * self.capsule_dim, config.guided_ffn_dim)
        self.fc2 = nn.Linear(config.guided_ffn_dim, width)

    @torch.no_grad()
    def start_without_effect(self) -> None:
        """Set the last layer to zero: o_t equals z_t exactly, until training changes it."""
        self.fc2.weight.zero_()
        self.fc2.bias.zero_()

    def prepare(
        self, encoder_states: torch.Tensor | None, mask: torch.Tensor | None, cache: SentenceConstants | None
    ) -> GuidanceSources:
        """Return what depends on the encoder's states [B, S, d] alone: from the cache, or computed and put there."""
        if cache is not None and SOURCE_NAMES[0] in cache.constants:
            return cache.constants[SOURCE_NAMES[0]], cache.constants[SOURCE_NAMES[1]]
        if encoder_states is None:
            raise ValueError(
                "`guided_routing` assigns source words, so the decoder needs `encoder_hidden_states`, got None"
            )
        sources = self.project(encoder_states, mask)
        if cache is not None:
            cache.constants.update(zip(SOURCE_NAMES, sources, strict=True))
            cache.number_sentences(encoder_states)
        return sources

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Encoder states [B, S, d] and their mask [B, S] -> two tensors [B, capsules, S, D]."""
        raise NotImplementedError

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        """States z [B, T, d] -> PAST and FUTURE capsules [B, T, 2 n, D]; weights [B, T, S, M], if any."""
        raise NotImplementedError

    def forward(
        self,
        state: torch.Tensor,
        source: torch.Tensor | None,
        mask: torch.Tensor | None,
        cache: SentenceConstants | None = None,
        output_routing_weights: bool = False,
    ) -> GuidanceOutput:
        """Add PAST and FUTURE of the source [B, S, d], with its mask [B, S], to states z [B, T, d]."""
        if mask is not None and mask.dim() != 2:
            raise ValueError(
                f"guided routing needs the padding mask [batch, source] of the encoder, got shape {list(mask.shape)}"
            )
        mask = None if mask is None else mask.bool()
        sources = self.prepare(source, mask, cache)
        capsules, weights = self.gather(state, sources, mask, output_routing_weights)
        joined = torch.cat([state, capsules.flatten(-2).to(state.dtype)], dim=-1)  # [B, T, d + 2 n D]
        added = self.fc2(nn.functional.relu(self.fc1(joined)))
        added = nn.functional.dropout(added, p=self.dropout, training=self.training)
        return GuidanceOutput(state + added, capsules, weights)

    def _split(self, capsules: torch.Tensor, num_capsules: int) -> torch.Tensor:
        """[B, S, M * D] -> [B, M, S, D]."""
        return capsules.unflatten(-1, (num_capsules, self.capsule_dim)).transpose(1, 2).contiguous()


class GuidedRoutingGuidance(PastFutureGuidance):
    """Section 3.1: guided dynamic routing of the source words to PAST, FUTURE and redundant capsules."""

    def __init__(self, config: GuidedConfig, width: int) -> None:
        super().__init__(config, width)
        self.num_iterations, self.score_form = config.guided_num_iterations, config.guided_score
        self.num_outputs = 2 * self.num_capsules + config.guided_num_redundant_capsules
        self.votes = nn.Linear(width, self.num_outputs * self.capsule_dim, bias=False)  # W_j
        # W_b in three parts, and w. One iteration has no scores, and so no parameters for them
        if self.num_iterations > 1:
            self.query_projection = nn.Linear(width, self.capsule_dim, bias=False)
            self.vote_projection = nn.Linear(self.capsule_dim, self.capsule_dim, bias=False)
            self.capsule_projection = nn.Linear(self.capsule_dim, self.capsule_dim, bias=False)
            self.score = nn.Linear(self.capsule_dim, 1, bias=False)

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Return the votes [B, M, S, D] and their projection; a single iteration scores nothing and needs none."""
        votes = self._split(self.votes(encoder_states), self.num_outputs)
        return project_votes(votes, matrix_of(self.vote_projection) if self.num_iterations > 1 else None, mask)

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        output = route_guided_votes(
            GuidedVotes(*sources),
            state,
            self._scorer(),
            num_iterations=self.num_iterations,
            score=self.score_form,
            mask=mask,
            return_weights=output_routing_weights,
        )
        return output.capsules[..., : 2 * self.num_capsules, :], output.weights

    def _scorer(self) -> GuidedScorer | None:
        if self.num_iterations == 1:
            return None
        return GuidedScorer(
            matrix_of(self.query_projection),
            matrix_of(self.vote_projection),
            matrix_of(self.capsule_projection),
            matrix_of(self.score)[0],
        )


class AdditiveGuidance(PastFutureGuidance):
    """Base of the baselines of Figure 6: scores s_tn^x = w_x . tanh(W_z z_t + W_h h_n), and values W^x h_n.

    num_groups: of keys and queries, each for its own scores.
    num_scores: of a source word, the first two for PAST and FUTURE.
    """

    num_groups: int
    num_scores: int

    def __init__(self, config: GuidedConfig, width: int) -> None:
        super().__init__(config, width)
        self.values = nn.Linear(width, 2 * self.num_capsules * self.capsule_dim, bias=False)
        self.keys = nn.Linear(width, self.num_groups * self.capsule_dim, bias=False)
        self.query_projection = nn.Linear(width, self.num_groups * self.capsule_dim, bias=False)
        self.score = nn.Linear(self.capsule_dim, self.num_scores, bias=False)

    def project(self, encoder_states: torch.Tensor, mask: torch.Tensor | None) -> GuidanceSources:
        """Keys [B, groups, S, D] and values [B, 2 n, S, D]."""
        if mask is not None:
            encoder_states = encoder_states.masked_fill(~mask.unsqueeze(-1), 0)
        return (
            self._split(self.keys(encoder_states), self.num_groups),
            self._split(self.values(encoder_states), 2 * self.num_capsules),
        )

    def scores(self, state: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """States z [B, T, d] and keys [B, groups, S, D] -> scores [B, T, S, scores]."""
        queries = self._split(self.query_projection(state), self.num_groups)  # [B, groups, T, D]
        scores = [
            additive_scores(queries[:, number % self.num_groups], keys[:, number % self.num_groups], weight)
            for number, weight in enumerate(matrix_of(self.score))
        ]
        return torch.stack(scores, dim=-1)

    def gather_values(self, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Weights [B, T, S, 2] of PAST and FUTURE, values [B, 2 n, S, D] -> capsules [B, T, 2 n, D]."""
        shares = weights.permute(0, 3, 1, 2).repeat_interleave(self.num_capsules, dim=1)  # [B, 2 n, T, S]
        return torch.matmul(shares.to(values.dtype), values).transpose(1, 2)


class ClassifierGuidance(AdditiveGuidance):
    """CLF: p_tn = softmax_x(s_tn), one softmax over PAST, FUTURE and neither for each source word.

    The capsules of x are sum_n p_tn^x W^x h_n.
    """

    num_groups, num_scores = 1, 3

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        keys, values = sources
        probabilities = self.scores(state, keys).softmax(dim=-1)  # [B, T, S, 3]
        if mask is not None:
            probabilities = probabilities * mask[:, None, :, None]
        weights = (probabilities.to(state.dtype),)
        return self.gather_values(probabilities[..., :2], values), weights if output_routing_weights else None


class AttentionGuidance(AdditiveGuidance):
    """ATTN: softmax_n(s_tn^x), two attention modules, one that looks for PAST and one for FUTURE.

    Its weights are distributions over the source words, not over PAST and FUTURE, so it assigns no word to either and
    has no routing weights.
    """

    num_groups, num_scores = 2, 2

    def gather(
        self, state: torch.Tensor, sources: GuidanceSources, mask: torch.Tensor | None, output_routing_weights: bool
    ) -> tuple[torch.Tensor, IterationWeights | None]:
        keys, values = sources
        scores = self.scores(state, keys)  # [B, T, S, 2]
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, :, None], torch.finfo(scores.dtype).min)
        return self.gather_values(scores.softmax(dim=-2), values), None


GUIDANCES: dict[str, type[PastFutureGuidance]] = {
    "guided": GuidedRoutingGuidance,
    "classifier": ClassifierGuidance,
    "attention": AttentionGuidance,
}


def build_guidance(config: GuidedConfig, width: int) -> NoGuidance | PastFutureGuidance:
    """Return the configured guidance between the decoder's states [B, T, width] and the output projection."""
    if config.guided_routing == "none":
        return NoGuidance()
    return GUIDANCES[config.guided_routing](config, width)

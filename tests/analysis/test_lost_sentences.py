"""Which of several joined sentences is lost: models that know it, and models that only count."""

from types import SimpleNamespace

import pytest
import torch

from hf_capsule_mt.analysis.lost_sentences import lost_sentences
from hf_capsule_mt.configuration import CapsNMTConfig
from hf_capsule_mt.modeling import CapsNMTForConditionalGeneration
from tests.fixtures.tiny import tiny_tokenizer


class Copier:
    """A translator that copies: its second head attends to equal tokens; the first one's attention is even.

    counts: PAST takes the first words of the source, one for each word of the translation, and not the equal ones.
    """

    device = torch.device("cpu")
    capsules_per_group = 1

    def __init__(self, guided=True, counts=False):
        self.guided, self.counts = guided, counts

    def eval(self):
        return self

    def prepare_decoder_input_ids_from_labels(self, labels):
        return labels

    def __call__(self, input_ids, attention_mask, decoder_input_ids, **flags):
        labels = decoder_input_ids
        equal = (labels[:, :, None] == input_ids[:, None]).float()  # [B, T, S]
        even = torch.full_like(equal, 1 / input_ids.shape[1])
        if self.counts:
            words = labels.ge(0).sum(dim=1) - 1
            translated = (torch.arange(input_ids.shape[1]) < words[:, None]).float()[:, None].expand_as(equal)
        else:
            translated = equal.cummax(dim=1).values
        guidance = torch.stack([translated, 1 - translated], dim=-1)
        return SimpleNamespace(
            cross_attentions=(even[:, None], equal[:, None]),
            routing_weights={"decoder.guidance": (guidance,)} if self.guided else None,
        )


class Words:
    """A tokenizer whose words are numbers."""

    eos_token_id = 0

    def __call__(self, text=None, text_target=None, add_special_tokens=True):
        assert not add_special_tokens
        return {"input_ids": [int(word) for word in (text or text_target).split()]}


TEXT = [f"{3 * number + 1} {3 * number + 2}" + f" {3 * number + 3}" * (number % 2) for number in range(12)]


@pytest.mark.parametrize("joined", [2, 3])
@pytest.mark.parametrize("counts", [False, True])
def test_who_counts_names_the_last_sentence_alone(joined, counts):
    results = lost_sentences(Copier(counts=counts), Words(), TEXT, TEXT, joined)
    groups = len(TEXT) // joined // 2
    assert [(result.joined, result.lost, result.cases) for result in results] == [
        (joined, lost, groups) for lost in range(1, joined + 1)
    ]
    expected = [0] * (joined - 1) + [groups] if counts else [groups] * joined
    assert [result.past_future for result in results] == expected
    assert [(result.attention, result.head) for result in results] == [(groups, (2, 1))] * joined


def test_a_model_without_guided_routing_has_its_attention():
    results = lost_sentences(Copier(guided=False), Words(), TEXT, TEXT)
    assert [(result.past_future, result.attention) for result in results] == [(None, 3), (None, 3)]


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(ValueError, match="`joined` must be at least 2, got 1"):
        lost_sentences(Copier(), Words(), TEXT, TEXT, 1)
    with pytest.raises(ValueError, match="5 sentences are too few: two groups of 3 need 6"):
        lost_sentences(Copier(), Words(), TEXT[:5], TEXT[:5], 3)
    tokenizer = tiny_tokenizer()
    config = CapsNMTConfig(vocab_size=len(tokenizer), d_model=8, encoder_layers=1, decoder_layers=1)
    with pytest.raises(ValueError, match="CapsNMTForConditionalGeneration with this configuration does not attend"):
        lost_sentences(CapsNMTForConditionalGeneration(config), tokenizer, ["a b"] * 4, ["a b"] * 4)

"""RNMT: all that every model must do, in every mix of settings, and what is its own."""

import pytest
import torch
from torch import nn

from hf_capsule_mt import CapsuleRNMTConfig, CapsuleRNMTForConditionalGeneration, CapsuleRNMTModel
from tests.mixes import RNMT
from tests.modeling.model_checks import EOS, PAD, Family, RecurrentChecks, TwoVocabulariesChecks

SIZES = {
    "vocab_size": 31,
    "hidden_size": 16,
    "embedding_size": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
}


class TestCapsuleRNMT(RecurrentChecks, TwoVocabulariesChecks):
    family = Family(
        CapsuleRNMTConfig,
        CapsuleRNMTModel,
        CapsuleRNMTForConditionalGeneration,
        SIZES,
        has_attentions=False,
        has_keys_and_values=False,
        pads_left=True,
    )
    mixes = RNMT

    def expected_routings(self, mix):
        return {"decoder.guidance"} if mix.get("guided_routing") in ("guided", "classifier") else set()

    def test_a_decoder_needs_the_source(self):
        model, batch = self.model({}), self.batch()
        with pytest.raises(ValueError, match="CapsuleRNMTDecoder needs the source"):
            model.get_decoder()(batch["decoder_input_ids"])


def test_equals_a_plain_loop_of_pytorchs_own_modules():
    """One sentence without padding, one step at a time, as the docstrings say it."""
    checks = TestCapsuleRNMT()
    model = checks.model(RNMT["rnmt"]).double()
    source, target = torch.randint(4, 31, (1, 5)), torch.randint(4, 31, (1, 4))
    encoder, decoder = model.model.encoder, model.model.decoder

    hidden = encoder.embed_layer_norm(encoder.embed_tokens(source))
    for layer in encoder.layers:
        gru = nn.GRU(hidden.shape[-1], 8, batch_first=True, bidirectional=True).double()
        gru.load_state_dict(layer.gru.state_dict())
        states = gru(hidden)[0]
        hidden = layer.layer_norm(hidden + states if hidden.shape == states.shape else states)

    conditional = decoder.attention_layer.recurrence
    attention = conditional.attention
    embedded = decoder.embed_layer_norm(decoder.embed_tokens(target))
    first, second = torch.tanh(decoder.first_states(hidden.mean(dim=1))).split(16, dim=-1)
    outputs = []
    for word in embedded.unbind(1):
        query = conditional.word_gru(word, first)
        scores = attention.score(
            torch.tanh(attention.query_projection(query)[:, None] + attention.key_projection(hidden))
        )
        context = (scores.softmax(dim=1) * hidden).sum(dim=1)
        first = conditional.context_gru(context, query)
        read = torch.tanh(decoder.attention_layer.readout(torch.cat([first, context, word], dim=-1)))
        output = decoder.attention_layer.layer_norm(read)
        cell = nn.GRUCell(16, 16).double()
        cell.load_state_dict({name.removesuffix("_l0"): w for name, w in decoder.layers[0].gru.state_dict().items()})
        second = cell(output, second)
        outputs.append(decoder.layers[0].layer_norm(output + second))
    expected = model.lm_head(model.project_out(torch.stack(outputs, dim=1)))
    actual = model(input_ids=source, decoder_input_ids=target).logits
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)


def test_the_start_of_training():
    """New weights: orthogonal recurrences gate by gate, zero biases, and a loss near knowing nothing."""
    torch.manual_seed(1)
    config = CapsuleRNMTConfig(vocab_size=1000, hidden_size=64, pad_token_id=PAD, eos_token_id=EOS)
    model = CapsuleRNMTForConditionalGeneration(config).eval()
    for gate in model.model.decoder.attention_layer.recurrence.word_gru.weight_hh.chunk(3):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(64), atol=1e-5, rtol=1e-5)
    for gate in model.model.encoder.layers[0].gru.weight_hh_l0_reverse.chunk(3):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(32), atol=1e-5, rtol=1e-5)
    assert all((p == 0).all() for name, p in model.named_parameters() if "bias" in name)
    source, labels = torch.randint(4, 1000, (8, 9)), torch.randint(4, 1000, (8, 9))
    assert abs(model(input_ids=source, labels=labels).loss.item() - 6.9078) < 0.1

"""Capsule Marian: the checks of every model, in every mix of settings, and its equality with Marian."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel, PegasusConfig, PegasusForConditionalGeneration

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianModel, CapsuleMarianMTModel
from tests.mixes import MARIAN
from tests.modeling.model_checks import TOLERANCE, Family, TwoVocabulariesChecks, randomize

SIZES = {
    "vocab_size": 31,
    "d_model": 16,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 20,
    "max_position_embeddings": 48,
    "attention_dropout": 0.1,
    "forced_eos_token_id": None,
}
HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 2}
SPECIAL = {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3}


class TestCapsuleMarian(TwoVocabulariesChecks):
    family = Family(CapsuleMarianConfig, CapsuleMarianModel, CapsuleMarianMTModel, SIZES)
    mixes = MARIAN

    def expected_routings(self, mix):
        config, routings = self.config(mix), set()
        if config.layer_aggregation in ("dynamic_routing", "em_routing"):
            routings |= {
                f"{side}.layer_aggregation"
                for side in ("encoder", "decoder")
                if config.layer_aggregation_side in ("both", side)
            }
        names = {
            "encoder_self": ("encoder", "self_attn"),
            "decoder_self": ("decoder", "self_attn"),
            "cross": ("decoder", "encoder_attn"),
        }
        for site in config.head_aggregation_sites if config.head_aggregation != "concat" else ():
            stack, name = names[site]
            layers = config.head_aggregation_layers
            for layer in range(getattr(config, f"{stack}_layers")) if layers is None else layers:
                routings.add(f"{stack}.layers.{layer}.{name}")
        if config.guided_routing in ("guided", "classifier"):
            routings.add("decoder.guidance")
        return routings

    def test_eager_equals_sdpa(self, mix):
        model, batch = self.model(mix), self.batch()
        logits, words = model(**batch).logits, model.generate(**self.source(batch), max_new_tokens=5, num_beams=2)
        model.set_attn_implementation("eager")
        torch.testing.assert_close(model(**batch).logits, logits, **TOLERANCE)
        assert torch.equal(model.generate(**self.source(batch), max_new_tokens=5, num_beams=2), words)

    def test_a_mask_of_another_source_is_refused(self):
        model, batch = self.model({}), self.batch()
        for mask in (batch["attention_mask"][:, :6], batch["attention_mask"][:2]):
            message = rf"`attention_mask` of CapsuleMarianEncoder must be \[3, 7\], got \{list(mask.shape)}"
            with pytest.raises(ValueError, match=message):
                model(**{**batch, "attention_mask": mask})

    def test_hidden_states_and_attentions(self, mix):
        model, batch = self.model(mix), self.batch()
        output = model(**batch, output_hidden_states=True, output_attentions=True)
        torch.testing.assert_close(output.logits, model(**batch).logits, **TOLERANCE)
        assert [len(x) for x in (output.encoder_hidden_states, output.decoder_hidden_states)] == [4, 3]
        assert torch.equal(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)
        assert [len(x) for x in (output.encoder_attentions, output.cross_attentions)] == [3, 2]
        assert output.cross_attentions[0].shape == (3, 2, 6, 7)
        assert (output.cross_attentions[1][1, :, :, 4:] == 0).all()  # no attention to padding
        if model.config.decoder_self == "ssru":
            assert output.decoder_attentions is None
        else:
            assert len(output.decoder_attentions) == 2
            assert (output.decoder_attentions[0].triu(1) == 0).all()  # causal

    @pytest.mark.parametrize("decoder_self", ["attention", "ssru"])
    @pytest.mark.parametrize("number", [64, 12])
    def test_positions_are_resized(self, number, decoder_self, tmp_path):
        """As in a model that was made with this number of positions."""
        model, batch = self.model({"decoder_self": decoder_self}), self.batch()
        with torch.no_grad():
            logits = model(**batch).logits
            model.resize_position_embeddings(number)
            torch.testing.assert_close(model(**batch).logits, logits, rtol=0, atol=0)
            longest = {
                "input_ids": torch.randint(4, 31, (1, number)),
                "decoder_input_ids": torch.randint(4, 31, (1, number)),
            }
            made_so = self.model({"decoder_self": decoder_self}, max_position_embeddings=number)
            made_so.load_state_dict(model.state_dict())
            logits = model(**longest).logits
            torch.testing.assert_close(logits, made_so(**longest).logits, rtol=0, atol=0)
            model.save_pretrained(tmp_path)
            loaded = CapsuleMarianMTModel.from_pretrained(tmp_path).eval()
            torch.testing.assert_close(loaded(**longest).logits, logits, rtol=0, atol=0)
        assert model.config.max_position_embeddings == loaded.config.max_position_embeddings == number
        with pytest.raises(ValueError, match=f"{number + 1} tokens, but `max_position_embeddings` is {number}"):
            model(input_ids=torch.full((1, number + 1), 5), labels=torch.full((1, 2), 5))

    def test_positions_like_those_of_pegasus(self):
        """transformers' Marian cannot be resized; its Pegasus, which has the same positions, can."""
        model = self.model({"pad_token_id": 0})
        names = ("vocab_size", "d_model", "encoder_layers", "decoder_layers", "max_position_embeddings")
        pegasus = PegasusForConditionalGeneration(PegasusConfig(**{name: SIZES[name] for name in names}, **HEADS))
        for ours, theirs in ((model, pegasus), (model.get_encoder(), pegasus.get_encoder())):
            for number in (None, 70):
                if number is not None:
                    ours.resize_position_embeddings(number)
                    theirs.resize_position_embeddings(number)
                positions = [module.get_position_embeddings() for module in (ours, theirs)]
                pairs = zip(*positions, strict=True) if isinstance(positions[1], tuple) else [positions]
                for our_positions, their_positions in pairs:
                    torch.testing.assert_close(our_positions.weight, their_positions.weight)
        assert not model.model.decoder.embed_positions.weight.requires_grad
        for wrong in (0, -1, "many"):
            with pytest.raises((ValueError, TypeError), match="max_position_embeddings"):
                model.resize_position_embeddings(wrong)
            assert model.config.max_position_embeddings == 70

    def test_sequences_longer_than_the_positions_are_an_error(self):
        model, batch = self.model({}), self.batch()
        with pytest.raises(ValueError, match=r"CapsuleMarianEncoder got a sequence of 49 tokens.*is 48"):
            model(input_ids=torch.full((1, 49), 5), decoder_input_ids=batch["decoder_input_ids"][:1])
        with pytest.raises(ValueError, match=r"CapsuleMarianDecoder got a sequence of 49 tokens.*is 48"):
            model(**self.source(batch), labels=torch.full((3, 49), 5))

    def test_positions_are_independent_in_the_aggregation(self, mix):  # property 25
        model = self.model(mix)
        for stack in (model.model.encoder, model.model.decoder):
            outputs = [torch.randn(2, 5, 16) for _ in stack.aggregated([*stack.layers, torch.empty(0)])]
            expected, _ = stack.layer_aggregation(outputs)
            changed = [output.clone() for output in outputs]
            for output in changed:
                output[:, 3] = torch.randn(16)  # not one number added to all: the norm would remove it
            aggregated, _ = stack.layer_aggregation(changed)
            positions = [0, 1, 2, 4]
            torch.testing.assert_close(aggregated[:, positions], expected[:, positions])
            assert not torch.allclose(aggregated[:, 3], expected[:, 3])


# ---- everything off is Marian
@pytest.mark.parametrize(
    ("implementation", "shared", "scale_embedding"), [("sdpa", True, True), ("eager", False, False)]
)
class TestEverythingOff:
    def pair(self, implementation, shared, scale_embedding):
        settings = SIZES | SPECIAL | {"attn_implementation": implementation, "scale_embedding": scale_embedding}
        if not shared:
            settings |= {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 31}
        marian = randomize(MarianMTModel(MarianConfig(**settings))).eval()
        capsule = CapsuleMarianMTModel(CapsuleMarianConfig(**settings)).eval()
        assert list(capsule.state_dict()) == list(marian.state_dict())
        capsule.load_state_dict(marian.state_dict(), strict=True)
        return marian, capsule

    def inputs(self):
        input_ids = torch.randint(4, 31, (3, 9))
        mask = torch.ones_like(input_ids)
        mask[1, 6:] = 0
        return input_ids, mask, torch.randint(4, 31, (3, 7))

    def test_logits_are_equal_bit_for_bit(self, implementation, shared, scale_embedding):
        marian, capsule = self.pair(implementation, shared, scale_embedding)
        input_ids, mask, target = self.inputs()
        target_mask = torch.ones_like(target)
        target_mask[0, 5:] = 0
        for kwargs in ({}, {"attention_mask": mask}, {"attention_mask": mask, "decoder_attention_mask": target_mask}):
            outputs = [
                model(input_ids=input_ids, decoder_input_ids=target, output_hidden_states=True, **kwargs)
                for model in (marian, capsule)
            ]
            assert torch.equal(outputs[0].logits, outputs[1].logits)
            for name in ("encoder_hidden_states", "decoder_hidden_states"):
                for expected, actual in zip(outputs[0][name], outputs[1][name], strict=True):
                    assert torch.equal(expected, actual)
        source, target = torch.randn(2, 5, 16), torch.randn(2, 4, 16)
        outputs = [model(inputs_embeds=source, decoder_inputs_embeds=target).logits for model in (marian, capsule)]
        assert torch.equal(*outputs)

    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"num_beams": 4, "num_return_sequences": 3},
            {"do_sample": True},
            {"cache_implementation": "static", "disable_compile": True},
        ],
        ids=["greedy", "beam", "sampling", "static"],
    )
    def test_decoding_is_equal_bit_for_bit(self, implementation, shared, scale_embedding, settings):
        marian, capsule = self.pair(implementation, shared, scale_embedding)
        input_ids, mask, _ = self.inputs()
        settings = {**settings, "max_new_tokens": 10, "return_dict_in_generate": True, "output_scores": True}
        outputs = []
        for model in (marian, capsule):
            torch.manual_seed(3)
            outputs.append(model.generate(input_ids, attention_mask=mask, **settings))
        assert torch.equal(outputs[0].sequences, outputs[1].sequences)
        for expected, actual in zip(outputs[0].scores, outputs[1].scores, strict=True):
            assert torch.equal(expected, actual)

    def test_training_is_equal(self, implementation, shared, scale_embedding, monkeypatch):
        # the Marian of transformers 5.15 draws a number per layer, even if no layer can be dropped
        monkeypatch.setattr(torch, "rand", torch.ones)
        marian, capsule = self.pair(implementation, shared, scale_embedding)
        input_ids, mask, labels = self.inputs()
        losses = []
        for model in (marian, capsule):
            torch.manual_seed(3)  # dropout
            losses.append(model.train()(input_ids=input_ids, attention_mask=mask, labels=labels).loss)
            losses[-1].backward()
        torch.testing.assert_close(*losses)
        grads = dict(marian.named_parameters())
        for name, parameter in capsule.named_parameters():
            if parameter.grad is not None:
                torch.testing.assert_close(parameter.grad, grads[name].grad, atol=1e-6, rtol=1e-4, msg=name)

    def test_the_same_seed_initialises_alike(self, implementation, shared, scale_embedding):
        settings = SIZES | SPECIAL | {"share_encoder_decoder_embeddings": shared}
        torch.manual_seed(11)
        marian = MarianMTModel(MarianConfig(**settings))
        torch.manual_seed(11)
        capsule = CapsuleMarianMTModel(CapsuleMarianConfig(**settings))
        for name, value in marian.state_dict().items():
            assert torch.equal(value, capsule.state_dict()[name]), name

    def test_checkpoints_load_both_ways(self, implementation, shared, scale_embedding, tmp_path):
        marian, capsule = self.pair(implementation, shared, scale_embedding)
        input_ids, mask, target = self.inputs()
        expected = marian(input_ids=input_ids, attention_mask=mask, decoder_input_ids=target)
        capsule.save_pretrained(tmp_path)
        loaded = MarianMTModel.from_pretrained(tmp_path, config=marian.config).eval()
        output = loaded(input_ids=input_ids, attention_mask=mask, decoder_input_ids=target)
        torch.testing.assert_close(output.logits, expected.logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", ["simple_routing", "em_routing"])
@pytest.mark.parametrize(("init_std", "std"), [(None, 64**-0.5), (0.02, 0.02)])
def test_votes_start_as_long_as_heads(method, init_std, std):
    torch.manual_seed(0)
    config = CapsuleMarianConfig(
        **SIZES | {"d_model": 64}, **SPECIAL, head_aggregation=method, head_aggregation_init_std=init_std
    )
    attention = CapsuleMarianMTModel(config).model.encoder.layers[0].self_attn
    for linear in (attention.out_proj.input_capsules, attention.out_proj.votes):
        assert linear.weight.std().item() == pytest.approx(std, rel=0.05)
    assert attention.v_proj.weight.std().item() == pytest.approx(config.init_std, rel=0.05)


@pytest.mark.parametrize(("init_std", "std"), [(None, 0.02), (0.125, 0.125)])
def test_weights_of_layer_votes_have_their_own_std(init_std, std):
    torch.manual_seed(0)
    settings = {"layer_aggregation": "em_routing", "layer_aggregation_init_std": init_std}
    model = CapsuleMarianMTModel(CapsuleMarianConfig(**SIZES | {"d_model": 64}, **SPECIAL, **settings)).model
    for name in ("input_capsules", "votes", "input_activation"):
        assert getattr(model.encoder.layer_aggregation, name).weight.std().item() == pytest.approx(std, rel=0.05)
    assert model.encoder.layers[0].fc1.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_a_source_without_a_word_is_refused():
    """It would get a fluent translation of nothing."""
    model = TestCapsuleMarian().model({})
    empty = torch.zeros(2, 0, dtype=torch.long)
    with pytest.raises(ValueError, match=r"the source is empty: it has the shape \[2, 0\]"):
        model.generate(input_ids=empty, attention_mask=empty)


def test_a_call_without_a_target_says_what_it_lacks():
    with pytest.raises(ValueError, match=r"`decoder_input_ids`.*`labels` can take their place"):
        TestCapsuleMarian().model({})(input_ids=torch.tensor([[5, 6, 1]]))

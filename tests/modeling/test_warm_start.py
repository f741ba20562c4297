"""`from_marian`: keeps all old weights, lists new ones, and computes the old function where it can."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

from hf_capsule_mt import CapsuleMarianMTModel
from tests.mixes import GUIDED
from tests.modeling import test_capsule_marian
from tests.modeling.model_checks import randomize
from tests.modeling.test_capsule_marian import SIZES, SPECIAL

DEPTH_SUMS = ["dense", "depth_attention", "mudd", "grn"]
METHODS = ["linear", "dynamic_combination", "dynamic_routing", "em_routing", *DEPTH_SUMS]


def marian_model(**fields):
    model = randomize(MarianMTModel(MarianConfig(**SIZES, **SPECIAL, **fields))).eval()
    model.generation_config.num_beams = 3
    model.generation_config.bad_words_ids = [[1]]
    return model


@pytest.fixture
def marian():
    return marian_model()


@pytest.fixture
def inputs():
    return {"input_ids": torch.randint(4, 31, (2, 6)), "decoder_input_ids": torch.randint(4, 31, (2, 5))}


@pytest.mark.parametrize("settings", test_capsule_marian.TestCapsuleMarian.parameters())
def test_every_old_weight_is_kept(settings):  # property 28
    marian = marian_model(scale_embedding=settings.get("scale_embedding", False))
    model, info = CapsuleMarianMTModel.from_marian(marian, **settings, output_loading_info=True)
    old, new = marian.state_dict(), model.state_dict()
    assert set(new) - set(old) == set(info["new_weights"])
    assert set(old) - set(new) == set(info["dropped_weights"])
    droppable = (".out_proj.", ".decoder.") if model.config.decoder_self == "ssru" else (".out_proj.",)
    assert all(any(part in name for part in droppable) for name in info["dropped_weights"])
    for name in set(old) & set(new):
        is_unchanged = "embed_positions" not in name or not model.config.marian_positions
        assert torch.equal(old[name], new[name]) == is_unchanged, name
    assert model.generation_config.num_beams == 3
    assert model.generation_config.bad_words_ids == [[1]]
    assert model.config.architectures == ["CapsuleMarianMTModel"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("side", ["both", "encoder", "decoder"])
def test_a_residual_starts_at_the_old_function(marian, inputs, method, side):
    model = CapsuleMarianMTModel.from_marian(
        marian, layer_aggregation=method, layer_aggregation_side=side, layer_aggregation_placement="adds"
    ).eval()
    # the aggregation is added by a LayerNorm with gain and bias 0: the logits are equal, without a tolerance
    assert torch.equal(model(**inputs).logits, marian(**inputs).logits)
    loss = model.train()(input_ids=inputs["input_ids"], labels=inputs["decoder_input_ids"]).loss
    loss.backward()
    gains = [p.grad.abs().max() for n, p in model.named_parameters() if n.endswith("aggregation.layer_norm.weight")]
    assert gains
    assert all(
        gain > 0 for gain in gains
    )  # the other weights get gradients from the second step on, when the gain is not 0


def test_a_start_under_the_old_name_of_the_placement(marian):
    model = CapsuleMarianMTModel.from_marian(marian, layer_aggregation="linear", layer_aggregation_residual=True)
    assert model.config.layer_aggregation_placement == "adds"
    replacing = CapsuleMarianMTModel.from_marian(model, layer_aggregation_residual=False)
    assert replacing.config.layer_aggregation_placement == "replaces"


@pytest.mark.parametrize(
    ("method", "connections"),
    [*((method, False) for method in DEPTH_SUMS), ("dense", True), ("depth_attention", True)],
)
def test_depth_sums_start_at_the_old_function_if_they_start_at_the_top_layer(marian, inputs, method, connections):
    model = CapsuleMarianMTModel.from_marian(marian, layer_aggregation=method, depth_connections=connections).eval()
    is_old_function = torch.equal(model(**inputs).logits, marian(**inputs).logits)
    assert is_old_function == (method in ("dense", "mudd"))
    model.train()(input_ids=inputs["input_ids"], labels=inputs["decoder_input_ids"]).loss.backward()
    names = {"dense": "weights", "depth_attention": "query", "mudd": "outer", "grn": "direction"}
    modules = ("layer_aggregation", "depth_connections") if connections else ("layer_aggregation",)
    for module in modules:
        parameters = {n: p for n, p in model.named_parameters() if module in n and n.endswith(f".{names[method]}")}
        assert len(parameters) == (2 if module == "layer_aggregation" else 3)  # 3 + 2 layers have 2 + 1 connections
        assert all(parameter.grad.abs().max() > 0 for parameter in parameters.values())


def test_connections_with_a_residual_start_at_the_old_function(marian, inputs):
    settings = {"depth_connections": True, "layer_aggregation_placement": "adds"}
    model = CapsuleMarianMTModel.from_marian(marian, layer_aggregation="depth_attention", **settings).eval()
    assert torch.equal(model(**inputs).logits, marian(**inputs).logits)


@pytest.mark.parametrize("method", ["simple_routing", "em_routing"])
def test_added_heads_start_at_the_old_function(marian, inputs, method):
    sites = ["encoder_self", "decoder_self", "cross"]
    settings = {"head_aggregation": method, "head_aggregation_sites": sites, "head_aggregation_placement": "adds"}
    model, info = CapsuleMarianMTModel.from_marian(marian, **settings, output_loading_info=True)
    assert torch.equal(model.eval()(**inputs).logits, marian(**inputs).logits)
    assert not info["dropped_weights"]
    model.train()(input_ids=inputs["input_ids"], labels=inputs["decoder_input_ids"]).loss.backward()
    gains = [p.grad.abs().max() for n, p in model.named_parameters() if n.endswith("added_routing.layer_norm.weight")]
    assert len(gains) == 7  # 3 layers with one attention, 2 with two
    assert all(gain > 0 for gain in gains)


@pytest.mark.parametrize("method", ["guided", "classifier", "attention"])
def test_guided_routing_starts_at_the_old_function(marian, inputs, method):  # property 46
    model, info = CapsuleMarianMTModel.from_marian(
        marian, **{**GUIDED, "guided_routing": method}, output_loading_info=True
    )
    assert torch.equal(model.eval()(**inputs).logits, marian(**inputs).logits)
    assert {name.rsplit(".", 3)[0] for name in info["new_weights"]} <= {"model.decoder", "guided_losses", "model"}
    assert "model.decoder.guidance.fc2.weight" in info["new_weights"]
    assert "guided_losses.past_words.weight" in info["new_weights"]
    model.train()(input_ids=inputs["input_ids"], labels=inputs["decoder_input_ids"]).nll_loss.backward()
    assert model.model.decoder.guidance.fc2.weight.grad.abs().max() > 0  # the rest learns from the second step on
    # trained weights are kept when another part is added
    randomize(model)
    extended = CapsuleMarianMTModel.from_marian(model, guided_bow_weight=0.5)
    assert torch.equal(extended.model.decoder.guidance.fc2.weight, model.model.decoder.guidance.fc2.weight)


def test_without_its_guided_routing_a_model_is_its_plain_twin(marian, inputs):
    guided = randomize(CapsuleMarianMTModel.from_marian(marian, **GUIDED)).eval()
    twin, info = CapsuleMarianMTModel.from_marian(guided, guided_routing="none", output_loading_info=True)
    assert info["new_weights"] == []
    assert {name for name in guided.state_dict() if "guid" in name} == set(info["dropped_weights"])
    plain = MarianMTModel(marian.config)
    plain.load_state_dict({name: weight for name, weight in guided.state_dict().items() if "guid" not in name})
    assert torch.equal(twin.eval()(**inputs).logits, plain.eval()(**inputs).logits)
    assert not torch.equal(twin(**inputs).logits, guided(**inputs).logits)


def test_separate_vocabularies_and_dtype(tmp_path):
    config = MarianConfig(**SIZES, **SPECIAL, share_encoder_decoder_embeddings=False, decoder_vocab_size=23)
    marian = randomize(MarianMTModel(config)).to(torch.bfloat16).eval()
    marian.save_pretrained(tmp_path)
    model = CapsuleMarianMTModel.from_marian(tmp_path, layer_aggregation="linear", dtype=torch.bfloat16)
    assert model.dtype == torch.bfloat16
    assert model.lm_head.weight.shape[0] == 23
    assert torch.equal(model.model.decoder.embed_tokens.weight, marian.model.decoder.embed_tokens.weight)


@pytest.mark.parametrize(
    ("field", "value", "own"),
    [
        ("encoder_attention_heads", 8, 4),
        ("decoder_attention_heads", 4, 2),
        ("activation_function", "relu", "gelu"),
        ("scale_embedding", True, False),
        ("encoder_layers", 2, 3),
        ("decoder_layers", 3, 2),
        ("share_encoder_decoder_embeddings", False, True),
        ("pad_token_id", 4, 1),
        ("eos_token_id", 4, 2),
        ("decoder_start_token_id", 1, 3),
    ],
)
def test_another_function_is_refused_by_the_name_of_its_field(marian, tmp_path, field, value, own):
    marian.save_pretrained(tmp_path)
    message = (
        rf"`{field}` {value!r} \(the model has {own!r}\) would change\..* dropout, .*`layer_aggregation`.*`guided_`"
    )
    for source in (marian, tmp_path, CapsuleMarianMTModel.from_marian(marian)):
        with pytest.raises(ValueError, match=message):
            CapsuleMarianMTModel.from_marian(source, **{field: value}, layer_aggregation="dense")


def test_fields_that_keep_the_function(marian, inputs):
    """A recipe repeats its model's fields; dropout and label smoothing are of training; untied weights are copies."""
    training = {"attention_dropout": 0.2, "dropout": 0.3, "encoder_layerdrop": 0.1, "label_smoothing": 0.1}
    settings = {**SIZES, **SPECIAL, **training, "tie_word_embeddings": False}
    model = CapsuleMarianMTModel.from_marian(marian, **settings).eval()
    assert torch.equal(model(**inputs).logits, marian(**inputs).logits)
    with pytest.raises(ValueError, match=r"`tie_word_embeddings` True \(the model has False\)"):
        CapsuleMarianMTModel.from_marian(randomize(model), tie_word_embeddings=True)


def test_wrong_arguments_are_refused(marian):
    with pytest.raises(ValueError, match="did you mean `layer_aggregation`"):
        CapsuleMarianMTModel.from_marian(marian, layer_agregation="linear")
    with pytest.raises(ValueError, match=r"revision.* apply to a checkpoint, but `from_marian` was given a model"):
        CapsuleMarianMTModel.from_marian(marian, revision="main")
    with pytest.raises(ValueError, match=r"`layer_aggregation_num_capsules` \(5\) must divide `d_model` \(16\)"):
        CapsuleMarianMTModel.from_marian(marian, layer_aggregation="em_routing", layer_aggregation_num_capsules=5)
    bart = BartForConditionalGeneration(BartConfig(vocab_size=31, d_model=16, encoder_layers=1, decoder_layers=1))
    with pytest.raises(ValueError, match="needs a MarianMTModel or a CapsuleMarianMTModel, got a Bart"):
        CapsuleMarianMTModel.from_marian(bart)
    with pytest.raises(TypeError, match=r"`from_marian` takes a model, or the folder or the name .*, got a int"):
        CapsuleMarianMTModel.from_marian(5)
    ssru = CapsuleMarianMTModel.from_marian(marian, decoder_self="ssru")
    with pytest.raises(ValueError, match="no use for these weights"):
        CapsuleMarianMTModel.from_marian(ssru, decoder_self="attention")
    with pytest.raises(ValueError, match=r"would be \[.*32\] with `d_model` 32 \(the model has 16\)"):
        CapsuleMarianMTModel.from_marian(marian, d_model=32)
    with pytest.raises(FileNotFoundError, match="/missing/folder: no such folder"):
        CapsuleMarianMTModel.from_marian("/missing/folder")

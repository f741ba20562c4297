"""`to_fast` against `generate()`: every family and seam, and every setting of the search."""

import copy
import logging
import pickle

import pytest
import torch
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from capsule_mt.engine.library import NativeUnavailableError
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import SearchOptions
from capsule_mt.models.shortlist import FILE_NAME, Shortlist
from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration, CapsuleMarianMTModel, to_fast
from hf_capsule_mt.decoding.fast import takes_fast
from hf_capsule_mt.modeling.layer_aggregation import DynamicCombination, LayerAggregation
from hf_capsule_mt.routing import dynamic_routing
from tests.decoding.models import END, NAMES, PAD, SOURCES, SPECIAL, VOCABULARY, batch, build, strictly
from tests.mixes import GUIDED

SEARCHES = {
    "greedy": {},
    "beam": {"num_beams": 4},
    "n_best": {"num_beams": 5, "num_return_sequences": 3, "length_penalty": 0.6},
    "long": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    "early": {"num_beams": 3, "early_stopping": True, "min_new_tokens": 4},
    "ngrams": {"num_beams": 2, "no_repeat_ngram_size": 2, "suppress_tokens": [3, 4]},
    "renormalized": {"num_beams": 3, "renormalize_logits": True, "suppress_tokens": [3, 4], "min_new_tokens": 3},
    "forced": {"forced_eos_token_id": END, "max_new_tokens": 5},
}
FAMILIES_AND_SEAMS = ["plain", "em", "guided", "capsules", "rnmt_guided"]
QUICK = {*FAMILIES_AND_SEAMS, "stock", "everything", "simple_heads", "ssru_combined", "hybrid", "m2m_100"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in NAMES]
)
def test_to_fast_equals_generate(name):
    model = build(name)
    fast = strictly(model, int8=False)
    assert fast.backend == "native"
    for search in SEARCHES.values():
        settings = {**search, "return_dict_in_generate": True}
        expected = model.generate(**batch(), **settings, output_scores=search.get("num_beams", 1) > 1)
        tokens = fast.generate(**batch(), **settings)
        assert torch.equal(tokens.sequences, expected.sequences), search
        if search.get("num_beams", 1) > 1:
            # these random weights are sharp; trained ones are held to 1e-5 below
            torch.testing.assert_close(tokens.sequences_scores, expected.sequences_scores, atol=2e-4, rtol=0)
    shortest = batch([[END]])
    assert torch.equal(fast.generate(**shortest, num_beams=2), model.generate(**shortest, num_beams=2))


def first_logits(fast):
    """[B, vocabulary] of the first target position."""
    options = SearchOptions(limits=[1] * len(SOURCES))
    results = fast._engine.search(SOURCES, options, start=PAD, end=END, pad=PAD, first_logits=True)
    return torch.tensor([list(result.first_logits) for result in results])


@pytest.mark.parametrize("name", FAMILIES_AND_SEAMS)
def test_int8_is_close_and_a_batch_equals_its_sentences(name):
    model = build(name)
    exact, fast = (strictly(model, int8=int8) for int8 in (False, True))
    together = fast.generate(**batch(), num_beams=3, return_dict_in_generate=True)
    for number, source in enumerate(SOURCES):
        alone = fast.generate(**batch([source]), num_beams=3, return_dict_in_generate=True)
        length = alone.sequences.shape[1]
        assert torch.equal(together.sequences[number, :length], alone.sequences[0])
        assert bool((together.sequences[number, length:] == PAD).all())
        assert together.sequences_scores[number] == alone.sequences_scores[0]
    logits, rounded = first_logits(exact), first_logits(fast)
    bound = 0.15 if name == "em" else 0.1  # densities of votes that differ little amplify what was rounded
    assert 0 < float((rounded - logits).norm() / logits.norm()) < bound
    with torch.no_grad():
        expected = model(**batch(), decoder_input_ids=torch.full((len(SOURCES), 1), PAD)).logits[:, 0]
    torch.testing.assert_close(logits, expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-4)


def test_changed_weights_are_noticed():
    model = build("plain")
    fast = strictly(model, int8=False)
    tokens = fast.generate(**batch())
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight.mul_(-1)
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))
    assert not torch.equal(tokens, model.generate(**batch()))
    first = int(fast.generate(**batch())[0, 1])
    model.final_logits_bias[0, first] = -1e9
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))


def test_options_that_the_engine_lacks_are_left_to_transformers(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = build("plain")
    fast = to_fast(model, int8=False)
    caplog.clear()
    for _ in range(2):
        tokens = fast.generate(**batch(), encoder_repetition_penalty=1.3)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "`encoder_repetition_penalty=1.3` is left to transformers' generate()."
    assert torch.equal(tokens, model.generate(**batch(), encoder_repetition_penalty=1.3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_repetition_penalty": 1.3}, "encoder_repetition_penalty=1.3"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences|returned sequences"),
        ({"streamer": object()}, "streamer"),
        ({"max_new_tokens": 1000}, "60 positions"),
        ({"eos_token_id": [0, 1]}, r"eos_token_id=\[0, 1\]"),
        # the engine would read or write there
        ({"suppress_tokens": [2 * 10**9]}, "`suppress_tokens`: 2000000000, outside the vocabulary of 211"),
        ({"eos_token_id": -5, "min_length": 3}, "`eos_token_id`: -5, outside"),
    ],
)
def test_a_strict_translator_refuses_options_that_the_engine_lacks(options, message):
    with pytest.raises(ValueError, match=message):
        strictly(build("plain"), int8=False).generate(**batch(), **options)


def test_values_that_generate_cannot_use_either_are_named():
    fast = to_fast(build("plain"))
    with pytest.raises(TypeError, match=r"`inputs` must be a tensor of token ids \[batch, source\], got a list"):
        fast.generate([[5, 6]])
    with pytest.raises(ValueError, match="`num_beams` must be at least 1, got 0"):
        fast.generate(**batch(), num_beams=0)


def test_a_shortlist_beside_the_model_is_read_and_must_fill_the_beams(tmp_path):
    model = build("plain")
    model.name_or_path = str(tmp_path)
    Shortlist.of_translations({}, [], (VOCABULARY, VOCABULARY)).save(tmp_path / FILE_NAME)
    assert to_fast(model, shortlist=True).shortlist.vocabulary == VOCABULARY
    with pytest.raises(ValueError, match="2 beams with a shortlist of 1 tokens"):
        strictly(model, shortlist=tmp_path / FILE_NAME).generate(**batch(), num_beams=2)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        ({"max_length": None}, {}),
        ({}, {"bad_words_ids": [[END]]}),
        ({"min_length": 8}, {"min_new_tokens": 2}),
        ({"eos_token_id": None}, {}),
        ({}, {"eos_token_id": None}),
        (
            {"num_beams": 3, "bad_words_ids": [[5]], "max_length": 9},
            {"generation_config": GenerationConfig(length_penalty=0.5)},
        ),
    ],
)
def test_settings_are_read_as_transformers_reads_them(config, options):
    model = build("plain")
    for name, value in config.items():
        setattr(model.generation_config, name, value)
    tokens = strictly(model, int8=False).generate(**batch(), **options)
    assert torch.equal(tokens, model.generate(**batch(), **options))


class MaxPool(LayerAggregation):
    """A layer aggregation of a user's own."""

    def aggregate(self, layer_outputs, output_routing_weights):
        return torch.stack(layer_outputs).amax(dim=0), None


class OtherDynamicCombination(DynamicCombination):
    """A subclass that has the weights of a known class, but combines layers in another way."""

    def aggregate(self, layer_outputs, output_routing_weights):
        return super().aggregate(layer_outputs, output_routing_weights)[0].abs(), None


class OtherModel(CapsuleMarianMTModel):
    pass


def routing_in_two_halves(votes, **arguments):
    return dynamic_routing(votes, **arguments)


def unknown(kind):
    """Return a model in which one part deviates from its configuration, and the error that names this part."""
    model = build("simple_heads" if kind == "activation" else "dynamic" if "method" in kind else "combination")
    decoder = model.model.decoder
    if kind == "class":
        decoder.layer_aggregation = MaxPool(model.config, 2).eval()
        return model, r"tests\.decoding\.test_fast\.MaxPool is not supported by the engine"
    if kind == "subclass":
        decoder.layer_aggregation.__class__ = OtherDynamicCombination
        return model, "OtherDynamicCombination is not supported by the engine"
    if kind == "epsilon":
        decoder.layers[0].final_layer_norm.eps = 1e-3
        return model, r"`model\.decoder\.layers\.0\.final_layer_norm\.eps` 0\.001 differs from the configuration"
    if kind == "model":
        model.__class__ = OtherModel
        return model, "OtherModel is not supported by the engine"
    if kind == "quantised":
        decoder.layers[0].fc1.weight.requires_grad_(False).data = torch.ones(50, 40, dtype=torch.int8)
        return model, r"a Parameter of torch\.int8 is not supported by the engine"
    if kind == "activation":
        for layer in model.model.encoder.layers:
            layer.self_attn.out_proj.activation = torch.sigmoid
        return model, "activation` sigmoid differs from the configuration"
    routing = decoder.layer_aggregation
    if kind == "method":
        routing.method = routing.method._replace(route=routing_in_two_halves)
        return model, "routing_in_two_halves .* differs from the configuration"
    routing.arguments = {**routing.arguments, "temperature": 2.0}
    return model, "'temperature': 2.0} differs from the configuration"


KINDS = ["class", "subclass", "epsilon", "model", "quantised", "activation", "method"]


@pytest.mark.parametrize("kind", [*KINDS, "setting of a method"])
def test_an_unknown_part_is_named(kind):
    model, message = unknown(kind)
    with pytest.raises(UnsupportedModelError, match=message):
        strictly(model)


@pytest.mark.parametrize("kind", ["class", "activation", "method"])
def test_generate_decodes_a_model_with_an_unknown_part(kind, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model, _ = unknown(kind)
    assert not takes_fast(model)
    caplog.clear()
    fast = to_fast(model)
    assert fast.backend == "transformers"
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("transformers' generate() decodes.")
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))


def test_settings_without_a_fast_form():
    scaled = CapsNMTForConditionalGeneration(CapsNMTConfig(vocab_size=11, hidden_size=8, score_scale=0.5))
    assert not takes_fast(scaled)
    model = CapsuleMarianMTModel.from_marian(build("plain"), guided_routing="classifier")
    with pytest.raises(
        UnsupportedModelError, match="`guided_routing` 'classifier' is not supported by the engine, only none, guided"
    ):
        strictly(model)
    released = CapsuleMarianMTModel.from_marian(build("plain"), **GUIDED | {"guided_score": "released"})
    with pytest.raises(
        UnsupportedModelError, match="`guided_score` 'released' is not supported by the engine, only printed"
    ):
        strictly(released)
    wrapped = torch.nn.Sequential(model)  # as peft wraps one
    wrapped.config = model.config
    with pytest.raises(UnsupportedModelError, match="got a Sequential: merge_and_unload"):
        strictly(wrapped)


def test_only_a_model_is_made_fast():
    fast = to_fast(build("plain"))
    for argument, kind in (("checkpoints/capsule-marian-de-en", "str"), (fast, "FastTranslator")):
        with pytest.raises(TypeError, match=f"`to_fast` takes a model, .*, got a {kind}"):
            to_fast(argument)


def test_it_has_the_configurations_of_its_model():
    model = build("plain")
    fast = to_fast(model, int8=False)
    assert fast.config is model.config
    assert fast.generation_config is model.generation_config
    fast.generation_config = GenerationConfig.from_model_config(model.config)
    fast.generation_config.max_new_tokens = 2
    assert fast.generate(**batch()).shape[1] == 3
    assert copy.copy(fast).config is model.config
    with pytest.raises(AttributeError, match=r"`to_fast` returns does not have `device`; .* is its `model`$"):
        _ = fast.device


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda fast: pickle.loads(pickle.dumps(fast))])
def test_a_copy_generates_the_same(duplicate):
    fast = strictly(build("plain"), int8=True)
    copied = duplicate(fast)
    assert (copied.int8, copied.strict, copied.backend) == (True, True, "native")
    assert torch.equal(copied.generate(**batch(), num_beams=2), fast.generate(**batch(), num_beams=2))


def test_models_that_are_still_what_their_configuration_says():
    """After loading, resizing, half precision and training without dropout."""
    model = build("combined")
    model.resize_token_embeddings(220)
    model.model.decoder.layer_aggregation.dropout = 0.0
    assert torch.equal(strictly(model, int8=False).generate(**batch()), model.generate(**batch()))
    half = build("plain").bfloat16()
    exact = build("plain").bfloat16().float()
    tokens, expected = (strictly(network, int8=False).generate(**batch()) for network in (half, exact))
    assert torch.equal(tokens, expected)


def test_generate_decodes_if_the_engine_is_missing(monkeypatch):
    def missing():
        raise NativeUnavailableError("the native engine was not built")

    monkeypatch.setattr("capsule_mt.engine.library.load_library", missing)
    model = build("plain")
    fast = to_fast(model)
    assert fast.backend == "transformers"
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))
    with pytest.raises(NativeUnavailableError):
        strictly(model)


def translations_by_threads(fast, monkeypatch, sources, **search):
    """Yield the results for one thread and for several."""
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        result = fast.generate(**batch(sources), **search, return_dict_in_generate=True)
        yield result.sequences, result.get("sequences_scores", torch.zeros(0))


@pytest.mark.parametrize("int8", [False, True])
def test_results_do_not_depend_on_the_number_of_threads(int8, monkeypatch):
    """The model is wide enough that threads share its products; small products run on one thread."""
    sizes = {"d_model": 256, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
    marian = MarianMTModel(MarianConfig(vocab_size=1003, max_position_embeddings=60, **sizes, **SPECIAL))
    seams = {"layer_aggregation": "em_routing", "guided_routing": "guided", "guided_capsule_dim": 64}
    model = CapsuleMarianMTModel.from_marian(marian, **seams).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, std=0.2)
    fast = strictly(model, int8=int8)
    cases = ((SOURCES, 3), (SOURCES[2:3], 4), (SOURCES[1:2], 1), ([SOURCES[2] * 3], 5))
    for sources, num_beams in cases:
        settings = {"num_beams": num_beams, "max_new_tokens": 9, "min_new_tokens": 9}
        alone, *together = translations_by_threads(fast, monkeypatch, sources, **settings)
        assert all(
            torch.equal(single, threaded)
            for outputs in together
            for single, threaded in zip(alone, outputs, strict=True)
        )
        if not int8:
            assert torch.equal(alone[0], model.generate(**batch(sources), **settings))

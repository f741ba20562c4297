"""The engine against `generate()`: every family and seam, every tier of kernels, every setting of the search."""

import json
import logging

import pytest
import torch
from hf_capsule_mt.fast import takes_fast, to_fast
from hf_capsule_mt.fast.build import TARGETS, this_platform
from hf_capsule_mt.fast.native import NativeUnavailableError, native_tier
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, MarianConfig, MarianMTModel

from hf_capsule_mt import CapsNMTConfig, CapsNMTForConditionalGeneration, CapsuleMarianMTModel
from tests.fast.conftest import TIERS
from tests.fast.models import END, NAMES, PAD, SOURCES, SPECIAL, batch, build
from tests.golden.make import EXPECTED, FAMILIES, FOLDER, TOKENIZER

SEARCHES = {
    "greedy": {},
    "beam": {"num_beams": 4},
    "n_best": {"num_beams": 5, "num_return_sequences": 3, "length_penalty": 0.6},
    "long": {"num_beams": 3, "length_penalty": 2.0, "early_stopping": "never"},
    "early": {"num_beams": 3, "early_stopping": True, "min_new_tokens": 4},
    "ngrams": {"num_beams": 2, "no_repeat_ngram_size": 2, "suppress_tokens": [3, 4]},
    "forced": {"forced_eos_token_id": END, "max_new_tokens": 5},
}


@pytest.mark.skipif(this_platform() not in TARGETS, reason="no compiler is packaged for this platform")
def test_the_engine_was_built():
    """`make test` installs the package with its build requirements, on every platform that they have a wheel for."""
    assert "portable" in TIERS


@pytest.mark.proves("`to_fast`, token for token `generate()`", "works", "works", "works")
@pytest.mark.parametrize("name", NAMES)
def test_it_equals_generate(name, backend):
    model = build(name)
    fast = to_fast(model, int8=False, backend=backend)
    assert fast.backend == backend
    for search in SEARCHES.values():
        settings = {**search, "return_dict_in_generate": True, "output_scores": search.get("num_beams", 1) > 1}
        expected = model.generate(**batch(), **settings)
        settings.pop("output_scores")
        found = fast.generate(**batch(), **settings)
        assert torch.equal(found.sequences, expected.sequences), search
        if search.get("num_beams", 1) > 1:
            # these random weights are sharp; trained ones are held to 1e-5 below
            torch.testing.assert_close(found.sequences_scores, expected.sequences_scores, atol=2e-4, rtol=0)
    shortest = batch([[END]])
    assert torch.equal(fast.generate(**shortest, num_beams=2), model.generate(**shortest, num_beams=2))


@pytest.mark.parametrize("name", ["plain", "em", "guided", "capsules", "rnmt_guided"])
def test_translations_that_end_at_different_steps(name, backend):
    """Any token may be the end token: here one that some hypotheses write early and others late."""
    model = build(name)
    free = model.generate(**batch(), num_beams=4, num_return_sequences=4)[:, 1:]
    steps = {int(token): (free == token).int().argmax(dim=1)[(free == token).any(dim=1)] for token in free.unique()}
    end = max(steps, key=lambda token: len(steps[token].unique()))
    fast = to_fast(model, int8=False, backend=backend)
    for search in ({}, {"num_beams": 4, "num_return_sequences": 2}, {"num_beams": 3, "early_stopping": True}):
        expected = model.generate(**batch(), **search, eos_token_id=end)
        assert torch.equal(fast.generate(**batch(), **search, eos_token_id=end), expected), search


@pytest.mark.parametrize("family", FAMILIES)
def test_trained_models(family, backend):
    """Real sentences with real ends, in float32 token for token and in int8 with the same words."""
    folder = FOLDER / family
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)
    pairs = json.loads((folder / EXPECTED).read_text(encoding="utf-8"))["pairs"]
    sources = tokenizer([pair["source"] for pair in pairs], padding=True, return_tensors="pt")
    sources.pop("token_type_ids", None)
    exact, rounded = (to_fast(model, int8=int8, backend=backend) for int8 in (False, True))
    assert torch.equal(exact.generate(**sources), model.generate(**sources))
    for search in ({"num_beams": 4, "num_return_sequences": 2}, {"num_beams": 5, "length_penalty": 0.6}):
        settings = {**search, "return_dict_in_generate": True}
        expected = model.generate(**sources, **settings, output_scores=True)
        found = exact.generate(**sources, **settings)
        assert torch.equal(found.sequences, expected.sequences), search
        torch.testing.assert_close(found.sequences_scores, expected.sequences_scores, atol=1e-5, rtol=0)
    translations = tokenizer.batch_decode(rounded.generate(**sources), skip_special_tokens=True)
    targets = tokenizer.batch_decode(model.generate(**sources), skip_special_tokens=True)
    same = sum(one == other for one, other in zip(translations, targets, strict=True))
    assert same >= 0.8 * len(targets)


@pytest.mark.parametrize("name", ["plain", "em", "guided", "capsules", "rnmt_guided"])
def test_logits_equal(name, backend):
    model = build(name)
    fast = to_fast(model, int8=False, backend=backend)
    request = fast._request(batch()["input_ids"], batch()["attention_mask"], fast._config(None, {}), None)
    found = fast._engine.translate(request, return_first_logits=True).first_logits
    start = torch.full((len(SOURCES), 1), PAD)
    with torch.no_grad():
        expected = model(**batch(), decoder_input_ids=start).logits[:, 0]
    torch.testing.assert_close(found, expected, atol=1e-4 * float(expected.abs().max()), rtol=1e-4)


@pytest.mark.parametrize("name", ["plain", "em", "guided", "capsules", "rnmt_guided"])
def test_in_int8_a_batch_equals_its_sentences(name, backend):
    model = build(name)
    fast = to_fast(model, int8=True, backend=backend)
    together = fast.generate(**batch(), num_beams=3, return_dict_in_generate=True)
    for number, source in enumerate(SOURCES):
        alone = fast.generate(**batch([source]), num_beams=3, return_dict_in_generate=True)
        length = alone.sequences.shape[1]
        assert torch.equal(together.sequences[number, :length], alone.sequences[0])
        assert bool((together.sequences[number, length:] == PAD).all())
        assert together.sequences_scores[number] == alone.sequences_scores[0]


@pytest.mark.parametrize("name", ["plain", "em", "guided", "capsules", "rnmt_guided"])
def test_int8_is_close(name, backend):
    model = build(name)
    exact, rounded = (to_fast(model, int8=int8, backend=backend) for int8 in (False, True))
    logits = []
    for fast in (exact, rounded):
        request = fast._request(batch()["input_ids"], batch()["attention_mask"], fast._config(None, {}), None)
        logits.append(fast._engine.translate(request, return_first_logits=True).first_logits)
    bound = 0.15 if name == "em" else 0.1  # densities of votes that differ little amplify what was rounded
    assert float((logits[1] - logits[0]).norm() / logits[0].norm()) < bound


def test_limits_by_source(backend):
    fast = to_fast(build("plain"), int8=False, backend=backend)
    found = fast.generate(**batch(), num_beams=2, limits=torch.tensor([3, 5, 14, 1]), min_new_tokens=14)
    assert found[3, 1] == END
    assert found[0, 3] == END
    assert bool((found[3, 2:] == PAD).all())
    assert bool((found[0, 1:3] != END).all())


def test_changed_weights_are_noticed(backend):
    model = build("plain")
    fast = to_fast(model, int8=False, backend=backend)
    before = fast.generate(**batch())
    with torch.no_grad():
        model.model.decoder.layers[0].fc1.weight.mul_(-1)
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))
    assert not torch.equal(before, model.generate(**batch()))


def test_what_it_does_not_know_is_left_to_transformers(caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    model = build("plain")
    fast = to_fast(model, int8=False)
    with caplog.at_level(logging.WARNING):
        found = fast.generate(**batch(), repetition_penalty=1.3)
        fast.generate(**batch(), repetition_penalty=1.3)
    assert torch.equal(found, model.generate(**batch(), repetition_penalty=1.3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repetition_penalty": 1.3}, "repetition_penalty=1.3"),
        ({"do_sample": True}, "do_sample=True"),
        ({"num_beams": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"streamer": object()}, "streamer"),
        ({"max_new_tokens": 1000}, "60 positions"),
        ({"eos_token_id": [0, 1]}, r"eos_token_id=\[0, 1\]"),
        ({"output_scores": True}, "output_scores"),
        ({"forced_bos_token_id": 0}, "forced_bos_token_id=0"),
        # the engine would read or write there
        ({"suppress_tokens": [2 * 10**9]}, "`suppress_tokens`: 2000000000, outside of the vocabulary of 211"),
        ({"bad_words_ids": [[211]]}, "`suppress_tokens`: 211, outside"),
        ({"decoder_start_token_id": 10**9}, "`decoder_start_token_id`: 1000000000, outside"),
        ({"eos_token_id": -5, "min_length": 3}, "`eos_token_id`: -5, outside"),
    ],
)
def test_an_explicit_backend_names_what_it_does_not_know(options, message):
    fast = to_fast(build("plain"), int8=False, backend="native")
    with pytest.raises(ValueError, match=message):
        fast.generate(**batch(), **options)


def test_a_source_beyond_the_table_of_positions(backend):
    model = build("capsules")
    sources = {"input_ids": torch.randint(1, 200, (1, 1025)), "max_new_tokens": 3}
    with pytest.raises(ValueError, match="a source of more than 1024 tokens"):
        to_fast(model, int8=False, backend=backend).generate(**sources)
    assert torch.equal(to_fast(model, int8=False).generate(**sources), model.generate(**sources))


@pytest.mark.parametrize(
    ("own", "options"),
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
def test_settings_are_read_as_transformers_reads_them(own, options, backend):
    model = build("plain")
    for name, value in own.items():
        setattr(model.generation_config, name, value)
    found = to_fast(model, int8=False, backend=backend).generate(**batch(), **options)
    assert torch.equal(found, model.generate(**batch(), **options))


def test_a_changed_bias_is_noticed_and_an_adapted_head_refused(backend):
    model = build("plain")
    fast = to_fast(model, int8=False, backend=backend)
    first = int(fast.generate(**batch())[0, 1])
    model.final_logits_bias[0, first] = -1e9
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))

    class Adapted(torch.nn.Linear):
        pass

    model.lm_head.__class__ = Adapted
    with pytest.raises(ValueError, match="Adapted has no fast form"):
        to_fast(model, backend=backend)


def test_a_capsnmt_with_scaled_scores_has_no_fast_form():
    config = CapsNMTConfig(vocab_size=11, hidden_size=8, score_scale=0.5)
    assert not takes_fast(CapsNMTForConditionalGeneration(config))


def test_bad_arguments():
    with pytest.raises(ValueError, match='"auto" or "native", got'):
        to_fast(build("plain"), backend="fast")
    model = CapsuleMarianMTModel.from_marian(build("plain"), guided_routing="classifier")
    with pytest.raises(ValueError, match="ClassifierGuidance"):
        to_fast(model, backend="native")
    wrapped = torch.nn.Sequential(model)  # as peft wraps one
    wrapped.config = model.config
    with pytest.raises(ValueError, match="got a Sequential: merge_and_unload"):
        to_fast(wrapped, backend="native")


@pytest.mark.parametrize("limits", [[6], [0, 6], [6, 6, 6], [[6, 6]]])
def test_limits_of_other_sources_are_refused(limits, backend):
    """The native engine reads as many as there are sources."""
    fast = to_fast(build("plain"), backend=backend)
    sources = torch.tensor([[5, 6, 7], [8, 9, 10]])
    with pytest.raises(ValueError, match="`limits` must be a number of at least 1 for each of 2 sources, got tensor"):
        fast.generate(sources, limits=torch.tensor(limits))


def test_without_the_engine_generate_decodes(monkeypatch):
    def missing():
        raise NativeUnavailableError("the native engine was not built")

    monkeypatch.setattr("hf_capsule_mt.fast.native.load_library", missing)
    model = build("plain")
    fast = to_fast(model)
    assert fast.backend == "transformers"
    assert torch.equal(fast.generate(**batch()), model.generate(**batch()))
    with pytest.raises(ValueError, match=r"`limits` is for the native engine, .*was not built"):
        fast.generate(**batch(), limits=torch.tensor([3, 3, 3, 3]))
    with pytest.raises(NativeUnavailableError):
        to_fast(model, backend="native")


def translations_by_threads(fast, monkeypatch, sources, **search):
    """What one thread generates, and what several do."""
    for threads in (1, 2, 3, 5):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found = fast.generate(**batch(sources), **search, return_dict_in_generate=True)
        yield found.sequences, found.get("sequences_scores", torch.zeros(0))


@pytest.mark.skipif(not TIERS, reason="the native engine was not built here")
def test_threads_give_what_one_gives(monkeypatch):
    fast = to_fast(build("guided"), backend="native")
    alone, *together = translations_by_threads(fast, monkeypatch, SOURCES, num_beams=3)
    assert all(torch.equal(one, other) for found in together for one, other in zip(alone, found, strict=True))


@pytest.mark.skipif(not TIERS, reason="the native engine was not built here")
@pytest.mark.parametrize("int8", [False, True])
def test_threads_share_the_products_of_one_sentence(int8, monkeypatch):
    """Of a model that is wide enough: threads leave small products to one of them."""
    sizes = {"d_model": 256, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512}
    marian = MarianMTModel(MarianConfig(vocab_size=1003, max_position_embeddings=60, **sizes, **SPECIAL))
    seams = {"layer_aggregation": "em_routing", "guided_routing": "guided", "guided_capsule_dim": 64}
    model = CapsuleMarianMTModel.from_marian(marian, **seams).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter.data, std=0.2)
    fast = to_fast(model, int8=int8, backend="native")
    for source, search in ((SOURCES[2], {"num_beams": 4}), (SOURCES[1], {}), (SOURCES[2] * 3, {"num_beams": 5})):
        settings = {**search, "max_new_tokens": 9, "min_new_tokens": 9}
        alone, *together = translations_by_threads(fast, monkeypatch, [source], **settings)
        assert all(torch.equal(one, other) for found in together for one, other in zip(alone, found, strict=True))
        if not int8:
            assert torch.equal(alone[0], model.generate(**batch([source]), **settings))


@pytest.mark.skipif(not TIERS, reason="the native engine was not built here")
def test_an_unknown_tier_is_named(monkeypatch):
    monkeypatch.setenv("HF_CAPSULE_MT_TIER", "nonsense")
    with pytest.raises(NativeUnavailableError, match="nonsense"):
        native_tier()

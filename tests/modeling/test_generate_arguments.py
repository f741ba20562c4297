"""`generate()` takes every argument that transformers documents, beside its own Marian: equal outputs, equal refusals.

With all switches off, Capsule Marian gives Marian's outputs. The other families refuse what Marian refuses, and take
the rest, but for `DIFFERENT`.
"""

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from transformers import (
    CompileConfig,
    GenerationConfig,
    GenerationMixin,
    LogitsProcessorList,
    MarianConfig,
    MarianMTModel,
    MaxLengthCriteria,
    MinNewTokensLengthLogitsProcessor,
    StoppingCriteriaList,
    WatermarkingConfig,
)
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation.streamers import BaseStreamer
from transformers.utils import ModelOutput

from hf_capsule_mt import (
    CapsNMTConfig,
    CapsNMTForConditionalGeneration,
    CapsuleMarianConfig,
    CapsuleMarianMTModel,
    CapsuleRNMTConfig,
    CapsuleRNMTForConditionalGeneration,
)
from hf_capsule_mt.modeling.cache_names import CACHE_NAME
from tests.fixtures.tiny import sizes_for, tiny_tokenizer
from tests.mixes import CAPSNMT, MARIAN, RNMT
from tests.modeling.model_checks import randomize

TEXTS = ["The old man buys a red hat.", "Who laughs?"]


class Collected(BaseStreamer):
    """A streamer that keeps the tokens it is given."""

    def __init__(self) -> None:
        self.tokens: list[int] = []

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        pass


class Call:
    """What a case may refer to: the model, its inputs [B, S], and their first target tokens [B, 3]."""

    def __init__(self, model, tokenizer):
        self.model, self.tokenizer = model, tokenizer
        self.source = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
        self.source.pop("token_type_ids", None)
        start = model.config.decoder_start_token_id
        self.prefix = torch.tensor([[start, 300, 310], [start, 320, 330]])

    @property
    def first_source(self):
        return {name: tensor[:1, : self.source["attention_mask"][0].sum()] for name, tensor in self.source.items()}

    def encoded(self):
        return self.model.get_encoder()(**self.source)

    def embedded(self):
        return self.model.get_input_embeddings()(self.source["input_ids"])

    def cache_after(self, length):
        return getattr(
            self.model(**self.source, decoder_input_ids=self.prefix[:, :length], use_cache=True), CACHE_NAME
        )


Case = dict[str, Any] | Callable[[Call], dict[str, Any]]
BEAMS = {"num_beams": 3}
SAMPLING = {"do_sample": True}
DICTIONARY = {"return_dict_in_generate": True}
ASSISTED = {"prompt_lookup_num_tokens": 2, "only_first": True}


def assisted(**settings: Any) -> Callable[[Call], dict[str, Any]]:
    return lambda call: {"assistant_model": call.model, "only_first": True, **settings}


# What each argument of the documentation is called with. `only_first`: one source, as assisted decoding needs
GENERATION_CONFIG: dict[str, list[Case]] = {
    "max_length": [{"max_length": 6, "max_new_tokens": None}],
    "max_new_tokens": [{"max_new_tokens": 3}],
    "min_length": [{"min_length": 7}],
    "min_new_tokens": [{"min_new_tokens": 7}],
    "early_stopping": [BEAMS | {"early_stopping": True}, BEAMS | {"early_stopping": "never"}],
    "max_time": [{"max_time": 100.0}],
    "stop_strings": [
        lambda call: {"stop_strings": ["e", "a"], "tokenizer": call.tokenizer},
        lambda call: BEAMS | {"stop_strings": "e", "tokenizer": call.tokenizer},
        {"stop_strings": ["e"]},
    ],
    "do_sample": [SAMPLING, SAMPLING | BEAMS],
    "num_beams": [BEAMS],
    "use_mtp": [{"use_mtp": True}],
    "use_cache": [{"use_cache": False}],
    "cache_implementation": [
        {"cache_implementation": "dynamic"},
        {"cache_implementation": "static", "disable_compile": True},
        {"cache_implementation": "quantized"},
        {"cache_implementation": "no such cache"},
    ],
    "cache_config": [{"cache_config": {"backend": "quanto"}}],
    "max_cache_len": [{"cache_implementation": "static", "max_cache_len": 12, "disable_compile": True}],
    "temperature": [SAMPLING | {"temperature": 0.5}],
    "top_k": [SAMPLING | {"top_k": 5}],
    "top_p": [SAMPLING | {"top_p": 0.5}],
    "min_p": [SAMPLING | {"min_p": 0.1}],
    "top_h": [SAMPLING | {"top_h": 0.4}],
    "typical_p": [SAMPLING | {"typical_p": 0.5}],
    "epsilon_cutoff": [SAMPLING | {"epsilon_cutoff": 9e-4}],
    "eta_cutoff": [SAMPLING | {"eta_cutoff": 2e-3}],
    "repetition_penalty": [{"repetition_penalty": 1.5}],
    "encoder_repetition_penalty": [{"encoder_repetition_penalty": 1.5}],
    "length_penalty": [BEAMS | {"length_penalty": 0.2}],
    "no_repeat_ngram_size": [{"no_repeat_ngram_size": 2}],
    "bad_words_ids": [{"bad_words_ids": [[300], [310, 320]]}],
    "renormalize_logits": [BEAMS | {"renormalize_logits": True, "repetition_penalty": 1.5}],
    "forced_bos_token_id": [{"forced_bos_token_id": 300}],
    "forced_eos_token_id": [{"forced_eos_token_id": 1}],
    "remove_invalid_values": [{"remove_invalid_values": True}],
    "exponential_decay_length_penalty": [{"exponential_decay_length_penalty": (2, 3.0)}],
    "suppress_tokens": [{"suppress_tokens": list(range(300, 400))}],
    "begin_suppress_tokens": [{"begin_suppress_tokens": list(range(300, 400))}],
    "sequence_bias": [{"sequence_bias": [[[300], 5.0]]}],
    "token_healing": [lambda call: {"token_healing": True, "tokenizer": call.tokenizer}, {"token_healing": True}],
    "guidance_scale": [{"guidance_scale": 1.5}],
    "watermarking_config": [{"watermarking_config": WatermarkingConfig(bias=3.0)}],
    "num_return_sequences": [BEAMS | {"num_return_sequences": 2}, {"num_return_sequences": 2}],
    "output_attentions": [DICTIONARY | {"output_attentions": True}],
    "output_hidden_states": [DICTIONARY | {"output_hidden_states": True}],
    "output_scores": [DICTIONARY | {"output_scores": True}, BEAMS | DICTIONARY | {"output_scores": True}],
    "output_logits": [DICTIONARY | {"output_logits": True}],
    "return_dict_in_generate": [DICTIONARY, BEAMS | DICTIONARY],
    "pad_token_id": [{"pad_token_id": 5}],
    "bos_token_id": [{"bos_token_id": 300}],
    "eos_token_id": [{"eos_token_id": list(range(300, 360))}],
    "encoder_no_repeat_ngram_size": [{"encoder_no_repeat_ngram_size": 1}],
    "decoder_start_token_id": [{"decoder_start_token_id": 7}, {"decoder_start_token_id": [7, 8]}],
    "is_assistant": [{"is_assistant": True}],
    "num_assistant_tokens": [assisted(num_assistant_tokens=2)],
    "num_assistant_tokens_schedule": [assisted(num_assistant_tokens_schedule="heuristic")],
    "assistant_confidence_threshold": [assisted(assistant_confidence_threshold=0.9)],
    "prompt_lookup_num_tokens": [ASSISTED],
    "max_matching_ngram_size": [ASSISTED | {"max_matching_ngram_size": 1}],
    "assistant_early_exit": [{"assistant_early_exit": 1, "only_first": True}],
    "assistant_lookbehind": [assisted(assistant_lookbehind=2)],
    "target_lookbehind": [assisted(target_lookbehind=2)],
    "assistant_ensemble_weight": [assisted(assistant_ensemble_weight=0.5)],
    "speculation_type": [{"speculation_type": "dflash"}, assisted(speculation_type="dflash")],
    "compile_config": [{"compile_config": CompileConfig()}],
    "disable_compile": [{"disable_compile": True}],
}
# arguments of `generate` itself, and of the models, which it documents as `kwargs`
GENERATE: dict[str, list[Case]] = {
    "inputs": [lambda call: {"inputs": call.source["input_ids"], "input_ids": None}],
    "generation_config": [{"generation_config": GenerationConfig(num_beams=2, max_new_tokens=5)}],
    "logits_processor": [
        {"logits_processor": LogitsProcessorList([MinNewTokensLengthLogitsProcessor(1, 5, 1, device="cpu")])}
    ],
    "stopping_criteria": [{"stopping_criteria": StoppingCriteriaList([MaxLengthCriteria(4)])}],
    "prefix_allowed_tokens_fn": [BEAMS | {"prefix_allowed_tokens_fn": lambda row, tokens: [300 + row, 310, 1]}],
    "synced_gpus": [{"synced_gpus": False}],
    "assistant_model": [assisted()],
    "streamer": [{"streamer": Collected, "only_first": True}, BEAMS | {"streamer": Collected}],
    "negative_prompt_ids": [
        lambda call: {"guidance_scale": 1.5, "negative_prompt_ids": call.source["input_ids"]},
    ],
    "negative_prompt_attention_mask": [
        lambda call: {
            "guidance_scale": 1.5,
            "negative_prompt_ids": call.source["input_ids"],
            "negative_prompt_attention_mask": call.source["attention_mask"],
        }
    ],
    "custom_generate": [{"custom_generate": GenerationMixin._sample}, {"custom_generate": "no/such/folder"}],
}
MODEL_ARGUMENTS: dict[str, list[Case]] = {
    "tokenizer": [lambda call: {"tokenizer": call.tokenizer}, lambda call: BEAMS | {"tokenizer": call.tokenizer}],
    "assistant_tokenizer": [
        lambda call: {"assistant_tokenizer": call.tokenizer},
        lambda call: assisted(tokenizer=call.tokenizer, assistant_tokenizer=call.tokenizer)(call),
    ],
    "attention_mask": [{"attention_mask": None}],
    "encoder_outputs": [lambda call: {"encoder_outputs": call.encoded(), "input_ids": None}],
    "inputs_embeds": [lambda call: {"inputs_embeds": call.embedded(), "input_ids": None}],
    "decoder_input_ids": [lambda call: {"decoder_input_ids": call.prefix}],
    "decoder_attention_mask": [
        lambda call: {"decoder_input_ids": call.prefix, "decoder_attention_mask": torch.ones_like(call.prefix)}
    ],
    "decoder_inputs_embeds": [
        lambda call: {"decoder_inputs_embeds": torch.zeros(2, 1, call.embedded().shape[-1])},
    ],
    "cache": [
        lambda call: {CACHE_NAME: call.cache_after(2), "decoder_input_ids": call.prefix},
        lambda call: {CACHE_NAME: EncoderDecoderCache(DynamicCache(), DynamicCache())},
    ],
    "labels": [lambda call: {"labels": call.prefix}],
    "num_items_in_batch": [{"num_items_in_batch": 7}],
    "position_ids": [{"position_ids": torch.zeros(2, 1, dtype=torch.long)}],
    "output_router_logits": [{"output_router_logits": True}],
    "max_length_q": [{"max_length_q": 4}],
    "a misspelt one": [{"num_beam": 4}, {"decoder_input_idx": torch.zeros(2, 1)}],
}
CASES = {
    f"{name}-{number}": case
    for cases in (GENERATION_CONFIG, GENERATE, MODEL_ARGUMENTS)
    for name, calls in cases.items()
    for number, case in enumerate(calls)
}


@pytest.fixture(scope="module")
def tokenizer():
    return tiny_tokenizer()


@pytest.fixture(scope="module")
def models(tokenizer):
    sizes = {**sizes_for(tokenizer), "tie_word_embeddings": False}
    special = {name: value for name, value in sizes.items() if name.endswith("_id") or name == "vocab_size"}
    torch.manual_seed(0)
    eager = {"attn_implementation": "eager"}  # Marian has no attention weights to return otherwise
    marian: Any = randomize(MarianMTModel(MarianConfig(**sizes, **eager)), std=0.3)
    off = CapsuleMarianMTModel(CapsuleMarianConfig(**sizes, **eager))
    off.load_state_dict(marian.state_dict())
    small = {**special, "hidden_size": 16, "encoder_layers": 2, "decoder_layers": 2}
    built = {
        "marian": marian,
        "off": off,
        "combined": randomize(CapsuleMarianMTModel(CapsuleMarianConfig(**sizes | MARIAN["combined"]))),
        "ssru": randomize(CapsuleMarianMTModel(CapsuleMarianConfig(**sizes | MARIAN["ssru"]))),
        "capsnmt": randomize(CapsNMTForConditionalGeneration(CapsNMTConfig(**small | CAPSNMT["hybrid"]))),
        "rnmt": randomize(
            CapsuleRNMTForConditionalGeneration(CapsuleRNMTConfig(**small | {"hidden_size": 12} | RNMT["rnmt_guided"]))
        ),
    }
    for model in built.values():
        model.eval().generation_config.max_length = None
        model.generation_config.max_new_tokens = 8
    return built


def outcome(model, tokenizer, case):
    """Return what a call gives, or the error that it raises."""
    call = Call(model, tokenizer)
    torch.manual_seed(3)
    try:
        settings = dict(case(call) if callable(case) else case)
        source = call.first_source if settings.pop("only_first", False) else call.source
        streamer = settings.get("streamer")
        if streamer is not None:
            settings["streamer"] = streamer = streamer()
        output = model.generate(**{**source, **settings})
    except Exception as error:
        return error
    return output if streamer is None else (output, streamer.tokens)


@pytest.fixture(scope="module")
def outcome_of_marian(models, tokenizer):
    """Return a function of a case's name, which calls Marian once for all families."""
    return cache(lambda name: outcome(models["marian"], tokenizer, CASES[name]))


def assert_equal(actual, expected):
    """Compare outputs of `generate()`: tensors, and dictionaries and tuples of them; not the caches."""
    assert type(actual) is type(expected)
    if isinstance(expected, ModelOutput):
        assert actual.keys() == expected.keys()
        for name in expected.keys() - {CACHE_NAME}:
            assert_equal(actual[name], expected[name])
    elif isinstance(expected, tuple):
        for actual_item, expected_item in zip(actual, expected, strict=True):
            assert_equal(actual_item, expected_item)
    elif isinstance(expected, torch.Tensor):
        assert torch.equal(actual, expected)
    else:
        assert actual == expected


def test_every_documented_argument_has_a_case():
    documented = re.findall(r"^ {4}(\w+)\s*:?\s*\(", inspect.cleandoc(GenerationConfig.__doc__ or ""), re.MULTILINE)
    assert len(documented) > 50
    assert not set(documented) - GENERATION_CONFIG.keys()
    assert inspect.signature(GenerationMixin.generate).parameters.keys() - {"self", "kwargs"} == GENERATE.keys()


@pytest.mark.parametrize("name", CASES)
def test_as_marian(name, models, tokenizer, outcome_of_marian):
    expected, actual = outcome_of_marian(name), outcome(models["off"], tokenizer, CASES[name])
    if isinstance(expected, Exception):
        assert type(actual) is type(expected)
    else:
        assert_equal(actual, expected)


# what a family refuses, and Marian takes
DIFFERENT = {
    ("capsnmt", "cache-1"): TypeError,  # a recurrent decoder has a cache of its own kind
    ("rnmt", "cache-1"): TypeError,
    ("rnmt", "num_items_in_batch-0"): ValueError,  # its guided losses were not computed
}


@pytest.mark.parametrize("model", ["combined", "ssru", "capsnmt", "rnmt"])
@pytest.mark.parametrize("name", CASES)
def test_every_family_takes_what_marian_takes(name, model, models, tokenizer, outcome_of_marian):
    expected, actual = outcome_of_marian(name), outcome(models[model], tokenizer, CASES[name])
    error = DIFFERENT.get((model, name), type(expected) if isinstance(expected, Exception) else None)
    if error is None and isinstance(actual, Exception):
        raise actual
    assert (type(actual) if isinstance(actual, Exception) else None) == error


@pytest.mark.parametrize("model", ["off", "ssru", "capsnmt", "rnmt"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"guidance_scale": 1.5}, r"`guidance_scale` must be 1\.0 or left out, got 1\.5"),
        ({"cache_implementation": "paged"}, '`cache_implementation` "paged" is only for models without an encoder'),
        ({"cache_implementation": "quantized"}, '`cache_implementation` "quantized" is'),
    ],
)
def test_what_transformers_has_only_for_decoders_is_refused(model, settings, message, models, tokenizer):
    with pytest.raises(ValueError, match=message):
        models[model].generate(**Call(models[model], tokenizer).source, **settings)


@pytest.mark.skipif(torch.cuda.is_available(), reason="works with a GPU")
def test_an_offloaded_cache_needs_a_gpu(models, tokenizer):
    for name in ("offloaded", "offloaded_static"):
        with pytest.raises(ValueError, match=f'`cache_implementation` "{name}" moves the cache between a GPU and the'):
            models["off"].generate(**Call(models["off"], tokenizer).source, cache_implementation=name)


@pytest.mark.parametrize("model", ["off", "ssru", "capsnmt", "rnmt"])
def test_token_ids_outside_of_the_vocabulary_are_named(model, models):
    size = models[model].config.vocab_size
    for token_id in (-1, size):
        with pytest.raises(IndexError, match=rf"Encoder must be token ids from 0 to {size - 1}, got \[{token_id}\]"):
            models[model].generate(torch.tensor([[5, token_id]]))
        with pytest.raises(IndexError, match=rf"Decoder must be token ids from 0 to {size - 1}, got \[{token_id}\]"):
            models[model](torch.tensor([[5]]), decoder_input_ids=torch.tensor([[5, token_id]]))


@pytest.mark.parametrize("model", ["off", "combined", "ssru", "capsnmt", "rnmt"])
def test_labels_outside_of_the_vocabulary_are_named(model, models):
    """Also the last label, which the decoder does not read."""
    size, source = models[model].config.vocab_size, torch.tensor([[5, 6]])
    for labels in ([[5, size, 2]], [[5, 2, size]], [[-1, 2]]):
        unknown = next(label for label in labels[0] if not 0 <= label < size)
        with pytest.raises(
            IndexError, match=rf"`labels` must be token ids from 0 to {size - 1}, or -100 .*\[{unknown}\]"
        ):
            models[model](source, labels=torch.tensor(labels))
    assert torch.isfinite(models[model](source, labels=torch.tensor([[0, size - 1, -100]])).loss)


def test_tokens_of_a_wrong_type_are_named(models):
    model, source = models["off"], torch.tensor([[5, 6]])
    with pytest.raises(TypeError, match=r"`labels` must be a tensor of dtype torch.int64, got torch.float32"):
        model(source, labels=torch.ones(1, 3))
    with pytest.raises(TypeError, match=r"`labels` must be a tensor of dtype torch.int64, got list"):
        model(source, labels=[[5, 6]])
    with pytest.raises(ValueError, match=r"`labels` must be \[batch, tokens\], got \[2\]"):
        model(source, labels=torch.tensor([5, 6]))
    with pytest.raises(
        TypeError, match=r"`input_ids` of CapsuleMarianEncoder must be .* int64 or int32, got torch.float32"
    ):
        model(torch.ones(1, 3), decoder_input_ids=source)
    with pytest.raises(TypeError, match=r"`input_ids` of CapsuleMarianDecoder must be .* int64 or int32, got list"):
        model(source, decoder_input_ids=[[5, 6]])


@pytest.mark.parametrize("model", ["off", "capsnmt", "rnmt"])
@pytest.mark.parametrize("name", ["forced_bos_token_id", "forced_eos_token_id"])
def test_forced_tokens_outside_of_the_vocabulary_are_named(name, model, models):
    size = models[model].config.vocab_size
    for value in (size, -1, "de"):
        with pytest.raises(ValueError, match=rf"`{name}` must be a token id from 0 to {size - 1}, got {value!r}"):
            models[model].generate(torch.tensor([[5, 2]]), max_new_tokens=3, **{name: value})

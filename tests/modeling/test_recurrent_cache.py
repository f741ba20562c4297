"""The recurrent cache: its rows, its past, and what `generate()` asks of it."""

from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache, GenerationConfig
from transformers.cache_utils import EncoderDecoderCache

from hf_capsule_mt.modeling.cache_names import CACHE_NAME
from hf_capsule_mt.modeling.recurrent_cache import RecurrentCache, RecurrentGeneration
from hf_capsule_mt.modeling.sentence_cache import GuidedCache, guided_cache

NUM_LAYERS, BATCH_SIZE, WIDTH = 2, 3, 4


def lstm_states():
    return [(torch.randn(BATCH_SIZE, WIDTH), torch.randn(BATCH_SIZE, WIDTH)) for _ in range(NUM_LAYERS)]


def gru_states():
    return [(torch.randn(BATCH_SIZE, WIDTH),) for _ in range(NUM_LAYERS)]


def same(actual, expected):
    return all(
        len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
        for a, b in zip(actual, expected, strict=True)
    )


@pytest.fixture(params=[lstm_states, gru_states], ids=["lstm", "gru"])
def make_states(request):
    return request.param


@pytest.mark.parametrize(
    ("method", "argument", "rows"),
    [
        ("reorder_cache", torch.tensor([2, 0, 0]), [2, 0, 0]),
        ("batch_repeat_interleave", 2, [0, 0, 1, 1, 2, 2]),
        ("batch_select_indices", torch.tensor([1]), [1]),
    ],
)
def test_rows_of_states_constants_and_past_go_together(make_states, method, argument, rows):
    cache = RecurrentCache(NUM_LAYERS, record_past=True)
    first, second = make_states(), make_states()
    cache.append(first)
    cache.append(second)
    cache.constants["source"] = source = torch.randn(BATCH_SIZE, 5, WIDTH)
    getattr(cache, method)(argument)
    assert same(cache.states, [tuple(t[rows] for t in state) for state in second])
    assert torch.equal(cache.constants["source"], source[rows])
    cache.crop(-1)
    assert same(cache.states, [tuple(t[rows] for t in state) for state in first])


def test_goes_back(make_states):
    cache = RecurrentCache(NUM_LAYERS)
    prefix = make_states()
    cache.append(prefix, num_tokens=3)
    assert not any(layer.is_croppable for layer in cache.layers)
    cache.activate_past_recording()
    assert all(layer.is_croppable for layer in cache.layers)
    assert cache.record_past
    history = [make_states() for _ in range(4)]
    for states in history:
        cache.append(states)
    cache.crop(0)
    assert (cache.get_seq_length(), same(cache.states, history[3])) == (7, True)
    cache.crop(-2)
    assert (cache.get_seq_length(), same(cache.states, history[1])) == (5, True)
    other = make_states()
    cache.append(other)
    assert (cache.get_seq_length(), same(cache.states, other)) == (6, True)
    cache.crop(-3)
    assert (cache.get_seq_length(), same(cache.states, prefix)) == (3, True)
    with pytest.raises(ValueError, match="cannot go back from 3 to 2 tokens"):
        cache.crop(-1)


class Model(RecurrentGeneration):
    config = SimpleNamespace(decoder_layers=NUM_LAYERS)


def prepare(model_kwargs=None, **settings):
    model_kwargs = model_kwargs or {}
    Model()._prepare_cache_for_generation(GenerationConfig(**settings), model_kwargs, None, 1, 20)
    return model_kwargs.get(CACHE_NAME)


def test_a_static_cache_keeps_its_addresses(make_states):
    cache = prepare(cache_implementation="static")
    assert cache.is_compileable
    assert cache.get_seq_length() == 0
    given = make_states()
    first = [tuple(tensor.clone() for tensor in state) for state in given]
    cache.append(given, num_tokens=4)
    held = [tensor for state in cache.states for tensor in state] + [cache.get_seq_length()]
    addresses = [tensor.data_ptr() for tensor in held]
    states = make_states()
    cache.append(states)
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    assert same(cache.states, [tuple(t[[2, 0, 0]] for t in state) for state in states])
    assert cache.get_seq_length() == 5
    now = [tensor for state in cache.states for tensor in state] + [cache.get_seq_length()]
    assert [tensor.data_ptr() for tensor in now] == addresses
    assert {tensor._dynamo_static_input_type for tensor in now} == {"unguarded"}
    assert same(given, first)  # what was appended is the caller's
    cache.batch_repeat_interleave(2)
    assert same(cache.states, [tuple(t[[2, 2, 0, 0, 0, 0]] for t in state) for state in states])
    assert cache.states[0][0]._dynamo_static_input_type == "unguarded"
    cache.reset()
    assert cache.get_seq_length() == 0


def test_a_static_cache_has_no_past(make_states):
    with pytest.raises(ValueError, match="`record_past` and `static` exclude each other"):
        RecurrentCache(NUM_LAYERS, record_past=True, static=True)
    with pytest.raises(ValueError, match="a static cache keeps no past"):
        RecurrentCache(NUM_LAYERS, static=True).activate_past_recording()


def test_generate_refuses_other_caches():
    with pytest.raises(ValueError, match='`cache_implementation` "offloaded" is not for a recurrent model'):
        prepare(cache_implementation="offloaded")
    with pytest.raises(ValueError, match="not both"):
        prepare({CACHE_NAME: RecurrentCache(NUM_LAYERS)}, cache_implementation="dynamic")
    with pytest.raises(TypeError, match="must be a RecurrentCache, got DynamicCache"):
        prepare({CACHE_NAME: DynamicCache()})
    with pytest.raises(ValueError, match="has 3 layers, but `decoder_layers` is 2"):
        prepare({CACHE_NAME: RecurrentCache(3)})


def test_beams_leave_the_constants_of_their_sentence_where_they_are():
    cache = RecurrentCache(1)
    source = torch.randn(2, 5, WIDTH).repeat_interleave(3, dim=0)  # two sentences of three beams
    cache.append([(torch.randn(6, WIDTH),)])
    cache.constants["source"] = source
    cache.number_sentences(source)
    assert cache.constants["sentences"].tolist() == [0, 0, 0, 1, 1, 1]
    (state,) = cache.states[0]
    within = torch.tensor([2, 0, 0, 5, 4, 5])
    cache.reorder_cache(within)
    assert torch.equal(cache.states[0][0], state[within])
    assert cache.constants["source"] is source
    across = torch.tensor([3, 3, 3, 0, 1, 2])
    cache.reorder_cache(across)
    assert torch.equal(cache.constants["source"], source[across])
    assert cache.constants["sentences"].tolist() == [1, 1, 1, 0, 0, 0]
    cache.batch_select_indices(torch.tensor([0, 5]))
    assert cache.constants["sentences"].tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["recurrent", "guided"])
def test_a_reset_forgets_the_sentences(kind):
    cache = RecurrentCache(1) if kind == "recurrent" else GuidedCache(DynamicCache(), DynamicCache())
    cache.constants["source"] = source = torch.randn(2, 5, WIDTH)
    cache.number_sentences(source)
    cache.reset()
    assert cache.constants == {}


def test_a_guided_cache_shares_everything_with_the_cache_it_was_made_of():
    given = EncoderDecoderCache(DynamicCache(), DynamicCache())
    given._is_user_defined = True  # as `generate()` notes, so that it does not throw the tensors away
    cache = guided_cache(given)
    assert guided_cache(cache) is cache
    assert cache._is_user_defined
    keys = torch.randn(2, 1, 5, WIDTH)
    cache.cross_attention_cache.update(keys, keys, 0)
    cache.is_updated[0] = True
    assert given.is_updated == {0: True}
    assert torch.equal(given.cross_attention_cache.layers[0].keys, keys)
    other = guided_cache(EncoderDecoderCache(DynamicCache(), DynamicCache()))
    assert not getattr(other, "_is_user_defined", False)

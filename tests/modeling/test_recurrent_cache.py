"""The recurrent cache: going back, its addresses, the constants of a sentence, and what `generate()` asks of it."""

from types import SimpleNamespace

import pytest
import torch
from transformers import DynamicCache, GenerationConfig

from hf_capsule_mt.modeling.cache_names import CACHE_NAME
from hf_capsule_mt.modeling.recurrent_cache import RecurrentCache, RecurrentGeneration
from hf_capsule_mt.modeling.sentence_cache import GuidedCache

NUM_LAYERS, BATCH_SIZE, WIDTH = 2, 3, 4


def make_states():
    """The states and cells of an LSTM."""
    return [(torch.randn(BATCH_SIZE, WIDTH), torch.randn(BATCH_SIZE, WIDTH)) for _ in range(NUM_LAYERS)]


def assert_same(actual, expected):
    for actual_tensor, expected_tensor in zip(actual, expected, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(actual_tensor, expected_tensor, strict=True))


class Model(RecurrentGeneration):
    config = SimpleNamespace(decoder_layers=NUM_LAYERS)


def prepare(model_kwargs=None, **settings):
    model_kwargs = model_kwargs or {}
    Model()._prepare_cache_for_generation(GenerationConfig(**settings), model_kwargs, None, 1, 20)
    return model_kwargs.get(CACHE_NAME)


def test_the_cache_goes_back_to_earlier_steps():
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
    assert cache.get_seq_length() == 7
    assert_same(cache.states, history[3])
    cache.crop(-2)
    assert cache.get_seq_length() == 5
    assert_same(cache.states, history[1])
    later = make_states()
    cache.append(later)
    assert cache.get_seq_length() == 6
    assert_same(cache.states, later)
    cache.crop(-3)
    assert cache.get_seq_length() == 3
    assert_same(cache.states, prefix)
    with pytest.raises(ValueError, match="cannot go back from 3 to 2 tokens"):
        cache.crop(-1)


def test_a_static_cache_keeps_its_addresses():
    cache = prepare(cache_implementation="static")
    assert cache.is_compileable
    assert cache.get_seq_length() == 0
    new_states = make_states()
    first = [tuple(tensor.clone() for tensor in state) for state in new_states]
    cache.append(new_states, num_tokens=4)
    tensors = [tensor for state in cache.states for tensor in state] + [cache.get_seq_length()]
    addresses = [tensor.data_ptr() for tensor in tensors]
    states = make_states()
    cache.append(states)
    cache.reorder_cache(torch.tensor([2, 0, 0]))
    assert_same(cache.states, [tuple(t[[2, 0, 0]] for t in state) for state in states])
    assert cache.get_seq_length() == 5
    now = [tensor for state in cache.states for tensor in state] + [cache.get_seq_length()]
    assert [tensor.data_ptr() for tensor in now] == addresses
    assert {tensor._dynamo_static_input_type for tensor in now} == {"unguarded"}
    assert_same(new_states, first)  # what was appended is the caller's
    cache.batch_repeat_interleave(2)
    assert_same(cache.states, [tuple(t[[2, 2, 0, 0, 0, 0]] for t in state) for state in states])
    assert cache.states[0][0]._dynamo_static_input_type == "unguarded"
    cache.reset()
    assert cache.get_seq_length() == 0


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
    beam_order = torch.tensor([2, 0, 0, 5, 4, 5])
    cache.reorder_cache(beam_order)
    assert torch.equal(cache.states[0][0], state[beam_order])
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

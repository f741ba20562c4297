"""The searches of the PyTorch backend: the largest values of a large vocabulary, and the search on a device."""

import pytest
import torch

from hf_capsule_mt.fast import device_search, to_fast
from hf_capsule_mt.fast.search import GROUP, largest
from hf_capsule_mt.routing import common
from tests.fast import test_coverage
from tests.fast.models import END, batch, build
from tests.fast.test_translator import SEARCHES
from tests.modeling.test_waits import ReadsOfValues


@pytest.mark.parametrize("size", [1, 100, GROUP - 1, 1000, 21 * GROUP, 21 * GROUP + 1, 32000, 65001])
@pytest.mark.parametrize("count", [1, 2, 10])
def test_largest_is_topk(size, count):
    values = torch.randn(2, 3, size)
    count = min(count, size)
    best, indices = largest(values, count)
    expected = values.topk(count, dim=-1)
    assert torch.equal(best, expected.values)
    assert torch.equal(indices, expected.indices)


def test_largest_of_the_rest_and_of_forbidden_values():
    values = torch.full((1, 1, 50 * GROUP + 7), -torch.inf)
    values[..., -1], values[..., 5] = 2, 3
    best, indices = largest(values, 2)
    assert best.tolist() == [[[3, 2]]]
    assert indices.tolist() == [[[5, 50 * GROUP + 6]]]
    assert largest(values, 4)[0].isneginf().sum() == 2  # forbidden ones make up the number


# ---- on a device, which a CPU plays
MODELS = ["em", "guided", "capsules", "rnmt_guided"]


def device(patch):
    patch.setattr(common, "HOST", "another device")


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    assert torch.equal(found.sequences, expected.sequences)
    torch.testing.assert_close(found.get("sequences_scores"), expected.get("sequences_scores"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ends", ["late", "at different steps"])
def test_a_device_searches_like_the_host(name, ends, monkeypatch):
    """Any token may be the end token: one that some hypotheses write early and others late."""
    model = build(name)
    if ends == "at different steps":
        free = model.generate(**batch(), num_beams=4, num_return_sequences=4)[:, 1:]
        model.config.eos_token_id = model.generation_config.eos_token_id = int(free[:, 3].mode().values)
    fast = to_fast(model, int8=False, backend="torch")
    searches = [dict(search) for search in SEARCHES.values()]
    searches += [{"limits": torch.tensor([3, 5, 14, 1]), "num_beams": beams} for beams in (1, 3)]
    if ends == "at different steps":  # where another token is forced than ends
        searches = [search for search in searches if "forced_eos_token_id" not in search]
    for search in searches:
        search["return_dict_in_generate"] = True
        expected = fast.generate(**batch(), **search)
        with monkeypatch.context() as patch:
            device(patch)
            assert_equal(fast.generate(**batch(), **search), expected)


@pytest.mark.parametrize("name", ["guided", "rnmt_guided"])
def test_a_device_follows_coverage(name, monkeypatch):
    device(monkeypatch)
    test_coverage.test_it_equals_a_second_pass(name, "torch")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("beams", [1, 3])
def test_a_device_is_asked_every_few_steps(name, beams, monkeypatch):
    """Whether a source goes on, and nothing else."""
    fast = to_fast(build(name), int8=False, backend="torch")
    device(monkeypatch)
    reads = []
    for length in (device_search.STEPS_PER_READ - 1, 3 * device_search.STEPS_PER_READ + 1):
        with ReadsOfValues(refuse=False) as counted:
            found = fast.generate(
                **batch(), num_beams=beams, max_new_tokens=length, min_new_tokens=length, no_repeat_ngram_size=2
            )
        assert found.shape[1] == length + 1
        asked = counted.callers.pop(device_search.__file__, 0)
        reads.append((asked, counted.callers.total()))
    assert [asked for asked, _ in reads] == [0, 3]
    assert reads[0][1] == reads[1][1]  # before and after the search


def test_a_source_that_ended_is_left_alone(monkeypatch):
    """The steps until the host notices change nothing."""
    model = build("plain")
    expected = to_fast(model, int8=False, backend="torch").generate(**batch(), limits=torch.tensor([1, 2, 3, 2]))
    device(monkeypatch)
    for steps in (1, 5, 100):
        monkeypatch.setattr(device_search, "STEPS_PER_READ", steps)
        fast = to_fast(model, int8=False, backend="torch")
        assert torch.equal(fast.generate(**batch(), limits=torch.tensor([1, 2, 3, 2])), expected)
    assert expected.eq(END).sum() >= 4

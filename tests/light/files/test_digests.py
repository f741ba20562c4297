"""Digests of a model's files."""

import pytest

from capsule_mt.files.digests import checkpoint_digests, file_digest


@pytest.mark.parametrize("name", ["int8", "small"])
def test_a_file_with_a_checksum_beside_it_is_not_read_again(name, tmp_path):
    """Its 600 MB would take longer than the first sentence."""
    weights, facts = tmp_path / f"{name}.safetensors", tmp_path / f"{name}.json"
    weights.write_bytes(b"codes")
    assert checkpoint_digests(tmp_path) == {weights.name: file_digest(weights)}
    facts.write_text('{"checksum": "1"}')
    assert checkpoint_digests(tmp_path) == {weights.name: file_digest(facts)}
    for other in ("model.safetensors", "config.json"):
        (tmp_path / other).write_bytes(b"other")
    assert checkpoint_digests(tmp_path) == {
        weights.name: file_digest(facts),
        **{other: file_digest(tmp_path / other) for other in ("model.safetensors", "config.json")},
    }


def test_the_calibration_beside_a_model_of_marian_has_a_digest(tmp_path):
    for name in ("model.npz", "coverage.json", "README.md"):
        (tmp_path / name).write_text(name)
    assert [*checkpoint_digests(tmp_path)] == ["coverage.json", "model.npz"]

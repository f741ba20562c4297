"""The speed of training: measured for every system."""

from lab.throughput import SYSTEMS, measure


def test_throughput_is_measured_for_all():
    result = measure(rounds=1, steps=4, sentences=60, batch_size=4, width=16, layers=1)
    assert set(result) == set(SYSTEMS)
    assert all(speed["median"] > 0 for speed in result.values())

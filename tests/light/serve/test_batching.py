"""The queue: what is translated together, what is refused, and that nothing is lost."""

import threading
import time

import pytest

pytest.importorskip("fastapi")

from hf_capsule_mt.serve.batching import Batcher, QueueFullError, StoppingError

from capsule_mt.text.line_failures import Failure


class Upper:
    """A translator that can be held, and keeps what it was called with."""

    def __init__(self):
        self.calls, self.free = [], threading.Event()

    def __call__(self, texts, *, coverage, scores, batch_size):
        self.calls.append((list(texts), coverage is not None))
        assert self.free.wait(30)
        if any("broken" in text for text in texts):
            raise ValueError("a broken text")
        return [text.upper() for text in texts]


@pytest.fixture
def upper():
    return Upper()


@pytest.fixture
def batcher(upper):
    sizes = []
    made = Batcher(upper, max_batch=3, wait_seconds=0.0, max_queue=8, on_batch=sizes.append)
    made.sizes = sizes
    yield made
    upper.free.set()
    made.close()


def hold(batcher, upper):
    """Let the thread be busy with one text."""
    first = batcher.submit(["first"])
    while not upper.calls:
        time.sleep(0.001)
    return first


def results(futures):
    return [future.result(timeout=30) for future in futures]


def test_texts_that_wait_are_translated_together(batcher, upper):
    futures = hold(batcher, upper)
    for text in ("a", "b", "c", "d"):
        futures += batcher.submit([text])
    assert len(batcher) == 4
    upper.free.set()
    assert results(futures) == ["FIRST", "A", "B", "C", "D"]
    batcher.close()
    assert [texts for texts, _ in upper.calls] == [["first"], ["a", "b", "c"], ["d"]]
    assert batcher.sizes == [1, 3, 1]


def test_a_batch_waits_for_more():
    upper = Upper()
    upper.free.set()
    batcher = Batcher(upper, max_batch=2, wait_seconds=60)
    one = batcher.submit(["one"])
    time.sleep(0.05)
    assert upper.calls == []  # sixty seconds are not over
    assert results(one + batcher.submit(["two"])) == ["ONE", "TWO"]
    three = batcher.submit(["three"])
    batcher.close()  # does not wait for more
    assert results(three) == ["THREE"]
    assert [texts for texts, _ in upper.calls] == [["one", "two"], ["three"]]


def test_coverage_is_computed_where_it_is_asked_for(batcher, upper):
    futures = hold(batcher, upper)
    futures += batcher.submit(["a"], coverage=True) + batcher.submit(["b"]) + batcher.submit(["c"], coverage=True)
    upper.free.set()
    assert results(futures) == ["FIRST", "A", "B", "C"]
    assert upper.calls[1:] == [(["b"], False), (["a", "c"], True)]


def test_a_broken_text_costs_the_others_nothing(batcher, upper):
    futures = hold(batcher, upper) + batcher.submit(["a", "broken", "c"])
    upper.free.set()
    assert results(futures) == ["FIRST", "A", Failure("ValueError: a broken text"), "C"]


def test_an_error_of_every_text_is_raised_and_the_thread_goes_on(batcher, upper, monkeypatch):
    upper.free.set()
    monkeypatch.setattr("capsule_mt.text.line_failures.PROBE", "broken")
    (future,) = batcher.submit(["broken"])
    with pytest.raises(ValueError, match="a broken text"):
        future.result(timeout=30)
    assert results(batcher.submit(["a"])) == ["A"]
    assert batcher.is_alive


def test_a_full_queue_takes_all_texts_of_a_request_or_none(batcher, upper):
    futures = hold(batcher, upper) + batcher.submit(list("abcdef"))
    with pytest.raises(QueueFullError, match="the server is busy; try again in 1 s") as refused:
        batcher.submit(list("ghi"))
    assert (refused.value.retry_after, len(batcher)) == (1, 6)
    futures += batcher.submit(list("gh"))
    upper.free.set()
    assert results(futures) == ["FIRST", *"ABCDEFGH"]


def test_what_was_cancelled_is_not_translated(batcher, upper):
    first = hold(batcher, upper)
    cancelled, kept = batcher.submit(["a", "b"])
    assert cancelled.cancel()
    upper.free.set()
    assert results([*first, kept]) == ["FIRST", "B"]
    assert upper.calls[1:] == [(["b"], False)]


def test_the_end_finishes_what_was_accepted(batcher, upper):
    futures = hold(batcher, upper) + batcher.submit(list("abcde"))
    stopper = threading.Thread(target=batcher.close)
    stopper.start()
    while batcher.is_alive:
        time.sleep(0.001)
    with pytest.raises(StoppingError, match="the server is stopping"):
        batcher.submit(["late"])
    upper.free.set()
    stopper.join(30)
    assert [future.done() for future in futures] == [True] * 6
    assert results(futures) == ["FIRST", *"ABCDE"]

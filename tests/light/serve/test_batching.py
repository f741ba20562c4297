"""The queue: what is translated together, what is refused, and that nothing is lost."""

import threading
import time

import pytest

from capsule_mt.serve.batching import Batcher, QueueFullError, StoppingError
from capsule_mt.text.line_failures import Failure
from tests.light.serve.fakes import Upper


@pytest.fixture
def upper():
    upper = Upper()
    upper.free.clear()
    return upper


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
    """Wait for translations, and return their texts."""
    found = [future.result(timeout=30) for future in futures]
    return [result if isinstance(result, Failure) else result.text for result in found]


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
    batcher = Batcher(upper, max_batch=2, wait_seconds=60)
    one = batcher.submit(["one"])
    time.sleep(0.05)
    assert upper.calls == []  # sixty seconds are not over
    assert results(one + batcher.submit(["two"])) == ["ONE", "TWO"]
    three = batcher.submit(["three"])
    batcher.close()  # does not wait for more
    assert results(three) == ["THREE"]
    assert [texts for texts, _ in upper.calls] == [["one", "two"], ["three"]]


def test_texts_of_equal_settings_are_translated_together(batcher, upper):
    futures = hold(batcher, upper)
    futures += batcher.submit(["a"], coverage=True) + batcher.submit(["b"]) + batcher.submit(["c"], coverage=True)
    upper.free.set()
    assert results(futures) == ["FIRST", "A", "B", "C"]
    assert [(texts, options["coverage"] is not None) for texts, options in upper.calls[1:]] == [
        (["a", "c"], True),
        (["b"], False),
    ]


def test_more_beams_prefer_what_leaves_least_out(batcher, upper):
    upper.free.set()
    assert results(batcher.submit(["a quick fox"], coverage=True, beams=4)) == ["A QUICK FOX"]
    (_, options) = upper.calls[-1]
    assert (options["num_beams"], options["coverage"].weight) == (4, 5.0)
    assert results(batcher.submit(["a quick fox"], coverage=True, beams=1)) == ["A QUICK FOX"]
    assert upper.calls[-1][1]["coverage"].weight is None  # there is nothing to choose from


def test_given_translations_are_checked(batcher, upper):
    upper.free.set()
    futures = batcher.submit_checks(["a b", "broken", "c"], ["A", "X", "C"])
    whole, failure, other = [future.result(timeout=30) for future in futures]
    assert [word.text for word in whole.untranslated] == ["b"]
    assert failure == Failure("ValueError: a broken text")
    assert other.score == 1.0


def test_a_broken_text_costs_the_others_nothing(batcher, upper):
    futures = hold(batcher, upper) + batcher.submit(["a", "broken", "c"])
    upper.free.set()
    assert results(futures) == ["FIRST", "A", Failure("ValueError: a broken text"), "C"]


def test_an_error_of_every_text_is_raised_and_the_thread_goes_on(batcher, upper, monkeypatch):
    upper.free.set()
    monkeypatch.setattr("capsule_mt.serve.batching.PROBE", "broken")
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
    assert [texts for texts, _ in upper.calls[1:]] == [["b"]]


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


def test_when_there_is_no_time_all_who_wait_get_an_error(batcher, upper):
    futures = hold(batcher, upper) + batcher.submit(list("abcd"))
    batcher.abandon()
    assert [type(future.exception(timeout=30)) for future in futures] == [StoppingError] * 5
    assert not batcher.close(0.0)  # the first text is still being translated
    upper.free.set()
    assert batcher.close(30)
    assert [texts for texts, _ in upper.calls] == [["first"]]

"""The queue: what is translated together and in which order, what is refused, and that nothing is lost."""

import threading
import time

import pytest

from capsule_mt.files.line_failures import Failure
from capsule_mt.serve.batching import Batcher, QueueFullError, RequestSettings, StoppingError
from tests.light.serve.fakes import Upper, until

NUM_THREADS = 2  # of a batcher


@pytest.fixture
def upper():
    upper = Upper()
    upper.free.clear()
    return upper


@pytest.fixture
def batcher(upper):
    batcher = Batcher(upper, max_batch=3, wait_seconds=0.0, max_queue=40)
    yield batcher
    upper.free.set()
    upper.freed_slow.set()
    batcher.close()


def hold(batcher, upper):
    """Occupy both threads with one text each until `upper.free` is set."""
    texts = ["first", "second"]
    orders = []
    for index, text in enumerate(texts):
        orders.append(batcher.submit([text], client=text))
        until(lambda index=index: len(upper.calls) > index)
    return orders


def results(*orders):
    """Wait for translations, and return their texts."""
    outcomes = [future.result(timeout=120) for order in orders for future in order.results]
    return [outcome if isinstance(outcome, Failure) else outcome[0].text for outcome in outcomes]


def batches(upper):
    """Return the batches after those of `hold`, in the order in which the translator was called.

    The queue decides which batch starts next, but two threads may call the translator in either order: sort batches
    that may run at once.
    """
    return [texts for texts, _ in upper.calls[NUM_THREADS:]]


# ---- batches
def test_waiting_sentences_are_translated_together(batcher, upper):
    orders = hold(batcher, upper)
    orders += [batcher.submit([text]) for text in ("a", "b;c", "d")]
    assert batcher.num_waiting(None) == 4
    upper.free.set()
    assert results(*orders) == ["FIRST", "SECOND", "A", "B;C", "D"]
    batcher.close()
    assert sorted(batches(upper)) == [["a", "b;", "c"], ["d"]]


def test_a_batch_waits_until_it_is_full():
    upper = Upper()
    batcher = Batcher(upper, max_batch=2, wait_seconds=60)
    first = batcher.submit(["one"])
    time.sleep(0.05)
    assert upper.calls == []  # the batch is not full, and `wait_seconds` have not passed
    assert results(first, batcher.submit(["two"])) == ["ONE", "TWO"]
    three = batcher.submit(["three"])
    batcher.close()  # starts the batch at once
    assert results(three) == ["THREE"]
    assert [texts for texts, _ in upper.calls] == [["one", "two"], ["three"]]


def test_a_batcher_is_alive_while_its_threads_start(batcher, upper, monkeypatch):
    start, alive = threading.Thread.start, []

    def start_thread(thread):
        alive.append(batcher.is_alive)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_thread)
    hold(batcher, upper)
    assert alive == [True, True, True]


def test_texts_with_equal_settings_are_translated_together(batcher, upper):
    orders = hold(batcher, upper)
    covered = RequestSettings(coverage=True)
    orders += [batcher.submit(["a"], covered), batcher.submit(["b"], covered), batcher.submit(["c"])]
    upper.free.set()
    assert results(*orders) == ["FIRST", "SECOND", "A", "B", "C"]
    batches = [(texts, options["coverage"] is not None) for texts, options in upper.calls[NUM_THREADS:]]
    assert sorted(batches) == [(["a", "b"], True), (["c"], False)]


def test_beam_search_ranks_by_coverage(batcher, upper):
    upper.free.set()
    beam, greedy = (RequestSettings(coverage=True, search=(("num_beams", num_beams),)) for num_beams in (4, 1))
    assert results(batcher.submit(["a quick fox"], beam)) == ["A QUICK FOX"]
    (_, options) = upper.calls[-1]
    assert (options["num_beams"], options["coverage"].weight) == (4, 5.0)
    assert results(batcher.submit(["a quick fox"], greedy)) == ["A QUICK FOX"]
    assert upper.calls[-1][1]["coverage"].weight is None  # a single hypothesis cannot be ranked


# ---- clients
def test_the_most_served_client_waits_longest(batcher, upper):
    """Four clients wait for a batch of three: the most-served one is left out, although its text came first."""
    upper.free.set()
    results(batcher.submit(["z z"], client="before"))
    upper.free.clear()
    upper.calls.clear()
    orders = [*hold(batcher, upper), *(batcher.submit([text], client=text) for text in ("before", *"abc"))]
    upper.free.set()
    results(*orders)
    assert sorted(batches(upper)) == [["a", "b", "c"], ["before"]]


def test_a_client_with_one_sentence_does_not_wait_for_a_large_batch(upper):
    """A batch of several clients stays small, however much one of them has queued."""
    batcher = Batcher(upper, wait_seconds=0.0)
    orders = [*hold(batcher, upper), batcher.submit(list("abcdefghijkl"), client="many")]
    orders.append(batcher.submit(["one"], client="one"))
    upper.free.set()
    results(*orders)
    batcher.close()
    assert sorted(batches(upper)) == [["a", "one", *"bcdefg"], list("hijkl")]


def test_slow_clients_share_one_thread(batcher, upper):
    upper.free.set()
    first = batcher.submit(["slow"], client="hostile")
    until(lambda: len(upper.calls) == 1)
    second = batcher.submit(["slow too"], client="another")
    until(lambda: len(upper.calls) == 2)
    assert results(batcher.submit(["a"], client="other")) == ["A"]
    third = batcher.submit(["b"], client="another")  # this client is slow now, so the text waits
    assert results(batcher.submit(["c"], client="other")) == ["C"]
    assert batches(upper) == [["slow too"], ["a"], ["c"]]
    upper.freed_slow.set()
    assert results(first, second, third) == ["SLOW", "SLOW TOO", "B"]


def test_slow_clients_get_a_thread_while_fast_ones_keep_it_busy(batcher, upper, monkeypatch):
    """The fast clients' first batch does not end before the slow client's batch starts."""
    orders = [*hold(batcher, upper), batcher.submit(["z"], client="slow")]
    batcher._clients["slow"].is_slow = True
    orders += [batcher.submit([f"{letter};{letter}"], client=letter) for letter in "abcdefgh"]
    wait = upper._wait

    def wait_for_slow(texts):
        until(lambda: ["z"] in batches(upper))
        wait(texts)

    monkeypatch.setattr(upper, "_wait", wait_for_slow)
    upper.free.set()
    results(*orders)
    assert ["z"] in batches(upper)[:2]


def test_the_clients_of_a_slow_batch_are_then_tried_alone(batcher, upper):
    orders = [*hold(batcher, upper), batcher.submit(["slow"], client="hostile"), batcher.submit(["a"], client="one")]
    upper.free.set()
    until(lambda: len(upper.calls) == NUM_THREADS + 1)
    second = batcher.submit(["slow too"], client="another")
    until(lambda: len(upper.calls) == NUM_THREADS + 2)
    orders.append(batcher.submit(["b"], client="other"))
    assert results(*orders[:2], *orders[3:]) == ["FIRST", "SECOND", "A", "B"]
    upper.freed_slow.set()
    assert results(orders[2], second) == ["SLOW", "SLOW TOO"]
    assert not batcher._clients["one"].is_slow


# ---- failures, refusals and cancelled requests
def test_a_broken_text_does_not_harm_the_others(batcher, upper):
    orders = [*hold(batcher, upper), batcher.submit(["a", "b;broken", "c"])]
    upper.free.set()
    assert results(*orders) == ["FIRST", "SECOND", "A", Failure("ValueError: a broken text"), "C"]


def test_a_full_queue_accepts_all_texts_of_a_request_or_none(batcher, upper):
    """A client may fill a quarter of the queue, but its first request may be larger."""
    orders = [*hold(batcher, upper), batcher.submit(["a " * 8])]
    with pytest.raises(QueueFullError, match="the server is busy; try again in 1 s") as refused:
        batcher.submit(["b", "c c"])
    assert (refused.value.retry_after, batcher.num_waiting(None)) == (1, 1)
    orders += [batcher.submit(["b b"]), batcher.submit(["c " * 30], client="other")]
    with pytest.raises(QueueFullError):
        batcher.submit(["d"], client="third")
    upper.free.set()
    assert len(results(*orders)) == 5
    assert batcher.num_waiting(None) == 0


def test_a_cancelled_text_is_not_translated(batcher, upper):
    orders = hold(batcher, upper)
    order = batcher.submit(["a", "b"])
    cancelled, _ = order.results
    assert cancelled.cancel()
    upper.free.set()
    assert results(*orders) == ["FIRST", "SECOND"]
    assert order.results[1].result(30)[0].text == "B"
    assert batches(upper) == [["b"]]


def test_a_running_batch_that_is_cancelled_is_stopped(batcher, upper):
    upper.free.set()
    order = batcher.submit(["slow"])
    until(lambda: upper.calls)
    assert order.progress() == "0 of 1 sentence, 0 of 1 token"
    order.results[0].cancel()
    batcher.close(10)
    assert not batcher.is_alive
    assert len(upper.calls) == 1


# ---- stopping
def test_closing_finishes_accepted_texts(batcher, upper):
    orders = [*hold(batcher, upper), batcher.submit(list("abcde"))]
    stopper = threading.Thread(target=batcher.close)
    stopper.start()
    until(lambda: not batcher.is_alive)
    with pytest.raises(StoppingError, match="the server is stopping"):
        batcher.submit(["late"])
    upper.free.set()
    stopper.join(30)
    assert results(*orders) == ["FIRST", "SECOND", *"ABCDE"]


def test_a_stateful_tokenizer_is_used_by_one_thread_at_a_time(monkeypatch):
    """That holds also for the probe that follows a failed text. Nothing else is tokenized."""
    monkeypatch.setattr(Upper, "tokenizes_in_threads", False)
    upper, calls = Upper(), []
    batcher = Batcher(upper, wait_seconds=0.0)
    documents = upper.documents
    monkeypatch.setattr(
        upper,
        "documents",
        lambda texts, options: calls.append((texts, batcher._tokenizing.locked())) or documents(texts, options),
    )
    assert results(batcher.submit(["one"])) == ["ONE"]
    assert calls == [(["one"], True)]
    assert isinstance(results(batcher.submit(["broken"]))[0], Failure)
    assert calls[1:] == [(["broken"], True), (["a"], True)]
    batcher.close()

"""Calls of the engine that end early: at Ctrl-C, from another thread, and after a time."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.engine.stopping import Stop, StoppedError
from tests.light.engine.programs import END, PAD, PROGRAMS, SMALL_SET, SOURCES
from tests.light.engine.test_search import decoder_of

LONG = 300_000  # tokens: many seconds of work
SOON = 1.0  # seconds of this process's processor time; 0.02 is enough on an idle machine


def search(decoder: EngineDecoder, **settings):
    options = SearchOptions(limits=[LONG] * len(SOURCES), suppress_tokens=[PAD, END], **settings)
    return decoder.translate(SOURCES, options)


def force(decoder: EngineDecoder):
    return decoder.force(SOURCES[:1], [[33] * LONG], Readings())


calls = pytest.mark.parametrize("call", [search, force])
threads = pytest.mark.parametrize("num_threads", [1, 3])


@pytest.fixture
def decoder(num_threads):
    return decoder_of(PROGRAMS["rnmt_guided"], num_threads=num_threads)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the test needs a signal at a time")
@threads
@calls
def test_ctrl_c_ends_a_call(decoder, call):
    began = time.process_time()

    def interrupt(*_):
        raise KeyboardInterrupt

    def call_until_the_signal():
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        call(decoder)

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            call_until_the_signal()
        assert time.process_time() < began + 3 * 0.3 + SOON
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@threads
@calls
def test_another_thread_ends_a_call(decoder, call):
    stop, ended = Stop(), []

    def work():
        with stop, pytest.raises(StoppedError):
            call(decoder)
        ended.append(time.process_time())

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.1)
    assert not ended
    due = time.process_time()
    stop.set()
    worker.join()
    assert ended[0] < due + SOON
    with stop, pytest.raises(StoppedError):
        call(decoder)  # it stays set
    assert decoder.force(SOURCES[:1], [[33]], Readings())  # outside of the block nothing is stopped


def test_threads_share_a_model_and_wait_for_no_other():
    """While one translates for long, others get what they get alone."""
    decoder, stop = decoder_of(PROGRAMS["rnmt_guided"]), Stop()
    short = [SearchOptions([12] * len(SOURCES), num_beams=beams) for beams in (1, 4)] * 8
    expected = [decoder.translate(SOURCES, options) for options in short]

    def work():
        with stop, pytest.raises(StoppedError):
            search(decoder)

    long = threading.Thread(target=work)
    long.start()
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda options: decoder.translate(SOURCES, options), short)) == expected
    assert long.is_alive()
    stop.set()
    long.join()


@threads
def test_a_search_ends_after_max_time(decoder):
    began, due = time.monotonic(), time.process_time() + 3 * 0.2
    results = search(decoder, max_time=0.2, num_beams=2)
    assert time.monotonic() - began >= 0.2
    assert time.process_time() < due + SOON
    for (best,) in results:
        assert best.was_cut
        assert 0 < len(best.ids) < LONG


@pytest.mark.parametrize("name", SMALL_SET)
def test_what_is_found_within_max_time_has_all_its_readings(name):
    """Without any time there is one step: the translations are as with a limit of one token."""
    decoder = decoder_of(PROGRAMS[name])
    engine = decoder.engine
    readings = Readings(head=(1, 1) if engine.head_shape[0] else None)
    at_limit, at_time = (
        decoder.translate(
            SOURCES,
            SearchOptions([limit] * len(SOURCES), num_beams=3, max_time=seconds, readings=readings),
        )
        for limit, seconds in ((1, None), (12, 0.0))
    )
    assert at_time == at_limit

"""No pattern can be made to crawl: each takes linear time on texts that are made of what it looks for.

Processor time has ticks of some milliseconds, so only texts that take many of them are compared; most patterns of
linear time read 8,000 characters in fewer. A text is compared with a quarter of it that is read four times. That takes
the same time if it is linear, and a quarter of it if it is quadratic.
"""

import pkgutil
import re
import signal
import time

import pytest

import capsule_mt
from tests.fixtures.patterns import hard_texts, methods_in, modules_of, patterns_in, run_pattern

ROOMS = [room.name for room in pkgutil.iter_modules(capsule_mt.__path__) if room.ispkg]
LENGTH, SECONDS, MAX_GROWTH = 8_000, 0.03, 2
PARTS = 4
DEADLINE = 2.0  # seconds, in which quadratic time reads 8,000 characters, and exponential time not even 2,000
METHODS = methods_in("capsule_mt")
PATTERNS = [
    pytest.param(pattern, methods, id=f"{module.__name__.removeprefix('capsule_mt.')}-{index}")
    for module in modules_of("capsule_mt", ROOMS)
    for index, (pattern, methods) in enumerate(patterns_in(module, METHODS).values())
]
pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers of processor time")


class TooLongError(Exception):
    pass


def seconds_for(pattern, methods, text, times=1):
    def stop(*_):
        raise TooLongError

    previous = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, DEADLINE)
    start = time.process_time()
    try:
        for _ in range(times):
            run_pattern(pattern, methods, text)
    except TooLongError:
        return DEADLINE
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)
    return time.process_time() - start


def crawling_text(pattern, methods):
    """Return the beginning of a text on which a pattern takes more than linear time, if there is one."""
    for short, long in zip(hard_texts(pattern, LENGTH // PARTS), hard_texts(pattern, LENGTH), strict=True):
        if seconds_for(pattern, methods, long) < SECONDS:
            continue
        if all(_grows(pattern, methods, short, long) for _ in range(3)):
            return long[:20]
    return None


def _grows(pattern, methods, short, long):
    seconds = seconds_for(pattern, methods, short, times=PARTS)
    return seconds >= DEADLINE or seconds_for(pattern, methods, long) > MAX_GROWTH * max(seconds, SECONDS / 100)


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "methods"), PATTERNS)
@pytest.mark.timeout(300)
def test_no_text_makes_a_pattern_crawl(pattern, methods):
    assert crawling_text(pattern, methods) is None, (pattern.pattern, methods)


@pytest.mark.parametrize(
    ("pattern", "crawl"),
    [
        (r"\s+$", r"\s{100,}\S"),
        (r"(?:a|aa)+b", r"a{100,}[^ab]"),
        (r"(?:[a-z]+-?)*;", r"[a-z]{100,}[^a-z;-]"),
        (r"<!--.*?-->", r"(?:<!--){100,}(?!.*-->)"),
        (r"\[[^\]]*\]", r"\[{100,}[^\[\]]"),
        (r"(\d+)\.\d*x", r"\d{100,}[^\d.]"),
    ],
)
def test_the_texts_of_a_pattern_contain_one_on_which_it_crawls(pattern, crawl):
    assert any(re.match(crawl, text) for text in hard_texts(re.compile(pattern), LENGTH))


@pytest.mark.parametrize(
    ("seconds_of", "is_seen"),
    [
        (lambda length: 1e-5 * length, False),
        (lambda length: 1e-8 * length**2, True),
        (lambda length: DEADLINE, True),  # exponential
        (lambda length: 1e-10 * length**2, False),  # too fast to compare
    ],
)
def test_texts_whose_time_grows_faster_than_they_are_seen(monkeypatch, seconds_of, is_seen):
    monkeypatch.setattr(
        f"{__name__}.seconds_for", lambda pattern, methods, text, times=1: times * seconds_of(len(text))
    )
    assert (crawling_text(re.compile("ab"), {"search"}) is not None) is is_seen


def test_the_patterns_of_each_room_are_seen():
    assert len(PATTERNS) > 100
    names = {str(parameter.id).partition(".")[0] for parameter in PATTERNS}
    assert {"formats", "text", "checks", "models", "catalog"} <= names

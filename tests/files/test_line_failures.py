"""One line that fails costs no other line; an error of all lines is raised."""

import pytest

from hf_capsule_mt.files.line_failures import PROBE, Failure, translate_lines


class Panic(BaseException):
    """What the tokenizers raise when they panic."""


Panic.__name__ = "PanicException"


def translator(bad=(), error=ValueError, probe_fails=False):
    calls = []

    def translate(lines):
        calls.append(lines)
        if (bad and set(bad) & set(lines)) or (probe_fails and lines == [PROBE]):
            raise error("no\n  way")
        return [line.upper() for line in lines]

    return translate, calls


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError, RuntimeError, Panic])
def test_the_lines_that_fail_are_found(error):
    lines = [f"line {number}" for number in range(100)]
    translate, calls = translator({"line 0", "line 41", "line 42", "line 99"}, error)
    found = translate_lines(translate, lines)
    reason = f"{error.__name__}: no way"
    assert [number for number, result in enumerate(found) if result == Failure(reason)] == [0, 41, 42, 99]
    assert [result for result in found if isinstance(result, str)] == [
        line.upper() for number, line in enumerate(lines) if number not in (0, 41, 42, 99)
    ]
    assert len(calls) < 60


def test_without_an_error_there_is_one_batch():
    translate, calls = translator()
    assert translate_lines(translate, ["a", "b"]) == ["A", "B"]
    assert calls == [["a", "b"]]
    assert translate_lines(translate, []) == []


def test_an_error_of_every_line_is_raised_soon():
    translate, calls = translator({"0"}, probe_fails=True)
    with pytest.raises(ValueError, match="no"):
        translate_lines(translate, [str(number) for number in range(1024)])
    assert len(calls) == 12


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_who_stops_the_program_stops_it(error):
    translate, calls = translator({"a"}, error)
    with pytest.raises(error):
        translate_lines(translate, ["a", "b"])
    assert len(calls) == 1

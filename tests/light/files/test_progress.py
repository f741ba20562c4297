"""The line of progress: how much is done, how fast, and how long the rest takes."""

import time

from capsule_mt.files.progress import Progress, write_line


def test_the_line_is_rewritten_with_the_rate_and_the_time_left(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Progress(5000, "lines", shown=True) as progress:
        now[0] += 4
        progress.update(1240)
        progress.update(10)  # so soon after, nobody could read it
        write_line("line 7: why")
        now[0] += 4
    printed = capsys.readouterr().err
    assert "\r\033[K1,240 of 5,000 lines, 310 a second, 12 s left" in printed
    assert "\r\033[Kline 7: why\n1,250 of 5,000 lines, 312 a second, 12 s left" in printed
    assert str(Progress(1, "lines")).startswith("0 of 1 line, ")
    assert str(Progress(None, "lines")).startswith("0 lines, ")
    assert printed.endswith("\r\033[K1,250 of 5,000 lines, 156 a second, 24 s left\n")

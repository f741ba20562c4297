"""Files of any size: windows, and parts that are put together, whatever a killed run has left."""

import pytest

from capsule_mt.files.progress import Progress
from capsule_mt.files.windows import Pace, ReportFrame, Row, Window, WindowedOutput, windows_of, write_windows


def write_letters(outputs, settings, lines="abcdefg", mine=lambda number: True, stop=99, **options):
    """Write the windows of the lines that are `mine` and not done; return the output, and which those were."""
    output, translated = WindowedOutput(outputs, settings, **options), []
    for window in list(windows_of(lines, 3))[:stop]:
        output.begin(window)
        if mine(window.number) and not output.is_done():
            failures = {window.first_line: "why"} if "c" in window.lines else {}
            output.write([[line.upper() for line in window.lines], [str(window.number)]], failures)
            translated.append(window.number)
    return output, translated


@pytest.fixture
def outputs(tmp_path):
    return [tmp_path / "text", tmp_path / "notes"]


def test_parts_are_put_together_and_done_once(outputs, tmp_path):
    assert write_letters(outputs, {"beams": 4}, mine=lambda number: number % 2 == 0, stop=1)[1] == [0]  # is killed
    assert write_letters(outputs, {"beams": 4}, mine=lambda number: number % 2 == 1, is_main=False)[1] == [1]
    (tmp_path / "notes.123.0.partial").touch()
    output, translated = write_letters(outputs, {"beams": 4}, mine=lambda number: number % 2 == 0)
    assert translated == [2]
    assert output.finish() == {0: "why"}  # from the process that was killed
    assert outputs[0].read_text() == "A\nB\nC\nD\nE\nF\nG\n"
    assert outputs[1].read_text() == "0\n1\n2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "text"]


def test_changed_text_is_translated_again_with_a_warning(outputs, caplog):
    write_letters(outputs, {})
    output, translated = write_letters(outputs, {}, lines="abcdxf")
    assert translated == [1]
    assert "The input or the settings differ from those of" in caplog.text
    output.finish()
    assert outputs[0].read_text() == "A\nB\nC\nD\nX\nF\n"


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "gone"])
def test_a_damaged_part_is_done_again(outputs, tmp_path, damage, caplog):
    output, _ = write_letters(outputs, {})
    (part,) = (tmp_path / "text.parts").glob("00000001-*.part")
    content = part.read_bytes()
    part.write_bytes({"empty": b"", "cut": content[:-1], "changed": content[:-1] + b"x"}.get(damage, b""))
    if damage == "gone":
        part.unlink()
    with pytest.raises(ValueError, match="is missing or damaged: run the same command again"):
        output.finish()
    assert not outputs[0].exists()
    output, translated = write_letters(outputs, {})
    assert translated == [1]
    assert ("is damaged: its lines are translated again" in caplog.text) == (damage != "gone")
    output.finish()
    assert outputs[0].read_text() == "A\nB\nC\nD\nE\nF\nG\n"


def test_the_parts_go_in_one_step(outputs, tmp_path, monkeypatch):
    """A kill while they are removed leaves none that a later run takes up."""
    output, _ = write_letters(outputs, {})
    monkeypatch.setattr("shutil.rmtree", lambda *arguments, **settings: None)  # is killed before it removes anything
    output.finish()
    assert not (tmp_path / "text.parts").exists()
    monkeypatch.undo()
    assert write_letters(outputs, {"beams": 5})[1] == [0, 1, 2]
    assert [path.name for path in tmp_path.glob("*.parts*")] == ["text.parts"]


def rows_like(indices, lines):
    return [
        Row([[line.upper()], [str(index)]], "why" if line == "bb" else None, line == "a")
        for index, line in zip(indices, lines, strict=True)
    ]


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, MemoryError])
def test_rows_of_an_unfinished_window_are_saved(outputs, tmp_path, monkeypatch, stopped_by):
    """By Ctrl-C, and after every few seconds of work."""
    clock, batches, lines = [0.0], [], ["a", "bb", "ccc"] * 20
    monkeypatch.setattr("capsule_mt.files.windows.time.monotonic", lambda: clock[0])

    def slow_rows(indices, batch):
        if len(batches) == 3 and stopped_by is not None:
            raise stopped_by
        clock[0] += 7
        batches.append(sorted(batch))
        return rows_like(indices, batch)

    def write():
        output = WindowedOutput(outputs, {})
        write_windows(windows_of(lines, 100), slow_rows, output, (), progress=Progress(60, "lines", shown=False))
        return output

    with pytest.raises(stopped_by):
        write()
    assert batches == [["ccc"] * 16, ["bb"] * 12 + ["ccc"] * 4, ["a"] * 8 + ["bb"] * 8]
    (saved,) = (tmp_path / "text.parts").glob("*.rows")
    batches.clear()
    stopped_by = None
    output = write()
    assert batches == [["a"] * 12]
    assert not saved.exists()
    frame = ReportFrame(lambda totals: f"{totals}\n".encode(), lambda row: -len(row))
    assert output.finish(frames={1: frame}) == dict.fromkeys(range(1, 60, 3), "why")
    assert outputs[0].read_text() == "A\nBB\nCCC\n" * 20
    header, *numbers = outputs[1].read_text().splitlines()
    assert header == "Totals(lines=60, flagged=20, failed=20)"
    assert numbers == [*map(str, range(10, 60)), *map(str, range(10))]  # sorted, and else in the input's order


def test_damaged_rows_are_translated_again(outputs, tmp_path):
    output = WindowedOutput(outputs, {})
    output.begin(Window(0, 0, ["a", "b"]))
    output.save_rows({1: Row([["B"], ["1"]])})
    assert output.saved_rows() == {1: Row([["B"], ["1"]], None, False)}
    (saved,) = (tmp_path / "text.parts").glob("*.rows")
    saved.write_bytes(saved.read_bytes()[:-1])
    assert output.saved_rows() == {}


def test_what_is_translated_at_once_takes_some_seconds():
    pace = Pace()
    for num_lines, seconds, expected in ((16, 0.016, 4000), (4000, 8.0, 2000), (16, 60.0, 16), (16, 0.0, None)):
        pace.update(num_lines, seconds)
        assert expected in (None, pace.num_lines)

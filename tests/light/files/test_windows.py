"""Files of any size: windows, and parts that are put together, whatever a killed run has left."""

import pytest

from capsule_mt.files.windows import WindowedOutput, windows_of


def write_windows(outputs, settings, lines="abcdefg", mine=lambda number: True, stop=99, **options):
    """Write the windows of the lines that are `mine` and not done; return the output, and which those were."""
    output, done = WindowedOutput(outputs, settings, **options), []
    for window in list(windows_of(lines, 3))[:stop]:
        output.begin(window)
        if mine(window.number) and not output.is_done():
            failures = {window.first_line: "why"} if "c" in window.lines else {}
            output.write([[line.upper() for line in window.lines], [str(window.number)]], failures)
            done.append(window.number)
    return output, done


@pytest.fixture
def outputs(tmp_path):
    return [tmp_path / "text", tmp_path / "notes"]


def test_parts_are_put_together_and_done_once(outputs, tmp_path):
    assert write_windows(outputs, {"beams": 4}, mine=lambda number: number % 2 == 0, stop=1)[1] == [0]  # is killed
    assert write_windows(outputs, {"beams": 4}, mine=lambda number: number % 2 == 1, is_main=False)[1] == [1]
    (tmp_path / "notes.123.0.partial").touch()
    output, done = write_windows(outputs, {"beams": 4}, mine=lambda number: number % 2 == 0)
    assert done == [2]
    assert output.finish() == {0: "why"}  # from the process that was killed
    assert outputs[0].read_text() == "A\nB\nC\nD\nE\nF\nG\n"
    assert outputs[1].read_text() == "0\n1\n2\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "text"]


def test_other_text_is_translated_and_told(outputs, caplog):
    write_windows(outputs, {})
    output, done = write_windows(outputs, {}, lines="abcdxf")
    assert done == [1]
    assert "The input or the settings differ from those of" in caplog.text
    output.finish()
    assert outputs[0].read_text() == "A\nB\nC\nD\nX\nF\n"


@pytest.mark.parametrize("damage", ["empty", "cut", "changed", "gone"])
def test_a_damaged_part_is_done_again(outputs, tmp_path, damage, caplog):
    output, _ = write_windows(outputs, {})
    (part,) = (tmp_path / "text.parts").glob("00000001-*.part")
    content = part.read_bytes()
    part.write_bytes({"empty": b"", "cut": content[:-1], "changed": content[:-1] + b"x"}.get(damage, b""))
    if damage == "gone":
        part.unlink()
    with pytest.raises(ValueError, match="is missing or damaged: the same command again"):
        output.finish()
    assert not outputs[0].exists()
    output, done = write_windows(outputs, {})
    assert done == [1]
    assert ("is damaged: its lines are translated again" in caplog.text) == (damage != "gone")
    output.finish()
    assert outputs[0].read_text() == "A\nB\nC\nD\nE\nF\nG\n"


def test_the_parts_go_in_one_step(outputs, tmp_path, monkeypatch):
    """A kill while they are removed leaves none that a later run takes up."""
    output, _ = write_windows(outputs, {})
    monkeypatch.setattr("shutil.rmtree", lambda *arguments, **settings: None)  # is killed before it removes anything
    output.finish()
    assert not (tmp_path / "text.parts").exists()
    monkeypatch.undo()
    assert write_windows(outputs, {"beams": 5})[1] == [0, 1, 2]
    assert [path.name for path in tmp_path.glob("*.parts*")] == ["text.parts"]

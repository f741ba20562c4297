"""What a text must have to calibrate on it."""

import pytest

from capsule_mt.coverage.calibration.calibrating import examples_of

PAIRS = [("der alte Mann kauft einen roten Hut", "the old man buys a red hat"), ("die Frau liest", "the woman reads")]


def test_a_text_that_repeats_itself_is_refused_by_its_name(tmp_path):
    files = [tmp_path / "text.de", tmp_path / "text.en"]
    for file, lines in zip(files, zip(*PAIRS, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines) * 20, "utf-8")
    with pytest.raises(ValueError, match=r"text\.de: \d different sentences have three content words .* at least 10"):
        examples_of(None, *files, None, 100)


def test_what_is_checked_is_not_fitted(tmp_path):
    animals = {"Hund": "dog", "Katze": "cat", "Maus": "mouse", "Kuh": "cow", "Ziege": "goat", "Ente": "duck"}
    verbs = {"sieht": "sees", "sucht": "seeks", "findet": "finds"}
    pairs = [(f"Anna {verb} heute {animal}", f"Anna {verbs[verb]} {animals[animal]} today")
             for animal in animals for verb in verbs]  # fmt: skip
    files = [tmp_path / "text.de", tmp_path / "text.en"]
    for file, lines in zip(files, zip(*pairs, strict=True), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines) * 10, "utf-8")
    examples = examples_of(None, *files, None, 100)
    checked, fitted = ({example.source for example in part} for part in (examples.checked, examples.fitted))
    assert checked
    assert fitted
    assert checked.isdisjoint(fitted)

"""Every property of `tests/PROPERTIES.md` is cited by a test, and no other number is."""

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PAGE = TESTS / "PROPERTIES.md"
NUMBERS = r"\d+(?:(?:, | and | to |, and )\d+)*"
CITATION = re.compile(rf"\bpropert(?:y|ies) ({NUMBERS})")


def cited_in(text: str) -> set[int]:
    """Read "property 12", "properties 1 and 2" and "properties 39 to 42, 45 and 46"."""
    found: set[int] = set()
    for citation in CITATION.findall(text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", citation):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_citations_are_read():
    assert cited_in("# property 12") == {12}
    assert cited_in('"""Properties: see there; properties 39 to 42, 45 and 46, and what is given') == {
        39,
        40,
        41,
        42,
        45,
        46,
    }
    assert cited_in("the property of 3 capsules") == set()


def test_properties_and_tests_name_each_other():
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)]
    assert len(listed) == len(set(listed))
    cited = {
        number
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
        for number in cited_in(path.read_text(encoding="utf-8"))
    }
    assert cited == set(listed)


def test_no_test_cites_what_is_not_in_the_repository():
    for path in TESTS.rglob("*.py"):
        assert path == Path(__file__) or not re.search(r"\bSPEC\b", path.read_text(encoding="utf-8")), path

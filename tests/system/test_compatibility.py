"""docs/compatibility.md says what the libraries do that are installed here."""

from pathlib import Path

import pytest

from tests.system.compatibility import FAMILIES, LIBRARIES, installed, row

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


def table() -> dict[str, list[str]]:
    """The rows of the page's tables, by their first cell."""
    lines = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {cells[0]: cells for cells in rows}


def test_the_page_lists_every_library_and_family():
    assert table()["library"] == ["library", *FAMILIES]
    assert {library.name for library in LIBRARIES} <= set(table())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.name)
def test_the_page_says_what_a_library_does(library):
    if not installed(library):
        pytest.skip(f"{library.module} is not installed")
    assert table()[library.name] == row(library)

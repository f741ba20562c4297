"""Write the table of `comparisons.py` into docs/papers.md: `python -m tests.authors`."""

from tests.authors.comparisons import PAGE, page_with_table

if __name__ == "__main__":
    PAGE.write_text(page_with_table(), encoding="utf-8")

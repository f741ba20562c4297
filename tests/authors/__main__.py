"""Print the table of `comparisons.py`: `python -m tests.authors`."""

from tests.authors.comparisons import table

if __name__ == "__main__":
    print(table())

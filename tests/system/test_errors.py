"""docs/errors.md is made from tools/errors.tsv and the code, and its messages are the code's."""

import re
from pathlib import Path

from tools.errors import FOREIGN, page, rows

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_made_from_the_code():
    """After a change: python -m tools.errors > docs/errors.md."""
    assert (ROOT / "docs/errors.md").read_text(encoding="utf-8") == page()


def test_the_messages_of_the_page_exist():
    source = "".join(
        path.read_text(encoding="utf-8")
        for room in ("capsule_mt", "hf_capsule_mt")
        for path in (ROOT / room).rglob("*.py")
    )
    source = re.sub(r"""["']\s+f?["']""", "", source)
    quoted = [message for row in rows() for message in re.findall(r"`(.+?)`", row.message.partition(" (")[0])]
    assert len(quoted) > 40
    assert tuple(message for message in quoted if message not in source and message != "nvidia-...") == FOREIGN


def test_the_page_has_every_status_of_the_server():
    serve = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "capsule_mt/serve").glob("*.py"))
    statuses = set(re.findall(r"HTTPException\(\s*(\d+)|\}, (\d+)[,)]|refuse\(\"(\d+)", serve))
    answers = " ".join(row.message for row in rows() if row.section == "Answers of the server")
    assert {status for match in statuses for status in match if status} <= set(re.findall(r"\b\d{3}\b", answers))

"""Write what is derived from the table of reasons: the page's reasons.js, and the table of docs/checking.md.

python -m tools.reasons
"""

import json
import re
from pathlib import Path

from capsule_mt.coverage.reasons import LEVELS, MIN_PRECISION, MIN_SUPPORT, REASONS, ROW_LENGTH

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "capsule_mt/serve/page/reasons.js"
PAGE = ROOT / "docs/checking.md"
SECTION = re.compile(r"(?<=<!-- reasons -->\n\n).*?(?=\n\n<!-- end of reasons -->)", re.DOTALL)
LEVEL_NAMES = {"fault": "*fault*", "probable": "*probably*", "hint": "*look here*"}


def script() -> str:
    """Return reasons.js."""
    values = {
        name: {key: value for key, value in reason._asdict().items() if value and key != "about"}
        for name, reason in REASONS.items()
    }
    lines = ",\n".join(f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    return (
        "// The reasons to check a translation; `python -m tools.reasons` writes this file.\n"
        f'"use strict";\n\nconst MIN_PRECISION = {MIN_PRECISION};\n'
        f"const [ROW_LENGTH, MIN_SUPPORT] = [{ROW_LENGTH}, {MIN_SUPPORT}];\n"
        f"const LEVELS = {json.dumps(LEVELS)};\nconst REASONS = {{\n{lines},\n}};\n"
    )


def table() -> str:
    """Return the rows for the documentation, most certain first."""
    rows = [
        f"| {LEVEL_NAMES[reason.level]} | `{name}` | {reason.about} |"
        for level in LEVELS
        for name, reason in REASONS.items()
        if reason.level == level
    ]
    return "\n".join(["| level | `reason` | given for |", "|---|---|---|", *rows])


def main() -> None:
    SCRIPT.write_text(script(), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(SECTION.sub(lambda _: table(), page), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The table of docs/training.md: what `lab.gpu` measured beside the goals, or nothing yet."""

from typing import Any

SYSTEMS = (
    "stock",
    "off",
    "dynamic_routing",
    "em_routing",
    "heads_em_6",
    "guided",
    "guided_bow_bca",
    "capsnmt",
    "rnmt",
)
NOTHING = "-"


def best(section: dict[str, Any], start: str, key: str) -> float | None:
    """Return the largest value of `key` among the measurements whose names begin so."""
    values = [value[key] for name, value in section.items() if name.startswith(start) and key in value]
    return max(values, default=None)


def cell(value: float | None, reference: float | None = None) -> str:
    """Format a number of things a second, and its ratio to the reference."""
    if value is None:
        return NOTHING
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
    return digits if not reference else f"{digits} ({value / reference:.2f})"


def render_table(result: dict[str, Any]) -> str:
    """Return the table as Markdown: of each model tokens and sentences a second, and the ratio to stock Marian."""
    train, decode = result.get("train", {}), result.get("decode", {})
    largest = max((int(name.split()[1]) for name in train), default=32768)
    rows = (1, 128) if not result.get("tiny") else (1, 2)
    columns = [
        (train, f"{{}} {largest} float32", "tokens_per_second"),
        (train, f"{{}} {largest} bfloat16", "tokens_per_second"),
        *((decode, f"{{}} bfloat16 {number} rows 1 beams", "sentences_per_second") for number in rows),
    ]
    lines = [
        f"| model | training, float32 | training, bfloat16 | decoding, 1 sentence | decoding, {rows[1]} sentences |",
        "|---|---|---|---|---|",
    ]
    for system in SYSTEMS:
        cells = []
        for section, start, key in columns:
            value, reference = (best(section, start.format(name), key) for name in (system, "stock"))
            cells.append(cell(value, None if system == "stock" else reference))
        if set(cells) != {NOTHING}:
            lines.append(f"| {system} | " + " | ".join(cells) + " |")
    shares = [
        best(result.get("kernels", {}), f"{name} bfloat16 chunked", "share_of_copy") for name in ("em", "dynamic")
    ]
    for name, share in zip(("EM routing", "dynamic routing"), shares, strict=True):
        if share is not None:
            lines.append(f"| kernel of {name}, share of copy bandwidth | {share:.0%} | | | |")
    return "\n".join(lines)

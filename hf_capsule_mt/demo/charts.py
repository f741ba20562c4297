"""Charts of shares as HTML tables in the page's colours, readable on light and dark, on wide and narrow screens."""

import html
from collections.abc import Sequence

PAST_COLOUR, FUTURE_COLOUR, OTHER_COLOUR = (37, 99, 235), (217, 119, 6), (107, 114, 128)
Colour = tuple[int, int, int]

STYLE = """
.chart { margin: 0 0 20px; }
.chart div { overflow-x: auto; }
.chart table { border-collapse: collapse; font-size: 0.85rem; width: auto; }
.chart th { font-weight: 400; padding: 1px 6px; text-align: right; color: var(--body-text-color); white-space: nowrap;
  border: 0 !important; }
.chart table, .chart thead, .chart tr { border: 0 !important; }
.chart thead th { writing-mode: vertical-rl; transform: rotate(180deg); text-align: left; padding: 6px 1px; }
.chart tbody th { position: sticky; left: 0; background: var(--body-background-fill); }
.chart td { min-width: 24px; height: 22px; padding: 0; border: 1px solid var(--body-background-fill) !important; }
"""


def chart(
    title: str,
    rows: Sequence[str],
    columns: Sequence[str],
    shares: Sequence[Sequence[float]],
    colours: Sequence[Colour],
) -> str:
    """Return a heat map of shares [rows, columns] between 0 and 1, each column in a colour of its own."""
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{html.escape(row)}</th>'
        + "".join(
            f'<td title="{html.escape(row)}, {html.escape(column)}: {share:.0%}" '
            f'style="background: rgba({red}, {green}, {blue}, {min(max(share, 0), 1):.2f})"></td>'
            for column, share, (red, green, blue) in zip(columns, values, colours, strict=True)
        )
        + "</tr>"
        for row, values in zip(rows, shares, strict=True)
    )
    return (
        f'<div class="chart"><p>{html.escape(title)}</p><div><table aria-label="{html.escape(title)}">'
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )

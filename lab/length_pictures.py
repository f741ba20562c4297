"""The picture of what translations cost by their length."""

import os
from pathlib import Path
from typing import Any

from hf_capsule_mt.analysis.pictures import save_picture


def draw_lengths(sweeps: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """Draw the time of a translation and of each word by the length of the source, and by that of the target.

    Args:
        sweeps: what `lab.lengths.measure_lengths` returns.
        path: the file to write, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, len(sweeps), figsize=(4.5 * len(sweeps), 6), squeeze=False, sharex="col")
    for column, (side, sweep) in enumerate(sweeps.items()):
        lengths = [row[f"{side}_length"] for row in sweep["rows"]]
        for name in sweep["slopes"]:
            totals = [row["seconds"][f"{name} translate"]["median"] for row in sweep["rows"]]
            per_word = [row["milliseconds_per_word"][name] for row in sweep["rows"]]
            axes[0, column].plot(lengths, totals, marker="o", label=name)
            axes[1, column].plot(lengths, per_word, marker="o", label=name)
        axes[1, column].set_xlabel(f"words of the {side}")
        for row, label in enumerate(("seconds per sentence", "decoding, ms per word")):
            axes[row, column].set_ylabel(label)
            axes[row, column].set_ylim(bottom=0)
            axes[row, column].grid(alpha=0.3)
    axes[0, -1].legend()  # in the target's panel, whose lines leave a corner free
    figure.tight_layout()
    return save_picture(figure, path)

"""Pictures of routings: entropy and diversity, curves of PAST and FUTURE, and which words a capsule is made of."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def draw_iteration_statistics(statistics: dict[str, list[dict[str, Any]]], path: str | os.PathLike[str]) -> Path:
    """Entropy and diversity by iteration, a line for each routing of the model: the numbers of Dou et al. 2019, 5.2.

    Args:
        statistics: {place: one dict with "entropy" and "diversity" for each iteration}.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4))
    for axis, name, unit in zip(axes, ("entropy", "diversity"), (" (nats)", ""), strict=True):
        for place, iterations in statistics.items():
            axis.plot(range(1, len(iterations) + 1), [entry[name] for entry in iterations], marker="o", label=place)
        axis.set_xticks(range(1, max(map(len, statistics.values())) + 1))
        axis.set_xlabel("iteration")
        axis.set_ylabel(name + unit)
        axis.grid(alpha=0.3)
    axes[1].set_ylim(bottom=0)
    axes[0].legend(fontsize="small", frameon=False)
    figure.tight_layout()
    return save_picture(figure, path)


def draw_agreement(averages: Sequence[torch.Tensor], path: str | os.PathLike[str]) -> Path:
    """Average assignments [N, M] of one routing with few output capsules, a panel for each iteration, with numbers."""
    from matplotlib import pyplot as plt

    number_inputs, number_outputs = averages[0].shape
    figure, axes = plt.subplots(
        1,
        len(averages),
        squeeze=False,
        figsize=(1.2 + len(averages) * max(1.8, 0.45 * number_outputs), 0.9 + 0.45 * max(number_inputs, 3)),
    )
    brightest = max(float(average.max()) for average in averages)
    for iteration, (average, axis) in enumerate(zip(averages, axes[0], strict=True), start=1):
        image = axis.imshow(average.numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=brightest)
        for (row, column), value in _cells(average):
            axis.text(
                column,
                row,
                f"{value:.2f}".lstrip("0"),
                ha="center",
                va="center",
                fontsize=7,
                color="white" if value > 0.6 * brightest else "black",
            )
        axis.set_title(f"iteration {iteration}", fontsize="medium")
        axis.set_xlabel("output capsule")
        axis.set_xticks(range(number_outputs), [str(place + 1) for place in range(number_outputs)])
        axis.set_yticks(range(number_inputs), [str(place + 1) for place in range(number_inputs)])
    axes[0, 0].set_ylabel("input capsule")
    figure.colorbar(image, ax=axes[0].tolist(), label="assignment")
    return save_picture(figure, path)


def draw_word_curves(
    past: torch.Tensor,
    future: torch.Tensor,
    source_words: Sequence[str],
    target_words: Sequence[str],
    path: str | os.PathLike[str],
) -> Path:
    """How much of each source word is PAST (blue) and FUTURE (red, dashed) at each step, a panel for each word.

    Args:
        past, future: [S, T], from `past_future_curves`.
    """
    from matplotlib import pyplot as plt

    rows = len(source_words)
    figure, axes = plt.subplots(
        rows, 1, squeeze=False, sharex=True, figsize=(1.8 + 0.6 * len(target_words), 1.0 + 0.62 * rows)
    )
    steps = range(len(target_words))
    for place, (word, axis) in enumerate(zip(source_words, axes[:, 0], strict=True)):
        axis.plot(steps, past[place].tolist(), color="tab:blue", marker=".", label="PAST")
        axis.plot(steps, future[place].tolist(), color="tab:red", linestyle="--", marker=".", label="FUTURE")
        axis.set_ylim(-0.03, 1.03)
        axis.set_yticks([0, 1])
        axis.set_ylabel(_plain(word), rotation=0, ha="right", va="center")
        axis.grid(alpha=0.3)
    axes[-1, 0].set_xticks(steps, [_plain(word) for word in target_words], rotation=45, ha="right")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper right", ncols=2, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.3 / (1.0 + 0.62 * rows)))
    return save_picture(figure, path)


def draw_word_map(weights: torch.Tensor, words: Sequence[str], path: str | os.PathLike[str]) -> Path:
    """Which words of a sentence each capsule is made of: the sentence once for each capsule, its words shaded.

    It is Table 4 of Wang et al. (CapsNMT).

    Args:
        weights: the assignments [S, M] of the words to the capsules, of one iteration.
    """
    from matplotlib import pyplot as plt

    number_words, number_capsules = weights.shape
    if number_words != len(words):
        raise ValueError(f"`words` must be as many as the {number_words} rows of `weights`, got {len(words)}")
    widths = [0.11 * (len(_plain(word)) + 2) for word in words]
    figure, axis = plt.subplots(figsize=(1.6 + sum(widths), 0.5 + 0.42 * number_capsules))
    for capsule in range(number_capsules):
        left = 0.0
        for word, width, value in zip(words, widths, weights[:, capsule].tolist(), strict=True):
            axis.add_patch(
                plt.Rectangle((left, -capsule - 0.42), width, 0.84, color=plt.get_cmap("Oranges")(0.9 * value))
            )
            color = "white" if value > 0.75 else "black"
            axis.text(left + width / 2, -capsule, _plain(word), ha="center", va="center", fontsize=9, color=color)
            left += width
        axis.text(-0.1, -capsule, f"capsule {capsule + 1}", ha="right", va="center", fontsize=9)
    axis.set_xlim(-1.0, sum(widths))
    axis.set_ylim(-number_capsules + 0.4, 0.6)
    axis.axis("off")
    return save_picture(figure, path)


def _plain(token: str) -> str:
    """A piece of a word as people write it; "$" and the like as they are, not as mathematics."""
    return token.replace("▁", " ").strip().replace("$", r"\$") or "▁"


def _cells(values: torch.Tensor) -> list[tuple[tuple[int, int], float]]:
    return [
        ((row, column), float(values[row, column])) for row in range(len(values)) for column in range(len(values[0]))
    ]


def save_picture(figure: Any, path: str | os.PathLike[str]) -> Path:
    from matplotlib import pyplot as plt

    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return file

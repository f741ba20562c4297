"""Pictures of what routings do, and of what models cost."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch


def draw_layer_routing(iterations: Sequence[torch.Tensor], path: str | os.PathLike[str], columns: int = 64) -> Path:
    """A heat map of one routing, averaged over positions: input capsules by output capsules, a row for each iteration.

    It is Figure 4 of Dou et al. 2019. The output capsules are put in the order of the input capsule that they take
    most from in the last iteration, and neighbours are averaged into at most `columns` columns.

    Args:
        iterations: the assignment probabilities [..., N, M] of each iteration.
        path: where the picture goes, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    averages = [weights.detach().float().flatten(0, -3).mean(dim=0).cpu() for weights in iterations]  # [N, M]
    shares = averages[-1] / averages[-1].sum(dim=0, keepdim=True)
    order = (shares.argmax(dim=0) * 2 - shares.amax(dim=0)).argsort(stable=True)
    num_inputs, num_outputs = averages[-1].shape
    groups = torch.linspace(0, num_outputs, min(columns, num_outputs) + 1).round().long()
    figure, axes = plt.subplots(len(averages), 1, figsize=(9, 1.1 + 1.3 * len(averages)), squeeze=False, sharex=True)
    brightest = max(float((average * num_outputs).max()) for average in averages)
    for number, (average, axis) in enumerate(zip(averages, axes[:, 0], strict=True), start=1):
        ordered = average[:, order] * num_outputs  # 1 is what uniform routing gives
        blocks = [ordered[:, a:b].mean(dim=1) for a, b in zip(groups[:-1].tolist(), groups[1:].tolist(), strict=True)]
        image = axis.imshow(
            torch.stack(blocks, dim=1).numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=brightest, origin="lower"
        )
        axis.set_ylabel(f"iteration {number}\nlayer")
        axis.set_yticks(range(num_inputs), [str(layer + 1) for layer in range(num_inputs)])
    axes[-1, 0].set_xlabel(f"output capsules ({num_outputs}), sorted by the layer they take most from")
    axes[-1, 0].set_xticks([])
    figure.colorbar(image, ax=axes[:, 0].tolist(), label="share, 1 = uniform")
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return Path(path)


def draw_lengths(sweeps: dict[str, Any], path: str | os.PathLike[str]) -> Path:
    """The time of a whole translation and of each word, by the length of the source and by that of the target.

    Args:
        sweeps: what `analysis.lengths.measure_lengths` returns.
        path: where the picture goes, as PNG, PDF or SVG by its ending.
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
    axes[0, -1].legend()  # the target's, whose lines leave a corner free
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return Path(path)


def draw_past_future(
    past: torch.Tensor,
    future: torch.Tensor,
    source: Sequence[str],
    target: Sequence[str],
    path: str | os.PathLike[str],
) -> Path:
    """Heat maps of what is translated and what is not, a pair of columns for each target word: PAST and FUTURE.

    It is Figure 4 of Zheng et al. 2019. A pair shows the source words as they are assigned when its target word is
    predicted: before it has been read.

    Args:
        past, future: the shares [S, T] of one sentence, from `past_future_curves`.
        source: S words, from top to bottom.
        target: T words, from left to right.
        path: where the picture goes, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    if not past.shape == future.shape == (len(source), len(target)):
        raise ValueError(
            f"`past` and `future` must be [{len(source)}, {len(target)}] for so many words, got {list(past.shape)} "
            f"and {list(future.shape)}"
        )
    figure, axes = plt.subplots(
        1, len(target), figsize=(1.6 + 0.62 * len(target), 0.9 + 0.3 * len(source)), squeeze=False, sharey=True
    )
    for step, (word, axis) in enumerate(zip(target, axes[0], strict=True)):
        pair = torch.stack([past[:, step], future[:, step]], dim=1).detach().float().cpu()  # [S, 2]
        image = axis.imshow(pair.numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axis.set_title(word, fontsize=9)
        axis.set_xticks([0, 1], ["P", "F"], fontsize=7)
        axis.tick_params(length=0)
    axes[0, 0].set_yticks(range(len(source)), list(source), fontsize=9)
    figure.colorbar(image, ax=axes[0].tolist(), label="share of PAST (P) and FUTURE (F)", fraction=0.02, pad=0.02)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return Path(path)


def draw_heat_maps(
    maps: Mapping[str, torch.Tensor], rows: Sequence[str], columns: Sequence[str], path: str | os.PathLike[str]
) -> Path:
    """Heat maps of shares between 0 and 1, side by side, with the same named rows and columns.

    Args:
        maps: a matrix [rows, columns] for each title.
        path: where the picture goes, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    width, height = 1.6 + 0.45 * len(columns) * len(maps), 1.8 + 0.3 * len(rows)
    figure, axes = plt.subplots(1, len(maps), figsize=(max(width, 4.0), height), squeeze=False, sharey=True)
    for (title, matrix), axis in zip(maps.items(), axes[0], strict=True):
        image = axis.imshow(matrix.detach().float().cpu().numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=1)
        axis.set_title(title)
        axis.set_xticks(range(len(columns)), columns, rotation=60, ha="right")
        axis.set_yticks(range(len(rows)), rows)
    figure.colorbar(image, ax=axes[0].tolist(), label="share")
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)
    return Path(path)

"""Pictures of what routings do."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

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

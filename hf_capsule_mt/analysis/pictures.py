"""Draw routings: assignments, PAST and FUTURE, the words of capsules; and the weights of layers."""

import io
import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from capsule_mt.files.lock import write_alone

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_layer_routing(iterations: Sequence[torch.Tensor], path: str | os.PathLike[str], columns: int = 64) -> Path:
    """Draw a heat map of one routing, averaged over positions: input by output capsules, one panel per iteration.

    This is Figure 4 of Dou et al. 2019. Sort output capsules by the input capsule that they take most from in the last
    iteration, and average neighbours into at most `columns` columns.

    Args:
        iterations: the assignment probabilities [..., N, M] of each iteration.
        path: the file to write, as PNG, PDF or SVG by its ending.
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
        ordered = average[:, order] * num_outputs  # uniform routing gives 1
        blocks = [ordered[:, a:b].mean(dim=1) for a, b in zip(groups[:-1].tolist(), groups[1:].tolist(), strict=True)]
        image = axis.imshow(
            torch.stack(blocks, dim=1).numpy(), aspect="auto", cmap="Blues", vmin=0, vmax=brightest, origin="lower"
        )
        axis.set_ylabel(f"iteration {number}\ninput")
        axis.set_yticks(range(num_inputs), [str(layer + 1) for layer in range(num_inputs)])
    axes[-1, 0].set_xlabel(f"output capsules ({num_outputs}), sorted by the input they take most from")
    axes[-1, 0].set_xticks([])
    figure.colorbar(image, ax=axes[:, 0].tolist(), label="share, 1 = uniform")
    return save_picture(figure, path)


def draw_layer_weights(rows: Mapping[str, torch.Tensor], sources: Sequence[str], path: str | os.PathLike[str]) -> Path:
    """Draw a heat map of the weights of a stack's sums of layers: a row for each sum, a column for each source.

    Args:
        rows: the weights of each sum, of the first sources.
        sources: the names of all sources.
        path: the file to write, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    cells = torch.full((len(rows), len(sources)), torch.nan)
    for row, weights in zip(cells, rows.values(), strict=True):
        row[: len(weights)] = weights
    largest = float(cells.nan_to_num().abs().max()) or 1.0
    figure, axis = plt.subplots(figsize=(2.5 + 0.8 * len(sources), 1.3 + 0.4 * len(rows)))
    axis.set_facecolor("lightgrey")  # of a source that a sum does not have; a weight of 0 is white
    image = axis.imshow(cells.numpy(), aspect="auto", cmap="RdBu", vmin=-largest, vmax=largest)
    axis.set_xticks(range(len(sources)), list(sources), rotation=30, ha="right")
    axis.set_yticks(range(len(rows)), list(rows))
    figure.colorbar(image, ax=axis, label="mean weight")
    return save_picture(figure, path)


def draw_past_future(
    past: torch.Tensor,
    future: torch.Tensor,
    source: Sequence[str],
    target: Sequence[str],
    path: str | os.PathLike[str],
) -> Path:
    """Draw heat maps of PAST and FUTURE, a pair of columns per target word.

    This is Figure 4 of Zheng et al. 2019. A pair shows the assignments that predict its target word, before the
    decoder reads that word.

    Args:
        past, future: the shares [S, T] of one sentence, from `past_future_curves`.
        source: S words, top to bottom.
        target: T words, left to right.
        path: the file to write, as PNG, PDF or SVG by its ending.
    """
    from matplotlib import pyplot as plt

    if not past.shape == future.shape == (len(source), len(target)):
        raise ValueError(
            f"`past` and `future` must be [{len(source)}, {len(target)}] for these words, got {list(past.shape)} "
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
    boxes = [axis.title.get_window_extent() for axis in axes[0]]
    if any(left.x1 >= right.x0 for left, right in itertools.pairwise(boxes)):
        for axis in axes[0]:
            axis.title.set(rotation=45, rotation_mode="anchor", ha="left")
    return save_picture(figure, path)


def draw_word_map(weights: torch.Tensor, words: Sequence[str], path: str | os.PathLike[str]) -> Path:
    """Shade the words of a sentence by their share in each capsule, one line per capsule.

    This is Table 4 of Wang et al. (CapsNMT).

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
    """Return a token as people write it, with "$" escaped so that matplotlib does not read mathematics."""
    return token.replace("▁", " ").strip().replace("$", r"\$") or "▁"


def save_picture(figure: "Figure", path: str | os.PathLike[str]) -> Path:
    """Write a figure, creating its folder, and close it."""
    from matplotlib import pyplot as plt

    file, picture = Path(path), io.BytesIO()
    figure.savefig(picture, format=file.suffix[1:] or None, dpi=120, bbox_inches="tight")
    plt.close(figure)
    write_alone(file, picture.getvalue())
    return file

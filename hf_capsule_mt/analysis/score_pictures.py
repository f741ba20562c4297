"""Draw scores by source length."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_capsule_mt.analysis.pictures import save_picture


def draw_by_length(systems: dict[str, Sequence[dict[str, Any]]], path: str | os.PathLike[str]) -> Path:
    """Draw score and length of the translations by source length: Figure 5 of Dou et al. and of Zheng et al. 2019.

    Args:
        systems: {name: the buckets of `score_by_length` as dicts}. Empty buckets are left out. The number
            of sentences is printed below each bucket.
    """
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
    labels = [bucket["label"] for bucket in next(iter(systems.values())) if bucket["score"] is not None]
    for name, buckets in systems.items():
        filled = {bucket["label"]: bucket for bucket in buckets if bucket["score"] is not None}
        if list(filled) != labels:
            raise ValueError(f"`systems` must have the same buckets, but {name} has {list(filled)}, not {labels}")
        axes[0].plot(labels, [filled[label]["score"] for label in labels], marker="o", label=name)
        axes[1].plot(labels, [filled[label]["hypothesis_words"] for label in labels], marker="o", label=name)
    axes[1].plot(
        labels, [filled[label]["reference_words"] for label in labels], color="grey", linestyle=":", label="reference"
    )
    for axis, name in zip(axes, ("BLEU", "words of the translation"), strict=True):
        axis.set_xticks(range(len(labels)), [f"{label}\n({filled[label]['sentences']})" for label in labels])
        axis.set_xlabel("words of the source (sentences)")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False, fontsize="small")
    figure.tight_layout()
    return save_picture(figure, path)

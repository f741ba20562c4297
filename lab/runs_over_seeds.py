"""One run of the papers' tables against any other, over the seeds of which both have translations."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from hf_capsule_mt.evaluation.markdown import markdown_table
from hf_capsule_mt.evaluation.results import read_result
from hf_capsule_mt.evaluation.text_files import read_lines
from lab.bootstrap_over_seeds import bootstrap_over_seeds
from lab.report import result_path, translations_path
from lab.t_test import p_over_seeds


class RunsOverSeeds:
    """The results and translations of a setting, read where they are asked for."""

    def __init__(self, folder: str | os.PathLike[str], setting: str) -> None:
        self.folder, self.setting = Path(folder), setting

    def seeds_of_both(self, run: str, baseline: str) -> list[int]:
        """The seeds, from the smallest, of which both have a result and translations."""
        results = (self.folder / self.setting).glob(f"{run}-seed*.json")
        seeds = sorted(int(path.stem.rpartition("-seed")[2]) for path in results)
        return [seed for seed in seeds if all(path.exists() for path in self._files(run, baseline, seed=seed))]

    def _files(self, *runs: str, seed: int) -> list[Path]:
        return [
            path(self.folder, self.setting, run, seed) for run in runs for path in (result_path, translations_path)
        ]

    def bootstrap(
        self, run: str, baseline: str, seeds: Sequence[int], references: Sequence[str]
    ) -> tuple[float, float]:
        """The mean difference of a run to another and its p-value over sentences, all seeds together."""
        ours, theirs = (
            [read_lines(translations_path(self.folder, self.setting, name, seed)) for seed in seeds]
            for name in (run, baseline)
        )
        return bootstrap_over_seeds(ours, theirs, [references])

    def scores(self, run: str, seeds: Sequence[int]) -> list[float]:
        """BLEU with each of some seeds."""
        paths = [result_path(self.folder, self.setting, run, seed) for seed in seeds]
        return [read_result(path)["scores"]["bleu"]["score"] for path in paths]

    def table(self, runs: Iterable[str], baseline: str, references: Sequence[str]) -> str:
        """Runs against any other, seed by seed, with both p-values, as Markdown; empty if no seed is shared."""
        lines = []
        for run in runs:
            seeds = self.seeds_of_both(run, baseline)
            if run == baseline or not seeds:
                continue
            ours, theirs = (self.scores(name, seeds) for name in (run, baseline))
            differences = [one - other for one, other in zip(ours, theirs, strict=True)]
            difference, p_of_sentences = self.bootstrap(run, baseline, seeds, references)
            p_of_seeds = p_over_seeds(differences)
            lines.append(
                [
                    run,
                    " / ".join(map(str, seeds)),
                    *(" / ".join(f"{score:.2f}" for score in scores) for scores in (ours, theirs)),
                    " / ".join(f"{one:+.2f}" for one in differences),
                    f"{difference:+.2f}",
                    f"{p_of_sentences:.3f}",
                    "" if p_of_seeds is None else f"{p_of_seeds:.3f}",
                ]
            )
        header = ["", "seeds", "BLEU", f"BLEU of {baseline}", "differences", "mean", "p, sentences", "p, seeds"]
        return markdown_table(header, lines) + "\n" if lines else ""

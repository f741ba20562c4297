"""One run of the papers' tables against any other, over the seeds of which both have translations."""

from collections.abc import Iterable, Sequence

from hf_capsule_mt.evaluation.markdown import markdown_table
from lab.bootstrap_over_seeds import bootstrap_over_seeds
from lab.records import Records
from lab.t_test import p_over_seeds


class RunsOverSeeds:
    """The results and translations of a setting, as they are in the files when this is made."""

    def __init__(self, records: Records, setting: str) -> None:
        self.runs = records.runs(setting)
        self.translations = records.translations(setting)

    def seeds_of_both(self, run: str, baseline: str) -> list[int]:
        """Return the seeds, from the smallest, of which both have a result and translations."""
        return sorted(
            seed
            for seed in self.runs.get(run, {})
            if all(seed in self.runs.get(name, {}) and (name, seed) in self.translations for name in (run, baseline))
        )

    def bootstrap(
        self, run: str, baseline: str, seeds: Sequence[int], references: Sequence[str]
    ) -> tuple[float, float]:
        """Return the mean difference of a run to another and its p-value over sentences, all seeds together."""
        ours, theirs = ([self.translations[name, seed] for seed in seeds] for name in (run, baseline))
        return bootstrap_over_seeds(ours, theirs, [references])

    def scores(self, run: str, seeds: Sequence[int]) -> list[float]:
        """Return BLEU with each of these seeds."""
        return [self.runs[run][seed]["scores"]["bleu"]["score"] for seed in seeds]

    def table(self, runs: Iterable[str], baseline: str, references: Sequence[str]) -> str:
        """Compare runs with any other, seed by seed, with both p-values, as Markdown; empty if no seed is shared."""
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

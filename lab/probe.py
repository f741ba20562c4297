"""What sentence encoders know of a sentence: the ten probing tasks of Li et al. 2019, Table 1, at our size.

    python -m lab.probe --treebank ud-english-ewt                                  # one encoder per aggregation
    python -m lab.probe --treebank ud-english-ewt --checkpoints outputs/plain outputs/em --seeds 1 2 3

Without checkpoints, three-layer encoders with each way to aggregate attention heads are trained on each task. With
them, their encoders stay as they are and only a classifier is trained. The treebank is a folder with train, dev and
test .conllu files (.gz too). Each finished training is kept in the result file: the same command goes on from there.
"""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tqdm import tqdm

import hf_capsule_mt  # noqa: F401  its models
from capsule_mt.commands.console import HelpFormatter, checkpoint_folder, folder, run
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.data import train_tokenizer
from hf_capsule_mt.evaluation import read_result, write_result
from lab.probing import ProbingResult, ProbingSettings, probe_checkpoint, probing_table, train_probe
from lab.probing_tasks import TASKS, Sentence, forms, make_tasks, read_treebank

AGGREGATIONS = ("concat", "simple_routing", "em_routing")


def parse_arguments() -> argparse.Namespace:
    defaults = ProbingSettings()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument(
        "--treebank", type=folder, required=True, help="a folder with train, dev and test .conllu[.gz]"
    )
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="which of the ten")
    parser.add_argument(
        "--aggregations",
        nargs="+",
        choices=AGGREGATIONS,
        default=list(AGGREGATIONS),
        help="of the encoders that are trained",
    )
    parser.add_argument(
        "--checkpoints", type=checkpoint_folder, nargs="+", help="models whose encoders are to be probed as they are"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="train with each of these")
    parser.add_argument("--sentences", type=int, help="at most so many of the training part, for a quick look")
    parser.add_argument("--d-model", type=int, default=defaults.d_model, help="width of the encoders that are trained")
    parser.add_argument("--num-capsules", type=int, help="output capsules (default: as many as the width, as in Li)")
    parser.add_argument("--epochs", type=int, default=defaults.epochs, help="at most; it stops early")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("outputs/probing.json"),
        help="the result file to write, or to go on with",
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    keep_freed_memory()
    files = {"train": "train", "validation": "dev", "test": "test"}
    treebank: dict[str, Sequence[Sentence]] = {}
    for part, name in files.items():
        found = sorted(arguments.treebank.glob(f"{name}*.conllu*"))
        if not found:
            raise FileNotFoundError(f"{arguments.treebank}: no {name}*.conllu or {name}*.conllu.gz in this folder")
        treebank[part] = read_treebank(found[0])
    treebank["train"] = treebank["train"][: arguments.sentences]
    tasks = make_tasks(treebank, arguments.tasks)
    settings = ProbingSettings(d_model=arguments.d_model, num_capsules=arguments.num_capsules, epochs=arguments.epochs)
    asked = {"settings": asdict(settings), "training_sentences": len(treebank["train"])}
    results: list[dict[str, Any]] = []
    if arguments.output.exists():
        before = read_result(arguments.output)
        if {name: before.get(name) for name in asked} != asked:
            raise SystemExit(f"{arguments.output} was made with other settings: choose another --output or remove it")
        results = before["results"]
    done = {(entry["task"], entry["encoder"], entry["seed"]) for entry in results}
    encoders = [str(path) for path in arguments.checkpoints] if arguments.checkpoints else arguments.aggregations
    bar = tqdm(total=len(tasks) * len(encoders) * len(arguments.seeds))

    def keep(result: ProbingResult) -> None:
        results.append(asdict(result))
        write_result(arguments.output, {"kind": "probing", **asked, "results": results})
        bar.update()

    tokenizer = train_tokenizer((" ".join(forms(sentence)) for sentence in treebank["train"]), settings.vocab_size)
    for encoder in encoders:
        for task in tasks:
            seeds = [seed for seed in arguments.seeds if (task.name, encoder, seed) not in done]
            bar.update(len(arguments.seeds) - len(seeds))
            if arguments.checkpoints and seeds:
                for result in probe_checkpoint(
                    [task], encoder, seeds, settings, arguments.device, bar.set_description
                ):
                    keep(result)
            elif seeds:
                for seed in seeds:
                    keep(train_probe(task, encoder, tokenizer, seed, settings, arguments.device, bar.set_description))
    bar.close()
    table = probing_table(results)
    arguments.output.with_suffix(".md").write_text(table, encoding="utf-8")
    print(f"{table}\nResult: {arguments.output}")


if __name__ == "__main__":
    run(main)

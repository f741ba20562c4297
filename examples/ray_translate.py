"""Translate a folder of text files on a Ray cluster: an actor with the fast engine for each core.

    split --lines 100000 --numeric-suffixes --suffix-length 5 text.en shards/
    python examples/ray_translate.py CHECKPOINT shards translations --actors 64 --num-beams 4

Each file is a block: its translation appears whole, under the same name, or not at all. The same command again
translates the files that are missing, also after a machine was lost. All machines read the checkpoint and write the
folder, so both are on a shared file system. Needs this package and `pip install "ray[data]"`.
"""

import argparse
import os
import time
from pathlib import Path

import ray


class TranslateFile:
    """An actor: one copy of the model, on one core."""

    def __init__(self, checkpoint: str, output: str, num_beams: int) -> None:
        import torch

        from hf_capsule_mt import Translator

        torch.set_num_threads(1)
        self.translator = Translator.from_pretrained(checkpoint, int8=True, device="cpu")
        self.output, self.options = Path(output), {"num_beams": num_beams, "batch_tokens": 2048, "scores": False}

    def __call__(self, row: dict[str, str]) -> dict[str, object]:
        source, started, number = Path(row["item"]), time.perf_counter(), 0
        partial = self.output / f".{source.name}.{os.getpid()}.partial"
        with open(source, encoding="utf-8", newline="\n") as text, open(partial, "w", encoding="utf-8") as stream:
            for translation in self.translator((line.rstrip("\n") for line in text), **self.options):
                stream.write(" ".join(translation.text.split()) + "\n")
                number += 1
        partial.replace(self.output / source.name)
        return {"file": source.name, "lines": number, "seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", help="a folder on every machine, or a name on the hub")
    parser.add_argument("input", type=Path, help="a folder of UTF-8 text files, a text on a line")
    parser.add_argument("output", type=Path, help="the folder of their translations")
    parser.add_argument("--actors", type=int, default=os.cpu_count(), help="copies of the model, one a core")
    parser.add_argument("--num-beams", type=int, default=1, help="hypotheses of beam search")
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    output.mkdir(parents=True, exist_ok=True)
    for partial in output.glob(".*.partial"):  # of a run that was killed
        partial.unlink()
    files = sorted(path.resolve() for path in arguments.input.iterdir() if path.is_file() and path.name[0] != ".")
    missing = [str(path) for path in files if not (output / path.name).exists()]
    print(f"{len(files) - len(missing)} of {len(files)} files are translated already")
    if not missing:
        return
    checkpoint = os.path.abspath(arguments.checkpoint) if os.path.isdir(arguments.checkpoint) else arguments.checkpoint
    ray.data.DataContext.get_current().enable_progress_bars = False
    blocks = ray.data.from_items(missing, override_num_blocks=len(missing)).map(
        TranslateFile,
        fn_constructor_args=(checkpoint, str(output), arguments.num_beams),
        compute=ray.data.ActorPoolStrategy(size=min(arguments.actors, len(missing))),
        num_cpus=1,
    )
    started, lines = time.perf_counter(), 0
    for row in blocks.iter_rows():
        lines += row["lines"]
        rate = lines / (time.perf_counter() - started)
        print(f"{row['file']}: {row['lines']} lines in {row['seconds']:.1f} s; {rate:.1f} lines per second in all")


if __name__ == "__main__":
    main()

"""Where the time of a sentence goes, from text to `Translation`, in processor time on one thread.

    python -m lab.sentence_profile /path/to/student text.en --sentences 50 --shortlist

Each part is a function of the way of a sentence (CONTRIBUTING.md); its time is without that of the parts inside of it.
"""

import argparse
import functools
import os
import statistics
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from capsule_mt.engine.library import NativeModel
from capsule_mt.engine.request import SearchCall
from capsule_mt.text.segments import Segmenter
from capsule_mt.translate.loading import load
from capsule_mt.translate.translator import Translator

# each part's title, where it is, and its name
PARTS: tuple[tuple[str, Any, str], ...] = (
    ("the engine", NativeModel, "translate"),
    ("the call's fields, shortlist included", SearchCall, "__init__"),
    ("its results", SearchCall, "results"),
    ("sentences, normal form, tokenizer", Segmenter, "document"),
    ("the plan", Translator, "plan"),
    ("batches, options of the search", Translator, "translate_pieces"),
    ("text of the translation", Translator, "put_together"),
)


class Clock:
    """Adds up the processor time of functions, each without that of the timed functions it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys((title for title, _, _ in PARTS), 0.0)
        self._inner = [0.0]

    def time(self, title: str, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            start = time.process_time()
            try:
                return function(*arguments, **options)
            finally:
                elapsed = time.process_time() - start
                self.seconds[title] += elapsed - self._inner.pop()
                self._inner[-1] += elapsed

        setattr(owner, name, timed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text", type=Path, help="a sentence on each line")
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--shortlist", action="store_true")
    arguments = parser.parse_args()
    translator = load(arguments.model, int8=True, shortlist=arguments.shortlist)
    texts = arguments.text.read_text(encoding="utf-8").splitlines()[: arguments.sentences]

    def translate() -> float:
        start = time.process_time()
        if arguments.batch_size == 1:
            for text in texts:
                translator(text)
        else:
            translator(texts, batch_size=arguments.batch_size)
        return (time.process_time() - start) / len(texts) * 1000

    translate()
    plain = statistics.median(translate() for _ in range(arguments.repetitions))
    clock = Clock()
    for part in PARTS:
        clock.time(*part)
    timed = [translate() for _ in range(arguments.repetitions)]
    for title, seconds in sorted(clock.seconds.items(), key=lambda item: -item[1]):
        share = seconds * 1000 / len(texts) / arguments.repetitions
        print(f"{title:42} {share:7.3f} ms  {share / statistics.mean(timed):6.1%}")
    print(f"{'all':42} {plain:7.3f} ms; while timed {statistics.mean(timed):.3f}")


if __name__ == "__main__":
    main()

"""What `torch.load(weights_only=True)` and `safetensors` do with the hostile files: each in a process with limits.

python -m tests.hostile.others --cases 500
"""

import argparse
import os
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import safetensors
import torch

from tests.fuzz.cases import sound_folder
from tests.fuzz.pickles import archive
from tests.hostile.builders import FILES, PICKLES, PROTOCOL
from tests.hostile.grammar import draw

SECONDS, MEMORY = 10, 4 << 30
# built one by one, each of at most 2 MB
PICKLED = {
    "tuples, a million deep": PROTOCOL + b"})" + b"\x85" * 1_000_000 + b"Ns.",
    "tuples, 129 that each hold the last one twice": PROTOCOL + b"})" + b"q\x00h\x00\x86" * 129 + b"Ns.",
    "marks, 300,000 opened and closed": PROTOCOL + b"(" * 300_000 + b"t" * 300_000 + b".",
    "a name of 255 MB that is not there": PROTOCOL + b"}X\xff\xff\xff\x0fa" + b"Ns.",
    "a far memo": PROTOCOL + PICKLES["far memo"](10) + b".",
}


def outcome_of(read: Callable[[Path], object], file: Path) -> tuple[str, float]:
    """Return how a reader ends in a fork: "read", "refused", or what ended it; and its seconds."""
    start, process = time.monotonic(), os.fork()
    if process == 0:
        status = 1
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        with open("/proc/self/statm", encoding="ascii") as sizes:
            addresses = int(sizes.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (addresses + MEMORY,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            read(file)
            status = 0
        except MemoryError:
            status = 2
        except Exception:
            status = 3
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    names = {0: "read", 2: f"more than {MEMORY >> 30} GB of memory", 3: "refused"}
    names |= {-signal.SIGXCPU: f"longer than {SECONDS} s", -signal.SIGKILL: f"longer than {SECONDS} s"}
    return names.get(code, signal.Signals(-code).name if code < 0 else f"code {code}"), time.monotonic() - start


def load_pickle(file: Path) -> object:
    return torch.load(file, weights_only=True)


def load_safetensors(file: Path) -> object:
    with safetensors.safe_open(file, "pt") as tensors:
        return [tensors.get_tensor(name) for name in tensors.keys()]  # noqa: SIM118 -- not a dictionary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "file"
        for name, content in PICKLED.items():
            archive(content, file)
            outcome, seconds = outcome_of(load_pickle, file)
            print(f"torch.load, {name} ({file.stat().st_size:,} bytes): {outcome}, {seconds:.1f} s", flush=True)
        header = (sound_folder() / "model.safetensors").read_bytes()
        for kind, sound, read in (("pickle", b"", load_pickle), ("header", header, load_safetensors)):
            assert kind in FILES
            generator, outcomes = random.Random(f"{kind} {arguments.seed}"), Counter[str]()
            for _ in range(arguments.cases):
                content = draw(kind, sound, generator)
                archive(content, file) if kind == "pickle" else file.write_bytes(content)
                outcomes[outcome_of(read, file)[0]] += 1
            print(f"{kind}: {', '.join(f'{count} {name}' for name, count in outcomes.most_common())}", flush=True)


if __name__ == "__main__":
    main()

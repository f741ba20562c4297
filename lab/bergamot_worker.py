"""Native Bergamot in a process of its own, for `lab.student_engines`: its wheels end with CPython 3.10.

    PYTHON-3.10 lab/bergamot_worker.py FOLDER

Each line of stdin is a JSON object: `texts`, and how many of them a call may take, `batch_size`. Each line of stdout
answers with their translations, the processor time of this process so far, the MiB by which it has grown, and the
version of Bergamot.
"""

import json
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

FILES = {"model": "model.*.bin", "vocabulary": "vocab.*.spm", "shortlist": "lex.*.bin"}
# What Firefox passes, but for its cache: int8 with the alphas of the file, greedy, one thread.
CONFIG = """bergamot-mode: native
relative-paths: false
models: [{model}]
vocabs: [{vocabulary}, {vocabulary}]
shortlist: [{shortlist}, false]
beam-size: 1
normalize: 1.0
word-penalty: 0
max-length-break: 128
mini-batch-words: 1024
workspace: 128
max-length-factor: 2.0
skip-cost: true
cpu-threads: 1
quiet: true
quiet-translation: true
gemm-precision: int8shiftAlphaAll
ssplit-mode: paragraph
"""


class NoModels:
    """Answers the list of models that `import bergamot` downloads and this program does not use."""

    text = '{"models": []}'


def file_in(folder: Path, pattern: str) -> Path:
    """Return the file of a student in a folder as Firefox has it."""
    for file in sorted(folder.glob(pattern)):
        return file.resolve()
    raise SystemExit(f"{folder}: has no {pattern}: Bergamot reads Marian's files, not those of `capsule-mt convert`")


class Bergamot:
    """The student in a folder, without a cache of translations."""

    def __init__(self, folder: Path) -> None:
        import requests

        vars(requests)["get"] = lambda *arguments, **options: NoModels
        import bergamot

        paths = {name: file_in(folder, pattern) for name, pattern in FILES.items()}
        config = bergamot.ServiceConfig(numWorkers=1, cacheSize=0, logLevel="off")
        self.service = bergamot.Service(config)
        self.model = self.service.modelFromConfig(CONFIG.format(**paths))
        self.options = bergamot.ResponseOptions(alignment=False, qualityScores=False, HTML=False)
        self.to_strings: Any = bergamot.VectorString

    def translate(self, texts: Sequence[str], batch_size: int) -> list[str]:
        """Translate one text a call, or all of them in one call, which makes batches of up to 1,024 tokens."""
        calls = [[text] for text in texts] if batch_size == 1 else [list(texts)]
        responses = [self.service.translate(self.model, self.to_strings(call), self.options) for call in calls]
        return [response.target.text for answered in responses for response in answered]


def peak_mib() -> float:
    """Return the most MiB that this process has had; `getrusage` would count its parent's."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    start_mib = peak_mib()
    bergamot = Bergamot(Path(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        texts = bergamot.translate(request["texts"], request["batch_size"])
        answer = {"texts": texts, "seconds": time.process_time(), "mib": peak_mib() - start_mib}
        answer["version"] = version("bergamot")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

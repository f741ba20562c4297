"""Counters and histograms in the text format of Prometheus."""

import os
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

Labels = tuple[tuple[str, str], ...]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def _labelled(name: str, labels: Labels) -> str:
    escaped = [(key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")) for key, value in labels]
    return name + ("{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}" if escaped else "")


class Metric:
    """A counter, or with `bounds` a histogram; each combination of labels has values of its own."""

    def __init__(self, name: str, about: str, bounds: tuple[float, ...] | None = None) -> None:
        self.name, self.about, self.bounds = name, about, bounds
        self._lock = threading.Lock()
        self._totals: dict[Labels, float] = defaultdict(float)
        self._counts: dict[Labels, list[int]] = defaultdict(lambda: [0] * (len(bounds or ()) + 1))

    def add(self, value: float = 1, **labels: str) -> None:
        """Add to a counter, or an observation to a histogram."""
        key = tuple(labels.items())
        with self._lock:
            self._totals[key] += value
            if self.bounds is not None:
                self._counts[key][bisect_left(self.bounds, value)] += 1

    def lines(self) -> list[str]:
        kind = "counter" if self.bounds is None else "histogram"
        lines = [f"# HELP {self.name} {self.about}", f"# TYPE {self.name} {kind}"]
        with self._lock:
            for labels, total in self._totals.items():
                if self.bounds is None:
                    lines.append(f"{_labelled(self.name, labels)} {total:g}")
                    continue
                seen = 0
                for bound, count in zip((*map(str, self.bounds), "+Inf"), self._counts[labels], strict=True):
                    seen += count
                    lines.append(f"{_labelled(f'{self.name}_bucket', (*labels, ('le', bound)))} {seen}")
                lines.append(f"{_labelled(f'{self.name}_sum', labels)} {total:.6f}")
                lines.append(f"{_labelled(f'{self.name}_count', labels)} {seen}")
        return lines


class Metrics:
    """What the server counts."""

    def __init__(self) -> None:
        self.requests = Metric("capsule_mt_requests_total", "Requests by path and status.")
        self.seconds = Metric("capsule_mt_request_seconds", "Time to answer a translation request.", SECONDS)
        self.texts = Metric("capsule_mt_texts_total", "Texts that were translated.")
        self.characters = Metric("capsule_mt_characters_total", "Characters that were translated.")
        self.failures = Metric("capsule_mt_failed_texts_total", "Texts that could not be translated.")
        self.batches = Metric("capsule_mt_batch_sentences", "Sentences translated together.", SIZES)

    def page(self, queued: Mapping[str, int]) -> str:
        """Return all of them, with the sentences that wait for each language pair and the memory of the process."""
        lines = [line for metric in vars(self).values() for line in metric.lines()]
        lines += [
            "# HELP capsule_mt_queued_sentences Sentences that wait.",
            "# TYPE capsule_mt_queued_sentences gauge",
        ]
        lines += [f"{_labelled('capsule_mt_queued_sentences', (('pair', pair),))} {n}" for pair, n in queued.items()]
        memory = resident_bytes()
        if memory is not None:
            name = "process_resident_memory_bytes"
            lines += [f"# HELP {name} Memory of the process.", f"# TYPE {name} gauge", f"{name} {memory}"]
        return "\n".join(lines) + "\n"


def resident_bytes() -> int | None:
    """Return the memory of this process, where the system has it in /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")

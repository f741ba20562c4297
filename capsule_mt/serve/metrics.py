"""Counters in the text format of Prometheus."""

import threading
from collections.abc import Mapping

HELP_TEXTS = {
    "requests_total": "Requests by path and status.",
    "request_seconds_sum": "Seconds to answer requests that translate or check texts.",
    "request_seconds_count": "Requests that translate or check texts.",
    "texts_total": "Texts that were translated or checked.",
    "characters_total": "Characters of these texts.",
    "failed_texts_total": "Texts that could not be translated or checked.",
}


class Metrics:
    """The server's counters, one for each combination of labels."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: dict[str, dict[str, float]] = {name: {} for name in HELP_TEXTS}

    def add(self, name: str, value: float = 1, **labels: str) -> None:
        """Add to a counter; its name is one of `HELP_TEXTS`."""
        label_text = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        with self._lock:
            self._totals[name][label_text] = self._totals[name].get(label_text, 0.0) + value

    def page(self, queued: Mapping[str, int]) -> str:
        """Return the page of all counters, with the number of queued sentences of each language pair."""
        lines = []
        with self._lock:
            for name, help_text in HELP_TEXTS.items():
                lines += [f"# HELP capsule_mt_{name} {help_text}", f"# TYPE capsule_mt_{name} counter"]
                lines += [
                    f"capsule_mt_{name}{{{label_text}}} {total:.12g}"
                    for label_text, total in self._totals[name].items()
                ]
        name = "capsule_mt_queued_sentences"
        lines += [f"# HELP {name} Sentences in the queue.", f"# TYPE {name} gauge"]
        lines += [f'{name}{{pair="{_escaped(pair)}"}} {number}' for pair, number in queued.items()]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

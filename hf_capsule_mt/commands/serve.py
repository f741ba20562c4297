"""Serve translations over HTTP, with the API of LibreTranslate.

    capsule-mt serve outputs/gdr                                         # on this machine alone
    capsule-mt serve de-en=checkpoints/one en-de=checkpoints/two         # the model by the language pair
    capsule-mt serve outputs/gdr --host 0.0.0.0 --port 5000 --int8       # for everyone who can reach it

    curl localhost:5000/translate -d q="He sleeps." -d source=en -d target=de -d coverage=true

POST /translate, GET /languages, /health, /metrics (Prometheus) and /docs. Requests that arrive together are translated
together. SIGTERM and Ctrl-C stop the server after it has answered what it accepted.
"""

import argparse
import os
import signal
import sys

import hf_capsule_mt  # noqa: F401  registers the models and the task
from capsule_mt.commands.console import HelpFormatter, positive
from hf_capsule_mt.commands.arguments import checkpoint
from hf_capsule_mt.pipelines.backends import BACKENDS
from hf_capsule_mt.pipelines.translator import Translator
from hf_capsule_mt.serve import Limits, bind, language_pairs, path_of, run_server

API_KEY = "CAPSULE_API_KEY"


def served_checkpoint(text: str) -> str:
    """An `argparse` type: a checkpoint, or SRC-TGT=CHECKPOINT."""
    checkpoint(path_of(text))
    return text


def milliseconds(text: str) -> float:
    """An `argparse` type: a number of at least 0."""
    number = float(text)
    if not 0 <= number < 60_000:
        raise argparse.ArgumentTypeError(f"must be between 0 and 60000, got {text}")
    return number


def port_number(text: str) -> int:
    """An `argparse` type: a port, or 0 for any free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 65535, got {text}")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument(
        "checkpoints",
        nargs="+",
        type=served_checkpoint,
        metavar="CHECKPOINT",
        help="a checkpoint, or SRC-TGT=CHECKPOINT where neither its recipe nor its name has the languages",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=port_number, default=5000, help="the port; 0 takes a free one")
    parser.add_argument("--max-characters", type=positive, default=5000, help="longest request")
    parser.add_argument("--max-batch", type=positive, default=32, help="largest batch of texts")
    parser.add_argument(
        "--max-queue", type=positive, default=512, help="most waiting texts of a model; others get 503"
    )
    parser.add_argument("--wait-ms", type=milliseconds, default=5.0, help="how long a text waits for others")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="decoder: the C engine or generate(); auto picks the engine where it can",
    )
    parser.add_argument("--int8", action="store_true", help="multiply in int8: faster, on a CPU")
    parser.add_argument(
        "--api-key",
        default=os.environ.get(API_KEY) or None,
        help=f"what requests must have as `api_key` (default: the variable {API_KEY}, if it is set)",
    )
    arguments = parser.parse_args()
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        serve(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)


def serve(arguments: argparse.Namespace) -> None:
    pairs = language_pairs(arguments.checkpoints)
    with bind(arguments.host, arguments.port) as listener:
        translators = {
            pair: Translator.from_pretrained(
                path, backend=arguments.backend, int8=arguments.int8, dtype="float32", task=pair.task
            )
            for pair, path in pairs.items()
        }
        run_server(
            translators,
            listener,
            Limits(arguments.max_characters, arguments.api_key),
            max_batch=arguments.max_batch,
            wait_seconds=arguments.wait_ms / 1000,
            max_queue=arguments.max_queue,
        )

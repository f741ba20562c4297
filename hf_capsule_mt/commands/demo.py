"""Serve a page in the browser that shows what a model translated and what it left out.

    capsule-mt demo outputs/gdr                                 # on this machine alone
    capsule-mt demo guided=outputs/gdr plain=outputs/plain      # to choose from
    capsule-mt demo outputs/gdr --host 0.0.0.0 --port 7860      # for everyone who can reach it

As a Space: a repository with scripts/demo.py as app.py, `hf-capsule-mt[demo]` in its requirements, and the names of
models on the hub, separated by spaces, in the variable CAPSULE_MODELS.
"""

import argparse
import os
import sys

import hf_capsule_mt  # noqa: F401  registers the models and the task
from capsule_mt.commands.console import HelpFormatter
from hf_capsule_mt.commands.arguments import checkpoint
from hf_capsule_mt.demo import serve

MODELS = "CAPSULE_MODELS"


def named_checkpoint(text: str) -> tuple[str, str]:
    """An `argparse` type: a checkpoint, or NAME=CHECKPOINT."""
    name, _, path = text.partition("=") if "=" in text else (text, "", text)
    return name, checkpoint(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    default = os.environ.get(MODELS, "").split()
    parser.add_argument(
        "models",
        nargs="*" if default else "+",
        type=named_checkpoint,
        metavar="MODEL",
        help="checkpoints, each a path or name=path",
    )
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1, or GRADIO_SERVER_NAME)")
    parser.add_argument("--port", type=int, help="the port (default: the first free one from 7860)")
    arguments = parser.parse_args()
    if not arguments.models:
        arguments = parser.parse_args([*sys.argv[1:], *default])
    serve(dict(arguments.models), arguments.host, arguments.port)

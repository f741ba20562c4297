"""Serves the page.

python -m hf_capsule_mt.demo outputs/demo                              # on this machine alone
python -m hf_capsule_mt.demo guided=outputs/gdr plain=outputs/plain    # to choose from
python -m hf_capsule_mt.demo outputs/demo --host 0.0.0.0 --port 7860   # for everyone who can reach it
"""

import argparse

import hf_capsule_mt.pipelines  # noqa: F401  the task "translation"
from hf_capsule_mt.demo.page import serve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="checkpoints, as path or as name=path")
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1, or GRADIO_SERVER_NAME)")
    parser.add_argument("--port", type=int, help="the port (default: the first free one from 7860)")
    arguments = parser.parse_args()
    pairs = [model.split("=", 1) if "=" in model else [model, model] for model in arguments.models]
    serve(dict(pairs), arguments.host, arguments.port)


if __name__ == "__main__":
    main()

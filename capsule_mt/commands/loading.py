"""Load the `Translator` of a command, by the engine or by another distribution."""

import argparse
import os
from pathlib import Path
from typing import Any

from capsule_mt.catalog.entries import HUB_OFFLINE, OFFLINE, CatalogError, DownloadError, is_offline, pair_named
from capsule_mt.commands.console import checkpoint_folder, folder

GROUP = "capsule_mt.translators"
BACKENDS = ("auto", "native", "transformers")


def add_model(parser: argparse.ArgumentParser, *, nargs: str | None = None) -> None:
    """Add the checkpoint and what decodes it."""
    help = "the folder of a checkpoint, or a name such as en-pt (see `capsule-mt models --help`)" + (
        "" if nargs is None else "; several of one vocabulary decode together"
    )
    parser.add_argument("model", nargs=nargs, help=help)
    parser.add_argument("--int8", action="store_true", help="multiply in int8: several times as fast")
    parser.add_argument(
        "--shortlist",
        nargs="?",
        const=True,
        default=False,
        metavar="FILE",
        help="score only the likely targets of each source word: a file of `capsule-mt shortlist` (default: the one "
        "beside the checkpoint)",
    )
    parser.add_argument(
        "--reverse",
        metavar="MODEL",
        help="a model of the other direction, which verifies what coverage marks (default: the one that the "
        "calibration names, if it is beside the checkpoint or, as pt-en for en-pt, downloaded)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="native is the engine in C; transformers is generate(), on a GPU if there is one, and needs "
        "hf-capsule-mt; auto is native where it takes the model",
    )
    parser.add_argument("--cpu", action="store_true", help="with --backend transformers: stay off a GPU")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="with --backend transformers: dtype of the weights",
    )


def folders_of(model: str) -> list[str]:
    """Return the folders of a model or of what a name stands for; the name itself if there is none."""
    if Path(model).exists():
        return [model]
    from capsule_mt.catalog.store import kept_folders

    return kept_folders(model) or [model]


def load_translator(arguments: argparse.Namespace) -> Any:
    """Return a `Translator`, of this distribution or, where that cannot do it, of one with transformers."""
    models = arguments.model if isinstance(arguments.model, list) else [arguments.model]
    if Path(models[0]).exists():
        folder(models[0])
    reason = ""  # why the engine cannot do it, if it cannot
    if arguments.backend == "transformers":
        reason = "`--backend transformers`"
    elif len(models) > 1:
        reason = f"an ensemble of {len(models)} models"
    elif arguments.dtype != "float32":
        reason = f"--dtype {arguments.dtype}"
    if reason and Path(models[0]).exists():
        checkpoint_folder(models[0])
    if reason and arguments.backend == "native":
        raise ValueError(f"--backend native cannot do it: {reason}")
    of_mozilla = [name for name in models if not Path(name).exists() and pair_named(name)]
    if reason and of_mozilla:
        raise ValueError(f"{of_mozilla[0]} is a model for the engine alone, which cannot do it: {reason}")
    problem: Exception | None = None
    if not reason:
        from capsule_mt.engine.library import NativeUnavailableError
        from capsule_mt.engine.program import UnsupportedModelError
        from capsule_mt.translator import Translator

        try:
            options = {name: getattr(arguments, name) for name in ("int8", "shortlist", "reverse")}
            return Translator.from_pretrained(models[0], **options)
        except (UnsupportedModelError, NativeUnavailableError) as error:
            folder_of_marian = Path(models[0]).exists() and not Path(models[0], "config.json").exists()
            only_native = folder_of_marian or models[0] in of_mozilla
            if arguments.backend == "native" or arguments.int8 or arguments.shortlist or only_native:
                raise ValueError(str(error)) from None
            reason = str(error)
        except (CatalogError, DownloadError) as error:  # transformers looks for it in places of its own
            if arguments.backend == "native" or models[0] in of_mozilla or is_offline(OFFLINE):
                raise
            problem = error
            # transformers would ask it again and again, for a minute; its cache needs no network
            if not _hub_answers():
                os.environ[HUB_OFFLINE] = "1"
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        load = point.load()
        names = ("backend", "cpu", "dtype", "int8", "shortlist", "reverse")
        options = {name: getattr(arguments, name) for name in names}
        try:
            return load(models, **options)
        except (OSError, ValueError):
            if problem is not None and is_offline(HUB_OFFLINE):
                raise problem from None
            raise
    if problem is not None:
        raise problem
    raise ValueError(f"{reason}: this needs transformers; in a clone, `pip install ./capsule_mt .` adds hf-capsule-mt")


def _hub_answers() -> bool:
    from capsule_mt.catalog.download import read_url
    from capsule_mt.catalog.hub import site

    try:
        read_url(f"{site()}/api/models?limit=1")
    except CatalogError:  # it is not asked
        return False
    except DownloadError as error:
        return error.status is not None
    return True

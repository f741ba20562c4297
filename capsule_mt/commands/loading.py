"""Load the `Translator` of a command: the engine's, or that of another distribution."""

import argparse
import os
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from capsule_mt.catalog.entries import HUB_OFFLINE, OFFLINE, CatalogError, is_archive, is_offline, pair_named
from capsule_mt.commands import HF_INSTALL
from capsule_mt.commands.console import CommandParser, check_folder, checkpoint_folder

GROUP = "capsule_mt.translators"
BACKENDS = ("auto", "native", "transformers")
ENGINE_OPTIONS = ("int8", "shortlist", "reverse")
DEFAULTS = {
    "int8": False,
    "shortlist": False,
    "reverse": None,
    "backend": "auto",
    "cpu": False,
    "dtype": "float32",
}


def _is_shortlist(path: str) -> bool:
    from capsule_mt.models.shortlist import is_shortlist  # late: most runs do not need it

    return is_shortlist(path)


def shortlist_file(text: str) -> str | bool:
    """An `argparse` type: a shortlist file, or an empty text for the shortlist beside the checkpoint."""
    if os.path.isfile(text) and not _is_shortlist(text):
        raise argparse.ArgumentTypeError(
            f"{text} is not a shortlist, a file of `capsule-mt shortlist` (of hf-capsule-mt) or a lex.*.bin; "
            "--shortlist alone takes the one beside the checkpoint"
        )
    return text or True


def add_model(parser: CommandParser, *, nargs: str | None = None) -> None:
    """Add the arguments that name a model and choose how it decodes."""
    help = (
        "the folder of a model, a .zip of OPUS-MT, an .argosmodel, or a name such as en-pt (see `capsule-mt models "
        "--help`)" + ("; several of one vocabulary decode together" if nargs == "+" else "")
    )
    parser.add_argument("model", nargs=nargs, help=help)
    parser.add_argument("--int8", action="store_true", help="multiply in int8, which is faster")
    parser.add_argument(
        "--shortlist",
        nargs="?",
        type=shortlist_file,
        const=True,
        default=False,
        metavar="FILE",
        help="score only likely translations of each source word: those of the shortlist beside the checkpoint, or "
        "of FILE, written by `capsule-mt shortlist` of hf-capsule-mt. A model of many languages does not need a "
        "shortlist: without one, it is limited to the script of the target language",
    )
    parser.value_tests["--shortlist"] = _is_shortlist
    parser.add_argument(
        "--reverse",
        metavar="MODEL",
        help="a reverse model, which translates in the other direction and verifies the marks of coverage (default: "
        "the model that the calibration names, if it is beside the checkpoint or downloaded, such as pt-en for en-pt)",
    )
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="native: the engine in C; transformers: generate(), on a GPU if there is one, with hf-capsule-mt; auto: "
        "native if it supports the model, otherwise transformers",
    )
    parser.add_argument("--cpu", action="store_true", help="with --backend transformers: do not use a GPU")
    parser.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        default="float32",
        help="with --backend transformers: the dtype of the weights",
    )


def folders_of(model: str) -> list[str]:
    """Return the folders of a model, or of the models that a name stands for; the name itself if there are none."""
    if os.path.isdir(model):
        return [model]
    from capsule_mt.catalog.store import downloaded_folders

    return downloaded_folders(model) or [model]


def digests_of(
    models: Sequence[str], arguments: argparse.Namespace, translator: Any, *, has_coverage: bool
) -> dict[str, Any]:
    """Return the digests of what a command loads by `add_model`: the models, the shortlist and the reverse models.

    has_coverage: whether the output depends on the reverse model that the calibration names.
    """
    from capsule_mt.files.digests import checkpoint_digests, file_digest  # late: only a run that resumes needs them

    digests: dict[str, Any] = {
        "models": [checkpoint_digests(folder) for name in models for folder in folders_of(name)]
    }
    if arguments.shortlist:  # True: a file of the model
        digests["shortlist"] = arguments.shortlist is True or file_digest(arguments.shortlist)
    reverse_models = translator.reverse_folders if has_coverage or arguments.reverse is not None else []
    if reverse_models:
        digests["reverse"] = [checkpoint_digests(folder) for name in reverse_models for folder in folders_of(name)]
    return digests


def load_translator(
    model: str | list[str], arguments: Mapping[str, Any], loaded: MutableMapping[str, Any] | None = None
) -> Any:
    """Return a `Translator`: the engine's or, for what the engine cannot do, that of a distribution with transformers.

    Args:
        arguments: the values of a command's options; options of `add_model` that it lacks have their defaults.
        loaded: the engine's translators of earlier calls with these arguments, whose models are shared.
    """
    from capsule_mt.models.loading import is_adapter

    models = model if isinstance(model, list) else [model]
    options = {name: arguments.get(name, default) for name, default in DEFAULTS.items()}
    pairs = [name for name in models if not os.path.exists(name) and pair_named(name)]
    reason = ""  # the option that the engine cannot satisfy, if any
    if options["backend"] == "transformers":
        reason = "`--backend transformers`"
    elif len(models) > 1:
        reason = f"an ensemble of {len(models)} models"
    elif options["dtype"] != "float32":
        reason = f"--dtype {options['dtype']}"
    elif is_adapter(models[0]):
        reason = f"{models[0]}, an adapter"
    if os.path.exists(models[0]) and (reason or not is_archive(models[0])):
        try:
            (checkpoint_folder if reason else check_folder)(models[0])
        except argparse.ArgumentTypeError as error:
            raise ValueError(f"{error}{f', which {reason} needs' if reason else ''}") from None
    only_native = options["backend"] == "native" or bool(pairs)
    if reason and only_native:
        native = options["backend"] == "native"
        subject = "--backend native" if native else f"{pairs[0]} is a model for the engine alone, which"
        raise ValueError(f"{subject} does not support {reason}")
    problem: ValueError | None = None
    if not reason:
        from capsule_mt.engine.library import NativeUnavailableError
        from capsule_mt.engine.program import UnsupportedModelError
        from capsule_mt.models.loading import is_ctranslate2
        from capsule_mt.translate.loading import load

        try:
            return load(models[0], loaded=loaded, **{name: options[name] for name in ENGINE_OPTIONS})
        except (UnsupportedModelError, NativeUnavailableError) as error:
            is_hub = not os.path.exists(models[0]) or os.path.exists(os.path.join(models[0], "config.json"))
            if only_native or not is_hub or is_ctranslate2(models[0]) or options["int8"] or options["shortlist"]:
                raise UnsupportedModelError(str(error)) from None
            reason = str(error)
        except CatalogError as error:  # transformers may still load it by its name on the hub
            from capsule_mt.catalog.hub import NAME

            if only_native or is_offline(OFFLINE) or os.path.exists(models[0]) or NAME.fullmatch(models[0]) is None:
                raise
            problem = error
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP):
        try:
            return point.load()(models, **options)
        except (OSError, ValueError):
            if problem is not None and is_offline(HUB_OFFLINE):
                raise problem from None
            raise
    raise problem or ValueError(f"{reason}: this needs transformers; {HF_INSTALL}")

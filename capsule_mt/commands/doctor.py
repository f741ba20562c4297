"""Print versions, processor features and the tier of the engine on this machine.

    capsule-mt doctor
    capsule-mt doctor --compare facebook/nllb-200-distilled-600M --src-lang eng_Latn --tgt-lang deu_Latn

Paste the output into a bug report. `--compare` translates 20 English sentences with the engine in float32 and with
transformers, greedily and with 4 beams, at most 24 tokens each, and exits with 1 if a token differs. It needs
hf-capsule-mt.
"""

import importlib
import os
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path
from typing import Any

from capsule_mt import __version__
from capsule_mt.commands import further_commands
from capsule_mt.commands.console import CommandParser
from capsule_mt.commands.loading import load_translator
from capsule_mt.files.progress import Progress

PACKAGES = (
    "tokenizers",
    "fastapi",
    "uvicorn",
    "python-multipart",
    "py3langid",
    "numpy",
    "hf-capsule-mt",
    "torch",
    "transformers",
    "huggingface_hub",
    "accelerate",
    "sentencepiece",
)
# flags of /proc/cpuinfo on which the speed of matrix products depends
FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "sve"),
)
MAX_NEW_TOKENS = 24  # in a translation: a model without training never ends one
BATCH_SIZE = 10  # sentences
SENTENCES = (
    "Good morning.",
    "The old man buys a red hat.",
    "Where is the nearest railway station?",
    "She did not know what to say, so she said nothing.",
    "In 1969, two people walked on the moon for the first time.",
    "The meeting begins at 9:30 a.m. in room 12.",
    "Please turn off the lights before you leave!",
    '"I will be there," he said, "but not before noon."',
    "The price rose by 3.5 % to 1,250 dollars.",
    "My brother's friend lives in São Paulo.",
    "Most of the water on Earth is in the oceans.",
    "If it rains tomorrow, we will stay at home.",
    "The children played in the garden until it was dark.",
    "This book was written by a doctor who had lived in Kenya for twenty years.",
    "Open the file, change the first line, and save it.",
    "Nobody knows why the company closed its office in Paris.",
    "He has been learning Japanese since last summer.",
    "Fresh bread, butter and cheese were on the table.",
    "The law that Parliament passed on Tuesday protects rivers, lakes and wetlands from pollution.",
    "Thank you very much for your help.",
)


def compare(model: str, src_lang: str | None, tgt_lang: str | None) -> tuple[int, int]:
    """Print what differs between the engine and transformers; return how many translations are equal, and of how many.

    Equal translations have the same tokens of the source and the same tokens of the translation.
    """
    translators = [load_translator(model, {"backend": backend, "cpu": True}) for backend in ("native", "transformers")]
    options = {"src_lang": src_lang, "tgt_lang": tgt_lang, "max_new_tokens": MAX_NEW_TOKENS}
    differences, num_compared = [], 2 * len(SENTENCES)
    with Progress(len(translators) * num_compared, "translations") as progress:
        for num_beams, start in product((1, 4), range(0, len(SENTENCES), BATCH_SIZE)):
            sentences = SENTENCES[start : start + BATCH_SIZE]
            tokens = []
            for translator in translators:
                tokens.append(tokens_of(translator, sentences, num_beams=num_beams, **options))
                progress.update(len(sentences))
            for sentence, actual, expected in zip(sentences, *tokens, strict=True):
                if actual != expected:
                    lines = f"{num_beams} beams: {sentence}", f"  engine       {actual}", f"  transformers {expected}"
                    differences.append("\n".join(lines))
    for difference in differences:
        print(difference)
    return num_compared - len(differences), num_compared


def tokens_of(translator: Any, sentences: Sequence[str], **options: Any) -> list[tuple[list[int], list[int]]]:
    """Return the tokens of each sentence and those of its translation."""
    from capsule_mt.translate.options import TranslationOptions  # late: `doctor` alone translates nothing

    options |= {"copy": False, "split_sentences": False, "batch_size": len(sentences)}
    plan = translator.plan(TranslationOptions.from_call(**options))
    pieces = [piece for document in translator.documents(sentences, plan) for piece in document.pieces]
    results = translator.translate_pieces(pieces, plan)
    return [(piece.ids, hypotheses[0].ids) for piece, hypotheses in zip(pieces, results, strict=True)]


def package_version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def processor() -> tuple[str, str]:
    """Return the name of the processor and those of `FLAGS` that it has, which only Linux tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine(), "unknown"
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    flags = {flag for line in lines if line.startswith(("flags", "Features")) for flag in line.split()}
    features = " ".join(flag for flag in FLAGS if flag in flags)
    return (names or [platform.machine()])[0], features or "none of note"


def native_engine() -> str:
    from capsule_mt.engine.engine import default_threads
    from capsule_mt.engine.library import NativeUnavailableError, native_tier

    try:
        threads = default_threads()
        return f"{native_tier()}, {threads} thread{'s' if threads > 1 else ''}"
    except NativeUnavailableError as error:
        return f"none: {error}"


def models() -> str:
    from capsule_mt.catalog.entries import cache_folder
    from capsule_mt.catalog.store import downloaded_models

    return f"{len(downloaded_models())} in {cache_folder()}"


def main() -> None:
    parser = CommandParser(description=__doc__)
    parser.add_argument(
        "--compare",
        metavar="MODEL",
        help="compare this model with transformers: the folder of a checkpoint, or a name",
    )
    parser.add_argument("--src-lang", help="with --compare, for a model of many languages: its code for English")
    parser.add_argument(
        "--tgt-lang", help="with --compare, for a model of many languages: its code for the target language"
    )
    arguments = parser.parse_args()
    if arguments.compare is not None:
        num_equal, num_compared = compare(arguments.compare, arguments.src_lang, arguments.tgt_lang)
        print(f"{num_equal} of {num_compared} translations have the tokens of transformers")
        if num_equal < num_compared:
            sys.exit(1)
        return
    name, flags = processor()
    lines = [
        ("capsule-mt", __version__),
        ("python", f"{platform.python_version()} on {platform.platform()}"),
        *((package, package_version(package)) for package in PACKAGES),
        ("processor", f"{name}, {os.cpu_count()} cores"),
        ("features", flags),
        ("native engine", native_engine()),
        ("models", models()),
    ]
    for module in dict.fromkeys(module for module, _ in further_commands().values()):
        lines += importlib.import_module(module).report()
    for title, value in lines:
        print(f"{title:<17} {value}")

"""Serve translations over HTTP, with the API of LibreTranslate, and a page that shows what was left out.

    capsule-mt serve checkpoints/capsule-marian-de-en                    # then open http://127.0.0.1:5000
    capsule-mt serve de-en=checkpoints/one en-de=checkpoints/two         # chosen by language pair
    capsule-mt serve en-pt pt-en de-pt                                   # models by name: `capsule-mt models --help`
    capsule-mt serve en,de,fr=facebook/nllb-200-distilled-600M           # all pairs of these languages, by one model
    capsule-mt serve outputs/de-en --host 0.0.0.0 --port 5000 --int8     # for everyone who can reach it

    curl localhost:5000/translate -d q="Er schläft." -d source=de -d target=en -d coverage=true

GET / is the page, and GET /docs shows the API: POST /translate, /translate_file, /cover and /detect, GET /languages,
/health and /metrics (Prometheus) among others.
Requests that arrive together may share a batch. SIGTERM or Ctrl-C stops the server once it has answered all accepted
requests, or after --stop-seconds; a second one stops it at once.
"""

import argparse
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from ipaddress import ip_network
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from capsule_mt.commands.console import CommandParser, at_least, positive
from capsule_mt.commands.loading import folders_of, load_translator
from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.files.line_failures import PROBE

if TYPE_CHECKING:
    from types import FrameType

    from capsule_mt.catalog.pairs import LanguagePair
    from capsule_mt.serve.connections import Network
    from capsule_mt.text.detecting import Detector
    from capsule_mt.translate.scorer import Scorer
    from capsule_mt.translate.text_translator import TextTranslator
    from capsule_mt.translate.translator import Translator

LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})


def port_number(text: str) -> int:
    """An `argparse` type: a port, or 0 for any free one."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to 65535, got {text}")
    return int(text)


def network(text: str) -> "Network":
    """An `argparse` type: an address or a network."""
    try:
        return ip_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"must be an address or a network such as 10.0.0.0/8, {error}") from None


def origin(text: str) -> str:
    """An `argparse` type: an origin as browsers send it, "*" or "none"."""
    if re.fullmatch(r"\*|none|[a-z][a-z0-9+.-]*://[^/?#\s]+", text) is None:
        raise argparse.ArgumentTypeError(
            f"must be a site such as https://example.org (with https://, without a path), * or none, got {text!r}"
        )
    return text


# options of LibreTranslate under other names; docs/coming-from.md lists all
LIBRETRANSLATE_ADVICE = {
    "--load-only": "name the models instead, as in `capsule-mt serve en-pt pt-en`",
    "--char-limit": "LibreTranslate's --char-limit is `--max-characters`",
    "--alternatives-limit": "LibreTranslate's --alternatives-limit N is `--max-beams` N+1",
    "--metrics": "/metrics is always on: leave the option out",
    "--ssl": "put a TLS proxy in front of the server (docs/serving.md)",
    "--url-prefix": "let a proxy remove the prefix (docs/serving.md)",
    "--threads": "requests are translated together: leave the option out",
    "--batch-limit": "each text of a list counts as at least 16 characters of `--max-characters`",
    "--update-models": "models are downloaded at their first use: leave the option out",
    "--disable-web-ui": "let a proxy refuse the path /",
    "--disable-files-translation": "let a proxy refuse the path /translate_file",
    "--suggestions": "suggestions are not collected: leave the option out",
}


def command_parser() -> CommandParser:
    parser = CommandParser(description=__doc__)
    parser.advice = LIBRETRANSLATE_ADVICE
    parser.add_argument(
        "checkpoints",
        nargs="*",
        metavar="CHECKPOINT",
        help="a folder or a model by name; SRC-TGT=FOLDER if neither its recipe nor its name gives the languages; "
        "LANG,LANG,...=FOLDER for a model of many languages",
    )
    parser.add_argument(
        "--models",
        metavar="FILE",
        help="a file with more CHECKPOINTs, one a line; at SIGHUP, the server reads it again, loads new and changed "
        "models, and drops those that are gone",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    parser.add_argument("--port", type=port_number, default=5000, help="the port; 0 chooses a free one")
    parser.add_argument("--max-characters", type=positive, default=5000, help="the most characters in a request")
    parser.add_argument("--max-beams", type=positive, default=8, help="the most beams in a request")
    parser.add_argument(
        "--read-seconds", type=positive, default=10, help="time limit for a request's head to arrive, and for its body"
    )
    parser.add_argument(
        "--request-seconds",
        type=positive,
        default=60,
        help="time limit for a translation, and for reading or writing a file, beyond which the request gets 503",
    )
    parser.add_argument("--stop-seconds", type=at_least(0), default=10, help="time limit for stopping after a signal")
    parser.add_argument(
        "--cors",
        type=origin,
        default="*",
        metavar="ORIGIN",
        help="the site whose pages may call the server, such as https://example.org; * allows all sites, none allows "
        "none",
    )
    parser.add_argument(
        "--req-limit",
        type=at_least(0),
        default=0,
        help="the requests of a client in a minute, beyond which it gets 429; 0 sets no limit",
    )
    parser.add_argument("--max-connections", type=positive, default=1000, help="the most open connections")
    parser.add_argument(
        "--max-connections-of-address", type=positive, default=100, help="the most open connections from one address"
    )
    parser.add_argument(
        "--hosts",
        metavar="NAME",
        nargs="+",
        help="host names that clients may use (default: any; if the server listens on localhost, only localhost)",
    )
    parser.add_argument(
        "--proxies",
        metavar="ADDRESS",
        nargs="+",
        type=network,
        default=[],
        help="addresses or networks of proxies, whose X-Forwarded-For names the client (default: none)",
    )
    parser.add_argument("--int8", action="store_true", help="multiply in int8, which is faster")
    parser.add_argument(
        "--shortlist",
        action="store_true",
        help="score only likely translations of each source word: those of the shortlist beside the checkpoint; a "
        "model of many languages without a shortlist is limited to the script of the target language",
    )
    parser.add_argument(
        "--api-keys",
        metavar="FILE",
        help="a file with one key a line, optionally followed by its requests a minute; requests then need an "
        "`api_key`",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="load everything, translate a text with each model, and exit; the exit code is 0 if all is well",
    )
    return parser


def main() -> None:
    parser = command_parser()
    arguments = parser.parse_args()
    if not arguments.checkpoints and arguments.models is None:
        parser.error("name a CHECKPOINT, or a file of them by --models")
    if not serve(arguments):
        print(f"not every request was answered within {arguments.stop_seconds} s", file=sys.stderr, flush=True)
        os._exit(1)  # the engine is still translating, and nothing else stops it


def check(translators: "Mapping[LanguagePair, TextTranslator]", detector: "Detector | None") -> None:
    """Translate a text by each model, and print what works; raise an error if anything does not."""
    for pair, translator in translators.items():
        started = time.process_time()
        coverage = CoverageOptions(support=translator.gives_support)
        translator(PROBE, coverage=coverage, src_lang=pair.source, tgt_lang=pair.target)
        suffix = ", verified by the reverse model" if translator.verifies_marks else ""
        print(f"{pair}: translates, in {time.process_time() - started:.2f} s of processor time{suffix}")
    print("languages are detected" if detector is not None and detector.rank(PROBE) else "languages are not detected")


def check_languages(
    translators: "Mapping[LanguagePair, TextTranslator]",
    path_of: "Mapping[LanguagePair, str]",
    origins: "Mapping[LanguagePair, str]",
) -> None:
    """Refuse languages that a multilingual model does not have, and several pairs for a bilingual model."""
    from capsule_mt.translate.options import TranslationOptions

    first_pairs: dict[int, LanguagePair] = {}
    for pair, translator in translators.items():
        first = first_pairs.setdefault(id(translator), pair)
        with errors_from(origins[pair]):
            if first != pair and not translator.is_multilingual:
                raise ValueError(f"{path_of[pair]}: translates one language pair, but is named for {first} and {pair}")
            try:
                translator.plan(TranslationOptions(src_lang=pair.source, tgt_lang=pair.target))
            except ValueError as error:
                raise ValueError(f"{path_of[pair]}: {pair}: {error}") from None


def pivots_of(translators: "Mapping[LanguagePair, TextTranslator]") -> "dict[LanguagePair, TextTranslator]":
    """Return translators through English for the pairs without a model whose two halves have one of a single pair."""
    from capsule_mt.catalog.pairs import LanguagePair
    from capsule_mt.translate.pivot import PIVOT, PivotTranslator
    from capsule_mt.translate.scorer import Scorer

    halves = {
        pair: translator
        for pair, translator in translators.items()
        if isinstance(translator, Scorer) and not translator.is_multilingual
    }
    return {
        LanguagePair(first.source, second.target): PivotTranslator(halves[first], halves[second])
        for first, second in product(halves, repeat=2)
        if first.target == PIVOT == second.source
        and first.source != second.target
        and LanguagePair(first.source, second.target) not in translators
    }


def reverses_of(translators: "Mapping[LanguagePair, TextTranslator]") -> "dict[Scorer, Scorer]":
    """Return the reverse model of each one that has one among these, whatever its folder is called."""
    from capsule_mt.catalog.pairs import LanguagePair
    from capsule_mt.translate.scorer import Scorer

    reverse_of: dict[Scorer, Scorer] = {}
    for pair, translator in translators.items():
        reverse = translators.get(LanguagePair(pair.target, pair.source))
        # a model of both directions has a calibration of one
        if isinstance(translator, Scorer) and isinstance(reverse, Scorer) and reverse is not translator:
            translator.check_direction(reverse)
            reverse_of[translator] = reverse
    return reverse_of


def hosts_of(arguments: argparse.Namespace) -> frozenset[str]:
    """Return the host names that clients may use; empty for any.

    Without this check, a web page could reach a local server by a name that resolves to this machine (DNS rebinding).
    """
    if arguments.hosts:
        return frozenset(name.lower() for name in arguments.hosts)
    return LOCAL_HOSTS if arguments.host in LOCAL_HOSTS else frozenset()


def detector_of(languages: set[str]) -> "Detector | None":
    """Return a detector of these languages; `None` if py3langid (the extra `auto`) is not installed."""
    from capsule_mt.text.detecting import Detector

    try:
        return Detector(languages)
    except ModuleNotFoundError:
        return None


class ModelList:
    """The models of the command line and of the file `--models`."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._is_serving = False
        self._loaded: dict[str, Translator] = {}  # by folder: a model that several pairs need is loaded once
        self._others: dict[str, Any] = {}  # those of transformers, by path or name
        self._files: dict[str, list[tuple[str, int, int]]] = {}  # `files_in` each folder when it was loaded
        self._reverse_of: dict[Scorer, Scorer] = {}

    def load(self) -> "tuple[dict[LanguagePair, TextTranslator], Detector | None]":
        """Load the models, and a detector of their languages; those whose files have not changed stay.

        An error has no effect on the models of the call before.
        """
        from capsule_mt.translate.pivot import PivotTranslator

        pairs, origins = self._pairs()
        paths = dict.fromkeys(pairs.values())
        folders = {folder for path in paths for folder in folders_of(path)}
        loaded = {folder: model for folder, model in self._loaded.items() if folder in folders and self._has(folder)}
        translator_of = {path: self._others[path] for path in paths if path in self._others and self._has(path)}
        for pair, path in pairs.items():
            if path not in translator_of:
                with errors_from(origins[pair]), self._engine_alone():
                    translator_of[path] = load_translator(path, self._options(), loaded)
        others = {
            path: translator
            for path, translator in translator_of.items()
            if translator not in loaded.values() and not isinstance(translator, PivotTranslator)
        }
        translators = {pair: translator_of[path] for pair, path in pairs.items()}
        check_languages(translators, pairs, origins)
        reverse_of = reverses_of(translators)
        detector = detector_of({code for pair in pairs for code in pair})
        files = {folder: files_in(folder) for folder in (*loaded, *others)}
        # from here on, nothing fails
        for translator in self._reverse_of.keys() | reverse_of.keys():
            translator.reverse = reverse_of.get(translator)
        self._loaded, self._others, self._files, self._reverse_of = loaded, others, files, reverse_of
        self._is_serving = True
        return translators | pivots_of(translators), detector

    def _has(self, folder: str) -> bool:
        """Return whether the files of a folder are those of its loaded model; a name has no files."""
        return folder in self._files and self._files[folder] == files_in(folder)

    def _options(self) -> dict[str, Any]:
        """Return the options of loading: a reload does not read a model by transformers, which has no limits."""
        return {**vars(self._arguments), **({"backend": "native"} if self._is_serving else {})}

    @contextmanager
    def _engine_alone(self) -> Iterator[None]:
        """End the errors of models that only transformers may read by what to do at a reload."""
        from capsule_mt.engine.library import NativeUnavailableError
        from capsule_mt.engine.program import UnsupportedModelError

        try:
            yield
        except (UnsupportedModelError, NativeUnavailableError) as error:
            if not self._is_serving:
                raise
            advice = "only transformers may read it, at the start: restart the server"
            raise ValueError(f"{error}: {advice}") from None

    def _pairs(self) -> "tuple[dict[LanguagePair, str], dict[LanguagePair, str]]":
        """Return the path or name of each pair's model, and the line of `--models` that names it, or an empty text."""
        from capsule_mt.catalog.pairs import language_pairs

        pairs: dict[LanguagePair, str] = {}
        origins: dict[LanguagePair, str] = {}
        names = [(name, "") for name in self._arguments.checkpoints]
        for name, origin in [*names, *names_in(self._arguments.models)]:
            with errors_from(origin):
                if os.path.isdir(name) and not self._has(name):
                    self._probe(name)
                pairs = language_pairs([name], pairs)
            for pair in pairs:
                origins.setdefault(pair, origin)
        return pairs, origins

    def _probe(self, folder: str) -> None:
        """Refuse a damaged or hostile model before this process reads it; transformers may read another one."""
        from capsule_mt.engine.library import NativeUnavailableError
        from capsule_mt.engine.program import UnsupportedModelError
        from capsule_mt.models.probing import probe

        left_to_transformers = () if self._is_serving else (UnsupportedModelError, NativeUnavailableError)
        with self._engine_alone(), suppress(*left_to_transformers):
            probe(folder, int8=self._arguments.int8, shortlist=self._arguments.shortlist)


@contextmanager
def stopping_at_sigterm() -> Iterator[None]:
    """End the process at SIGTERM, which the first process of a container ignores unless it handles it."""

    def stop(number: int, frame: "FrameType | None") -> NoReturn:
        os.write(2, b"stopped by SIGTERM before the models were loaded\n")  # a signal may interrupt `print`
        raise SystemExit(0)

    earlier = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def errors_from(origin: str) -> Iterator[None]:
    """Begin the errors of a model with the line of `--models` that named it; empty for the command line."""
    try:
        yield
    except (OSError, ValueError) as error:
        if not origin:
            raise
        raise ValueError(f"{origin}: {error}") from error


def names_in(path: str | None) -> list[tuple[str, str]]:
    """Return the models that a file names, one a line, each with its line, such as "FILE:3"; "#" starts a comment."""
    if path is None:
        return []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"`--models {path}` cannot be read as UTF-8 text: {error}") from None
    names = [line.partition("#")[0].strip() for line in lines]
    if not any(names):
        raise ValueError(f"{path}: does not name a model; each line names one, such as en-pt or de-en=FOLDER")
    return [(name, f"{path}:{line_number}") for line_number, name in enumerate(names, start=1) if name]


def files_in(folder: str) -> list[tuple[str, int, int]]:
    """Return the names, sizes and times of the files of a model, which say whether it has changed; none for a name."""
    files = os.scandir(folder) if os.path.isdir(folder) else ()
    return sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def serve(arguments: argparse.Namespace) -> bool:
    """Serve until a signal, or with `--check` only check the models; return whether every request was answered."""
    from capsule_mt.models.probing import probing_every_model
    from capsule_mt.serve.answers import RequestLimits
    from capsule_mt.serve.clients import Keys
    from capsule_mt.serve.connections import Connections
    from capsule_mt.serve.running import bind, run_server

    limits = RequestLimits(
        arguments.max_characters,
        arguments.max_beams,
        arguments.read_seconds,
        arguments.request_seconds,
        Keys.load(arguments.api_keys) if arguments.api_keys is not None else Keys(),
        arguments.req_limit,
        hosts_of(arguments),
        None if arguments.cors == "none" else arguments.cors,
    )
    connections = Connections(
        arguments.max_connections,
        arguments.max_connections_of_address,
        arguments.read_seconds,
        tuple(arguments.proxies),
    )
    with bind(arguments.host, arguments.port) as listener, probing_every_model():
        models = ModelList(arguments)
        with stopping_at_sigterm():
            translators, detector = models.load()
        if arguments.check:
            check(translators, detector)
            return True
        reload = None if arguments.models is None else models.load
        return run_server(translators, listener, limits, connections, detector, arguments.stop_seconds, reload)

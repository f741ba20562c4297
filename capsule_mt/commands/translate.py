"""Translate texts, files and pipes; lines of text, however many, in constant memory.

    echo "Er schläft." | capsule-mt translate checkpoints/capsule-marian-de-en
    echo "Good morning." | capsule-mt translate en-pt                  # a model by name: `capsule-mt models --help`
    capsule-mt translate en-pt Good morning                            # the words after the model are the text
    capsule-mt translate MODEL --int8 --input text.en --output text.de --num-beams 4
    capsule-mt translate MODEL --input text.en --output text.de --n-best 5 --num-beams 5  # number ||| text ||| score
    capsule-mt translate MODEL --input text.en --output text.de --coverage text.coverage.tsv
    capsule-mt translate MODEL film.srt --output film.de.srt --coverage film.tsv       # cues to check
    RANK=5 WORLD_SIZE=40 capsule-mt translate MODEL --input text.en --output text.de   # the sixth of 40 jobs

With transformers (hf-capsule-mt), the command also runs more of its models, several models together, and GPUs:

    capsule-mt translate MODEL_A MODEL_B --input text.en --output text.de
    accelerate launch scripts/translate.py MODEL --backend transformers --input text.en --output text.de

These files keep their format: .html, .epub, .srt, .vtt, .ass, .po, .xliff, .md, .docx, .pptx, .odt, .odp, catalogs of
apps (.json, .arb, .yml, .properties, .strings, .stringsdict, .resx, .ts, Android's .xml), .tsv or .csv with --column.
Files that end in .txt or a language's code, or have no extension, are translated line by line; most other files of
text need --format lines. PDFs, images and the like are refused, with advice.

Each line is a text, whose sentences are translated one by one. An empty line stays empty. A line that cannot be
translated becomes an empty line; stderr and the report of --coverage give the reason, and the exit code is 3. Progress
goes to stderr. With --output, the same command resumes an interrupted run. Ctrl-C exits with 130.

Several processes, on any machines, can share the work through the folder of the output. Process RANK of WORLD_SIZE
(torchrun and accelerate set both) translates every WORLD_SIZE-th window. The last process to end joins the output.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from capsule_mt import __version__
from capsule_mt.commands.console import (
    CommandParser,
    add_languages,
    add_search,
    at_least,
    file_path,
    positive,
    resumable,
)
from capsule_mt.commands.files import (
    LINES,
    REPORT_SUFFIXES,
    OutputFormat,
    add_files,
    checked_units,
    input_name,
    language_of,
    read_file,
    report,
    report_count,
    take_input,
)
from capsule_mt.commands.loading import add_model, digests_of, load_translator
from capsule_mt.coverage.names import MARKS, METHODS
from capsule_mt.files.line_failures import FAILED_LINES_STATUS
from capsule_mt.files.lines import RowMaker
from capsule_mt.files.outputs import check_outputs, is_stream, open_output
from capsule_mt.files.progress import Progress
from capsule_mt.files.reading import LiveLines, decode_lines, open_text
from capsule_mt.files.windows import (
    ReportFrame,
    Totals,
    Window,
    WindowedOutput,
    holding_back,
    windows_of,
    write_windows,
)
from capsule_mt.formats.registry import INDEX
from capsule_mt.formats.units import Parsed, Translated, facts_of
from capsule_mt.messages import adding_up_shares, silence, warn_of_share, with_unit
from capsule_mt.options.table import offered
from capsule_mt.text.rules import KEEP_KINDS
from capsule_mt.translate.options import THREADS_ADVICE, TranslationOptions

if TYPE_CHECKING:
    from pathlib import Path

WINDOW = 2048
# options of LibreTranslate, Argos Translate, CTranslate2, Marian and translateLocally under other names
LANGUAGES_ADVICE = (
    "the model names the languages, as in `capsule-mt translate en-pt FILE`; only a model of several languages takes "
    "`--src-lang` and `--tgt-lang`"
)
MODEL_ADVICE = "name the model before the file, as in `capsule-mt translate en-pt FILE`"
BEAMS_ADVICE = "write `--num-beams N`"
OTHER_PROGRAMS_ADVICE = {
    **dict.fromkeys(("--source", "--from", "--from-lang", "--source-lang", "-f", "-s"), LANGUAGES_ADVICE),
    **dict.fromkeys(("--target", "--to", "--to-lang", "--target-lang", "-t"), LANGUAGES_ADVICE),
    **dict.fromkeys(("--model", "--models", "-m"), MODEL_ADVICE),
    "-i": "write `--input FILE`",
    "-o": "write `--output FILE`",
    **dict.fromkeys(("--beam-size", "--beam_size", "-b"), BEAMS_ADVICE),
    **dict.fromkeys(("--normalize", "-n"), "write `--length-penalty NUMBER`"),
    **dict.fromkeys(("--num-hypotheses", "--num_hypotheses", "--alternatives"), "write `--n-best N --num-beams N`"),
    **dict.fromkeys(("--max-length", "--max-decoding-length", "--max_decoding_length"), "write `--max-new-tokens N`"),
    **dict.fromkeys(
        ("--batch-size", "--batch_size", "--max-batch-size", "--max_batch_size", "--mini-batch"),
        "write `--batch-tokens N`, a number of tokens",
    ),
    **dict.fromkeys(("--compute-type", "--compute_type"), "write `--int8` for int8; the default is float32"),
    **dict.fromkeys(("--threads", "--cpu-threads", "--inter-threads", "--intra-threads"), THREADS_ADVICE),
    "--char-limit": "only `capsule-mt serve` limits characters, by `--max-characters N`",
    "--device": "the engine runs on the CPU; a GPU needs hf-capsule-mt and `--backend transformers`",
}


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__, usage="%(prog)s MODEL ... [FILE | TEXT] [options]")
    parser.advice = OTHER_PROGRAMS_ADVICE
    add_model(parser, nargs="+")
    add_file_options(parser.add_argument_group("files"))
    add_text_options(parser.add_argument_group("text"))
    add_search_options(parser.add_argument_group("search"))
    add_coverage_options(parser.add_argument_group("coverage"))
    arguments = parser.parse_intermixed_args()  # options may stand between the model and the file
    take_input(arguments, parser)
    check_arguments(arguments, parser)
    return arguments


def add_file_options(files: "argparse._ArgumentGroup") -> None:
    files.add_argument(
        "--input",
        type=file_path,
        help="the file, also as .gz, or - for stdin; it may also stand after the model (default: stdin)",
    )
    files.add_argument("--output", type=file_path, help="where the translations go (default: stdout)")
    add_files(files)
    files.add_argument("--restart", action="store_true", help="discard the unfinished output of an interrupted run")
    files.add_argument("-q", "--quiet", action="store_true", help="print only errors, without progress and warnings")
    files.add_argument("--strict", action="store_true", help="stop at the first line that cannot be translated")
    files.add_argument(
        "--n-best",
        type=positive,
        default=1,
        metavar="N",
        help="write the N best translations of each line, as number ||| text ||| score",
    )
    files.add_argument(
        "--alignments",
        type=file_path,
        metavar="FILE",
        help="write word alignments such as 0-0 1-2: numbers of words, split at spaces, in the text and its "
        "translation",
    )


def add_text_options(text: "argparse._ArgumentGroup") -> None:
    add_languages(text)
    text.add_argument(
        "--explain",
        action="store_true",
        help="print to stderr what was changed in each line before the model read it, by which rule of docs/rules.md",
    )
    text.add_argument("--no-split", action="store_true", help="translate each line as one sentence")
    text.add_argument(
        "--no-copy", action="store_true", help="also translate what is not a sentence: emoji, URLs, numbers, code"
    )
    text.add_argument(
        "--copy-foreign",
        action="store_true",
        help="copy lines in another language than the source language; needs the extra `auto`",
    )
    text.add_argument(
        "--glossary",
        type=file_path,
        metavar="FILE",
        help="a file with TERM<tab>TRANSLATION on each line; a TERM alone stays untranslated, a final * matches any "
        "ending",
    )
    text.add_argument(
        "--keep",
        type=kinds_to_keep,
        default=[],
        metavar="KINDS",
        help="copy these kinds unchanged, separated by commas: tags,urls,placeholders,numbers",
    )


def add_search_options(search: "argparse._ArgumentGroup") -> None:
    add_search(search)
    search.add_argument("--batch-tokens", type=positive, default=2048, help="source tokens in a batch")
    search.add_argument("--window", type=positive, default=WINDOW, help="lines read at once and sorted by length")


def add_coverage_options(coverage: "argparse._ArgumentGroup") -> None:
    coverage.add_argument(
        "--coverage",
        type=file_path,
        metavar="FILE",
        help="write a report: .tsv has a row for each line, .html has the lines to check, with marks, and .jsonl has "
        "every word",
    )
    coverage.add_argument(
        "--coverage-method",
        choices=METHODS,
        default="auto",
        help="attention: by the attention head that `capsule-mt calibrate` chose; verified: the same, checked by a "
        "reverse model; deletion: for any model, one pass for each word; auto: the first available of verified, "
        "attention, deletion",
    )
    coverage.add_argument(
        "--marks",
        choices=MARKS,
        help="how certain a mark must be, with the method verified (default: likely); the cards of the released "
        "models give the precision of each",
    )
    coverage.add_argument(
        "--support", action="store_true", help="also mark words of the translation that were made up"
    )
    coverage.add_argument(
        "--coverage-threshold",
        type=float,
        help="warn of sentences with lower coverage; 0 never warns (default: the alarm of the calibration)",
    )
    coverage.add_argument(
        "--coverage-retry",
        type=at_least(2),
        metavar="BEAMS",
        help="translate sentences with lower coverage again, with this many beams; and with as many instead of 4, "
        "those with certain faults, such as a changed number or bracket",
    )
    coverage.add_argument(
        "--coverage-weight",
        type=float,
        help="rank the hypotheses of beam search by completeness, too, with this weight",
    )


def check_arguments(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse options that do not fit each other."""
    if arguments.output is not None and arguments.output.suffix == ".gz":
        parser.error(f"--output writes plain text, got {arguments.output}: name it without .gz")
    is_binary = arguments.format in INDEX and INDEX[arguments.format].is_binary
    if arguments.output is None and is_binary and sys.stdout.isatty():
        parser.error(f"a terminal cannot show {arguments.format}: name a file with --output")
    if arguments.n_best > (arguments.num_beams or 1):
        parser.error(f"--n-best {arguments.n_best} needs --num-beams of at least as many")
    if arguments.coverage is not None and arguments.coverage.suffix not in REPORT_SUFFIXES:
        parser.error(f"--coverage writes {', '.join(REPORT_SUFFIXES)}, got {arguments.coverage}")
    threshold = arguments.coverage_threshold
    if threshold is not None and not 0 <= threshold <= 1:
        parser.error(f"--coverage-threshold takes a score from 0 to 1, got {threshold}")
    if arguments.support and arguments.coverage is None:
        parser.error("--support marks words in the file of --coverage: name a file with --coverage")
    if arguments.reverse is not None and not covers(arguments):
        parser.error("--reverse verifies the marks of --coverage: name a file with --coverage")
    if arguments.marks is not None and not covers(arguments):
        parser.error("--marks chooses among the marks of --coverage: name a file with --coverage")
    if arguments.coverage_method != "auto" and not covers(arguments):
        parser.error("--coverage-method marks words in the file of --coverage: name a file with --coverage")


def covers(arguments: argparse.Namespace) -> bool:
    """Return whether any option needs coverage."""
    names = ("coverage", "coverage_threshold", "coverage_weight", "coverage_retry")
    return any(getattr(arguments, name) for name in names)


def kinds_to_keep(text: str) -> list[str]:
    kinds = text.split(",")
    if not set(kinds) <= set(KEEP_KINDS):
        raise argparse.ArgumentTypeError(f"takes some of {','.join(KEEP_KINDS)}, separated by commas, got {text!r}")
    return kinds


class Share(NamedTuple):
    """The share of the windows that this process translates. Processes do not talk to each other."""

    rank: int
    num_processes: int

    @classmethod
    def from_environment(cls) -> "Share":
        rank, world_size = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        share = cls(*(int(text) if text.isdecimal() else -1 for text in (rank, world_size)))
        if not 0 <= share.rank < share.num_processes:
            raise ValueError(f"RANK must be in 0 ... WORLD_SIZE - 1, got RANK={rank} and WORLD_SIZE={world_size}")
        return share


def options_of(arguments: argparse.Namespace) -> TranslationOptions:
    names = [option.name for option in offered("flag")]
    search = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if arguments.n_best > 1:
        search["num_return_sequences"] = arguments.n_best
    coverage = None
    if covers(arguments):
        from capsule_mt.coverage.options import CoverageOptions  # late, as everything that a pipe does not need

        coverage = CoverageOptions(
            arguments.coverage_threshold,
            arguments.coverage_retry,
            arguments.coverage_weight,
            arguments.coverage_method,
            arguments.marks,
            arguments.support,
        )
    return TranslationOptions(
        batch_tokens=arguments.batch_tokens,
        coverage=coverage,
        scores=arguments.n_best > 1,
        split_sentences=not arguments.no_split,
        src_lang=arguments.src_lang or (language_of(arguments, "source") if arguments.copy_foreign else None),
        tgt_lang=arguments.tgt_lang,
        copy=not arguments.no_copy,
        copy_foreign=arguments.copy_foreign,
        keep=arguments.keep,
        alignment=arguments.alignments is not None,
        generate_kwargs=search,
    ).checked()


def records_of(translations: list[Any]) -> list[dict[str, Any]]:
    """Return the translations of a line as the records that `OutputFormat` reads."""
    records = []
    for translation in translations:
        record: dict[str, Any] = {"translation_text": translation.text}
        if translation.score is not None:
            record["score"] = translation.score
        if translation.alignment is not None:
            record["alignment"] = translation.alignment
        records.append(record | facts_of(translation))
    return records


def explain(line: str, translation: Any) -> None:
    """Print what was changed in a line, the rule, what the model read instead, and what the translation copies."""
    for edit in translation.edits:
        read = "it was not read" if edit.model in (None, "") else f"the model read {edit.model!r}"
        copied = "" if edit.back is None else f"; the translation has {edit.back!r}"
        print(f"{edit.row}: {line[edit.start : edit.end]!r}: {read}{copied}", file=sys.stderr)


def foreign_language_detector(arguments: argparse.Namespace) -> Callable[[str], str | None] | None:
    """Return a function that names the language of a text that is not in the source language.

    `None` for lines that go to stdout, without py3langid, and for an unknown source language. py3langid is loaded for
    the first text of several words, since that takes time.
    """
    if arguments.output is None and arguments.format == LINES:
        return None
    language = arguments.src_lang or language_of(arguments, "source")
    if language is None:
        return None
    from capsule_mt.text.detecting import Detector  # late: pipes do not need it

    try:
        detector = Detector()
    except ModuleNotFoundError:  # the extra `auto` is not installed
        return None
    return lambda text: detector.other_language(text, language)


def note_foreign(
    texts: list[str], records: list[list[dict[str, Any]]], other_language: Callable[[str], str | None]
) -> None:
    """Add the language of texts that are not in the source language to their records, and warn of them."""
    num_foreign = 0
    for text, records_of_text in zip(texts, records, strict=True):
        language = other_language(text)
        if language is not None:
            num_foreign += 1
            for record in records_of_text:
                record["language"] = language
    template = "Probably not in the source language: {}. The report of --coverage names the language."
    warn_of_share(template, num_foreign, len(texts), "texts")


def noting(parsed: Parsed | None) -> Callable[[int, list[dict[str, Any]]], None]:
    """Return a function that notes in the records of a unit what became of its placeholders; lines have none."""

    def note(index: int, records: list[dict[str, Any]]) -> None:
        if parsed is not None:
            for record in records:
                record.update(parsed.units[index].facts(record["translation_text"]))

    return note


def input_windows(arguments: argparse.Namespace, parsed: Parsed | None) -> Iterator[Window]:
    if parsed is not None:
        yield from windows_of((unit.text for unit in parsed.units), arguments.window)
        return
    if arguments.text is not None:
        yield from windows_of(iter(arguments.text.split("\n")), arguments.window)
        return
    live = live_input(arguments)
    if live is not None:
        yield from windows_of(decode_lines(live, "stdin"), arguments.window, live.has_line)
        return
    stream = sys.stdin.buffer if arguments.input is None else open_text(arguments.input)
    with stream:
        yield from windows_of(decode_lines(stream, input_name(arguments), arguments.encoding), arguments.window)


def live_input(arguments: argparse.Namespace) -> LiveLines | None:
    """Return stdin as lines that are translated as they arrive.

    `None` if the input or the output is a file, for a stated encoding, without a descriptor, and on Windows, which
    does not have `select` for pipes.
    """
    if arguments.input is not None or arguments.output is not None or arguments.encoding is not None:
        return None
    try:
        return LiveLines(sys.stdin.buffer.fileno()) if os.name == "posix" else None
    except (AttributeError, ValueError, OSError):  # closed, or replaced by an object without a descriptor
        return None


def count_lines(path: "Path | None") -> int | None:
    """Return the number of lines of a file, for the progress line; `None` if counting is slow or consumes them."""
    if path is None or is_stream(path) or path.suffix == ".gz":
        return None
    with open(path, "rb") as stream:
        return sum(1 for _ in stream)


def _is_typed() -> bool:
    """Return whether the input is typed into a terminal, where a progress line would get between the texts."""
    return sys.stdin is not None and sys.stdin.buffer.isatty()


def output_paths(arguments: argparse.Namespace) -> "list[Path]":
    return [path for path in (arguments.output, arguments.coverage, arguments.alignments) if path is not None]


def check_files(arguments: argparse.Namespace, share: Share) -> None:
    """Raise an error for files that cannot be read or written."""
    check_outputs([arguments.output, arguments.coverage, arguments.alignments], [arguments.input])
    if share.num_processes > 1:
        for option, path in (("--input", arguments.input), ("--output", arguments.output)):
            if path is None or is_stream(path):
                raise ValueError(f"{share.num_processes} processes need a regular file for {option}, got {path}")
        if arguments.restart:
            raise ValueError(
                f"--restart goes with one process, not with {share.num_processes}: remove {arguments.output}.parts "
                "and start all of them without it"
            )
    if arguments.input is not None and not is_stream(arguments.input):
        with open_text(arguments.input) as stream:
            if arguments.format == LINES:  # a file that is not text is refused before a model is loaded
                next(decode_lines(stream, arguments.input, arguments.encoding), None)


def join_parts(output: WindowedOutput, share: Share, **conversions: Any) -> dict[int, str]:
    """Join the parts if all are there; return why lines failed, by their index.

    conversions: the keyword arguments of `WindowedOutput.finish`.

    If windows of other processes are missing, say so on stderr: the last process joins the parts.
    """
    from capsule_mt.files.lock import lock_output

    with contextlib.ExitStack() as stack:
        total = len(output.stems)
        if share.num_processes > 1 and output.count_done() == total:
            for path in output.outputs:
                if share.rank > 0 and not is_stream(path):  # process 0 holds the locks from the start
                    stack.enter_context(lock_output(path, wait=True))
        if share.num_processes == 1 or output.count_done() == total:
            return output.finish(**conversions)
    state = "joined by another process"
    if output.folder.exists():
        state = f"{output.count_done()} of {total} windows are there, the last process joins them"
    print(f"{output.outputs[0]}, process {share.rank} of {share.num_processes}: {state}", file=sys.stderr)
    return {}


def settings_of(
    translator: Any, arguments: argparse.Namespace, options: TranslationOptions, output_format: OutputFormat
) -> dict[str, Any]:
    """Return everything but the text that the output depends on: a run resumes only if all of it is equal."""
    from capsule_mt.files.digests import file_digest

    digests = digests_of(arguments.model, arguments, translator, has_coverage=options.coverage is not None)
    if arguments.glossary is not None:
        digests["glossary"] = file_digest(arguments.glossary)
    names = (
        *("dtype", "int8", "backend", "window", "batch_tokens", "no_split", "no_copy", "copy_foreign", "keep"),
        *("format", "column", "flag_all", "encoding", "src_lang", "tgt_lang"),
    )
    return {
        "version": __version__,
        **options.generate_kwargs,
        **digests,
        **{name: getattr(arguments, name) for name in names},
        "coverage_options": None if options.coverage is None else vars(options.coverage),
        **{name: getattr(output_format, name) for name in ("n_best", "coverage", "alignments")},
    }


def load(arguments: argparse.Namespace) -> Any:
    """Load the glossary and then the translator: a fault in the glossary shows before the model takes time to load."""
    glossary = None
    if arguments.glossary is not None:
        from capsule_mt.text.glossary import Glossary

        glossary = Glossary.from_file(arguments.glossary)
    translator = load_translator(arguments.model, vars(arguments))
    if glossary is not None:
        from capsule_mt.translate.pivot import single_model

        single_model(translator, "`glossary`").glossary = glossary
    return translator


def line_translator(
    translator: Any, arguments: argparse.Namespace, options: TranslationOptions
) -> Callable[[list[str]], list[list[dict[str, Any]]]]:
    """Return a function from lines to the records of each."""
    other_language = foreign_language_detector(arguments)
    # refuses languages that the model does not have, and `support` that it cannot have, before any output is begun
    finds_support = options.coverage is not None and options.coverage.support
    languages = TranslationOptions(src_lang=options.src_lang, tgt_lang=options.tgt_lang)
    translator.plan(options if finds_support else languages)

    def translate(lines: list[str]) -> list[list[dict[str, Any]]]:
        results = translator.translate(lines, options)
        records = [records_of(translations) for translations in results]
        for line, translations in zip(lines, results if arguments.explain else (), strict=False):
            explain(line, translations[0])
        if other_language is not None:
            note_foreign(lines, records, other_language)
        return records

    return translate


def write_translations(
    arguments: argparse.Namespace,
    parsed: Parsed | None,
    lines: RowMaker,
    output: WindowedOutput | None,
    share: Share,
) -> None:
    """Translate the input window by window.

    output: the files of a run that can be resumed; `None` to write to streams.
    """

    def convert(units: bytes) -> bytes:
        """Return the file whose units `OutputFormat` wrote as JSON."""
        assert parsed is not None
        checked = checked_units(units)
        if not arguments.quiet:
            report(parsed, checked, arguments.coverage)
        return parsed.write([Translated(unit.text, bool(unit.messages)) for unit in checked])

    frames = report_frames(arguments, "lines" if parsed is None else "passages")
    with contextlib.ExitStack() as stack:
        streams: list[BinaryIO] = [] if arguments.output else [sys.stdout.buffer]
        streams += [] if output else [stack.enter_context(open_output(path)) for path in output_paths(arguments)]
        units = io.BytesIO()
        # a structured file is written at the end, from its units; a report's header, too, so its rows are held back
        columns: list[Any] = streams if parsed is None else [units, *streams[1:]]
        held_back = {} if output else {index: stack.enter_context(holding_back(streams[index])) for index in frames}
        columns = [held_back[index].rows if index in held_back else column for index, column in enumerate(columns)]
        total = count_lines(arguments.input) if parsed is None else len(parsed.units)
        is_hidden = share.rank > 0 or arguments.quiet or (arguments.input is None and _is_typed())
        is_shown = False if is_hidden else None  # None: if stderr is a terminal
        progress = stack.enter_context(Progress(total, "lines" if parsed is None else "texts", is_shown))
        write_windows(input_windows(arguments, parsed), lines, output, columns, progress=progress, share=share)
        if output is not None:
            failures = join_parts(output, share, convert=None if parsed is None else convert, frames=frames)
            lines.report(failures)
            if output.totals is not None and parsed is None and arguments.coverage is not None and not arguments.quiet:
                report_count(output.totals.flagged, output.totals.lines, "lines", arguments.coverage)
            lines.failures = failures  # a process that does not join exits with 0: torchrun would end the others
        elif parsed is not None:
            streams[0].write(convert(units.getvalue()))
        for index, report_stream in held_back.items():
            report_stream.release(frames[index], Totals(progress.count, lines.flagged, len(lines.failures)))


def report_frames(arguments: argparse.Namespace, unit: str) -> dict[int, ReportFrame]:
    """Return the frame of the report, if it has one, by its index among the outputs."""
    if arguments.coverage is None:
        return {}
    from capsule_mt.commands.reports import report_frame  # late: a pipe does not need it

    reverse = [] if arguments.reverse is None else [f"reverse {arguments.reverse}"]
    names = [f"capsule-mt {__version__}", input_name(arguments), f"model {' '.join(arguments.model)}", *reverse]
    frame = report_frame(arguments.coverage.suffix[1:], names, unit)
    return {} if frame is None else {1: frame}  # as `output_paths` orders them


def needs_check(text: str, records: list[dict[str, Any]]) -> bool:
    """Return whether a person should check the best translation of a text."""
    from capsule_mt.coverage.problems import problems_in

    return bool(problems_in(text, records[0]["translation_text"], records[0]))


def main() -> int:
    arguments = parse_arguments()
    if arguments.quiet:
        silence()
    share = Share.from_environment()
    check_files(arguments, share)
    options = options_of(arguments)
    parsed = read_file(arguments)
    if parsed is not None:
        options = options._replace(keep=[kind for kind in KEEP_KINDS if kind in (*options.keep, *parsed.keep)])
    paths = output_paths(arguments)
    resumes = arguments.output is not None and not is_stream(arguments.output)
    with contextlib.ExitStack() as stack:
        if resumes:
            stack.enter_context(resumable())
        for path in paths:
            if share.rank == 0 and not is_stream(path):
                from capsule_mt.files.lock import lock_output

                stack.enter_context(lock_output(path))
        translator = load(arguments)
        translate = line_translator(translator, arguments, options)
        coverage_format = arguments.coverage.suffix[1:] if arguments.coverage else None
        labels = None if parsed is None else [unit.location for unit in parsed.units]
        output_format = OutputFormat(arguments.n_best, coverage_format, arguments.alignments is not None, labels)
        prefix = f"{input_name(arguments)}{', line' if labels is None else ','}"
        lines = RowMaker(
            translate,
            output_format.columns,
            prefix,
            **({} if arguments.coverage is None else {"needs_check": needs_check}),
            strict=arguments.strict,
            labels=labels,
            note=noting(parsed),
        )
        output = None
        if resumes:
            settings = settings_of(translator, arguments, options, output_format)
            output = WindowedOutput(paths, settings, arguments.restart, is_main=share.rank == 0)
        with adding_up_shares():
            write_translations(arguments, parsed, lines, output, share)
    if lines.failures:
        units, written = ("lines", "an empty line") if parsed is None else ("texts", "the text of the source")
        failed = with_unit(len(lines.failures), units)
        print(f"{failed} could not be translated: the output has {written} for each", file=sys.stderr)
    return FAILED_LINES_STATUS if lines.failures else 0

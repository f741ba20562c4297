"""Score translations from elsewhere, such as another system's: how probable they are, and what they leave out.

    capsule-mt score MODEL --sources test.en --translations test.de --output scores.tsv
    capsule-mt score MODEL --sources test.en --translations test.de --coverage --output scores.jsonl
    paste test.en test.de | capsule-mt score MODEL > scores.tsv
    capsule-mt score --judge --sources test.en --translations test.de --src-lang en --tgt-lang de --output check.html

The line of a pair has its number, from 1, the mean log-probability of the translation's tokens, if it has any, and the
number of these tokens, including the end token. --coverage adds the coverage. --judge adds what a multilingual encoder
and rules say, without MODEL these alone: no score and no tokens. With either option, the line also tells what to
check, and has both texts. An .html has only the pairs to check, the most certain first, with marks,
and a .jsonl has every word.

Each text is read as one sentence, without its tags. With --output, the same command resumes an interrupted run. A pair
that cannot be scored or judged goes without; stderr and an output that tells what to check give the reason, and the
exit code is 3.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capsule_mt import __version__
from capsule_mt.commands.console import CommandParser, add_languages, positive, resumable
from capsule_mt.commands.files import REPORT_SUFFIXES
from capsule_mt.commands.loading import add_model, digests_of, folders_of, load_translator
from capsule_mt.commands.reports import ReportRow, finite, report_frame, report_lines
from capsule_mt.commands.translate import count_lines
from capsule_mt.coverage.names import METHODS
from capsule_mt.coverage.options import CoverageOptions
from capsule_mt.coverage.problems import problems_in
from capsule_mt.files.line_failures import FAILED_LINES_STATUS, PROBE, Failure, describe
from capsule_mt.files.lines import RowMaker, coverage_record, judgement_record
from capsule_mt.files.lock import lock_output
from capsule_mt.files.outputs import check_outputs, is_stream, open_output
from capsule_mt.files.progress import Progress, write_line
from capsule_mt.files.reading import decode_lines, iterate_lines, open_text
from capsule_mt.files.windows import ReportFrame, Totals, WindowedOutput, holding_back, windows_of, write_windows
from capsule_mt.formats.registry import format_of
from capsule_mt.messages import with_unit

if TYPE_CHECKING:  # late, for `--help`
    from capsule_mt.coverage.judgement import Judgement
    from capsule_mt.judge.judge import Judge
    from capsule_mt.translate.scorer import Scorer

WINDOW = 2048
DEFAULT_ENCODER = "intfloat/multilingual-e5-small"  # as `capsule_mt.judge.judge` has it, which `--help` does not load
COLUMN = "\t"
Pair = tuple[str, str]


def parse_arguments() -> argparse.Namespace:
    parser = CommandParser(description=__doc__)
    add_model(parser, nargs="?")
    parser.add_argument(
        "--sources", type=Path, help="the sources, one a line, also as .gz (default: pairs from stdin)"
    )
    parser.add_argument("--translations", type=Path, help="their translations, one a line")
    parser.add_argument(
        "--output", type=Path, help="where the scores go, as .tsv, .html or .jsonl (default: stdout, as TSV)"
    )
    parser.add_argument("--restart", action="store_true", help="discard the unfinished output of an interrupted run")
    parser.add_argument("--strict", action="store_true", help="stop at the first pair that cannot be scored")
    parser.add_argument(
        "--coverage",
        nargs="?",
        const="auto",
        choices=METHODS,
        help="also check coverage: attention uses the attention head that `capsule-mt calibrate` chose, deletion "
        "works with any model; without a value, auto, the first method that the model supports, which marks words "
        "only in sentences that raise the alarm; with a reverse model, also words that were made up; a named method "
        "marks all words that seem to be left out",
    )
    parser.add_argument(
        "--judge",
        nargs="?",
        const=DEFAULT_ENCODER,
        metavar="NAME",
        help=f"also judge by an encoder and by rules, any system's translations: words that were left out or made up, "
        f"and other reasons to check a pair; NAME is a folder with a copy of {DEFAULT_ENCODER} (default: that itself, "
        "downloaded once)",
    )
    parser.advice = {"--adequacy": "it was removed: `--judge` finds what is left out, made up or of another text"}
    add_languages(parser)
    parser.add_argument("--batch-tokens", type=positive, default=1024, help="tokens in a batch, including padding")
    parser.add_argument("--window", type=positive, default=WINDOW, help="pairs read at once and sorted by length")
    arguments = parser.parse_args()
    if arguments.model is None and arguments.judge is None:
        parser.error("name a MODEL, or add --judge to check pairs without one")
    if arguments.model is None and arguments.coverage:
        parser.error("--coverage needs a MODEL: name one")
    if (arguments.sources is None) != (arguments.translations is None):
        parser.error("pairs come from --sources and --translations, or else from stdin")
    for path in (arguments.sources, arguments.translations):
        if (format := format_of(path)) is not None:
            parser.error(
                f"{path}: has the format {format}, but pairs are lines of text; `capsule-mt translate --coverage` "
                "checks what it translates in such a file"
            )
    is_file = arguments.output is not None and not is_stream(arguments.output)
    if is_file and arguments.output.suffix not in REPORT_SUFFIXES:
        parser.error(f"--output writes {', '.join(REPORT_SUFFIXES)}, got {arguments.output}")
    if is_file and arguments.output.suffix == ".html" and not has_checks(arguments):
        parser.error(f"{arguments.output} lists the pairs to check, which needs --coverage or --judge: add one")
    return arguments


def read_pairs(arguments: argparse.Namespace) -> Iterator[Pair]:
    """Yield the pairs; a `ValueError` names the file and the line that is not a pair."""
    if arguments.sources is not None:
        sides = (arguments.sources, arguments.translations)
        for source, translation in zip_longest(*map(iterate_lines, sides)):
            if source is None or translation is None:
                short, long = sides if source is None else sides[::-1]
                num_lines = sum(1 for _ in iterate_lines(short))
                raise ValueError(f"{short}: has {with_unit(num_lines, 'lines')}, but {long} has more")
            yield source, translation
        return
    for line_number, line in enumerate(decode_lines(sys.stdin.buffer, "stdin"), start=1):
        columns = line.split(COLUMN)
        if len(columns) != 2:
            raise ValueError(f"stdin, line {line_number}: {len(columns)} columns, but SOURCE<tab>TRANSLATION has 2")
        yield columns[0], columns[1]


def record_of(translation: Any) -> dict[str, Any]:
    """Return the scores of a translation, and what was found in it."""
    record: dict[str, Any] = {
        "score": translation.score,
        "tokens": sum(len(segment.target_ids) - 1 for segment in translation.segments),
        "cut": translation.was_cut,
    }
    if translation.coverage is not None:
        record["coverage"] = coverage_record(translation.coverage)
    return record | judged_record(translation.judgement)


def judged_record(judgement: "Judgement | None") -> dict[str, Any]:
    """Return what a judge says; empty without a judge, and for a blank text."""
    return {} if judgement is None else {"judgement": judgement_record(judgement)}


def column_names(arguments: argparse.Namespace) -> list[str]:
    """Return the names of the columns that a .tsv has for a model."""
    names = [] if arguments.model is None else ["score", "tokens"]
    return [*names, "coverage"] if arguments.coverage else names


def tsv_columns(record: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the cells of columns, empty for what a record lacks."""
    cells = {"score": finite(record.get("score")), "tokens": str(record.get("tokens", ""))}
    cells["coverage"] = finite(record["coverage"]["score"]) if "coverage" in record else ""
    return [cells[name] for name in names]


def frame_of(arguments: argparse.Namespace, form: str) -> ReportFrame | None:
    """Return the frame of the report; `None` for a .jsonl, and for stdout, where rows are written at once."""
    if arguments.output is None:
        return None
    names = [f"capsule-mt {__version__}", str(arguments.translations or "stdin")]
    names += [f"{kind} {name}" for kind in ("model", "judge") if (name := getattr(arguments, kind)) is not None]
    return report_frame(form, names, "pairs", column_names(arguments))


def form_of(arguments: argparse.Namespace) -> str:
    """Return the form of the report: the extension of the output file, or "tsv"."""
    if arguments.output is not None and arguments.output.suffix in REPORT_SUFFIXES:
        return arguments.output.suffix[1:]
    return "tsv"


def has_checks(arguments: argparse.Namespace) -> bool:
    """Return whether the report says which translations to check."""
    return arguments.coverage is not None or arguments.judge is not None


def row_maker(translator: "Scorer | None", judge: "Judge | None", arguments: argparse.Namespace) -> RowMaker:
    """Return what scores pairs, by a model or a judge or both, and writes a row for each."""
    coverage = None
    if arguments.coverage is not None and translator is not None:
        finds_inventions = arguments.coverage in ("auto", "verified") and translator.gives_support
        coverage = CoverageOptions(method=arguments.coverage, support=finds_inventions)
    settings = {name: getattr(arguments, name) for name in ("batch_tokens", "src_lang", "tgt_lang")}
    form, names = form_of(arguments), column_names(arguments)

    def score(pairs: list[Pair]) -> list[dict[str, Any] | Failure]:
        sources, translations = zip(*pairs, strict=True)
        if translator is None:
            assert judge is not None  # or else the command needs a model
            languages = {"src_lang": arguments.src_lang, "tgt_lang": arguments.tgt_lang}
            return [judged_record(judgement) for judgement in judge.score(sources, translations, **languages)]
        try:
            scored = translator.score(sources, translations, coverage=coverage, judge=judge, **settings)
        except ValueError as error:
            if judge is None or len(pairs) > 1:
                raise  # with more than one pair, until those that fail are found
            # if it is the model that fails, it does so again
            [translation] = translator.score(sources, translations, coverage=coverage, **settings)
            return [Failure(describe(error), record_of(translation))]
        return list(map(record_of, scored))

    def columns(pair_index: int, pair: Pair, record: dict[str, Any] | Failure) -> list[list[str]]:
        values = record.record if isinstance(record, Failure) else record
        row = ReportRow(pair_index + 1, *pair, record, tsv_columns(values, names), values)
        if form == "tsv" and not has_checks(arguments):
            return [["\t".join([str(row.label), *row.columns])]]
        return [report_lines(form, row)]

    def needs_check(pair: Pair, record: dict[str, Any]) -> bool:
        return bool(problems_in(*pair, record))

    return RowMaker(score, columns, "pair", needs_check, arguments.strict, (PROBE, PROBE))


def resumable_output(translator: "Scorer | None", arguments: argparse.Namespace) -> WindowedOutput:
    """Return the output file, which a second run with the same settings goes on with."""
    names = (
        *("coverage", "judge", "batch_tokens", "window"),
        *("int8", "backend", "dtype", "src_lang", "tgt_lang"),
    )
    from capsule_mt.files.digests import checkpoint_digests  # late: only a run that resumes needs it

    settings = {"version": __version__, **{name: getattr(arguments, name) for name in names}}
    models = [] if arguments.model is None else [arguments.model]
    settings |= digests_of(
        models, arguments, translator, has_coverage=translator is not None and has_checks(arguments)
    )
    if arguments.judge is not None:
        settings["judge"] = [checkpoint_digests(folder) for folder in folders_of(arguments.judge)]
    return WindowedOutput([arguments.output], settings, arguments.restart)


def main() -> int:
    arguments = parse_arguments()
    check_outputs([arguments.output], [arguments.sources, arguments.translations])
    for path in (arguments.sources, arguments.translations):
        if path is not None and not is_stream(path):
            open_text(path).close()
    resumes = arguments.output is not None and not is_stream(arguments.output)
    with contextlib.ExitStack() as stack:
        if resumes:
            stack.enter_context(resumable())
            stack.enter_context(lock_output(arguments.output))
        from capsule_mt.translate.pivot import single_model  # late, for `--help`

        translator, judge = None, None
        if arguments.model is not None:
            translator = single_model(load_translator(arguments.model, vars(arguments)), "a given translation")
        if arguments.judge is not None:
            from capsule_mt.judge.judge import Judge  # late, for `--help`

            judge = Judge.from_pretrained(arguments.judge)
        lines, form = row_maker(translator, judge, arguments), form_of(arguments)
        frame = frame_of(arguments, form) if has_checks(arguments) or form == "html" else None
        output, stream = None, sys.stdout.buffer
        if resumes:
            output = resumable_output(translator, arguments)
        elif arguments.output is not None:
            stream = stack.enter_context(open_output(arguments.output))
        held_back = stack.enter_context(holding_back(stream)) if frame is not None and output is None else None
        progress = stack.enter_context(Progress(count_lines(arguments.sources), "pairs"))
        windows = windows_of(read_pairs(arguments), arguments.window)
        write_windows(windows, lines, output, [stream if held_back is None else held_back.rows], progress=progress)
        if not progress.count:
            raise ValueError(f"{arguments.sources or 'stdin'}: no pairs to score")
        if output is not None:
            lines.report(output.finish(frames=None if frame is None else {0: frame}))
            if output.totals is not None:
                counts = f", {output.totals.flagged} to check" if has_checks(arguments) else ""
                write_line(f"{with_unit(output.totals.lines, 'pairs')}{counts}: see {arguments.output}")
        elif held_back is not None and frame is not None:
            held_back.release(frame, Totals(progress.count, lines.flagged, len(lines.failures)))
    if lines.failures:
        failed = with_unit(len(lines.failures), "pairs")
        print(f"{failed} could not be scored or judged: the output lacks what failed", file=sys.stderr)
    return FAILED_LINES_STATUS if lines.failures else 0

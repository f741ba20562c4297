"""The tries of the campaign: disturb a command, run it again, and compare with an undisturbed run byte for byte."""

import itertools
import json
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from capsule_mt.commands.console import CODE_OF_SIGINT
from hf_capsule_mt.data import sentence_pairs
from lab.campaign_processes import LONGEST, Command, Content, check_refusal, contents, run, timed

RECIPE = yaml.safe_load("""
languages: {source: en, target: de}
data: {train: {embedded: 80}, validation: {embedded: 6}, test: {embedded: 5}}
tokenizer: {vocab_size: 500}
model:
  model_type: capsule_marian
  d_model: 16
  encoder_layers: 2
  decoder_layers: 2
  encoder_attention_heads: 2
  decoder_attention_heads: 2
  encoder_ffn_dim: 16
  decoder_ffn_dim: 16
  max_position_embeddings: 200
  layer_aggregation: em_routing
  layer_aggregation_num_capsules: 4
  guided_routing: guided
  guided_capsule_dim: 8
training:
  max_steps: 24
  max_tokens_per_batch: 300
  learning_rate: 3.0e-3
  bpe_dropout: 0.1
  eval_strategy: steps
  eval_steps: 8
  save_strategy: steps
  save_steps: 4
  save_total_limit: 3
  average_last: 2
  use_cpu: true
  disable_tqdm: true
  report_to: none
generation: {num_beams: 2, max_new_tokens: 12}
""")
LINES = 60
LINES_FOR_MEMORY = (2_000, 20_000)
MOST_GROWTH = 16  # MiB; 1 KiB a line would be 18
PIECES = [
    *("\u0301" * 800, "\u200d" * 700, "\ufe0f" * 700, "\u200b", "\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"),
    *("\x00", "\x01\x02\x1b[31m", "\r", "\t\t", "\ufeff", "\ufffe", "\u202e", "\U000e0041", "\U0010ffff", "\ue000"),
    *("\U0001f469\u200d\U0001f469\u200d\U0001f467", "\u0e33" * 300, "\u1160" * 400, "<pad></s><unk>"),
    *("x" * 3000, "the " * 700, ". " * 400, "?!" * 300, "\u00ad" * 200, '"' * 99, "||| ||| |||", "\u0344\u0345 " * 90),
    *("▁" * 50, "%s{}\\"),
]


class Job(NamedTuple):
    """A command that resumes, where it leaves parts, and what an undisturbed run gives."""

    words: Callable[[Path], list[str]]
    parts: str
    results: tuple[str, ...]
    seconds: float
    expected: Content


class Bench:
    """The commands with their inputs, and undisturbed runs of them.

    Args:
        checkpoint: what translates and teaches; the model of the undisturbed training by default.

    Attributes:
        memory: the peak in MiB of each backend, by the number of lines.
    """

    def __init__(self, folder: Path, checkpoint: Path | None, progress: Callable[[str], None]) -> None:
        self.folder, self._numbers = folder, itertools.count()
        self.memory: dict[str, dict[str, int]] = {}
        self.text = [source for source, _ in itertools.islice(sentence_pairs(), LINES)]
        self.write("text", self.text)
        self.write("text.targets", [target for _, target in itertools.islice(sentence_pairs(), LINES)])
        (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
        self.checkpoint = checkpoint.resolve() if checkpoint else folder / "undisturbed-train"
        model = str(self.checkpoint)
        self.jobs: dict[str, Job] = {}
        progress("imports")
        timed(["recipes"], folder)  # the server's imports, which would count as the training's time
        for name, words, parts, results in (
            ("train", lambda output: ["train", "recipe.yaml", "--output_dir", str(output)],
             "checkpoint-*/complete.json", ("model.safetensors", "config.json", "tokenizer.json")),
            ("translate", lambda output: ["translate", model, "--input", "text", "--output", str(output / "out"),
                                          "--coverage", str(output / "coverage.jsonl"), "--window", "4", "--cpu"],
             "out.parts/*", ("out", "coverage.jsonl")),
            ("distill", lambda output: ["distill", "recipe.yaml", str(output), "--teacher", model, "--cpu",
                                        "--lines-per-part", "8", "--num-beams", "2", "--max-new-tokens", "12"],
             "*.parts/*", ("part-*.jsonl",)),
            ("score", lambda output: ["score", model, "--sources", "text", "--translations", "text.targets", "--cpu",
                                      "--output", str(output / "scores.jsonl"), "--coverage", "--window", "4"],
             "scores.jsonl.parts/*", ("scores.jsonl",)),
            ("calibrate", lambda output: ["calibrate", model, "text", "text.targets", "--output", str(output)],
             "nothing", ("config.json", "model.safetensors", "tokenizer.json")),
        ):  # fmt: skip
            progress(f"undisturbed {name}")
            output = folder / f"undisturbed-{name}"
            seconds = timed(words(output), folder)
            self.jobs[name] = Job(words, parts, results, seconds, contents(output, results))

    def new(self) -> Path:
        return self.folder / f"try-{next(self._numbers)}"

    def start(self, job: Job, output: Path, file_size: int | None = None) -> Command:
        return Command(job.words(output), self.folder, file_size)

    def write(self, name: str, lines: list[str]) -> Path:
        path = self.folder / name
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        return path


def finish(bench: Bench, job: Job, output: Path) -> str:
    """Run a disturbed command to its end, compare what it gives, and return what it printed."""
    code, message = bench.start(job, output).end()
    assert code == 0, f"the same command again ended with {code}: {message[-1000:]}"
    written = contents(output, job.results)
    different = sorted(
        name for name in written.keys() | job.expected.keys() if written.get(name) != job.expected.get(name)
    )
    assert not different, (
        f"{', '.join(different)}: not as an undisturbed run gives it; the last run said {message[-500:]}"
    )
    leftovers = [str(path.relative_to(output)) for path in output.rglob("*") if "partial" in path.name]
    assert not leftovers, f"left behind: {leftovers}"
    return message


def interrupt(bench: Bench, job: Job, output: Path, number: signal.Signals, seconds: float) -> bool:
    """Send a signal after some seconds; return whether the command was still running."""
    command = bench.start(job, output)
    command.wait(seconds)
    hit = command.send(number)
    code, message = command.end()
    lock_is_held = (output / ".lock").exists()
    if number == signal.SIGTERM and job.words(output)[0] == "train" and lock_is_held:
        assert code == 0, f"SIGTERM ended the training with {code}: {message[-1000:]}"
    if number == signal.SIGINT:
        assert code in (0, CODE_OF_SIGINT), f"exit code {code} after Ctrl-C: {message[-1000:]}"
        assert "Traceback" not in message, f"a traceback: {message[-1500:]}"
        if code == CODE_OF_SIGINT and lock_is_held:
            assert message.endswith("interrupted; the same command resumes\n"), f"no sentence: {message[-500:]}"
        return hit
    assert code in (0, -number), f"exit code {code} after {number.name}: {message[-1000:]}"
    return hit


def signalled(number: signal.Signals) -> Callable[[Bench, Job, random.Random], int]:
    def attempt(bench: Bench, job: Job, chance: random.Random) -> int:
        output = bench.new()
        hits = sum(
            interrupt(bench, job, output, number, chance.uniform(0, job.seconds)) for _ in range(chance.randint(1, 3))
        )
        finish(bench, job, output)
        return hits

    return attempt


def damaged(bench: Bench, job: Job, chance: random.Random) -> int:
    """Kill a command once it has saved something, and damage that."""
    output = bench.new()
    command = bench.start(job, output)
    started = time.monotonic()
    num_tries = chance.randint(2, 6)
    while (
        command.is_running and len(list(output.glob(job.parts))) < num_tries and time.monotonic() - started < LONGEST
    ):
        time.sleep(0.01)
    command.send(signal.SIGKILL)
    command.end()
    files = sorted(output.glob(job.parts))
    is_training = job.words(output)[0] == "train"
    if is_training and files:  # the last checkpoint
        last = max((file.parent for file in files), key=lambda folder: int(folder.name.rpartition("-")[2]))
        files = sorted(file for file in last.rglob("*") if file.is_file())
    files = [file for file in files if file.stat().st_size and file.name != "settings.json"]
    damage = damage_file(chance.choice(files), chance) if files else ""
    message = finish(bench, job, output)
    if is_training and damage:
        assert f"{last} is damaged" in message, f"{damage}, which is not named: {message[-1000:]}"
    return int(bool(files))


def without_space(bench: Bench, job: Job, chance: random.Random) -> int:
    """Let no file grow beyond a random size, then run again without that limit."""
    output = bench.new()
    largest = max(map(len, job.expected.values()))
    limit = int(2 ** chance.uniform(9, (largest * 3).bit_length()))
    code, message = bench.start(job, output, limit).end()
    if code != 0:
        try:
            check_refusal(code, message)
        except AssertionError as error:
            raise AssertionError(f"files of at most {limit} bytes: {error}") from None
    finish(bench, job, output)
    return int(code != 0)


def two_at_once(bench: Bench, job: Job, chance: random.Random) -> int:
    """Start a command twice: one works, the other is refused or comes later."""
    output = bench.new()
    first = bench.start(job, output)
    first.wait(chance.uniform(0, job.seconds))
    second = bench.start(job, output)
    ends = [first.end(), second.end()]
    refused = [(code, message) for code, message in ends if code != 0]
    assert len(refused) < 2, f"both failed: {ends}"
    for code, printed in refused:
        check_refusal(code, printed)
        assert "is being written by process" in printed, f"the holder is not named: {printed[-500:]}"
    finish(bench, job, output)
    return len(refused)


def damage_file(file: Path, chance: random.Random) -> str:
    """Empty, cut or change a file; return in words what was done."""
    content = file.read_bytes()
    kind = chance.choice(["emptied", "cut", "changed"])
    offset = chance.randrange(len(content))
    if kind == "changed":
        file.write_bytes(content[:offset] + bytes([content[offset] ^ chance.randint(1, 255)]) + content[offset + 1 :])
    else:
        file.write_bytes(content[: offset if kind == "cut" else 0])
    return f"{file.name} {kind} at byte {offset} of {len(content)}"


def hostile_lines(plain: list[str], chance: random.Random) -> tuple[list[str], list[int]]:
    """Return hostile lines between the plain ones, and the numbers of the plain ones."""
    lines: list[str] = []
    indices = []
    for text in plain:
        for _ in range(chance.randrange(3)):
            pieces = [chance.choice([chance.choice(PIECES), chance.choice(plain), _noise(chance)]) for _ in range(3)]
            lines.append("".join(pieces[: chance.randint(0, 3)]))
        indices.append(len(lines))
        lines.append(text)
    return lines, indices


def _noise(chance: random.Random) -> str:
    """Return some characters of one random block of Unicode, line feeds and surrogates apart."""
    first = chance.choice([0, 0x300, 0x600, 0xE00, 0x2000, 0x3000, 0xAC00, 0xFE00, 0x1F000, 0xE0000])
    characters = [chr(first + chance.randrange(256)) for _ in range(chance.randint(1, 40))]
    return "".join(characters).replace("\n", "")


def hostile_strings(bench: Bench, chance: random.Random) -> int:
    """Translate hostile lines between plain ones: none is lost, and the plain ones stay what and where they are."""
    plain = bench.text[: chance.randint(5, 20)]
    expected = bench.jobs["translate"].expected["out"].decode().split("\n")
    lines, indices = hostile_lines(plain, chance)
    output = bench.new()
    output.mkdir()
    name = bench.write(f"{output.name}.text", lines).name
    words = ["translate", str(bench.checkpoint), "--input", name, "--output", str(output / "out"), "--cpu"]
    code, message = run([*words, "--coverage", str(output / "out.jsonl"), "--window", "8"], bench.folder)
    assert code in (0, 3), f"exit code {code}: {message[-1000:]}"
    written = (output / "out").read_bytes().decode().split("\n")[:-1]
    assert len(written) == len(lines), f"{len(lines)} lines gave {len(written)}"
    for number, index in enumerate(indices):
        assert written[index] == expected[number], (
            f"line {index + 1}: {written[index]!r} instead of {expected[number]!r}"
        )
    records = [json.loads(row) for row in (output / "out.jsonl").read_bytes().decode().split("\n")[:-1]]
    assert [record["line"] for record in records] == list(range(len(lines))), "coverage lost lines or their order"
    failed = sum("error" in record for record in records)
    assert (failed > 0) == (code == 3), f"exit code {code}, but {failed} lines failed"
    return len(lines) - len(plain)


def flat_memory(bench: Bench, chance: random.Random) -> int:
    """Translate few lines and ten times as many: the peak of memory must not grow with them."""
    for backend in ("native", "transformers"):
        peaks = {}
        for number in LINES_FOR_MEMORY:
            output = bench.new()
            name = bench.write(f"{output.name}.text", chance.choices(bench.text, k=number)).name
            words = ["translate", str(bench.checkpoint), "--input", name, "--output", str(output), "--cpu"]
            command = Command([*words, "--backend", backend, "--window", "500", "--max-new-tokens", "4"], bench.folder)
            code, message = command.end(2 * LONGEST)
            assert code == 0, f"exit code {code}: {message[-1000:]}"
            written = output.read_bytes().count(b"\n")
            assert written == number, f"{number} lines gave {written}"
            peaks[number] = command.peak
        bench.memory[backend] = {f"{number:,}": round(peak) for number, peak in peaks.items()}
        small, large = peaks.values()
        assert large < small + MOST_GROWTH, (
            f"{backend}: {small:.0f} MiB for {LINES_FOR_MEMORY[0]} lines, then {large:.0f}"
        )
    return len(bench.memory) * len(LINES_FOR_MEMORY)

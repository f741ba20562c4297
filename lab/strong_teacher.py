"""CapsNMT distilled from a strong teacher, by a plan that was fixed before (strong_teacher.md): a demonstration.

    capsule-mt convert FOLDER outputs/student --to huggingface
    python -m lab.strong_teacher outputs/student --text train.en train.pt --test flores.en flores.pt

A run with a result is never trained again; one that was stopped goes on from its last checkpoint. With `--speed`, and
OMP_NUM_THREADS=1, the same command measures what is trained.
"""

import functools
import time
from collections.abc import Callable
from typing import Any

from capsule_mt.commands.console import run
from capsule_mt.models.shortlist import FILE_NAME
from hf_capsule_mt.commands.arguments import keep_freed_memory
from hf_capsule_mt.decoding.fast import FastTranslator
from hf_capsule_mt.evaluation.length_buckets import score_by_length
from hf_capsule_mt.evaluation.metrics import sacrebleu_metric
from hf_capsule_mt.evaluation.results import markdown_table
from hf_capsule_mt.evaluation.significance import confidence_interval
from hf_capsule_mt.loading import load_model
from hf_capsule_mt.training import Recipe
from lab.benchmark_tables import FIXED_LENGTH
from lab.lengths import measure_lengths
from lab.records import SPEEDS, Records
from lab.reproduce import DEVICE
from lab.strong_student import LANGUAGES, LOGGED, START, StrongStudent, parser_of_plan
from lab.student_engines import our_engine
from lab.timing import time_in_turns

FILE = "strong_teacher"  # of lab/results
SEED = 1
STEPS = 7200
_CAPSNMT = {"model_type": "capsnmt", "hidden_size": 256, "encoder_layers": 4, "decoder_layers": 3}
_MARIAN = {
    "model_type": "capsule_marian",
    "d_model": 256,
    "encoder_layers": 4,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 936,  # as many parameters as CapsNMT, to 1 %
    "decoder_ffn_dim": 936,
    "max_position_embeddings": 256,
    "activation_function": "relu",
    "scale_embedding": True,
    "decoder_self": "ssru",
}
# title, model, and learning rate: that of the Multi30k recipes for this kind of model, whose batches are as large
ARMS: dict[str, tuple[str, dict[str, Any], float]] = {
    "capsules": ("CapsNMT", {**_CAPSNMT, "num_capsules": 8, "num_iterations": 2}, 2e-3),
    "pooling": ("Pooling", {**_CAPSNMT, "aggregation": "pooling"}, 2e-3),
    "marian": ("Marian, as many parameters", _MARIAN, 1e-3),
}
TITLES = {START: "The teacher"} | {name: title for name, (title, *_) in ARMS.items()}
EDGES = (15, 25)  # source words of the buckets of the test text
LENGTHS = (10, 25, 50, 100, 200)  # source words whose time is measured
PRECISIONS = {"int8": True, "float32": False}
BATCHES = (1, 16)
REPEATS = 3
WORDS = ("hypothesis_words", "reference_words")  # of a bucket


class StrongTeacher(StrongStudent):
    """The runs of the plan, in one folder."""

    kind, file = "strong teacher", FILE

    def recipe(self, name: str, seed: int) -> Recipe:
        about, model, rate = ARMS[name]
        steps = self.arguments.steps
        return Recipe(
            about=about,
            output_dir=str(self.folder(name, seed)),
            seed=seed,
            languages=dict(zip(("source", "target"), LANGUAGES, strict=True)),
            data={"train": {"text": [str(file) for file in self.arguments.text]}, "max_length": 100},
            tokenizer={"vocab_size": 8000},
            model={**model, "dropout": 0.0, "label_smoothing": 0.0},
            training={
                "max_steps": steps,
                "max_tokens_per_batch": 2048,
                "learning_rate": rate,
                "lr_scheduler_type": "linear",
                "warmup_steps": min(400, steps),
                "adam_beta2": 0.98,
                "adam_epsilon": 1e-9,
                "bf16": True,
                "use_cpu": DEVICE == "cpu",  # else `bf16` is refused on a CPU
                "logging_steps": min(LOGGED, steps),
                "eval_strategy": "no",
                "save_strategy": "steps",
                "save_steps": min(600, steps),
                "save_total_limit": 1,
                "report_to": "none",
            },
            generation={"num_beams": 1},
        )

    def score(self, name: str, seed: int) -> tuple[list[str], dict[str, Any]]:
        translations, scored = super().score(name, seed)
        bleu, references = sacrebleu_metric("bleu"), [self.references]
        scored["bootstrap"] = dict(
            zip(("mean", "half_width"), confidence_interval(translations, references, bleu), strict=True)
        )
        buckets = score_by_length(self.sources, translations, references, edges=EDGES)
        scored["parameters"] = load_model(self.folder(name, seed)).num_parameters()
        return translations, scored | {"by_length": [bucket.as_dict() for bucket in buckets]}

    def speed(self) -> None:
        """Measure all engines in turns: sentences a second on the test text, and the time by source length."""
        trained = self.records.runs(FILE)
        folders = {name: self.folder(name, next(iter(trained[name]))) for name in TITLES if name in trained}
        runs: dict[str, Callable[[], Any]] = {}
        models: dict[str, FastTranslator] = {}
        for name, folder in folders.items():
            engines = {precision: our_engine(folder, {"int8": int8}, False) for precision, int8 in PRECISIONS.items()}
            if (folder / FILE_NAME).exists():
                engines["int8, shortlist"] = our_engine(folder, {"int8": True, "shortlist": True}, False)
            for precision, engine in engines.items():
                for batch in BATCHES:
                    runs[f"{name}, {precision}, {batch}"] = functools.partial(engine, self.sources, batch, 1)
            for precision, int8 in PRECISIONS.items():
                models[f"{name}, {precision}"] = FastTranslator(load_model(folder).eval(), int8=int8, strict=True)
        timings = time_in_turns(runs, REPEATS, clock=time.process_time)
        sweep = measure_lengths(models, LENGTHS, repeats=5 * REPEATS, clock=time.process_time)["source"]
        self.records.keep(
            FILE,
            {
                "name": SPEEDS,
                "repeats": REPEATS,
                "sentences": len(self.sources),
                "sentences_per_second": {run: len(self.sources) / timing.median for run, timing in timings.items()},
                "by_source_length": {
                    name: {
                        str(row["source_length"]): {
                            "encoding": 1000 * row["seconds"][f"{name} encode"]["median"],
                            "word": row["milliseconds_per_word"][name],
                        }
                        for row in sweep["rows"]
                    }
                    for name in models
                },
            },
        )


def table(records: Records) -> str:
    """Return what each model reaches, and how fast it is; empty if nothing has been trained."""
    runs = {name: record for name, by_seed in records.runs(FILE).items() for record in by_seed.values()}
    if START not in runs:
        return ""
    teacher = runs[START]["scores"]["bleu"]["score"]
    rows = []
    for name in (name for name in TITLES if name in runs):
        run_record, scores = runs[name], runs[name]["scores"]
        bleu, spread = scores["bleu"]["score"], run_record["bootstrap"]
        low, high = (spread["mean"] + sign * spread["half_width"] for sign in (-1, 1))
        words, expected = (
            sum(b[key] * b["sentences"] for b in run_record["by_length"] if b["sentences"]) for key in WORDS
        )
        rows.append([
            TITLES[name],
            f"{run_record['parameters'] / 1e6:.1f} M",
            f"{bleu:.2f} [{low:.1f}, {high:.1f}]",
            f"{bleu / teacher:.0%}" if teacher else "",
            f"{scores['chrf']['score']:.1f}",
            *(f"{bucket['score']:.1f}" for bucket in run_record["by_length"] if bucket["sentences"]),
            f"{words / expected:.2f}",
            f"{run_record['loss']:.2f}" if "loss" in run_record else "",
        ])  # fmt: skip
    sentences = [f"{b['label']} words ({b['sentences']})" for b in runs[START]["by_length"] if b["sentences"]]
    header = ["model", "parameters", "BLEU", "of the teacher's", "chrF", *sentences, "length ratio", "training loss"]
    parts = [
        "BLEU on lines 1, 3, 5, ... of FLORES devtest, with its 95 % interval over sentences, and BLEU by source "
        "length (`python -m lab.strong_teacher`):",
        markdown_table(header, rows),
    ]
    speeds = records.named(FILE).get(SPEEDS)
    return "\n\n".join([*parts, *(speed_tables(speeds) if speeds else [])])


def speed_tables(speeds: dict[str, Any]) -> list[str]:
    """Return sentences a second on the test text, and the time of a word by source length."""
    rates: dict[str, list[str]] = {}
    for run_name, rate in speeds["sentences_per_second"].items():
        rates.setdefault(run_name.rpartition(", ")[0], []).append(f"{rate:.0f}")
    rows = [[_title(name), *cells] for name, cells in rates.items()]
    times = speeds["by_source_length"]
    lengths = next(iter(times.values()))
    exact = {name: speed for name, speed in times.items() if name.endswith("float32")}
    sentence_rows = [
        [
            length,
            *(
                f"{seconds[length]['encoding'] + (FIXED_LENGTH - 1) * seconds[length]['word']:.1f}"
                for seconds in times.values()
            ),
        ]
        for length in lengths
    ]
    words = [[length, *(f"{seconds[length]['word']:.2f}" for seconds in exact.values())] for length in lengths]
    return [
        f"Sentences a second of the engine on the first {speeds['sentences']}, one thread, processor time, medians of "
        f"{speeds['repeats']} turns:",
        markdown_table(["engine", *(f"batch {batch}" for batch in BATCHES)], rows),
        f"Milliseconds of a translation of {FIXED_LENGTH} tokens by source length, one sentence at a time:",
        markdown_table(["source tokens", *(_title(name) for name in times)], sentence_rows),
        "Milliseconds of each of its tokens after the first:",
        markdown_table(["source tokens", *(_title(name) for name in exact)], words),
    ]


def _title(run_name: str) -> str:
    name, _, settings = run_name.partition(", ")
    return f"{TITLES[name]}, {settings}"


def main() -> None:
    parser = parser_of_plan(__doc__, FILE, list(ARMS), [SEED], STEPS)
    parser.add_argument("--speed", action="store_true", help="train nothing, measure what is trained")
    arguments = parser.parse_args()
    keep_freed_memory()
    study = StrongTeacher(arguments)
    if arguments.speed:
        study.speed()
    else:
        study.run()
    print(table(study.records))


if __name__ == "__main__":
    run(main)

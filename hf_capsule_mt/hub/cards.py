"""Model cards, generated from a checkpoint's configuration, the recipe it was trained by, and result files."""

import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from hf_capsule_mt.evaluation.results import read_result
from hf_capsule_mt.hub.papers import PAPERS, papers_of
from lab.paper_tables import share_among_equals
from lab.seeds import each_if_apart, mean_and_spread

PACKAGE_LICENSE = "apache-2.0"
METRIC_NAMES = {"bleu": "BLEU", "bleu_uncased": "BLEU, uncased", "bleu_tokenized": "tokenised BLEU", "chrf": "chrF"}
# a run's number, in the name of its result file: "em_routing-seed3"
SEED_IN_NAME = re.compile(r"[-_]?seed[-_]?\d+")

FAMILIES = {
    "capsule_marian": "a Transformer of Marian's architecture",
    "capsule_rnmt": "an attentional recurrent encoder-decoder (RNMT)",
    "capsnmt": "CapsNMT, whose encoder routes a sentence into a fixed number of capsules",
}


class Corpus(NamedTuple):
    """What is known of the corpora that recipes train on."""

    title: str
    licence: str
    allows_any_use: bool
    hub_name: str | None = None


CORPORA = {
    "embedded": Corpus("the embedded corpus, sentence pairs that a grammar of this package makes", "Apache-2.0", True),
    "tatoeba": Corpus("sentence pairs of tatoeba.org, by its contributors", "CC BY 2.0 FR", True),
    "multi30k": Corpus("Multi30k, task 1", "CC BY-NC-SA 4.0, non-commercial", False),
    "wmt": Corpus("training data of the WMT news translation task", "for research; cite its overview paper", False),
    "newstest": Corpus(
        "test sets of the WMT news translation tasks", "for research; cite the overview paper of each year", False
    ),
    "iwslt": Corpus("TED talks of the IWSLT evaluation", "CC BY-NC-ND, non-commercial", False),
}
UNKNOWN_LICENCE = "licence not recorded"


@dataclass
class Runs:
    """The result files of one recipe: those of training, one for each seed, and what was measured afterwards."""

    name: str
    recipe: dict[str, Any]
    training: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    speeds: list[dict[str, Any]]


def collect_runs(folder: Path) -> list[Runs]:
    """The recipes that have results in a folder: files that `scripts/train.py` wrote, and those that name them.

    A file of training holds its whole recipe. An evaluation or a speed belongs to the recipe that it names. The file
    of speeds of a folder of `scripts/reproduce.py` names the runs in that folder.
    """
    results = {path: read_result(path) for path in sorted(folder.rglob("*.json"))}
    runs: dict[str, Runs] = {}
    for path, result in results.items():
        if isinstance(result.get("recipe"), dict) and "scores" in result:
            relative = path.relative_to(folder).with_suffix("")
            name = SEED_IN_NAME.sub("", "-".join(relative.parts))
            entry = runs.setdefault(name, Runs(name, result["recipe"], [], [], []))
            if without_seed(entry.recipe) != without_seed(result["recipe"]):
                raise ValueError(f"{path}: its recipe is another than that of the other results called {name}")
            entry.training.append(_of_training(result))
    for path, result in results.items():
        if result.get("kind") == "speeds":
            folders = path.parent.relative_to(folder).parts
            for run, model in share_among_equals(result["models"]).items():
                if (name := "-".join([*folders, run])) in runs:
                    runs[name].speeds.append({key: result[key] for key in result if key != "models"} | model)
        named = result.get("recipe")
        if isinstance(named, str) and result.get("kind") in ("evaluation", "speed"):
            name = "-".join(Path(named).with_suffix("").parts)
            for entry in runs.values():
                if name == entry.name or name.endswith("-" + entry.name):
                    (entry.evaluations if result["kind"] == "evaluation" else entry.speeds).append(result)
    return list(runs.values())


def _of_training(result: Mapping[str, Any]) -> dict[str, Any]:
    """A row of `scripts/reproduce.py` in the form of a result of `scripts/train.py`; the latter as it is."""
    if result.get("kind") != "reproduction":
        return dict(result)
    bleu = result["scores"]["bleu"]
    return {**result, "scores": {"test_bleu": bleu["score"]}, "signature": bleu["signature"]}


def without_seed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without what differs between seeds: the seed, and folders that are named by it."""
    kept = {key: value for key, value in recipe.items() if key not in ("seed", "output_dir")}
    without: dict[str, Any] = json.loads(SEED_IN_NAME.sub("", json.dumps(kept)))
    return without


def model_card(
    name: str,
    config: Mapping[str, Any],
    *,
    recipe: Mapping[str, Any] | None = None,
    training: Sequence[Mapping[str, Any]] = (),
    evaluations: Sequence[Mapping[str, Any]] = (),
    speeds: Sequence[Mapping[str, Any]] = (),
    license: str | None = None,
) -> ModelCard:
    """The card of a checkpoint.

    Args:
        name: of the checkpoint or of its repository.
        config: the fields of its configuration (those of `config.json`).
        recipe: what it was trained by, as the result file of its training has it.
        training, evaluations, speeds: result files as they were read, of the kinds that `scripts/train.py`,
            `scripts/evaluate.py` and `scripts/translate.py` write.
        license: of the weights, by its name on the hub. Without it: Apache-2.0 if the training data allow any use,
            otherwise "other".
    """
    recipe = recipe or {}
    languages = [recipe.get("languages", {}).get(side) for side in ("source", "target")]
    corpora = corpora_of(recipe)
    if license is None:
        license = PACKAGE_LICENSE if corpora and all(corpus.allows_any_use for corpus in corpora) else "other"
    data = ModelCardData(
        model_name=name,
        language=[language for language in languages if language] or None,
        license=license,
        license_name="see-training-data" if license == "other" else None,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", "capsule-networks", "hf_capsule_mt", *_methods(config)],
        datasets=sorted({corpus.hub_name for corpus in corpora if corpus.hub_name}) or None,
        base_model=recipe.get("init_from") or None,
        metrics=["bleu"] if training or evaluations else None,
        eval_results=_eval_results(name, languages, corpora, training, evaluations) or None,
    )
    sections = [
        f"# {name}",
        _introduction(config, languages, recipe),
        "## Use",
        _usage(name, languages, config),
        "## Intended use and limits",
        _limits(config, corpora),
        "## Training",
        _training(recipe, corpora, training),
        "## Scores",
        _scores(training, evaluations),
        "## Speed",
        _speed([*training, *speeds]),
        "## Environment",
        _environment([*training, *evaluations, *speeds]),
        "## Papers",
        "Please cite the paper whose method you use.",
        *(PAPERS[paper] for paper in papers_of(config)),
    ]
    body = "\n\n".join(section for section in sections if section)
    card = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n")
    check_card(card)
    return card


def check_card(card: ModelCard) -> None:
    """The hub's rules for a card's metadata that can be checked without it."""
    data = card.data.to_dict()
    for key in ("license", "library_name", "pipeline_tag", "tags"):
        if not data.get(key):
            raise ValueError(f"the card's metadata lack `{key}`")
    if data["license"] == "other" and not data.get("license_name"):
        raise ValueError("the licence `other` needs a `license_name`")
    for language in data.get("language") or ():
        if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]+)*|multilingual|code", language):
            raise ValueError(f"`language` has codes such as 'en' or 'deu', got {language!r}")
    if ModelCard(str(card)).data.to_dict() != data:
        raise ValueError("the card's metadata change when they are read again")


def corpora_of(recipe: Mapping[str, Any]) -> list[Corpus]:
    """The corpora that a recipe trains on, each once."""
    sources = (recipe.get("data") or {}).get("train") or []
    return list(dict.fromkeys(_corpus(one) for one in ([sources] if isinstance(sources, Mapping) else sources)))


def _corpus(source: Mapping[str, Any]) -> Corpus:
    hub_name = source.get("hub")
    if "embedded" in source:
        return CORPORA["embedded"]
    named = " ".join(str(value) for value in source.values()).lower()
    for key, corpus in CORPORA.items():
        if key in named:
            return corpus._replace(hub_name=hub_name)
    files = next(value for key, value in source.items() if key in ("hub", "text", "tsv", "jsonl", "parquet"))
    names = ", ".join(Path(file).name for file in ([files] if isinstance(files, str) else files))
    return Corpus(f"`{hub_name or names}`", UNKNOWN_LICENCE, False, hub_name)


# -------------------------------------------------------------------------------------------------------- the sections
def _methods(config: Mapping[str, Any]) -> list[str]:
    """Which capsules a model has."""
    switches = ["layer_aggregation", "head_aggregation", "guided_routing"]
    if config.get("model_type") == "capsnmt":
        config = {"aggregation": "capsules", **config}
        switches.append("aggregation")
    plain = (None, "none", "concat", "pooling")
    return [f"{switch}-{config[switch]}" for switch in switches if config.get(switch) not in plain]


def _introduction(config: Mapping[str, Any], languages: list[str | None], recipe: Mapping[str, Any]) -> str:
    direction = " to ".join(language for language in languages if language)
    family = FAMILIES.get(str(config.get("model_type")), str(config.get("model_type")))
    capsules = ", ".join(f"`{method}`" for method in _methods(config)) or "no capsules: a baseline"
    about = f" {recipe['about']}" if recipe.get("about") else ""
    paper = f" It is {recipe['paper']}." if recipe.get("paper") else ""
    translates = f"Translates {direction}. " if direction else ""
    return f"{translates}The model is {family} ({capsules}).{about}{paper}"


def _usage(name: str, languages: list[str | None], config: Mapping[str, Any]) -> str:
    coverage = ""
    if _has_coverage(config):
        coverage = "\nprint(translator(text, return_coverage=True))  # which words were left out"
    return f"""```python
from transformers import pipeline

text = "..."{f"  # in {languages[0]}" if languages[0] else ""}
translator = pipeline("translation", model="{name}", trust_remote_code=True)
print(translator(text)){coverage}
```

With the package `hf_capsule_mt` installed and imported, `trust_remote_code` is not needed."""


def _has_coverage(config: Mapping[str, Any]) -> bool:
    return config.get("guided_routing", "none") not in (None, "none")


def _limits(config: Mapping[str, Any], corpora: Sequence[Corpus]) -> str:
    lines = [
        "- Meant for research on translation with capsule networks. Its output is not checked by anyone: do not act"
    ]
    lines[0] += " on it where a mistranslation does harm."
    if any(corpus is CORPORA["embedded"] for corpus in corpora):
        lines.append("- It knows the words and patterns of a small grammar, and no other text.")
    positions = config.get("max_position_embeddings")
    if positions:
        lines.append(f"- A sentence has at most {positions} tokens; the pipeline translates a longer one in pieces.")
    lines.append("- Sentences are translated one by one: what one says about another is lost.")
    if _has_coverage(config):
        lines.append("- Coverage: it says how much of each source word is translated (`return_coverage=True`).")
    else:
        lines.append("- Coverage: without guided routing it cannot say which source words it left out.")
    return "\n".join(lines)


def _training(recipe: Mapping[str, Any], corpora: Sequence[Corpus], training: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"- Data: {corpus.title} ({corpus.licence})." for corpus in corpora]
    lines = lines or ["- Data: not recorded."]
    if training:
        lines.append(f"- {training[0]['parameters']:,} parameters, {training[0]['steps']:,} steps.")
        seeds = sorted({str(result["recipe"].get("seed")) for result in training})
        lines.append(f"- Seeds: {', '.join(seeds)}.")
    for title, section in (("Model", "model"), ("Optimisation", "training"), ("Search", "generation")):
        if recipe.get(section):
            settings = ", ".join(f"`{key}={value}`" for key, value in recipe[section].items())
            lines.append(f"- {title}: {settings}.")
    return "\n".join(lines)


def _scores(training: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]]) -> str:
    if not training and not evaluations:
        return "Not measured."
    rows = ["| set | metric | score | signature |", "|---|---|---|---|"]
    for part, values in _training_scores(training).items():
        score = mean_and_spread(values)
        if len(values) > 1:
            score += f" (deviation over {len(values)} seeds{each_if_apart(values, ': {}')})"
        rows.append(f"| {part} | BLEU | {score} | {_in_cell(training[0]['signature'])} |")
    for result in evaluations:
        interval = result.get("bleu_confidence")
        for name, score in result["scores"].items():
            shown = f"{score['score']:.2f}"
            if name == "bleu" and interval:
                shown += f" ± {interval['half_width_95']:.2f} (95 % interval)"
            title = METRIC_NAMES.get(name, name.upper())
            rows.append(f"| {result['system']} | {title} | {shown} | {_in_cell(score['signature'])} |")
    return "\n".join(rows)


def _in_cell(signature: str) -> str:
    """As code in a cell of a table, whose bars would else begin new cells."""
    return "`" + signature.replace("|", "\\|") + "`"


def _training_scores(training: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    """The BLEU scores of each seed, by the set they were measured on."""
    scores: dict[str, list[float]] = {}
    for result in training:
        for key, value in result["scores"].items():
            if key.endswith("_bleu"):
                scores.setdefault(key.removesuffix("_bleu"), []).append(value)
    return scores


def _speed(results: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for result in results:
        if result.get("milliseconds"):
            speed = f"{result['milliseconds']['sentence']:.1f} ms per sentence, one at a time with beam 8,"
        elif result.get("sentences_per_second"):
            speed = (
                f"{result['sentences_per_second']:.1f} sentences per second ({result['sentences']:,} sentences, "
                f"batches of {result['batch_tokens']} tokens, beam {result['num_beams']})"
            )
        else:
            continue
        lines.append(f"- {speed} on {_hardware(result)}")
    return "\n".join(lines) or "Not measured."


def _hardware(result: Mapping[str, Any]) -> str:
    hardware = result.get("hardware", {})
    threads = hardware.get("threads")
    return str(hardware.get("gpu") or f"{threads} thread{'' if threads == 1 else 's'} of {hardware.get('cpu')}")


def _environment(results: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for result in results:
        software = ", ".join(f"{name} {version}" for name, version in result.get("software", {}).items())
        rows.append(
            f"- `{result.get('command', 'a command that was not recorded')}`, {result.get('date', 'undated')}, on "
            f"{_hardware(result)}; {software}; commit {result.get('commit')}"
        )
    return "\n".join(dict.fromkeys(rows)) or "Not recorded."


def _eval_results(
    name: str,
    languages: list[str | None],
    corpora: Sequence[Corpus],
    training: Sequence[Mapping[str, Any]],
    evaluations: Sequence[Mapping[str, Any]],
) -> list[EvalResult]:
    """The scores as the hub's `model-index` has them."""
    direction = "-".join(language for language in languages if language)
    found = []
    for part, values in _training_scores(training).items():
        title = corpora[0].title if corpora else "not recorded"
        found.append((f"{title}, {part}", statistics.fmean(values), training[0]["signature"]))
    for result in evaluations:
        if "bleu" in result["scores"]:
            score = result["scores"]["bleu"]
            found.append((result["system"], score["score"], score["signature"]))
    return [
        EvalResult(
            task_type="translation",
            task_name=f"Translation {direction}".strip(),
            dataset_type=re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-"),
            dataset_name=title,
            metric_type="bleu",
            metric_name=f"BLEU ({signature})",
            metric_value=round(value, 2),
        )
        for title, value, signature in found
    ]

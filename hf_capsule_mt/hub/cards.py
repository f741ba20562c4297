"""Model cards: what a checkpoint's configuration and its result files say, as the hub's README.md."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, cast

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from capsule_mt.text.languages import LANGUAGES
from hf_capsule_mt.hub.card_sources import CORPORA, PAPERS, Corpus, corpora_of, license_of_base, papers_of

PACKAGE_LICENSE = "apache-2.0"
METRIC_NAMES = {"bleu": "BLEU", "bleu_uncased": "BLEU, uncased", "bleu_tokenized": "tokenised BLEU", "chrf": "chrF"}
FAMILIES = {
    "capsule_marian": "a Transformer of Marian's architecture",
    "capsule_rnmt": "an attentional recurrent encoder-decoder (RNMT)",
    "capsnmt": "CapsNMT, whose encoder compresses a sentence into a fixed number of vectors",
}
# capsule methods in words, by switch and choice
METHODS = {
    "layer_aggregation-linear": "linear combination of the layers",
    "layer_aggregation-dynamic_combination": "dynamic combination of the layers",
    "layer_aggregation-dynamic_routing": "dynamic routing of the layers",
    "layer_aggregation-em_routing": "EM routing of the layers",
    "layer_aggregation-dense": "a learnt sum of the layers (DenseFormer)",
    "layer_aggregation-depth_attention": "attention over the layers (Attention Residuals)",
    "layer_aggregation-mudd": "a sum of the layers whose weights the top layer gives (MUDD)",
    "layer_aggregation-grn": "a sum of the layers with weights for each unit (GRN of DeepCrossAttention)",
    "head_aggregation-simple_routing": "simple routing of the heads",
    "head_aggregation-em_routing": "EM routing of the heads",
    "guided_routing-guided": "guided routing, which tracks translated words (PAST) and words still to come (FUTURE)",
    "guided_routing-classifier": "PAST and FUTURE by a classifier",
    "guided_routing-attention": "PAST and FUTURE by attention",
    "aggregation-capsules": "separable routing of the source",
}
EXAMPLES = {
    "en": "The old man buys a red hat.",
    "de": "Der alte Mann kauft einen roten Hut.",
    "fr": "Le vieil homme achète un chapeau rouge.",
}

ITS_MODELS = "  # its models"
WITH_CODE = (
    "After `import hf_capsule_mt`, with the package installed, `trust_remote_code` is not needed, and the pipeline "
    "takes `return_coverage=True`."
)
WITHOUT_CODE = (
    "`capsule-mt export` adds code, with which the model loads without the package by `trust_remote_code=True`. Until "
    "it is on the hub, its name is the path of this folder."
)
# in a wheel beside this file, in a clone where readers find it
TEMPLATES = (Path(__file__).with_name("card_template.md"), Path(__file__).parents[2] / "model_cards" / "template.md")


def model_card(
    name: str,
    config: Mapping[str, Any],
    results: Iterable[Mapping[str, Any]] = (),
    *,
    license: str | None = None,
    languages: Sequence[str | None] = (None, None),
    with_code: bool = True,
) -> ModelCard:
    """Return the card of a checkpoint.

    Args:
        name: of the checkpoint or of its repository.
        config: the fields of its configuration (`config.json`).
        results: result files as they were read: `train_result.json` of the checkpoint, and those of `capsule-mt
            evaluate`. The first with a recipe describes the training.
        license: of the weights, by its name on the hub. Without it: Apache-2.0 if the training data allow any use, and
            so do those of the local checkpoints that training started from, or the licence of a local checkpoint with
            a card, such as a converted student of Firefox; otherwise "other".
        languages: source and target, such as the tokenizer's, where no result has a recipe.
        with_code: whether the checkpoint has its own code beside it, as `export` and `push` write it.
    """
    results = list(results)
    training = next((result for result in results if isinstance(result.get("recipe"), Mapping)), None)
    evaluations = [result for result in results if result.get("kind") == "evaluation"]
    omissions = [result for result in results if result.get("kind") == "word omissions"]
    recipe = training["recipe"] if training else {}
    sides = zip(("source", "target"), languages, strict=True)
    languages = [recipe.get("languages", {}).get(side, language) for side, language in sides]
    corpora, are_all = corpora_of(recipe)
    name = _one_line(name)
    if license is None:
        is_free = corpora and all(corpus.allows_any_use for corpus in corpora)
        # a converted student of Firefox does not tell its training data, but has a licence
        licensed = PACKAGE_LICENSE if are_all else license_of_base(recipe)
        license = licensed if is_free and licensed else "other"
    data = ModelCardData(
        language=[language for language in languages if language] or None,
        license=license,
        license_name="see-training-data" if license == "other" else None,
        library_name="transformers",
        pipeline_tag="translation",
        tags=["translation", *(["capsule-networks"] if _methods(config) else []), "hf_capsule_mt", *_methods(config)],
        datasets=sorted({corpus.hub_name for corpus in corpora if corpus.hub_name}) or None,
        base_model=_base_model(recipe),
        metrics=["bleu"] if (training and training["scores"]) or evaluations else None,
        model_name=name,
        eval_results=_model_index(languages, corpora, training, evaluations) or None,
    )
    template = next(path for path in TEMPLATES if path.is_file())
    text = Template(template.read_text(encoding="utf-8")).substitute(
        metadata=data.to_yaml(),
        name=name,
        introduction=_introduction(config, languages, recipe, training),
        model=_string(name),
        imports="import transformers" if with_code else f"import hf_capsule_mt{ITS_MODELS}\nimport transformers",
        trust=", trust_remote_code=True" if with_code else "",
        code=WITH_CODE if with_code else WITHOUT_CODE,
        example=_string(EXAMPLES.get(languages[0] or "en", "...")),
        translation=_string(EXAMPLES.get(languages[1] or "", "...")),
        coverage=", return_coverage=True" if _has_coverage(config) and not with_code else "",
        limits=_limits(config, corpora, are_all=are_all),
        training=_training(recipe, corpora, training),
        scores=_scores(training, evaluations) + _coverage_quality(omissions) + verified_marks(config),
        environment=_environment([*([training] if training else []), *evaluations, *omissions]),
        papers="\n".join(f"- {PAPERS[paper]}" for paper in papers_of(config)),
    )
    return ModelCard(text)


def renamed_card(card: str, name: str, *, license: str | None = None) -> ModelCard:
    """Return a checkpoint's own card for an export of it: with another name, and code beside the weights.

    Scores and languages stay; what changes is what `model_card` writes of the name and of the code.

    Args:
        license: in the place of the card's, if it is not None.
    """
    renamed = ModelCard(card)
    data = cast(ModelCardData, renamed.data)
    name = _one_line(name)
    if data.eval_results:
        data.model_name = name
    if license is not None:
        data.license, data.license_name, data.license_link = license, None, None
    text = renamed.text.replace(f"import hf_capsule_mt{ITS_MODELS}\n", "")
    # not `WITHOUT_CODE`: cards of older versions word the sentence differently
    sentence = "^(`capsule-mt export` adds code, |After `import hf_capsule_mt`, with the package installed, ).*$"
    text = re.sub(sentence, WITH_CODE, text, flags=re.MULTILINE)
    text = re.sub(r"^(print\(translator\(.*), return_coverage=True\)\)$", r"\1))", text, flags=re.MULTILINE)
    heading = re.search("^# (.+)$", text, re.MULTILINE)
    if heading is not None:
        text = text[: heading.start(1)] + name + text[heading.end(1) :]
        loads = rf"(model=|from_pretrained\(){re.escape(_string(heading[1]))}(, trust_remote_code=True)?"
        text = re.sub(loads, lambda call: f"{call[1]}{_string(name)}, trust_remote_code=True", text)
    renamed.text = text
    return ModelCard(str(renamed))


# ---- escaping text
def _one_line(text: object) -> str:
    """Join the lines of a text, which would end a heading, a list item or a code span."""
    return " ".join(str(text).split())


def _code(text: object) -> str:
    """Return a text as a code span."""
    return "`" + _one_line(text).replace("`", "'") + "`"


def _in_cell(text: object) -> str:
    """Escape the bars of a text, which would begin new cells of a table."""
    return _one_line(text).replace("|", "\\|")


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of cells that are Markdown already."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def _string(text: str) -> str:
    """Return a text as a Python string in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _without_local_paths(command: str) -> str:
    """Shorten the absolute paths of a command to file names: they name the author's machine."""
    return re.sub(r"""(^|[\s='"])[/~][^\s='"]*/""", r"\1", command)


def _base_model(recipe: Mapping[str, Any]) -> str | None:
    """Return the hub's name of the model that training started from, None if it was a local folder."""
    name = str(recipe.get("init_from") or "")
    is_local = os.path.isdir(name) or name.startswith("outputs/")
    return name if re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not is_local else None


# ---- the sections
def _methods(config: Mapping[str, Any]) -> list[str]:
    """Return the capsule methods that a configuration switches on."""
    switches = ["layer_aggregation", "head_aggregation", "guided_routing"]
    if config.get("model_type") == "capsnmt":
        config = {"aggregation": "capsules", **config}
        switches.append("aggregation")
    plain = (None, "none", "concat", "pooling")
    return [f"{switch}-{config[switch]}" for switch in switches if config.get(switch) not in plain]


def _introduction(
    config: Mapping[str, Any],
    languages: Sequence[str | None],
    recipe: Mapping[str, Any],
    training: Mapping[str, Any] | None,
) -> str:
    direction = " to ".join(LANGUAGES.get(language, language) for language in languages if language)
    does = f"Translates {direction}" if direction else "Translates"
    does += ", and reports which source words the translation leaves out." if _has_coverage(config) else "."
    family = FAMILIES.get(str(config.get("model_type")), str(config.get("model_type")))
    if config.get("decoder_self") == "ssru":
        family += ", with a recurrent unit (SSRU) in the place of the decoder's self-attention"
    methods = [METHODS.get(method, f"`{method}`") for method in _methods(config)]
    capsules = f"Capsules: {'; '.join(methods)}." if methods else "It does not have capsules: it is a baseline."
    sentences = [does, f"The model is {family}.", capsules]
    if training:
        sentences.append(f"It has {training['parameters'] / 1e6:.1f} million parameters.")
    if recipe.get("paper"):
        sentences.append(f"It is {_one_line(recipe['paper'])}.")
    return " ".join(sentences)


def _has_coverage(config: Mapping[str, Any]) -> bool:
    """Return whether coverage costs no pass for each word: by a head that calibration chose."""
    return "attention" in (config.get("coverage_calibration") or {})


def _limits(config: Mapping[str, Any], corpora: Sequence[Corpus], *, are_all: bool) -> str:
    lines = ["- Nobody checks its output: do not rely on it where a mistranslation could do harm."]
    if any(corpus is CORPORA["embedded"] for corpus in corpora):
        lines.append("- It knows only the words and patterns of a small grammar.")
    if any(corpus.title == CORPORA["tatoeba"].title for corpus in corpora):
        alone = ", the only text it was trained on" if len(corpora) == 1 and are_all else ""
        lines.append(
            f"- Made for everyday sentences of up to 15 words{alone}: expect errors in news, technical text and long "
            "sentences."
        )
    if positions := config.get("max_position_embeddings"):
        lines.append(
            f"- A sentence has at most {positions} tokens; the package's pipeline translates a longer one in pieces."
        )
    lines.append("- It translates sentences one by one, without the context of the others.")
    if _has_coverage(config):
        lines.append(
            "- `return_coverage=True` finds omissions, not errors: a word translated wrongly counts as translated."
        )
    else:
        lines.append(
            "- `return_coverage=True` deletes each source word in turn, which takes a forward pass for each. If the "
            "translation becomes more probable, the word is marked as left out."
        )
    return "\n".join(lines)


def _training(recipe: Mapping[str, Any], corpora: Sequence[Corpus], training: Mapping[str, Any] | None) -> str:
    lines = [f"- Data: {corpus.title} ({corpus.licence})." for corpus in corpora] or ["- Data: not recorded."]
    if recipe.get("about"):
        lines.append(f"- Recipe: {_one_line(recipe['about'])}")
    if training:
        took = f", {seconds / 3600:.1f} hours on {_hardware(training)}" if (seconds := training.get("seconds")) else ""
        lines.append(
            f"- {training['parameters']:,} parameters, {training['steps']:,} steps, seed {recipe.get('seed')}{took}."
        )
    if recipe.get("init_from"):
        lines.append(f"- Started from {_code(_base_model(recipe) or os.path.basename(str(recipe['init_from'])))}.")
    for title, section in (("Model", "model"), ("Optimisation", "training"), ("Search", "generation")):
        if recipe.get(section):
            settings = ", ".join(_code(f"{key}={value}") for key, value in recipe[section].items())
            lines.append(f"- {title}: {settings}.")
    return "\n".join(lines)


def _scores(training: Mapping[str, Any] | None, evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Return a row for each test set and a column for each metric, and the signatures below."""
    rows: list[tuple[str, dict[str, str]]] = []
    signatures: dict[tuple[str, str], None] = {}
    if training:
        bleu = {name: value for name, value in training["scores"].items() if name.endswith("_bleu")}
        rows = [(name.removesuffix("_bleu"), {"BLEU": f"{value:.2f}"}) for name, value in bleu.items()]
        signatures = {("BLEU", training["signature"]): None} if bleu else {}
    intervals = False
    for result in evaluations:
        shown = {}
        for name, score in result["scores"].items():
            title = METRIC_NAMES.get(name, name.upper())
            shown[title] = f"{score['score']:.2f}"
            if name == "bleu" and (interval := result.get("bleu_confidence")):
                shown[title] += f" ± {interval['half_width_95']:.2f}"
                intervals = True
            signatures[title, score["signature"]] = None
        rows.append((_in_cell(result["system"]), shown))
    if not rows:
        return "Not measured."
    metrics = list(dict.fromkeys(metric for _, shown in rows for metric in shown))
    table = _table(["set", *metrics], [[part, *(shown.get(metric, "") for metric in metrics)] for part, shown in rows])
    notes = [f"{metric}: {_code(signature)}." for metric, signature in signatures]
    notes[:0] = ["± is the 95 % interval, by bootstrap over sentences."] * intervals
    return "\n".join([table, "", *notes])


def _model_index(
    languages: Sequence[str | None],
    corpora: Sequence[Corpus],
    training: Mapping[str, Any] | None,
    evaluations: Sequence[Mapping[str, Any]],
) -> list[EvalResult]:
    """Return the scores for the card's metadata, from which the hub makes its tables: one for each set and metric."""
    corpus = " and ".join(corpus.title for corpus in corpora) or "data that were not recorded"
    scores = [
        (f"{corpus}, {name.removesuffix('_bleu')}", "bleu", value, (training or {})["signature"])
        for name, value in (training or {"scores": {}})["scores"].items()
        if name.endswith("_bleu")
    ]
    scores += [
        (_one_line(result["system"]), metric, score["score"], score["signature"])
        for result in evaluations
        for metric, score in result["scores"].items()
    ]
    return [
        EvalResult(
            task_type="translation",
            task_name=" ".join(["Translation", *filter(None, ["-".join(filter(None, languages))])]),
            dataset_name=dataset,
            dataset_type=re.sub("[^a-z0-9]+", "-", dataset.lower()).strip("-"),
            metric_type=metric,
            metric_name=f"{METRIC_NAMES.get(metric, metric.upper())} ({signature})",
            metric_value=round(value, 2),
        )
        for dataset, metric, value, signature in scores
    ]


def _coverage_quality(results: Sequence[Mapping[str, Any]]) -> str:
    """Return how well untranslated words are found, as a table."""
    rows = []
    for result in results:
        for kind, by_method in result["measures"].items():
            for method, measures in by_method.items():
                names = ("word_auc", "precision", "sentence_auc")
                values = [f"{measures[name]['value']:.2f}" if measures.get(name) else "-" for name in names]
                rows.append([_in_cell(kind), _in_cell(method), *values])
    if not rows:
        return ""
    header = ["translations", "method", "AUC for words", "precision at recall 0.6", "AUC for sentences"]
    explanation = (
        "The table shows how well left-out words are found. AUC is the area under the ROC curve: 0.5 is chance, 1 is "
        "perfect. If a model leaves out little, precision is low. *attention* uses the attention head that aligns "
        "words, *guided* (up to version 0.3) uses PAST and FUTURE, *deletion* deletes each source word in turn, and "
        "*length ratio* compares only the lengths."
    )
    return f"\n\n### Coverage\n\n{explanation}\n\n{_table(header, rows)}"


def verified_marks(config: Mapping[str, Any]) -> str:
    """Return the alarm of `capsule-mt calibrate --reverse` and the share of right marks, or "" without either."""
    verified = (config.get("coverage_calibration") or {}).get("verified", {})
    parts = []
    if "alarm" in verified:
        parts.append(_alarm(verified["alarm"]))
    if "right_marks" in verified:
        parts.append(_right_marks(verified))
    return "\n\n### Alarm and marks\n\n" + "\n\n".join(parts) if parts else ""


def _alarm(alarm: Mapping[str, Any]) -> str:
    by_share = sorted(alarm["caught"].items(), key=lambda pair: pair[1])
    catches = ", ".join(f"{share:.1%} of those that lack {name}" for name, share in by_share)
    return (
        f"**Alarm**: a coverage below {alarm['score']:g} flags {alarm['flagged']:.1%} of the model's own translations "
        f"of eight words or more. If words in a row are deleted from them, it flags {catches}. The alarm was chosen "
        "on the development text; the shares are measured on each half of this text, with the alarm of the other half."
    )


def _right_marks(verified: Mapping[str, Any]) -> str:
    rows = [
        [f"`{point}`", str(num_read), f"{right / num_read:.2f}"]
        for point, (right, num_read) in sorted(verified["right_marks"].items(), key=lambda pair: pair[1][1])
    ]
    return (
        f"**Marks**, verified by `{verified['reverse']}`: the table counts them in the model's own translations of "
        "held-out text, in which two readers named what is left out. A mark on a word that only one of them named "
        "does not count as right.\n\n" + _table(["`marks`", "number of marks", "share that is right"], rows)
    )


def _hardware(result: Mapping[str, Any]) -> str:
    hardware = result.get("hardware", {})
    threads = hardware.get("threads")
    return _one_line(hardware.get("gpu") or f"{threads} thread{'' if threads == 1 else 's'} of {hardware.get('cpu')}")


def _environment(results: Sequence[Mapping[str, Any]]) -> str:
    """Return the commands, grouped by the machine, the software and the commit that they ran on."""
    groups: dict[str, dict[str, None]] = {}
    for result in results:
        software = ", ".join(f"{name} {version}" for name, version in result.get("software", {}).items())
        circumstances = f"On {_hardware(result)}; {software}; commit {result.get('commit') or 'not recorded'}:"
        command = _without_local_paths(result.get("command", "a command that was not recorded"))
        groups.setdefault(circumstances, {})[f"- {_code(command)}, {result.get('date', 'undated')[:10]}"] = None
    return (
        "\n\n".join("\n".join([circumstances, "", *commands]) for circumstances, commands in groups.items())
        or "Not recorded."
    )

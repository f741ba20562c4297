"""A student of Firefox Translations: what Mozilla's metadata say of it, and its card, the hub's README.md.

The card has the lines that `hf_capsule_mt.hub.cards.renamed_card` looks for, so a push renames it, and names its code.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.catalog.entries import FACTS_FILE
from capsule_mt.catalog.mozilla import AUTHOR, LICENCE, PAGE
from capsule_mt.catalog.pairs import pair_of
from capsule_mt.files.outputs import read_small_object
from capsule_mt.text.languages import LANGUAGES

# beside a model: of a download, of Mozilla's repositories of models, and of translateLocally
METADATA_FILES = (FACTS_FILE, "metadata.json", "model_info.json")
WEIGHTS_FILE, CARD_FILE = "model.safetensors", "README.md"  # of a checkpoint of transformers, in float32
MAX_SHOWN = 60  # characters of a value of the metadata
EXAMPLES = {
    "en": "The old man buys a red hat.",
    "pt": "O velho compra um chapéu vermelho.",
    "de": "Der alte Mann kauft einen roten Hut.",
    "fr": "Le vieil homme achète un chapeau rouge.",
    "es": "El anciano compra un sombrero rojo.",
}
CARD = """\
---
language:
- {source}
- {target}
license: {license}
library_name: transformers
pipeline_tag: translation
tags:
- translation
- firefox-translations
- hf_capsule_mt
---

# {name}

Translates {source_name} to {target_name}. It is the [model]({page}) of {author} for this pair,
converted to transformers by [hf_capsule_mt](https://pypi.org/project/hf-capsule-mt/). The weights are the same: the
matrices that Mozilla publishes in 8 bits are float32 here, so that they can be trained.

{facts}

## Use

```python
import hf_capsule_mt  # its models
import transformers

translator = transformers.pipeline("translation", model={model})
print(translator({example}))
```

`capsule-mt export` adds code, with which the model loads without the package by `trust_remote_code=True`.

## Fine-tune

```python
import hf_capsule_mt  # its models
import transformers

model = transformers.AutoModelForSeq2SeqLM.from_pretrained({model})
tokenizer = transformers.AutoTokenizer.from_pretrained({model})
```

It has no dropout, as Mozilla trains its students, so training starts at the loss of evaluation. After training,
`capsule-mt convert FOLDER OUT --to marian` writes the files that Marian reads.

## Limits

- Nobody checks its output: do not rely on it where a mistranslation could do harm.
- It translates sentences one by one, without the context of the others.

## Scores

{scores}

## Licence

{licence}, as the original: {page}.
"""


class Student(NamedTuple):
    """What is known of a student.

    details: further facts by their names, such as its version.
    scores: the names and values of the metrics on FLORES, as Mozilla states them.
    """

    source: str
    target: str
    name: str
    licence: str
    author: str
    page: str
    details: Mapping[str, str]
    scores: tuple[tuple[str, str], ...]


def is_download_of_mozilla(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder is a student that was downloaded by its name."""
    facts = read_small_object(Path(folder, FACTS_FILE))
    return (facts.get("licence"), facts.get("author")) == (LICENCE, AUTHOR)


def read_student(folder: str | os.PathLike[str]) -> Student:
    """Return what the files beside a student of Firefox say of it.

    Raises:
        ValueError: nothing tells its languages.
    """
    path = Path(folder)
    metadata: dict[str, Any] = {}
    for file in METADATA_FILES:
        read = read_small_object(path / file)
        metadata |= {**read, **_object(read, "release")}
    pair = pair_of(os.fspath(path))
    if pair is None:
        raise ValueError(f"{path}: its languages are not known; name the folder after them, such as en-pt")
    build = re.search(r"-(\d{9,})$", path.resolve().name)  # Firefox' own number, as in enpt-1693087644
    details = {
        "version": _text(metadata.get("version")),
        "build": build[1] if build else "",
        "kind": _text(metadata.get("architecture") or metadata.get("type")),
    }
    return Student(
        *pair,
        name=f"firefox-{pair}",
        licence=LICENCE,
        author=AUTHOR,
        page=PAGE,
        details={name: value for name, value in details.items() if value},
        scores=tuple(_scores(metadata)),
    )


def write_student_card(student: Student, checkpoint: str | os.PathLike[str], check: str = "") -> None:
    """Write the card of a converted student into its folder.

    Args:
        check: a sentence that says what was compared; empty if nothing was.
    """
    with open(Path(checkpoint, WEIGHTS_FILE), "rb") as weights:
        num_bytes = os.fstat(weights.fileno()).st_size
        header = 8 + int.from_bytes(weights.read(8), "little")
    card = _card(student, parameters=(num_bytes - header) // 4, num_bytes=num_bytes, check=check)
    Path(checkpoint, CARD_FILE).write_text(card, encoding="utf-8")


def _card(student: Student, *, parameters: int, num_bytes: int, check: str) -> str:
    facts = [f"- {name.capitalize()}: {value}." for name, value in student.details.items()]
    facts.append(f"- Size: {parameters / 1e6:.1f} million parameters, {num_bytes / 1e6:.0f} MB in float32.")
    facts += [f"- Check: {check}"] if check else []
    rows = [f"| {metric} | {value} |" for metric, value in student.scores]
    table = "\n".join(["Stated by Mozilla, for its own files:", "", "| metric | score |", "|---|---|", *rows])
    return CARD.format(
        source=student.source,
        target=student.target,
        license=student.licence.lower(),
        licence=student.licence,
        name=student.name,
        source_name=LANGUAGES.get(student.source, student.source),
        target_name=LANGUAGES.get(student.target, student.target),
        author=student.author,
        page=student.page,
        facts="\n".join(facts),
        model=json.dumps(student.name),
        example=json.dumps(EXAMPLES.get(student.source, "..."), ensure_ascii=False),
        scores=table if rows else "The files beside the model do not state any.",
    )


def _scores(metadata: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the metrics on FLORES: `metrics` of the registry, by test set, and `flores` of Mozilla's metadata.json."""
    sets = {name: scores for name, scores in _object(metadata, "metrics").items() if "flores" in str(name)}
    for name, scores in {**sets, "flores": _object(metadata, "flores")}.items():
        for metric, value in scores.items() if isinstance(scores, dict) else ():
            if isinstance(value, int | float) and not isinstance(value, bool):
                yield _text(f"{name} {metric}"), f"{value:g}"


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = fields.get(name)
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    """Return a value of the metadata as one line of Markdown; an empty text for one that is not text or a number."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    return re.sub(r"[^\w .+:/-]", "", " ".join(str(value).split()))[:MAX_SHOWN]

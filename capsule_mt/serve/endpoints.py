"""Print docs/endpoints.md: the paths, fields and answers of the server's API, from the application itself."""

import argparse
import json
from collections.abc import Iterator
from typing import Any, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from capsule_mt.serve.answers import Answers, RequestLimits
from capsule_mt.serve.app import PRIVATE
from capsule_mt.serve.files import Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import (
    ANSWER_EXAMPLES,
    FORM,
    JSON,
    OTHER_NAMES,
    PARTS,
    SEARCH_OPTIONS,
    CoverRequest,
    DetectionRequest,
    FileRequest,
    TranslationRequest,
)
from capsule_mt.serve.routes import file_router, state_router, text_router

REQUESTS: dict[str, type[BaseModel]] = {
    "/translate": TranslationRequest,
    "/cover": CoverRequest,
    "/detect": DetectionRequest,
    "/translate_file": FileRequest,
}
COVERAGE_FIELDS = {
    "score": "how complete the translation seems, from 0 to 1",
    "words": "the words of the text, each with `covered`, from 0 to 1, and `untranslated`: true if it is marked "
    "as left out",
    "sentences": "the sentences, each with its `score`; `below_threshold`, if the model has an alarm: true if it is "
    "raised",
    "checks": "faults that rules find, each with its `kind`, and what is `missing` or was `added`",
    "repetitions": "phrases that the translation repeats",
    "problems": "all of this, most certain first: a `message`, its `spans`, its `reason`, a `level`: `fault` "
    "(by a rule), `probable` or `hint`, and the `share` of such marks that are right, if it is known",
    "precision": "the share of the model's marks that a reader found right, if one read them",
    "method": "how words were marked: `verified`, `attention` or `deletion`",
    "support": "with a calibrated reverse model: how far the source supports the translation, from 0 to 1",
    "target_words": "with it, too: the words of the translation, with `supported`, and `unsupported`: true if it is "
    "marked as made up",
}
HEAD = """\
<!-- `python -m capsule_mt.serve.endpoints` writes this page from the server's code. -->

# Endpoints

With this page you can call the server of [`capsule-mt serve`](serving.md) from a program.

- Send the fields in the query string of a POST, or as {content_types}.
- `q` is one text or a list of texts, and the answers of /translate and /cover have the same shape.
- A misspelt field, a search option that the server does not take, and another service's name for a field
  ({other_names}) are refused with a hint. Other unknown fields are ignored, as in LibreTranslate.
- If the server has `--api-keys`, send `api_key` or the header `Authorization: Bearer KEY`. {private}
  need the header, or `?api_key=KEY`, too.
- An error is `{{"error": "..."}}`, except that of /health: [Errors](errors.md#answers-of-the-server) says what to do.
- [SECURITY.md](../SECURITY.md#limits-of-what-a-server-reads) lists the limits of a request.
- `GET /` is the page. `GET /docs` shows this API in a browser, with scripts from a CDN.

"""


def page() -> str:
    """Return docs/endpoints.md."""
    answers = Answers({}, RequestLimits(), Metrics(), None, Readers())
    routers = text_router(answers), file_router(answers), state_router(answers)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    private = ", ".join(f"`{path}`" for path in sorted(PRIVATE))
    other_names = ", ".join(f"`{name}`" for name in OTHER_NAMES)
    content_types = ", ".join(f"`{name}`" for name in (JSON, FORM, PARTS))
    head = HEAD.format(content_types=content_types, private=private, other_names=other_names)
    return head + "\n".join(map(_section, routes)) + _coverage()


def _section(route: APIRoute) -> str:
    summary = " ".join(route.description.partition("\f")[0].split())
    text = f"## {' '.join(sorted(route.methods or ()))} {route.path}\n\n{summary}\n"
    if route.path in REQUESTS:
        rows = "".join(_rows(REQUESTS[route.path]))
        text += f"\n| field | value | default | meaning |\n|---|---|---|---|\n{rows}"
    if route.path in ANSWER_EXAMPLES:
        text += f"\n```json\n{json.dumps(ANSWER_EXAMPLES[route.path], ensure_ascii=False)}\n```\n"
    return text


def _rows(request: type[BaseModel]) -> Iterator[str]:
    for name, field in request.model_fields.items():
        if name not in (*SEARCH_OPTIONS, "api_key"):
            default = "required" if field.is_required() else f"`{json.dumps(field.default)}`"
            default = default.replace("`null`", "")
            yield f"| `{name}` | {_value(field)} | {default} | {field.description or ''} |\n"
    if set(SEARCH_OPTIONS) <= set(request.model_fields):
        names = ", ".join(f"`{name}`" for name in SEARCH_OPTIONS)
        yield f"| {names} | number | | [search options](options.md), at most `--max-beams` beams |\n"


def _value(field: FieldInfo) -> str:
    names: dict[Any, str] = {str: "text", list[str]: "list of texts", bool: "switch", int: "whole number", Any: "file"}
    types: Any = get_args(field.annotation) or (field.annotation,)
    values = [value for kind in types for value in (get_args(kind) if kind != list[str] else ()) or (kind,)]
    return ", ".join(names.get(value, f"`{value}`") for value in values if value is not type(None))


def _coverage() -> str:
    rows = "".join(f"| `{name}` | {meaning} |\n" for name, meaning in COVERAGE_FIELDS.items())
    return f"\n## The fields of `coverage`\n\n| field | meaning |\n|---|---|\n{rows}"


def main() -> None:
    argparse.ArgumentParser(prog="python -m capsule_mt.serve.endpoints", description=__doc__).parse_args()
    print(page(), end="")


if __name__ == "__main__":
    main()

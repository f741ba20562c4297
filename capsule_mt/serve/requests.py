"""Read and check the fields of a request, from a JSON body, or from the query string and a form.

Error messages begin with LibreTranslate's where it has one.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import Annotated, Any, Literal, TypeVar, get_args
from urllib.parse import parse_qs

from fastapi import HTTPException, Request
from pydantic import BaseModel, BeforeValidator, Field, ValidationError, create_model
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from capsule_mt.coverage.names import Marks
from capsule_mt.options.table import BY_NAME, nearest, offered
from capsule_mt.text.segments import LONE_SURROGATES

CLIENT_HAS_GONE = 499  # nginx's status for it; nobody reads the answer
CLOSE = {"Connection": "close"}  # we do not read the rest of the request
FORM, JSON, PARTS = "application/x-www-form-urlencoded", "application/json", "multipart/form-data"
TOO_LONG_ADVICE = "send less at once, or start the server with a higher --max-characters"
AUTO = "auto"
SEARCH_OPTIONS = tuple(option.name for option in offered("server"))
MIN_COUNTED = 16  # characters of the limit that each text of a list takes, however short it is
MAX_FORM_ITEMS = 1000  # a list is an item for each of its texts
MAX_FIELDS = 100
# fields that LibreTranslate's clients send to any of its paths: `secret` from its page, `apiKey` from its npm client
SENT_BY_CLIENTS = ("q", "source", "target", "format", "alternatives", "api_key", "apiKey", "secret", "file")
# what other services call required fields
OTHER_NAMES = {"text": "q", "texts": "q", "from": "source", "src": "source", "to": "target", "tgt": "target"}

# the answers to the examples of requests
ANSWER_EXAMPLES: dict[str, Any] = {
    "/translate": {"translatedText": "Er schläft."},
    "/cover": {
        "coverage": {
            "score": 0.5,
            "sentences": [{"start": 0, "end": 10, "score": 0.5}],
            "words": [
                {"word": "He", "start": 0, "end": 2, "covered": 1.0, "untranslated": False},
                {"word": "sleeps", "start": 3, "end": 9, "covered": 0.1, "untranslated": True},
            ],
            "repetitions": [],
            "checks": [],
            "method": "verified",
            "problems": [
                {
                    "level": "hint",
                    "reason": "perhaps_left_out",
                    "message": "Perhaps left out: sleeps",
                    "spans": [{"side": "source", "start": 3, "end": 9}],
                }
            ],
        }
    },
    "/detect": [{"confidence": 98.0, "language": "en"}],
    "/translate_file": {"translatedFileUrl": "http://localhost:5000/download_file/Wx3fJZkbq1c9yJk2.report.docx"},
    "/languages": [{"code": "en", "name": "English", "targets": ["de", "en"]}],
    "/health": {"status": "ok"},
}


def counted(texts: str | Iterable[str]) -> int:
    """Return the characters that count against the limit: each text of a list counts for at least `MIN_COUNTED`."""
    return len(texts) if isinstance(texts, str) else sum(max(len(text), MIN_COUNTED) for text in texts)


class Fields(BaseModel):
    """The fields of every request."""

    api_key: str = Field("", description="a key, if the server has `--api-keys`")

    @property
    def characters(self) -> int:
        """The number of characters that count against the limit."""
        return 0


SOURCE_FIELD: Any = Field(
    description="a code of /languages, with or without a region (`pt-BR`), or LibreTranslate's `pb` and `zt`; `auto` "
    "detects it, except in /cover",
    examples=["en"],
)
TARGET_FIELD: Any = Field(description="the language of the translation, a code like `source`", examples=["de"])


class TextRequest(Fields):
    """The fields of a request with texts to translate or to check."""

    q: str | list[str] = Field(description="a text, or a list of texts", examples=["He sleeps."])
    source: str = SOURCE_FIELD
    target: str = TARGET_FIELD

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def characters(self) -> int:
        return counted(self.q)

    def in_shape_of_q(self, answer: dict[str, list[Any]]) -> dict[str, Any]:
        """Return an answer in the shape of `q`: lists stay lists, and one text has single values."""
        return {name: values[0] for name, values in answer.items()} if isinstance(self.q, str) else answer


AlignmentField = Annotated[
    bool,
    Field(
        description="add `alignment`: pairs of indices of a source word and its translation, words split at spaces; "
        "null for a pair through English"
    ),
]
MarksField = Annotated[
    Marks | None,
    Field(
        description="how certain the marks of coverage must be; adds `marks`: "
        "`verified`, or `unverified` if all three mark the same words, since no reverse model verifies them"
    ),
]


class TranslationFields(TextRequest):
    """The fields of POST /translate that are not search options."""

    format: Annotated[Literal["text", "html"], BeforeValidator(lambda value: value or "text")] = Field(
        "text", description="`html` keeps the markup, and refuses `coverage`, `alignment` and `edits`"
    )
    alternatives: int = Field(
        0,
        ge=0,
        description="add up to this number of further translations of each text; far less probable ones are dropped",
    )
    coverage: bool = Field(False, description="add `coverage` of each text: what may be left out, and what rules find")
    alignment: AlignmentField = False
    edits: bool = Field(
        False,
        description="add `edits` of each text: what rules changed in it before the model read it, by their names",
    )
    marks: MarksField = None

    @property
    def search(self) -> dict[str, Any]:
        """The search options of the request."""
        options = {option.name: getattr(self, option.name) for option in offered("server")}
        return {name: value for name, value in options.items() if value is not None}


def _search_fields() -> dict[str, Any]:
    """Return the search options that the server offers, which are all numbers, as fields of pydantic."""
    fields: dict[str, Any] = {}
    for option in offered("server"):
        minimum, maximum = option.range
        limits: dict[str, Any] = {"gt" if option.excludes_minimum else "ge": minimum, "le": maximum}
        kind = int if option.kind == "integer" else float
        fields[option.name] = (kind | None, Field(None, description=option.help, **limits))
    return fields


# the fields above and the search options of the table that the server offers
TranslationRequest = create_model(
    "TranslationRequest", __base__=TranslationFields, __doc__="The fields of POST /translate.", **_search_fields()
)


class CoverRequest(TextRequest):
    """The fields of POST /cover."""

    translation: str | list[str] = Field(description="the translation of each text", examples=["Er schläft."])
    format: Annotated[Literal["text"], BeforeValidator(lambda value: value or "text")] = Field(
        "text", description="the model does not read tags; it reads entities such as `&amp;` as text"
    )
    alignment: AlignmentField = False
    marks: MarksField = None

    @property
    def translations(self) -> list[str]:
        return [self.translation] if isinstance(self.translation, str) else self.translation

    @property
    def characters(self) -> int:
        return super().characters + sum(map(len, self.translations))


class DetectionRequest(Fields):
    """The fields of POST /detect."""

    q: str | list[str] = Field(description="a text", examples=["Hello world!"])

    @property
    def text(self) -> str:
        return self.q if isinstance(self.q, str) else "\n".join(self.q)

    @property
    def characters(self) -> int:
        return counted(self.q)


class FileRequest(Fields):
    """The fields of POST /translate_file, a form in parts."""

    file: Any = Field(description="the file to translate")
    source: str = SOURCE_FIELD
    target: str = TARGET_FIELD


AnyFields = TypeVar("AnyFields", bound=Fields)
Result = TypeVar("Result")


def body_of(model: type[BaseModel], *content_types: str) -> dict[str, Any]:
    """Return OpenAPI's description of the body with an example, for each of these content types."""
    fields = model.model_fields
    example = {name: field.examples[0] for name, field in fields.items() if field.examples}
    content = {"schema": model.model_json_schema(), "example": example}
    return {"requestBody": {"required": True, "content": dict.fromkeys(content_types or (JSON, FORM, PARTS), content)}}


def answer_like(path: str) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's description of a path's answer: its example."""
    return {200: {"content": {JSON: {"example": ANSWER_EXAMPLES[path]}}}}


async def read_request(request: Request, model: type[AnyFields], max_bytes: int, seconds: float) -> AnyFields:
    """Read and check the fields of a request, which must arrive within these seconds."""
    try:
        body = await asyncio.wait_for(_read_body(request, max_bytes), seconds)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {seconds:g} s", CLOSE) from None
    except ClientDisconnect:
        raise HTTPException(CLIENT_HAS_GONE, "the client has gone") from None
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        fields = {} if content_type == JSON else _of_form(request.url.query.encode())
        fields |= await _fields_of(body, content_type, request)
    except (ValueError, RecursionError, MultiPartException) as error:
        raise HTTPException(400, f"the request cannot be read: {error}") from None
    return _checked({name: _without_lone_surrogates(value) for name, value in fields.items()}, model)


async def unless_gone(request: Request, work: "asyncio.Future[Result]") -> Result:
    """Wait for the work of a request; cancel it if its client goes away."""

    async def wait_until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    # asyncio logs an exception that nobody has read
    work.add_done_callback(lambda future: future.cancelled() or future.exception())
    disconnect = asyncio.ensure_future(wait_until_gone())
    events: set[Awaitable[Any]] = {work, disconnect}
    try:
        await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and disconnect.exception() is None:
            raise HTTPException(CLIENT_HAS_GONE, "the client has gone")
        return await work
    finally:
        disconnect.cancel()
        work.cancel()


async def _read_body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise HTTPException(413, f"the request has more than {max_bytes} bytes: {TOO_LONG_ADVICE}", CLOSE)
    return bytes(body)


async def _fields_of(body: bytes, content_type: str, request: Request) -> dict[str, Any]:
    """Return the fields in a body of this content type."""
    if not body and content_type != JSON:
        return {}
    if content_type == FORM:
        if body.lstrip().startswith(b"{"):  # `curl -d '{...}'` without a header
            raise HTTPException(400, f"the request looks like JSON, but its content type is {FORM}: send {JSON}")
        return _of_form(body)
    if content_type == PARTS:

        async def chunks() -> AsyncIterator[bytes]:
            yield body

        parts = await MultiPartParser(request.headers, chunks(), max_files=1, max_part_size=len(body)).parse()  # type: ignore[arg-type]
        return _joined([(name, value) for name, value in parts.multi_items()])
    if content_type not in (JSON, ""):
        raise HTTPException(415, f"the content type must be {JSON}, {FORM} or {PARTS}, got {content_type!r}")
    fields = json.loads(body)
    if not isinstance(fields, dict):
        raise HTTPException(400, f"Invalid JSON format: the request must be an object, got a {type(fields).__name__}")
    return fields


def _of_form(content: bytes) -> dict[str, Any]:
    fields = parse_qs(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FORM_ITEMS)
    return _joined([(name, value) for name, values in fields.items() for value in values])


def _joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the fields of a form; a repeated one is a list. Line breaks become those of JSON."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        value = value.replace("\r\n", "\n") if isinstance(value, str) else value
        if name not in fields:
            fields[name] = value
        else:
            fields[name] = [*(fields[name] if isinstance(fields[name], list) else [fields[name]]), value]
    return fields


def _without_lone_surrogates(value: Any) -> Any:
    """Replace lone surrogates, which cannot be encoded in an answer."""
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    return LONE_SURROGATES.sub("\ufffd", value) if isinstance(value, str) else value


def _checked(values: dict[str, Any], model: type[AnyFields]) -> AnyFields:
    if len(values) > MAX_FIELDS:
        raise HTTPException(400, f"the request has {len(values)} fields; at most {MAX_FIELDS} are read")
    for name in values:
        if name in model.model_fields or name in SENT_BY_CLIENTS:
            continue
        if name in SEARCH_OPTIONS:
            raise HTTPException(400, f"`{name}` is a search option of /translate, and this path does not take it")
        if name in BY_NAME:
            taken = ", ".join(SEARCH_OPTIONS)
            raise HTTPException(400, f"`{name}` is a search option that the server does not take; it takes {taken}")
        # LibreTranslate ignores unknown fields, so clients may send any: refuse only another name of ours
        meant = OTHER_NAMES.get(name)
        known = f" (did you mean `{meant}`?)" if meant in model.model_fields else ""
        if hint := known or nearest(name[:40], model.model_fields, " ({})"):
            fields = ", ".join(model.model_fields)
            raise HTTPException(400, f"unknown field {name[:40]!r}{hint}; the fields are {fields}")
    for name, field in model.model_fields.items():
        if field.is_required() and (name not in values or values[name] in (None, "", [])):
            raise HTTPException(400, f"Invalid request: missing {name} parameter")
    formats = get_args(model.model_fields["format"].annotation) if "format" in model.model_fields else ()
    if formats and values.get("format") not in (None, "", *formats):
        accepted = ", ".join(formats)
        raise HTTPException(400, f"{str(values['format'])[:40]} format is not supported; these are: {accepted}")
    try:
        return model.model_validate({name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        message = first["msg"][:1].lower() + first["msg"][1:]
        if name in ("q", "translation"):  # pydantic has a message for each type of the union
            message = "must be a text or a list of texts"
        raise HTTPException(400, f"`{name}`: {message}, got {_quoted(values.get(name))}") from None


def _quoted(value: Any) -> str:
    """Return the beginning of a value as an error quotes it: a text in quotes, others as Python writes them."""
    return repr(value[:40]) if isinstance(value, str) else repr(value)[:40]


def uploaded(request: FileRequest) -> UploadFile:
    """Return the file of a request."""
    if not isinstance(request.file, UploadFile):
        raise HTTPException(400, f"Invalid request: file must be a part of a form ({PARTS})")
    return request.file

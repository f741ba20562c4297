"""Read what a request asks: its fields, as JSON or as a form, and their errors."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from fastapi import HTTPException, Request
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.requests import ClientDisconnect

from capsule_mt.coverage.results import Marks

CLIENT_HAS_GONE = 499  # as nginx counts it; nobody reads the answer
CLOSE = {"Connection": "close"}  # the rest of the request is not read


class Asked(BaseModel):
    """The fields that every request for a model has."""

    q: str | list[str] = Field(description="a text, or a list of texts", examples=["He sleeps."])
    source: str = Field(description="the language of the text, one of /languages", examples=["en"])
    target: str = Field(description="the language of the translation", examples=["de"])
    api_key: str = ""

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q

    @property
    def characters(self) -> int:
        return sum(map(len, self.texts))

    def as_asked(self, answer: dict[str, list[Any]]) -> dict[str, Any]:
        """Return an answer for a list of texts in the shape of `q`."""
        return {name: values[0] for name, values in answer.items()} if isinstance(self.q, str) else answer


MARKS = Field("likely", description="which words coverage marks: those that are surely wrong, likely, or all doubts")


class TranslationRequest(Asked):
    """The fields of POST /translate."""

    format: Literal["text"] = "text"
    coverage: bool = Field(False, description="add which words were translated, for each text")
    marks: Marks = MARKS
    beams: int | None = Field(None, ge=1, description="search with so many beams; with `coverage`, for what has all")
    alternatives: Annotated[Literal[0], BeforeValidator(lambda given: 0 if given == "0" else given)] = 0


class CoverRequest(Asked):
    """The fields of POST /cover."""

    translation: str | list[str] = Field(description="the translation of each text", examples=["Er schläft."])
    marks: Marks = MARKS

    @property
    def translations(self) -> list[str]:
        return [self.translation] if isinstance(self.translation, str) else self.translation

    @property
    def characters(self) -> int:
        return super().characters + sum(map(len, self.translations))


Fields = TypeVar("Fields", bound=Asked)
Result = TypeVar("Result")


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return how OpenAPI describes the body, which is JSON or a form."""
    schema = {"schema": model.model_json_schema()}
    content = {"application/json": schema, "application/x-www-form-urlencoded": schema}
    return {"requestBody": {"required": True, "content": content}}


async def read_request(request: Request, model: type[Fields], max_bytes: int, seconds: float) -> Fields:
    """Read and check the fields of a request, which has so many seconds to arrive."""
    try:
        body = await asyncio.wait_for(_read_body(request, max_bytes), seconds)
    except asyncio.TimeoutError:
        raise HTTPException(408, f"the request did not arrive within {seconds:g} s", CLOSE) from None
    except ClientDisconnect:
        raise HTTPException(CLIENT_HAS_GONE, "the client has gone") from None
    return _checked(_fields_of(body, request.headers.get("content-type", "application/json")), model)


async def unless_gone(request: Request, work: "asyncio.Future[Result]") -> Result:
    """Wait for the work of a request; cancel what has not begun once its client has gone."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs what nobody has read
    leaving = asyncio.ensure_future(gone())
    both: set[Awaitable[Any]] = {work, leaving}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and leaving.exception() is None:
            raise HTTPException(CLIENT_HAS_GONE, "the client has gone")
        return await work
    finally:
        leaving.cancel()
        work.cancel()


async def _read_body(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise HTTPException(413, f"the request has more than {max_bytes} bytes", CLOSE)
    return bytes(body)


def _fields_of(body: bytes, content_type: str) -> dict[str, Any]:
    """Return the fields of a body; a form that names a field twice has a list."""
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == "application/x-www-form-urlencoded":
            found = parse_qs(body.decode(), keep_blank_values=True, errors="strict")
            return {name: values[0] if len(values) == 1 else values for name, values in found.items()}
        if kind != "application/json":
            accepted = "application/json or application/x-www-form-urlencoded"
            raise HTTPException(415, f"the content type must be {accepted}, got {kind!r}")
        fields = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the request cannot be read: {error}") from None
    if not isinstance(fields, dict):
        raise HTTPException(400, f"the request must be a JSON object, got a {type(fields).__name__}")
    return fields


def _checked(fields: dict[str, Any], model: type[Fields]) -> Fields:
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        message = first["msg"][:1].lower() + first["msg"][1:]
        if name in ("q", "translation") and name in fields:  # not one message for each kind that it may be
            message = "must be a text or a list of texts"
        got = f", got {str(fields[name])[:40]!r}" if name in fields else ""
        raise HTTPException(400, f"`{name}`: {message}{got}") from None

"""The HTTP API: the paths, fields and errors of LibreTranslate, and metrics."""

import asyncio
import hmac
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import parse_qs

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from capsule_mt.text.line_failures import Failure
from hf_capsule_mt.pipelines.translation import coverage_record
from hf_capsule_mt.serve.batching import Batcher, QueueFullError, StoppingError
from hf_capsule_mt.serve.languages import LanguagePair, describe_languages
from hf_capsule_mt.serve.metrics import Metrics

# a character of four bytes is "%F0%9F%98%80" in a form and "\ud83d\ude00" in JSON
LONGEST_ESCAPE = 12
ROOM_FOR_OTHER_FIELDS = 65536
CLIENT_HAS_GONE = 499  # as nginx counts it; nobody reads the answer


@dataclass(frozen=True)
class Limits:
    """What a request may have: so many characters in all of its texts, and this key, if there is one."""

    max_characters: int = 5000
    api_key: str | None = None

    @property
    def max_bytes(self) -> int:
        return LONGEST_ESCAPE * self.max_characters + ROOM_FOR_OTHER_FIELDS


class TranslationRequest(BaseModel):
    """The fields of POST /translate, as JSON or as a form."""

    q: str | list[str] = Field(description="a text, or a list of texts", examples=["He sleeps."])
    source: str = Field(description="the language of the text, one of /languages", examples=["en"])
    target: str = Field(description="the language of the translation", examples=["de"])
    format: Literal["text"] = "text"
    coverage: bool = Field(False, description="add which words were translated, for each text")
    alternatives: Annotated[Literal[0], BeforeValidator(lambda given: 0 if given == "0" else given)] = 0
    api_key: str = ""


async def _unless_gone(request: Request, work: "asyncio.Future[list[Any]]") -> list[Any]:
    """Wait for the work of a request; cancel what has not begun once its client has gone."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    work.add_done_callback(lambda done: done.cancelled() or done.exception())  # asyncio logs what nobody has read
    leaving = asyncio.ensure_future(gone())
    both: set[asyncio.Future[Any]] = {work, leaving}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and leaving.exception() is None:
            raise HTTPException(CLIENT_HAS_GONE, "the client has gone")
        return await work
    finally:
        leaving.cancel()
        work.cancel()


def build_app(batchers: Mapping[LanguagePair, Batcher], limits: Limits, metrics: Metrics) -> FastAPI:
    """Return the application that translates with these batchers."""
    app = FastAPI(
        title="capsule-mt",
        summary="Translation with coverage, in the shape of LibreTranslate's API",
        # FastAPI's own 422 has another form than these errors
        responses={400: {"description": "what is wrong with the request", "content": {"application/json": {}}}},
    )

    @app.middleware("http")
    async def count(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        started, status = time.perf_counter(), 500
        try:
            response = await call_next(request)
            status = response.status_code
        finally:
            route = request.scope.get("route")
            path = getattr(route, "path", "other")  # no label for each path that somebody tries
            metrics.requests.add(path=path, status=str(status))
            if path == "/translate":
                metrics.seconds.add(time.perf_counter() - started)
        return response

    @app.exception_handler(AnyHTTPException)
    async def explain(request: Request, error: AnyHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def explain_unexpected(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "internal error; the server's log has it"}, 500)

    @app.post("/translate", openapi_extra=_body(TranslationRequest))
    async def translate(request: Request) -> Response:
        """Translate a text or a list of texts; `translatedText` has the same shape and order as `q`."""
        asked = _checked(await _fields(request, limits.max_bytes))
        given = asked.api_key.encode("utf-8", "surrogatepass")
        if limits.api_key is not None and not hmac.compare_digest(given, limits.api_key.encode()):
            raise HTTPException(403, "`api_key` is missing or wrong")
        batcher = _batcher(batchers, asked)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        characters = sum(map(len, texts))
        if characters > limits.max_characters:
            raise HTTPException(413, f"`q` has {characters} characters; at most {limits.max_characters} are accepted")
        if len(texts) > batcher.max_queue:
            raise HTTPException(413, f"`q` has {len(texts)} texts; at most {batcher.max_queue} are accepted")
        try:
            futures = batcher.submit(texts, asked.coverage)
        except QueueFullError as error:
            raise HTTPException(503, str(error), headers={"Retry-After": str(error.retry_after)}) from None
        except StoppingError as error:
            raise HTTPException(503, str(error)) from None
        found = await _unless_gone(request, asyncio.gather(*map(asyncio.wrap_future, futures)))
        pair = f"{asked.source}-{asked.target}"
        translations = []
        for number, translation in enumerate(found):
            if isinstance(translation, Failure):
                metrics.failures.add(pair=pair)
                raise HTTPException(400, f"text {number} of `q` cannot be translated: {translation.reason}")
            translations.append(translation)
        metrics.texts.add(len(texts), pair=pair)
        metrics.characters.add(characters, pair=pair)
        answer: dict[str, Any] = {"translatedText": [translation.text for translation in translations]}
        if asked.coverage:
            answer["coverage"] = [coverage_record(translation.coverage) for translation in translations]
        if isinstance(asked.q, str):
            answer = {name: values[0] for name, values in answer.items()}
        return JSONResponse(answer)

    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """List the languages that can be translated, and into which."""
        return describe_languages(batchers)

    @app.post("/detect")
    async def detect() -> None:
        """Refuse: there is no language detection."""
        raise HTTPException(501, "this server does not detect languages; name the `source` of a text")

    @app.get("/health")
    async def health() -> JSONResponse:
        """Return 200 if every model can translate, else 503."""
        down = [str(pair) for pair, batcher in batchers.items() if not batcher.is_alive]
        if down:
            return JSONResponse({"status": "down", "pairs": down}, 503)
        return JSONResponse({"status": "ok"})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics_page() -> PlainTextResponse:
        """Return the metrics in the text format of Prometheus."""
        page = metrics.page({str(pair): len(batcher) for pair, batcher in batchers.items()})
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


def _body(model: type[BaseModel]) -> dict[str, Any]:
    """Return how OpenAPI describes the body, which is JSON or a form."""
    schema = {"schema": model.model_json_schema()}
    content = {"application/json": schema, "application/x-www-form-urlencoded": schema}
    return {"requestBody": {"required": True, "content": content}}


async def _fields(request: Request, max_bytes: int) -> dict[str, Any]:
    """Read the fields of a request; a form that names a field twice has a list."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise HTTPException(413, f"the request has more than {max_bytes} bytes")
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
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


def _checked(fields: dict[str, Any]) -> TranslationRequest:
    try:
        return TranslationRequest.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        message = first["msg"][:1].lower() + first["msg"][1:]
        if name == "q" and name in fields:  # not one message for each kind that it may be
            message = "must be a text or a list of texts"
        got = f", got {str(fields[name])[:40]!r}" if name in fields else ""
        raise HTTPException(400, f"`{name}`: {message}{got}") from None


def _batcher(batchers: Mapping[LanguagePair, Batcher], asked: TranslationRequest) -> Batcher:
    batcher = batchers.get(LanguagePair(asked.source, asked.target))
    if batcher is None:
        pairs = ", ".join(sorted(map(str, batchers)))
        hint = "; languages are not detected" if asked.source == "auto" else ""
        wanted = f"{asked.source[:40]!r} to {asked.target[:40]!r}"
        raise HTTPException(400, f"`source` and `target`: {wanted} is not served{hint}; these are: {pairs}")
    return batcher

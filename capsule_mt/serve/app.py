"""The HTTP API: the paths, fields and errors of LibreTranslate; coverage, metrics and the page."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.cors import CORSMiddleware

from capsule_mt.serve.batching import Batcher, QueueFullError, StoppingError
from capsule_mt.serve.languages import LanguagePair, describe_languages
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import Asked, CoverRequest, TranslationRequest, body_of, read_request, unless_gone
from capsule_mt.text.line_failures import Failure
from capsule_mt.text.lines import coverage_record

PAGE = Path(__file__).parent / "page"
PAGE_FILES = {"/": "index.html", "/page.js": "page.js", "/page.css": "page.css"}
# a character of four bytes is "%F0%9F%98%80" in a form and "\ud83d\ude00" in JSON
LONGEST_ESCAPE = 12
ROOM_FOR_OTHER_FIELDS = 65536


@dataclass(frozen=True)
class Limits:
    """What a request may have.

    Attributes:
        max_characters: the most characters of all its texts together.
        max_beams: the most beams that it may ask for.
        read_seconds: how long it may take to arrive.
        api_key: the key that it must have, if there is one.
        cors: the origin whose pages may send it, "*" for any, `None` for none.
    """

    max_characters: int = 5000
    max_beams: int = 8
    read_seconds: float = 10.0
    api_key: str | None = None
    cors: str | None = "*"

    @property
    def max_bytes(self) -> int:
        return LONGEST_ESCAPE * self.max_characters + ROOM_FOR_OTHER_FIELDS


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
            if path in ("/translate", "/cover"):
                metrics.seconds.add(time.perf_counter() - started, path=path)
        return response

    if limits.cors is not None:
        app.add_middleware(
            CORSMiddleware, allow_origins=[limits.cors], allow_methods=["GET", "POST"], allow_headers=["*"]
        )

    @app.exception_handler(AnyHTTPException)
    async def explain(request: Request, error: AnyHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def explain_unexpected(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "internal error; the server's log has it"}, 500)

    async def answer(request: Request, asked: Asked, submit: Callable[[Batcher], "list[Future[Any]]"]) -> list[Any]:
        """Check a request, submit it to its batcher, and return what is found for each text of `q`."""
        given = asked.api_key.encode("utf-8", "surrogatepass")
        if limits.api_key is not None and not hmac.compare_digest(given, limits.api_key.encode()):
            raise HTTPException(403, "`api_key` is missing or wrong")
        batcher, texts = _batcher(batchers, asked), asked.texts
        if asked.characters > limits.max_characters:
            most = limits.max_characters
            raise HTTPException(413, f"the request has {asked.characters} characters; at most {most} are accepted")
        if len(texts) > batcher.max_queue:
            raise HTTPException(413, f"`q` has {len(texts)} texts; at most {batcher.max_queue} are accepted")
        try:
            found = await unless_gone(request, asyncio.gather(*map(asyncio.wrap_future, submit(batcher))))
        except QueueFullError as error:
            raise HTTPException(503, str(error), headers={"Retry-After": str(error.retry_after)}) from None
        except StoppingError as error:
            raise HTTPException(503, str(error)) from None
        pair = f"{asked.source}-{asked.target}"
        for number, result in enumerate(found):
            if isinstance(result, Failure):
                metrics.failures.add(pair=pair)
                raise HTTPException(400, f"text {number} of `q` cannot be translated: {result.reason}")
        metrics.texts.add(len(found), pair=pair)
        metrics.characters.add(asked.characters, pair=pair)
        return found

    @app.post("/translate", openapi_extra=body_of(TranslationRequest))
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or a list of texts; `translatedText` has the same shape and order as `q`."""
        asked = await read_request(request, TranslationRequest, limits.max_bytes, limits.read_seconds)
        if asked.beams is not None and asked.beams > limits.max_beams:
            raise HTTPException(400, f"`beams`: at most {limits.max_beams} are accepted, got {asked.beams}")
        found = await answer(
            request, asked, lambda batcher: batcher.submit(asked.texts, asked.coverage, asked.beams, asked.marks)
        )
        translated: dict[str, list[Any]] = {"translatedText": [translation.text for translation in found]}
        if asked.coverage:
            translated["coverage"] = [coverage_record(translation.coverage) for translation in found]
        return JSONResponse(asked.as_asked(translated))

    @app.post("/cover", openapi_extra=body_of(CoverRequest))
    async def cover(request: Request) -> JSONResponse:
        """Find what a given `translation` of `q`, each a text or a list of texts, has left out."""
        asked = await read_request(request, CoverRequest, limits.max_bytes, limits.read_seconds)
        texts, translations = asked.texts, asked.translations
        if type(asked.q) is not type(asked.translation) or len(texts) != len(translations):
            given = f"{len(texts)} texts in `q`, {len(translations)} in `translation`"
            raise HTTPException(400, f"`translation` must be one text or a list as `q` is, got {given}")
        found = await answer(request, asked, lambda batcher: batcher.submit_checks(texts, translations, asked.marks))
        return JSONResponse(asked.as_asked({"coverage": [coverage_record(coverage) for coverage in found]}))

    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """List the languages that can be translated, and into which."""
        return describe_languages(batchers)

    @app.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return what a page has to know of this server."""
        return {
            "charLimit": limits.max_characters,
            "keyRequired": limits.api_key is not None,
            "maxBeams": limits.max_beams,
            "precision": {str(pair): batcher.precision for pair, batcher in batchers.items() if batcher.precision},
        }

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

    for path, name in PAGE_FILES.items():
        app.add_api_route(path, _file(PAGE / name), include_in_schema=False)
    return app


def _file(path: Path) -> Callable[[], Awaitable[FileResponse]]:
    async def send() -> FileResponse:
        return FileResponse(path, headers={"Cache-Control": "no-cache"})

    return send


def _batcher(batchers: Mapping[LanguagePair, Batcher], asked: Asked) -> Batcher:
    batcher = batchers.get(LanguagePair(asked.source, asked.target))
    if batcher is None:
        pairs = ", ".join(sorted(map(str, batchers)))
        hint = "; languages are not detected" if asked.source == "auto" else ""
        wanted = f"{asked.source[:40]!r} to {asked.target[:40]!r}"
        raise HTTPException(400, f"`source` and `target`: {wanted} is not served{hint}; these are: {pairs}")
    return batcher

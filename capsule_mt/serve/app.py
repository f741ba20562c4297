"""The HTTP API: the paths, fields and errors of LibreTranslate; coverage, metrics and the page."""

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException as AnyHTTPException
from starlette.middleware.cors import CORSMiddleware

from capsule_mt.catalog.pairs import LanguagePair, describe_languages
from capsule_mt.files.lines import coverage_record
from capsule_mt.formats.apart import Source
from capsule_mt.formats.reading import FORMATS, NEEDS_COLUMN, PLAIN, format_of
from capsule_mt.serve.answers import Answers, Limits
from capsule_mt.serve.batching import Batcher, Order, RequestSettings
from capsule_mt.serve.clients import key_in_head
from capsule_mt.serve.files import Files, Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import (
    AUTO,
    PARTS,
    CoverRequest,
    DetectionRequest,
    FileRequest,
    TranslationRequest,
    body_of,
    uploaded,
)
from capsule_mt.text.detecting import Detected, Detector

PAGE = Path(__file__).parent / "page"
PAGE_FILES = {"/": "index.html", **{f"/{name}": name for name in ("page.js", "page.css", "service.js")}}
FILE_FORMATS = (".txt", *(suffix for format, some in FORMATS.items() if format not in NEEDS_COLUMN for suffix in some))
MAX_NAME = 100  # characters of a file's name, from its end
PRIVATE = frozenset({"/metrics", "/docs", "/redoc", "/openapi.json", "/spec"})  # where there are keys


def build_app(
    batchers: Mapping[LanguagePair, Batcher],
    limits: Limits,
    metrics: Metrics,
    detector: Detector | None = None,
    readers: Readers | None = None,
) -> FastAPI:
    """Return the application that translates with these batchers, and reads files with these readers."""
    answers, files = Answers(batchers, limits, metrics, detector, readers or Readers()), Files()
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
            metrics.add("requests_total", path=path, status=str(status))
            if path in ("/translate", "/cover"):
                metrics.add("request_seconds_sum", time.perf_counter() - started, path=path)
                metrics.add("request_seconds_count", path=path)
        return response

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        host = request.url.hostname or ""
        if limits.hosts and host.lower() not in limits.hosts:
            return JSONResponse({"error": f"the server is not called {host[:80]!r} (`--hosts`)"}, 400)
        if limits.keys and request.url.path in PRIVATE and key_in_head(request) not in limits.keys:
            return JSONResponse({"error": "this path needs `Authorization: Bearer KEY`"}, 403)
        return await call_next(request)

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

    @app.post("/translate", openapi_extra=body_of(TranslationRequest))
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or a list of texts; `translatedText` has the same shape and order as `q`."""
        asked, client = await answers.read(request, TranslationRequest)
        search = asked.search
        for name, given in (("num_beams", search.get("num_beams", 1)), ("alternatives", 1 + asked.alternatives)):
            if given > limits.max_beams:
                most = limits.max_beams - (name == "alternatives")
                raise HTTPException(400, f"`{name}`: at most {most} are accepted, got {getattr(asked, name)}")
        if asked.marks is not None and not asked.coverage:
            raise HTTPException(400, "`marks` chooses among what `coverage` marks: set `coverage` to true")
        sources, target = answers.detected(asked), answers.language_of(asked.target)
        settings = RequestSettings(asked.coverage, tuple(search.items()), asked.alternatives, marks=asked.marks)
        languages = [one.language for one in sources]
        if asked.format == "html":
            if asked.coverage:
                raise HTTPException(400, "`coverage` is for texts, not for `format` html")
            written = []
            for number, (text, language) in enumerate(zip(asked.texts, languages, strict=True)):
                page = Source(text.encode(), "html", f"text {number}", "utf-8")
                texts = await answers.texts_of(request, page, client)
                pair = LanguagePair(language, target)
                contents = await answers.translated(request, page, texts, pair, settings, client)
                written.append([content.decode() for content in contents])
        else:
            found = await answers.translations(request, asked.texts, languages, target, settings, client)
            written = [[one.text for one in some] for some in found]
        answer: dict[str, list[Any]] = {"translatedText": [best for best, *_ in written]}
        if asked.alternatives:
            answer["alternatives"] = [
                list(dict.fromkeys(one for one in rest if one != best)) for best, *rest in written
            ]
        if asked.source == AUTO:
            answer["detectedLanguage"] = [_percent(one) for one in sources]
        if asked.coverage:
            covered = [best.coverage for best, *_ in found]
            answer["coverage"] = [None if one is None else coverage_record(one) for one in covered]
        if asked.marks is not None:
            answer["marks"] = [answers.state_of_marks(LanguagePair(language, target)) for language in languages]
        return JSONResponse(asked.as_asked(answer))

    @app.post("/cover", openapi_extra=body_of(CoverRequest))
    async def cover(request: Request) -> JSONResponse:
        """Find what a given `translation` of `q`, each a text or a list of texts, has left out."""
        asked, client = await answers.read(request, CoverRequest)
        texts, given = asked.texts, asked.translations
        if type(asked.q) is not type(asked.translation) or len(texts) != len(given):
            numbers = f"{len(texts)} texts in `q`, {len(given)} in `translation`"
            raise HTTPException(400, f"`translation` must be one text or a list as `q` is, got {numbers}")
        pair = LanguagePair(answers.language_of(asked.source), answers.language_of(asked.target))

        def submit(batcher: Batcher, some: list[str]) -> Order:
            return batcher.submit_checks(some, given, marks=asked.marks, client=client)

        found = await answers.results(request, texts, dict.fromkeys(range(len(texts)), pair), submit)
        answer: dict[str, list[Any]] = {"coverage": [coverage_record(one) for one in found.values()]}
        if asked.marks is not None:
            answer["marks"] = [answers.state_of_marks(pair)] * len(texts)
        return JSONResponse(asked.as_asked(answer))

    @app.post("/detect", openapi_extra=body_of(DetectionRequest))
    async def detect_language(request: Request) -> list[dict[str, Any]]:
        """Return the languages that a text may be in, the likeliest first, each with a `confidence` in per cent."""
        asked, _ = await answers.read(request, DetectionRequest)
        return [_percent(one) for one in answers.detect(asked.text)]

    @app.post("/translate_file", openapi_extra=body_of(FileRequest, PARTS))
    async def translate_file(request: Request) -> dict[str, str]:
        """Translate a file, which keeps its format; `translatedFileUrl` has the translation for ten minutes."""
        asked, client = await answers.read(request, FileRequest)
        file = uploaded(asked)
        name = Path((file.filename or "").replace("\\", "/")).name[-MAX_NAME:]
        if Path(name).suffix.lower() not in FILE_FORMATS:
            raise HTTPException(400, f"Invalid request: file format not supported, only {', '.join(FILE_FORMATS)}")
        target, is_auto = answers.language_of(asked.target), asked.source == AUTO
        sent = Source(await file.read(), format_of(name) or PLAIN, name, None, target)
        texts = await answers.texts_of(request, sent, client)
        answers.check_length(texts.characters)
        text = " ".join(unit.text for unit in texts.units)
        source = answers.detect(text)[0].language if is_auto else answers.language_of(asked.source)
        pair = LanguagePair(source, target)
        (written,) = await answers.translated(request, sent, texts, pair, RequestSettings(), client)
        return {"translatedFileUrl": str(request.url_for("download_file", name=files.store(name, written)))}

    @app.get("/download_file/{name}")
    async def download_file(name: str) -> Response:
        """Return a file that was translated in the last ten minutes."""
        content = files.get(name)
        if content is None:
            raise HTTPException(404, "there is no such file, or not any more")
        headers = {"Content-Disposition": "attachment", "X-Content-Type-Options": "nosniff"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    @app.post("/suggest")
    async def suggest() -> None:
        """Refuse: suggestions are not collected."""
        raise HTTPException(403, "Suggestions are disabled on this server.")

    @app.get("/languages")
    async def languages() -> list[dict[str, Any]]:
        """List the languages, and into which each can be translated."""
        return describe_languages(batchers)

    @app.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return what a page has to know of this server."""
        source, target = next(iter(batchers))
        known = {AUTO: "Auto Detect", **{one["code"]: one["name"] for one in describe_languages(batchers)}}
        first = source if detector is None else AUTO
        return {
            "apiKeys": bool(limits.keys),
            "charLimit": limits.max_characters,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "keyRequired": bool(limits.keys),
            "language": {
                "source": {"code": first, "name": known[first]},
                "target": {"code": target, "name": known[target]},
            },
            "maxBeams": limits.max_beams,
            "precision": {str(pair): found for pair, one in batchers.items() if (found := one.translator.precision)},
            "suggestions": False,
            "supportedFilesFormat": list(FILE_FORMATS),
            "verified": [str(pair) for pair, one in batchers.items() if one.translator.has_reverse],
        }

    @app.get("/spec")
    async def spec() -> dict[str, Any]:
        """Return the description of this API, in the format of OpenAPI."""
        return app.openapi()

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


def _percent(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": found.language}

"""The HTTP API: the paths, fields and errors of LibreTranslate; coverage, metrics and the page."""

import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from capsule_mt import __version__
from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.answers import Answers, RequestLimits
from capsule_mt.serve.batching import Batcher
from capsule_mt.serve.clients import Doorkeeper, key_in_head
from capsule_mt.serve.files import Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.requests import CLOSE
from capsule_mt.serve.routes import file_router, state_router, text_router
from capsule_mt.text.detecting import Detector

PAGE = Path(__file__).parent / "page"
SCRIPTS = ("page.js", "reasons.js", "marks.js", "service.js")
PAGE_FILES = {"/": "index.html", **{f"/{name}": name for name in (*SCRIPTS, "page.css")}}
PRIVATE = frozenset({"/metrics", "/docs", "/redoc", "/openapi.json", "/spec"})  # these need a key if there are keys


class HeadAsGet:
    """Answers HEAD as GET; uvicorn sends the head alone."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # a copy: uvicorn reads the method of its own scope
        await self.app({**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope, receive, send)


class RequestCounter:
    """Count the requests that pass `Guard` by path and status, and the seconds of /translate and /cover.

    This and `Guard` call the application directly: starlette's `BaseHTTPMiddleware` starts tasks for each request and
    each part of its body, and a busy loop may take seconds for that, which `read_request` would take for the client's.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, send_noting_status)
        finally:
            # one label for all unknown paths, or clients could add any number
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.add("requests_total", path=path, status=str(status))
            if path in ("/translate", "/cover"):
                self.metrics.add("request_seconds_sum", time.perf_counter() - started, path=path)
                self.metrics.add("request_seconds_count", path=path)


class Guard:
    """Refuse requests to other hosts or with two lengths; if there are keys, those for private paths without one."""

    def __init__(self, app: ASGIApp, limits: RequestLimits, doorkeeper: Doorkeeper) -> None:
        self.app, self.limits, self.doorkeeper = app, limits, doorkeeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await self._refusal(Request(scope, receive)) if scope["type"] == "http" else None
        await (refusal or self.app)(scope, receive, send)

    async def _refusal(self, request: Request) -> Response | None:
        if {"content-length", "transfer-encoding"} <= set(request.headers):  # a proxy may go by the other one
            return JSONResponse({"error": "a request has Content-Length or Transfer-Encoding, not both"}, 400, CLOSE)
        host = request.url.hostname or ""
        if self.limits.hosts and host.lower() not in self.limits.hosts:
            name = host[:80]
            message = f"the server is not called {name!r}: start it with `--hosts {name}`"
            return JSONResponse({"error": message}, 400)
        if self.limits.keys and request.url.path in PRIVATE:
            if not (key := key_in_head(request)):
                return JSONResponse({"error": "this path needs `Authorization: Bearer KEY`"}, 403)
            try:
                await self.doorkeeper.check_key(request, key)
            except HTTPException as error:
                return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
        return None


def build_app(
    batchers: Mapping[LanguagePair, Batcher],
    limits: RequestLimits,
    metrics: Metrics,
    detector: Detector | None = None,
    readers: Readers | None = None,
) -> FastAPI:
    """Return the application that translates with these batchers, and reads files with these readers."""
    answers = Answers(batchers, limits, metrics, detector, readers or Readers())
    app = FastAPI(
        title="capsule-mt",
        version=__version__,
        summary="Translation with coverage, in the shape of LibreTranslate's API",
        # instead of FastAPI's 422, since these errors have another form
        responses={400: {"description": "`error` names the fault", "content": {"application/json": {}}}},
    )
    app.state.answers = answers
    # the middleware that is added last is the first to see a request
    app.add_middleware(HeadAsGet)
    app.add_middleware(RequestCounter, metrics=metrics)
    app.add_middleware(Guard, limits=limits, doorkeeper=answers.doorkeeper)
    if limits.cors is not None:
        app.add_middleware(
            CORSMiddleware, allow_origins=[limits.cors], allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    _explain_errors(app)
    for router in (text_router(answers), file_router(answers), state_router(answers)):
        app.include_router(router)
    for path, name in PAGE_FILES.items():
        app.add_api_route(path, _file(PAGE / name), include_in_schema=False)
    return app


def _explain_errors(app: FastAPI) -> None:
    """Answer errors in LibreTranslate's form."""

    @app.exception_handler(HTTPException)
    async def explain(request: Request, error: HTTPException) -> JSONResponse:
        message = error.detail
        if error.status_code == 405:
            message += f": {request.url.path} takes {(error.headers or {}).get('Allow')}"
            if request.url.path == "/translate":
                source, target = next(iter(app.state.answers.batchers))
                url = request.url.replace(query="")
                message += f", as in `curl {url} -d q=TEXT -d source={source} -d target={target}`"
        return JSONResponse({"error": message}, error.status_code, headers=error.headers)

    @app.exception_handler(Exception)
    async def explain_unexpected(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"error": "internal error; the server's log has it"}, 500)


def _file(path: Path) -> Callable[[], Awaitable[FileResponse]]:
    async def send() -> FileResponse:
        return FileResponse(path, headers={"Cache-Control": "no-cache"})

    return send

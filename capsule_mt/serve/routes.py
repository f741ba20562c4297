"""The paths of the API, in routers: translating and checking texts, files, and the state of the server."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from capsule_mt.catalog.pairs import LanguagePair, describe_languages
from capsule_mt.coverage.problems import problems_of
from capsule_mt.coverage.results import Coverage
from capsule_mt.files.binary import refusal_of
from capsule_mt.files.lines import coverage_record
from capsule_mt.formats.reading import PLAIN, Source
from capsule_mt.formats.registry import INDEX, format_of
from capsule_mt.formats.units import notes_of
from capsule_mt.messages import with_unit
from capsule_mt.serve.answers import Answers
from capsule_mt.serve.batching import Batcher, Order, RequestSettings
from capsule_mt.serve.files import Files
from capsule_mt.serve.requests import (
    AUTO,
    PARTS,
    CoverRequest,
    DetectionRequest,
    FileRequest,
    TranslationFields,
    TranslationRequest,
    answer_like,
    body_of,
    counted,
    uploaded,
)
from capsule_mt.text.detecting import Detected
from capsule_mt.translate.pivot import single_model

FILE_SUFFIXES = (
    ".txt",
    *(suffix for format in INDEX.values() if not format.needs_column for suffix in format.suffixes),
)
MAX_NAME = 100  # characters of a file's name: the last ones are kept, for its suffix


def text_router(answers: Answers) -> APIRouter:
    """Return the paths that translate and check texts, and detect their language."""
    router = APIRouter()

    @router.post("/translate", openapi_extra=body_of(TranslationRequest), responses=answer_like("/translate"))
    async def translate(request: Request) -> JSONResponse:
        """Translate a text or a list of texts; `translatedText` has the same shape and order as `q`."""
        return await _translated(answers, request)

    @router.post("/cover", openapi_extra=body_of(CoverRequest), responses=answer_like("/cover"))
    async def cover(request: Request) -> JSONResponse:
        """Find what a given `translation` of `q`, each a text or a list of texts, seems to leave out."""
        return await _covered(answers, request)

    @router.post("/detect", openapi_extra=body_of(DetectionRequest), responses=answer_like("/detect"))
    async def detect_language(request: Request) -> list[dict[str, Any]]:
        """Return the served languages that can be detected, the likeliest first, with a `confidence` in per cent.

        Other languages are never named: a text in one of them, or a very short one, mostly has low confidences.
        """
        fields, _ = await answers.read(request, DetectionRequest)
        return [_language_record(detected) for detected in await answers.detect(fields.text)]

    return router


async def _translated(answers: Answers, request: Request) -> JSONResponse:
    """Answer a request to /translate."""
    fields, client = await answers.read(request, TranslationRequest)
    _check_options(fields, answers.limits.max_beams)
    sources, target = await answers.detected(fields), answers.language_of(fields.target)
    search = tuple(fields.search.items())
    settings = RequestSettings(fields.coverage, fields.alignment, search, fields.alternatives, marks=fields.marks)
    pairs = [LanguagePair(source.language, target) for source in sources]
    answer: dict[str, list[Any]] = {}
    if fields.format == "html":
        ranked = await _translate_pages(answers, request, fields.texts, pairs, settings, client)
    else:
        languages = [pair.source for pair in pairs]
        results = await answers.translations(request, fields.texts, languages, target, settings, client)
        ranked = [[translation.text for translation in alternatives] for alternatives in results]
    answer["translatedText"] = [best for best, *_ in ranked]
    if fields.alternatives:
        answer["alternatives"] = [_distinct(alternatives, best) for best, *alternatives in ranked]
    if fields.source == AUTO:
        answer["detectedLanguage"] = [_language_record(source) for source in sources]
    if fields.coverage:
        best = [alternatives[0] for alternatives in results]
        answer["coverage"] = [
            _coverage_record(translation.coverage, text, translation.text)
            for text, translation in zip(fields.texts, best, strict=True)
        ]
    if fields.alignment:
        answer["alignment"] = [alternatives[0].alignment for alternatives in results]
    if fields.edits:
        answer["edits"] = [[edit._asdict() for edit in alternatives[0].edits] for alternatives in results]
    if fields.marks is not None:
        answer["marks"] = [answers.state_of_marks(pair) for pair in pairs]
    return JSONResponse(fields.in_shape_of_q(answer))


async def _covered(answers: Answers, request: Request) -> JSONResponse:
    """Answer a request to /cover."""
    fields, client = await answers.read(request, CoverRequest)
    texts, translations = fields.texts, fields.translations
    if type(fields.q) is not type(fields.translation) or len(texts) != len(translations):
        numbers = f"{with_unit(len(texts), 'texts')} in `q`, {len(translations)} in `translation`"
        raise HTTPException(400, f"`translation` must be one text or a list as `q` is, got {numbers}")
    pair = LanguagePair(answers.language_of(fields.source), answers.language_of(fields.target))

    def submit(batcher: Batcher, pair: LanguagePair, texts: list[str]) -> Order:
        try:
            single_model(batcher.translator, "/cover")
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        return batcher.submit_checks(
            texts, translations, alignment=fields.alignment, marks=fields.marks, languages=pair, client=client
        )

    pairs = dict.fromkeys(range(len(texts)), pair)
    results = await answers.results(request, texts, pairs, submit)
    answers.count(texts, pairs)
    rows = zip(results.values(), texts, translations, strict=True)
    records = [_coverage_record(result.coverage, *pair) for result, *pair in rows]
    answer: dict[str, list[Any]] = {"coverage": records}
    if fields.alignment:
        answer["alignment"] = [result.alignment for result in results.values()]
    if fields.marks is not None:
        answer["marks"] = [answers.state_of_marks(pair)] * len(texts)
    return JSONResponse(fields.in_shape_of_q(answer))


def file_router(answers: Answers) -> APIRouter:
    """Return the paths that translate files and store the translations, and /suggest."""
    router, files = APIRouter(), Files()

    @router.post(
        "/translate_file", openapi_extra=body_of(FileRequest, PARTS), responses=answer_like("/translate_file")
    )
    async def translate_file(request: Request) -> dict[str, Any]:
        """Translate a file, which keeps its format; `translatedFileUrl` is the address of the translation.

        If something stays in the source language, `notes` name its `location`, and the reason.
        """
        fields, client = await answers.read(request, FileRequest)
        upload = uploaded(fields)
        name = Path((upload.filename or "").replace("\\", "/")).name[-MAX_NAME:]
        if (refusal := refusal_of(name)) is not None:
            raise HTTPException(400, f"Invalid request: {name}: {refusal}")
        if Path(name).suffix.lower() not in FILE_SUFFIXES:
            raise HTTPException(400, f"Invalid request: file format not supported, only {', '.join(FILE_SUFFIXES)}")
        target, is_auto = answers.language_of(fields.target), fields.source == AUTO
        file = Source(await upload.read(), format_of(name) or PLAIN, name, None, target)
        texts = await answers.texts_of(request, file, client)
        units = [unit.text for unit in texts.units]
        answers.check_length(max(texts.characters, counted(units)))
        ranked = await answers.detect(" ".join(units)) if is_auto else []
        source = ranked[0].language if is_auto else answers.language_of(fields.source)
        pair = LanguagePair(source, target)
        (written,) = await answers.translated(request, file, texts, pair, RequestSettings(), client)
        # browsers save it by this name, whatever the page says
        translated_name = f"{Path(name).stem}.{target}{Path(name).suffix}"
        stored = quote(files.store(client, translated_name, written))
        answer: dict[str, Any] = {"translatedFileUrl": str(request.url_for("download_file", name=stored))}
        if notes := notes_of(texts.units):
            answer["notes"] = [note._asdict() for note in notes]
        return answer

    @router.get("/download_file/{name}")
    async def download_file(name: str) -> Response:
        """Return a translated file. Stored for at most ten minutes: each client's latest 32, 256 MiB in all."""
        content = files.get(name)
        if content is None:
            raise HTTPException(404, "this file does not exist, or has expired: files are stored for ten minutes")
        file_name = quote(name.partition(".")[2])
        disposition = f"attachment; filename*=UTF-8''{file_name}"
        headers = {"Content-Disposition": disposition, "X-Content-Type-Options": "nosniff"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    @router.post("/suggest")
    async def suggest() -> None:
        """Refuse: suggestions are not collected."""
        raise HTTPException(403, "Suggestions are disabled on this server.")

    return router


def state_router(answers: Answers) -> APIRouter:
    """Return the paths that describe the server and its state."""
    router, batchers = APIRouter(), answers.batchers

    @router.get("/languages", responses=answer_like("/languages"))
    async def languages() -> list[dict[str, Any]]:
        """List the languages, and into which each can be translated."""
        return describe_languages(batchers)

    @router.get("/frontend/settings")
    async def settings() -> dict[str, Any]:
        """Return what a page has to know about this server."""
        return _page_settings(answers)

    @router.get("/spec")
    async def spec(request: Request) -> dict[str, Any]:
        """Return the description of this API, in the format of OpenAPI."""
        description: dict[str, Any] = request.app.openapi()
        return description

    @router.get("/health", responses=answer_like("/health"))
    async def health() -> JSONResponse:
        """Return 200 if every model can translate, else 503."""
        down = [str(pair) for pair, batcher in batchers.items() if not batcher.is_alive]
        if down:
            return JSONResponse({"status": "down", "pairs": down}, 503)
        return JSONResponse({"status": "ok"})

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics_page() -> PlainTextResponse:
        """Return the metrics in the text format of Prometheus."""
        page = answers.metrics.page({str(pair): batcher.num_waiting(pair) for pair, batcher in batchers.items()})
        return PlainTextResponse(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    return router


def _check_options(fields: TranslationFields, max_beams: int) -> None:
    """Refuse options that exceed the server's limits or contradict each other."""
    for name, beams in (("num_beams", fields.search.get("num_beams", 1)), ("alternatives", 1 + fields.alternatives)):
        if beams > max_beams:
            limit = max_beams - (name == "alternatives")  # the best translation takes a beam, too
            raise HTTPException(400, f"`{name}`: at most {limit} are accepted, got {getattr(fields, name)}")
    if fields.marks is not None and not fields.coverage:
        raise HTTPException(400, "`marks` chooses among what `coverage` marks: set `coverage` to true")
    for name in ("coverage", "alignment", "edits"):
        if fields.format == "html" and getattr(fields, name):
            raise HTTPException(400, f"`{name}` is for texts, not for `format` html")


async def _translate_pages(
    answers: Answers,
    request: Request,
    pages: Sequence[str],
    pairs: Sequence[LanguagePair],
    settings: RequestSettings,
    client: str,
) -> list[list[str]]:
    """Translate pages of HTML; return each with its alternatives, the best first."""
    ranked = []
    for index, (page, pair) in enumerate(zip(pages, pairs, strict=True)):
        file = Source(page.encode(), "html", f"text {index}", "utf-8")
        texts = await answers.texts_of(request, file, client)
        contents = await answers.translated(request, file, texts, pair, settings, client)
        ranked.append([content.decode() for content in contents])
    return ranked


def _distinct(alternatives: Sequence[str], best: str) -> list[str]:
    """Return the alternatives that differ from the best translation and from each other."""
    return list(dict.fromkeys(text for text in alternatives if text != best))


def _coverage_record(coverage: Coverage | None, text: str, translation: str) -> dict[str, Any] | None:
    """Return a coverage as plain values, with what it finds in words, the most certain first."""
    if coverage is None:
        return None
    record = coverage_record(coverage)
    problems = problems_of(record, text, translation)
    return {**record, "problems": [problem.as_values() for problem in problems]}


def _language_record(detected: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * detected.confidence, 1), "language": detected.language}


def _page_settings(answers: Answers) -> dict[str, Any]:
    """Return the settings of LibreTranslate's page, and `maxBeams`, `verified` and `precision` for ours."""
    batchers, limits = answers.batchers, answers.limits
    source, target = next(iter(batchers))
    names = {AUTO: "Auto Detect", **{record["code"]: record["name"] for record in describe_languages(batchers)}}
    default_source = source if answers.detector is None else AUTO
    return {
        "apiKeys": bool(limits.keys),
        "charLimit": limits.max_characters,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": bool(limits.keys),
        "language": {
            "source": {"code": default_source, "name": names[default_source]},
            "target": {"code": target, "name": names[target]},
        },
        "maxBeams": limits.max_beams,
        "suggestions": False,
        "supportedFilesFormat": list(FILE_SUFFIXES),
        "precision": {
            str(pair): batcher.translator.precision
            for pair, batcher in batchers.items()
            if batcher.translator.precision is not None
        },
        "verified": [str(pair) for pair, batcher in batchers.items() if batcher.translator.verifies_marks],
    }

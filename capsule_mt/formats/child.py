"""What the sandbox does with a file to translate: it reads its texts, or writes it with their translations."""

from typing import Any

from capsule_mt.files.sandbox.child import Limits
from capsule_mt.formats.reading import NamedFile, read, read_after_trial
from capsule_mt.formats.units import FormatError, Translated, named_errors


def answer(job: dict[str, Any], contents: list[bytes], limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    (content,) = contents
    try:
        return _read(job, content) if job["translations"] is None else _write(job, content, limits.max_contents)
    except FormatError as error:
        return {"error": str(error)}, []


def _read(job: dict[str, Any], content: bytes) -> tuple[dict[str, Any], list[bytes]]:
    with named_errors(job["name"], job["format"]):
        file = read_after_trial(content, *_options(job))
    characters = sum(len(unit.text) for unit in file.units)
    units = list(file.units) if characters <= job["max_characters"] else []
    return {"units": units, "keep": list(file.keep), "characters": characters}, []


def _write(job: dict[str, Any], content: bytes, max_contents: int) -> tuple[dict[str, Any], list[bytes]]:
    files = []
    with named_errors(job["name"], job["format"]):
        for translations in job["translations"]:
            file = read(content, *_options(job))  # once per translation: writing changes the parsed file
            file = NamedFile(file, job["name"], job["format"], job["flag_all"])
            files.append(file.write([Translated(*translated) for translated in translations]))
    if sum(map(len, files)) > max_contents:
        raise FormatError(f"{job['name']}: its translation has more than {max_contents} bytes")
    return {}, files


def _options(job: dict[str, Any]) -> tuple[str, str, str | None, str | None, str | None]:
    return job["format"], job["name"], job["encoding"], job["column"], job["language"]

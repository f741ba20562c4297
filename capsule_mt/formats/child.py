"""What the sandbox does with a file to translate: it reads its texts, or writes it with their translations."""

from typing import Any

from capsule_mt.files.sandbox.child import Limits
from capsule_mt.formats.reading import NamedFile, Source, read, read_after_trial
from capsule_mt.formats.units import FormatError, Translated, named_errors


def answer(job: dict[str, Any], contents: list[bytes], limits: Limits) -> tuple[dict[str, Any], list[bytes]]:
    (content,) = contents
    source = Source(content, **{name: job[name] for name in Source._fields[1:]})
    try:
        return _read(source, job) if job["translations"] is None else _write(source, job, limits.max_contents)
    except FormatError as error:
        return {"error": str(error)}, []


def _read(source: Source, job: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
    with named_errors(source.name, source.format):
        file = read_after_trial(source)
    characters = sum(len(unit.text) for unit in file.units)
    units = list(file.units) if characters <= job["max_characters"] else []
    return {"units": units, "keep": list(file.keep), "characters": characters}, []


def _write(source: Source, job: dict[str, Any], max_contents: int) -> tuple[dict[str, Any], list[bytes]]:
    files = []
    with named_errors(source.name, source.format):
        for translations in job["translations"]:
            file = NamedFile(read(source), source)  # once per translation: writing changes the parsed file
            files.append(file.write([Translated(*translated) for translated in translations]))
    if sum(map(len, files)) > max_contents:
        raise FormatError(f"{source.name}: its translation has more than {max_contents} bytes")
    return {}, files

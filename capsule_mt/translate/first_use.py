"""Check a downloaded model: sizes and times of its files at each use, digests at new times; Mozilla's also by probes.

A model that is read wrongly may still load, and then repeat a token up to the limit, or ignore its source. Probes with
names and numbers can reveal both in any language. The result is recorded in `capsule-mt.json` beside the model.
"""

import json
import os
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from capsule_mt import __version__
from capsule_mt.catalog.entries import FACTS_FILE, pair_named
from capsule_mt.engine.search import SearchOptions
from capsule_mt.files.digests import file_digest
from capsule_mt.files.outputs import read_small_object, write_output
from capsule_mt.messages import shown
from capsule_mt.models import probing
from capsule_mt.models.model import LoadedModel
from capsule_mt.models.weights import CheckpointError

PROBES = (
    "Paris, 1998",
    "Windows 10",
    "Albert Einstein (1879-1955)",
    "Berlin 2024",
    "+49 30 12345",
    "Boeing 747",
)
# How many of the six probes must keep their digits. Chosen on the student en-pt: it keeps 6, but at most 1 if it is
# read wrongly in any of 16 ways (another activation, transposed weights, shifted ids, ...). The student pt-en keeps 6,
# or 0 if read wrongly. Six smaller faults, such as a missing bias or a wrong number of heads, go unnoticed, since the
# models still translate.
MIN_KEPT = 2
CHECKED = "checked"
Times: TypeAlias = dict[str, list[int]]  # of each file, when its content and when its record on the disk last changed


def check_files(
    folder: str,
    *,
    digests: bool = False,
    int8: bool = False,
    shortlist: bool | str | os.PathLike[str] | None = None,
) -> Times:
    """Refuse files that have changed since the download: by size, and by SHA-256 unless their times are recorded.

    Before the first use by a version, the model is also loaded in a process of its own, and so it is before the first
    use in a server. Returns the times of the files, which `check_translations` and `record_check` take.

    Args:
        digests: compare the digests and load the model at a later use, too.
        int8, shortlist: with which options the model is loaded, as for `probe`.
    """
    facts = _facts(folder)
    is_checked, times = _is_checked(facts), _times(folder, facts)
    has_same_times = is_checked and facts[CHECKED].get("times") == times
    files, advice = facts.get("files"), _advice(folder, facts)
    for name, expected in files.items() if isinstance(files, dict) else ():
        if os.path.basename(name) != name or not isinstance(expected, dict) or not {"size", "sha256"} <= set(expected):
            raise CheckpointError(
                f"{os.path.join(folder, FACTS_FILE)}: `files` must give the size and the SHA-256 of files beside it, "
                f"got {shown({name: expected})}"
            )
        file = os.path.join(folder, name)
        if not os.path.isfile(file):
            raise CheckpointError(f"{file}: no such file: {advice}")
        size = os.path.getsize(file)
        if size != expected["size"]:
            raise CheckpointError(
                f"{file}: has {size} bytes, but had {expected['size']} when it was downloaded: {advice}"
            )
        if (digests or not has_same_times) and file_digest(file) != expected["sha256"]:
            raise CheckpointError(f"{file}: its content has changed since it was downloaded: {advice}")
    probe = probing.probe if digests or not is_checked else probing.probe_if_required
    probe(folder, int8=int8, shortlist=shortlist)
    if is_checked and not has_same_times:  # the same files, copied or touched
        _write_record(folder, facts, {**facts[CHECKED], "times": times})
    return times


def check_translations(folder: str, model: LoadedModel, times: Times) -> None:
    """Translate probes with a downloaded model, unless this version has done so before, and record the result.

    Only models of Mozilla's registry are probed: others may need a language, or do something other than translating.

    Args:
        times: of the files when they were checked, before the model was loaded.

    Raises:
        CheckpointError: the model does not translate: it is damaged, or read wrongly; or its files have changed.
    """
    facts = _facts(folder)
    name, translations = str(facts.get("name", folder)), {}
    if pair_named(name) and not _is_checked(facts):
        translations = translate_probes(model)
        if num_kept(translations) < MIN_KEPT:
            raise CheckpointError(_probe_failure(name, folder, translations))
    record_check(folder, times, translations)


def record_check(folder: str, times: Times, translations: Mapping[str, str] | None = None) -> None:
    """Record that a downloaded model was checked, with its translations of probes, unless this version has done so.

    Refuse a model whose files have other times than when they were checked: other bytes may have been loaded.
    """
    facts = _facts(folder)
    if _times(folder, facts) != times:
        raise CheckpointError(f"{folder}: has changed while it was read: load it again")
    if not _is_checked(facts):
        record = {"version": __version__, "translations": dict(translations or {}), "times": times}
        _write_record(folder, facts, record)


def _write_record(folder: str, facts: dict[str, Any], record: dict[str, Any]) -> None:
    with suppress(OSError):  # if this user cannot write the cache, the model is checked at every use
        write_output(Path(folder, FACTS_FILE), json.dumps({**facts, CHECKED: record}, indent=2) + "\n")


def _times(folder: str, facts: dict[str, Any]) -> Times:
    """Return the times of the files that a download has: whoever writes one cannot keep both."""
    times = {}
    for name in facts["files"] if isinstance(facts.get("files"), dict) else ():
        with suppress(OSError, ValueError):
            status = os.stat(os.path.join(folder, name))
            times[name] = [status.st_mtime_ns, status.st_ctime_ns]
    return times


def translate_probes(model: LoadedModel) -> dict[str, str]:
    """Return the greedy translation of each probe; an empty text for one that does not end, or has no hypothesis."""
    sources = [model.tokenizer.encode(probe).ids for probe in PROBES]
    options = SearchOptions(
        limits=[3 * len(ids) + 5 for ids in sources], suppress_tokens=model.generation.get("suppress_tokens") or []
    )
    translations = {}
    for probe, hypotheses in zip(PROBES, model.decoder.translate(sources, options), strict=True):
        ids = list(hypotheses[0].ids) if hypotheses else []  # the engine returns none for logits that are not finite
        translations[probe] = model.tokenizer.decode(ids[:-1]) if ids[-1:] == [model.end] else ""
    return translations


def num_kept(translations: dict[str, str]) -> int:
    """Return how many translations have the digits of their source, in any script."""
    return sum(_digits(probe) == _digits(translation) for probe, translation in translations.items())


def _digits(text: str) -> str:
    return "".join(str(unicodedata.decimal(character)) for character in text if character.isdecimal())


def _facts(folder: str) -> dict[str, Any]:
    try:
        return read_small_object(Path(folder, FACTS_FILE))
    except ValueError as error:
        raise CheckpointError(f"{error}: to load the model without its checks, delete this file") from None


def _is_checked(facts: dict[str, Any]) -> bool:
    record = facts.get(CHECKED)
    return isinstance(record, dict) and record.get("version") == __version__


def _advice(folder: str, facts: dict[str, Any]) -> str:
    action = f"run `capsule-mt models remove {facts['name']}`" if "name" in facts else f"remove {folder}"
    return f"{action}, and use the model again"


def _probe_failure(name: str, folder: str, translations: dict[str, str]) -> str:
    probe = next(probe for probe in translations if _digits(probe) != _digits(translations[probe]))
    return (
        f"{name}: does not translate, so its files are damaged or read wrongly: of {len(translations)} probes it "
        f"keeps the digits of {num_kept(translations)}, and translates {probe!r} by {translations[probe][:40]!r}; "
        f"please report what `capsule-mt models --check {name}` prints. To load the model without this check, delete "
        f"{os.path.join(folder, FACTS_FILE)}"
    )

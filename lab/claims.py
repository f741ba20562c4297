"""The ledger of claims: every measured number that README, the pages and the model cards print.

    python -m lab.claims            # write docs/evidence.md and the texts of all links to it
    python -m lab.claims --check    # say what differs

A line of `lab/claims.jsonl` is a claim. A page prints its value as the text of a link,
`[+0.04](evidence.md#routing.em)`; the title "interval" or "n" prints that field instead.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.outputs import write_output

ROOT = Path(__file__).resolve().parents[1]
LEDGER = ROOT / "lab" / "claims.jsonl"
EVIDENCE = ROOT / "docs" / "evidence.md"
# the first word of an id, and its heading, in the order of the page
SUBJECTS = {
    "models": "Models: the same as the authors' and others' programs",
    "routing": "Routing: does it help?",
    "speed": "Speed",
    "memory": "Memory and size",
    "marks": "Marks of words that are left out or made up",
    "alarm": "Warnings about sentences",
    "checks": "Checks by rule",
    "formats": "Files and typography",
    "quality": "Quality of translations",
    "serve": "The server",
    "web": "In the browser",
}
ABOUT = """\
<!-- `python -m lab.claims` writes this page from lab/claims.jsonl. -->

# Evidence

This page lists every measured number of the documentation, and how to repeat it in a clone:

```bash
python -m lab.repeat       # list the claims
python -m lab.repeat {example}
```

Intervals are 95 % intervals. The SHA-256 of a `.gz` file is that of the unpacked text. The SHA-256 of several files is
that of the lines that `sha256sum` prints for them, sorted by name.
"""
# text, where the page is, claim, which field
LINK = re.compile(r'\[([^\]]*)\]\(([^()\s]*evidence\.(?:md|html))#([^()\s]*)(?: "([^"]*)")?\)')
FENCE = re.compile(r"(^ *(```+|~~~+).*?^ *\2[ \t]*$)", re.DOTALL | re.MULTILINE)


class ClaimError(ValueError):
    """A line of the ledger, a link to it or its data are not valid."""


class Data(NamedTuple):
    """Files that a command reads.

    path: where it reads them in a clone; "*" stands for several.
    address: where they come from: a web address, "pypi:NAME==VERSION#FOLDER IN IT", or "in the repository".
    """

    path: str
    address: str
    sha256: str


class Claim(NamedTuple):
    """A measured sentence, where `{value}` stands for the value as it is printed.

    interval: "LOW to HIGH", of 95 %; "" if there is none.
    derive: how to compute value, interval and n from `lab/results`; a key of `DERIVED` and its arguments.
    """

    id: str
    sentence: str
    value: str
    interval: str
    n: str
    judge: str
    data: tuple[Data, ...]
    command: str
    commit: str
    processor: str
    date: str
    derive: Mapping[str, Any] | None = None

    @property
    def measurement(self) -> tuple[Any, ...]:
        """What claims that were measured together share."""
        return self.judge, self.data, self.command, self.commit, self.processor, self.date

    @property
    def text(self) -> str:
        interval = f" [{self.interval}]" if self.interval else ""
        return self.sentence.replace("{value}", f"**{self.value}**{interval}")


PATTERNS = {
    "id": re.compile(rf"({'|'.join(SUBJECTS)})(\.[a-z0-9-]+)+"),
    "sentence": re.compile(r"[^{}]*\{value\}[^{}]*"),
    "interval": re.compile(r"(\S.* to \S.*)?"),
    "commit": re.compile(r"[0-9a-f]{40}"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
}
TEXT = re.compile(r"\S.*")


def read_claims(path: Path = LEDGER) -> dict[str, Claim]:
    """Return the claims by id. Errors name the line, the field and what is accepted."""
    claims: dict[str, Claim] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").strip("\n").split("\n"), start=1):
        where = f"{path.name}:{number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ClaimError(f"{where}: is not JSON: {error}") from None
        _check(where, fields, Claim._fields[:-1], ("derive",))
        for data in fields["data"]:
            _check(f"{where}: `data`", data, Data._fields)
        claim = Claim(**fields | {"data": tuple(Data(**data) for data in fields["data"])})
        if claims and claim.id <= next(reversed(claims)):
            raise ClaimError(f"{where}: lines must be sorted by `id`, each once, got {claim.id!r}")
        if claim.derive is not None and claim.derive.get("how") not in DERIVED:
            raise ClaimError(f"{where}: `derive`: `how` must be one of {', '.join(DERIVED)}, got {claim.derive!r}")
        claims[claim.id] = claim
    return claims


def _check(where: str, fields: Any, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Raise an error unless these are the fields, and their texts fit their pattern."""
    names = fields.keys() if isinstance(fields, dict) else set()
    if wrong := (names ^ set(required)) - set(optional):
        raise ClaimError(f"{where}: missing or unknown: {', '.join(sorted(wrong))}; needs {', '.join(required)}")
    for name in set(required) - {"data"}:
        pattern = PATTERNS.get(name, TEXT)
        if not isinstance(fields[name], str) or not pattern.fullmatch(fields[name]):
            raise ClaimError(f"{where}: `{name}` must be a text that fits {pattern.pattern}, got {fields[name]!r}")


# What is computed from lab/results


Z = 1.959964  # of a two-sided interval of 95 %
REPEATED: dict[str, dict[str, Any]] = {}  # records by name, measured again


class Derived(NamedTuple):
    value: str
    interval: str = ""
    n: str | None = None


def records(file: str) -> list[dict[str, Any]]:
    path = ROOT / "lab" / "results" / f"{file}.jsonl"
    return [json.loads(line) for line in path.read_bytes().decode().strip("\n").split("\n")]


def _bleu(file: str) -> dict[str, dict[int, float]]:
    """Return the BLEU of the runs of a file: {run: {seed: score}}."""
    scores: dict[str, dict[int, float]] = {}
    for record in records(file):
        if "run" in record and "scores" in record:
            scores.setdefault(record["run"], {})[record["seed"]] = record["scores"]["bleu"]["score"]
    return scores


def gain(file: str, run: str, baseline: str, arms: list[str], seeds: list[int], spread: str) -> Derived:
    """Compare two arms of a plan. The interval is by the spread of all its arms: "blocks" or "pooled"."""
    from lab import plan_spread

    scores = _bleu(file)
    planned = {arm: {seed: scores[arm][seed] for seed in seeds if seed in scores[arm]} for arm in arms}
    of_arms = {"blocks": plan_spread.blocks, "pooled": plan_spread.pooled}[spread](planned)
    estimate = of_arms and of_arms.difference(run, baseline)
    if not estimate:
        raise ClaimError(f"lab/results/{file}.jsonl: too few seeds of {run} and {baseline}")
    interval = f"{estimate.low:+.2f} to {estimate.high:+.2f}"
    return Derived(f"{estimate.mean:+.2f}", interval, f"{len(planned[run])} seeds")


def share(file: str, names: list[str], right: list[str], total: list[str], form: str) -> Derived:
    """Add up two counts of the records with these names; the interval of their ratio is Wilson's."""
    counts = [[_number(file, name, path) for name in names] for path in (right, total)]
    x, n = (sum(numbers) for numbers in counts)
    centre, half = x / n + Z**2 / (2 * n), Z * math.sqrt(x / n * (1 - x / n) / n + Z**2 / (4 * n * n))
    low, high = ((centre + side * half) / (1 + Z**2 / n) for side in (-1, 1))
    return Derived(_percent(form.format(x, n, x / n)), _percent(f"{low:.0%} to {high:.0%}"))


def field(file: str, name: str, paths: list[list[str]], form: str, interval: str = "") -> Derived:
    """Format numbers of the record with a name."""
    numbers = [_number(file, name, path) for path in paths]
    return Derived(_percent(form.format(*numbers)), _percent(interval.format(*numbers)))


def _number(file: str, name: str, path: list[str]) -> float:
    """Return a number of the record with a name; `REPEATED` has records that were measured again."""
    record = REPEATED.get(name) or next((entry for entry in records(file) if entry.get("name") == name), None)
    value: Any = record
    try:
        for key in path:
            value = value[key]
    except (KeyError, TypeError):
        raise ClaimError(f"lab/results/{file}.jsonl: the record {name!r} has no {' / '.join(path)}") from None
    return value


def _percent(text: str) -> str:
    return text.replace("%", " %")


DERIVED: dict[str, Callable[..., Derived]] = {"gain": gain, "share": share, "field": field}


def derived(claim: Claim) -> Derived:
    """Compute a claim from the rows of `lab/results`."""
    assert claim.derive is not None
    arguments = dict(claim.derive)
    return DERIVED[arguments.pop("how")](**arguments)


# The page, and the texts of links

FIELDS: dict[str, Callable[[Claim], str]] = {
    "": lambda claim: claim.value,
    "interval": lambda claim: claim.interval,
    "n": lambda claim: claim.n,
}


def evidence(claims: Mapping[str, Claim]) -> str:
    """Return the page: the claims by subject, those that were measured together in one table."""
    parts = [ABOUT.format(example=next(iter(claims), "CLAIM"))]
    for subject, heading in SUBJECTS.items():
        together: dict[tuple[Any, ...], list[Claim]] = {}
        for claim in claims.values():
            if claim.id.startswith(f"{subject}."):
                together.setdefault(claim.measurement, []).append(claim)
        if together:
            parts += [f"## {heading}", *map(_measurement, together.values())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _measurement(claims: list[Claim]) -> str:
    rows = [f'| <a id="{claim.id}"></a>{_cell(claim.text)} | {_cell(claim.n)} |' for claim in claims]
    first = claims[0]
    data = [f"- data: `{entry.path}` ({entry.address}), SHA-256 `{entry.sha256}`" for entry in first.data]
    return "\n".join([
        *("| claim | n |", "|---|---|", *rows, ""),
        f"- compared with, or judged by: {first.judge}",
        *data,
        f"- measured: {first.date}, {first.processor}, commit `{first.commit[:8]}`",
        f"- command: `{first.command}`",
    ])  # fmt: skip


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def pages() -> list[Path]:
    """Return the pages that may print a claim."""
    patterns = ("*.md", "docs/*.md", "capsule_mt/README.md", "web/README.md", "lab/*.md", "model_cards/*.md")
    return sorted({path for pattern in patterns for path in ROOT.glob(pattern)} - {EVIDENCE})


def with_texts(text: str, claims: Mapping[str, Claim], where: str) -> str:
    """Return a page with the texts of its links to claims written anew. Code stays."""

    def link(match: re.Match[str]) -> str:
        _, page, id_, name = match.groups()
        if id_ not in claims:
            raise ClaimError(f"{where}: links to a claim that lab/claims.jsonl lacks: {id_!r}")
        if (name or "") not in FIELDS or not (shown := FIELDS[name or ""](claims[id_])):
            raise ClaimError(f'{where}: the claim {id_!r} has no field {name!r}; a title is "interval" or "n"')
        title = f' "{name}"' if name else ""
        return f"[{shown}]({page}#{id_}{title})"

    return "".join(part if is_code else LINK.sub(link, part) for is_code, part in _split_at_code(text))


def _split_at_code(text: str) -> Iterator[tuple[bool, str]]:
    """Yield a page's text and fenced blocks, and which of both a part is."""
    end = 0
    for match in FENCE.finditer(text):
        yield False, text[end : match.start()]
        yield True, match[0]
        end = match.end()
    yield False, text[end:]


def outputs(claims: Mapping[str, Claim]) -> dict[Path, str]:
    """Return what all pages should be."""
    write = partial(with_texts, claims=claims)
    named = {path: path.relative_to(ROOT).as_posix() for path in pages()}
    return {EVIDENCE: evidence(claims)} | {
        path: write(path.read_text(encoding="utf-8"), where=name) for path, name in named.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something would change")
    arguments = parser.parse_args()
    claims = read_claims()
    wrong = []
    for claim in claims.values():
        if claim.derive is not None and (problem := differs(claim)):
            wrong.append(problem)
    for path, text in outputs(claims).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong += [f"{path.relative_to(ROOT)}: differs from the ledger"] if arguments.check else []
            if not arguments.check:
                write_output(path, text)
                print(f"Written to {path}")
    print("\n".join(wrong))
    return 1 if wrong else 0


def differs(claim: Claim) -> str:
    """Say how a claim differs from what its rows give; empty if it does not."""
    computed = derived(claim)
    recorded = Derived(claim.value, claim.interval, claim.n if computed.n is not None else None)
    return "" if recorded == computed else f"{claim.id}: the ledger has {recorded}, lab/results give {computed}"


if __name__ == "__main__":
    run(main)

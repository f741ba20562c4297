"""The ledger of claims: every measured number that README, the pages and the model cards print.

    python -m lab.claims    # write docs/evidence.md and the texts of all links to it

A line of `lab/claims.jsonl` is a claim. A page prints its value as the text of a link,
`[+0.04](evidence.md#routing.em)`; a title "interval" or "n" of the link prints that field instead.
"""

import argparse
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capsule_mt.commands.console import HelpFormatter, run
from capsule_mt.files.outputs import write_output
from lab.over_seeds import spread_of, wilson

ROOT = Path(__file__).resolve().parents[1]
LEDGER, EVIDENCE = ROOT / "lab" / "claims.jsonl", ROOT / "docs" / "evidence.md"
PAGES = (
    *("README.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md", "docs/**/*.md"),
    *("capsule_mt/README.md", "web/README.md", "model_cards/*.md", "lab/*.md"),
)
SUBJECTS = {  # the first word of an id, and its heading
    "routing": "Routing",
    "models": "Models",
    "checks": "Reasons to check a translation",
    "marks": "Marks of words that are left out or made up",
    "alarm": "The alarm of a sentence",
    "speed": "Speed",
}
ABOUT = """\
<!-- `python -m lab.claims` writes this page from lab/claims.jsonl. -->

# Evidence

This page lists the measured numbers of the documentation, and how to repeat them in a clone:

```bash
python -m lab.repeat                # list the claims
python -m lab.repeat routing.em     # check one against its stored runs; --measure runs it anew
```

Intervals are 95 % intervals. The date and commit of several runs are the last one's. The SHA-256 of a `.gz` file is
that of the unpacked text, and of several files that of their lines `SHA-256  NAME`, sorted by name, as `sha256sum`
prints them. `$PYTHON_WITH_BERGAMOT` is a Python 3.10 with the wheel `bergamot`. An old commit needs a clone without
`--depth 1`.
"""
PATTERNS = {
    "id": re.compile(rf"({'|'.join(SUBJECTS)})(\.[a-z0-9-]+)+"),
    "sentence": re.compile(r"[^{}]*\{value\}[^{}]*"),
    "interval": re.compile(r"(\S.* to \S.*)?"),
    "commit": re.compile(r"[0-9a-f]{40}"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "sha256": re.compile(r"[0-9a-f]{64}"),
}
# the text of a link, its page, the claim, and which field the text is
LINK = re.compile(r'\[[^\]]*\]\(([^()\s]*evidence\.(?:md|html))#([^()\s]*)(?: "([^"]*)")?\)')
CODE = re.compile(r"(^ *```.*?^ *```[ \t]*$|`[^`\n]+`)", re.DOTALL | re.MULTILINE)


class ClaimError(ValueError):
    """A line of the ledger, a link to it or its data are not valid."""


class Data(NamedTuple):
    """Files, several with "*", that a command reads. An address can be "pypi:NAME==VERSION#FOLDER IN IT"."""

    path: str
    address: str
    sha256: str


class Claim(NamedTuple):
    """A measured sentence, where `{value}` stands for the value as it is printed.

    interval: "LOW to HIGH", of 95 %; "" if there is none.
    derive: how to compute value, interval and n from `lab/results`: a key of `DERIVED` as `how`, and its arguments.
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
        return self[self._fields.index("judge") : -1]  # what claims that were measured together share

    def text(self, emphasis: str = "") -> str:
        interval = f" [{self.interval}]" if self.interval else ""
        return self.sentence.replace("{value}", f"{emphasis}{self.value}{emphasis}{interval}")


def read_claims(path: Path = LEDGER) -> dict[str, Claim]:
    """Return the claims by id. Errors name the line, the field and what is accepted."""
    claims: dict[str, Claim] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").strip("\n").split("\n"), start=1):
        where = f"{path.name}:{number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise ClaimError(f"{where}: is not JSON: {error}") from None
        _check(where, fields, Claim._fields[:-1], ["derive"])
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
    """Raise an error unless these are the fields, and their texts fit their patterns."""
    names = fields.keys() if isinstance(fields, dict) else set()
    if wrong := (names ^ set(required)) - set(optional):
        raise ClaimError(f"{where}: missing or unknown: {', '.join(sorted(wrong))}; needs {', '.join(required)}")
    for name in sorted(set(required) - {"data"}):
        pattern = PATTERNS.get(name, re.compile(r"\S.*"))
        if not isinstance(fields[name], str) or not pattern.fullmatch(fields[name]):
            raise ClaimError(f"{where}: `{name}` must be a text that fits {pattern.pattern}, got {fields[name]!r}")


# What is computed from lab/results


class Derived(NamedTuple):
    value: str
    interval: str = ""
    n: str = ""


REPEATED: dict[str, dict[str, Any]] = {}  # records by name, measured again


def records(file: str) -> list[dict[str, Any]]:
    text = (ROOT / "lab" / "results" / f"{file}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.strip("\n").split("\n")]


def gain(file: str, run: str, baseline: str, arms: list[str], seeds: list[int], spread: str) -> Derived:
    """Compare the BLEU of two arms of a plan. The interval is by the spread of all its arms, "blocks" or "pooled"."""
    scores: dict[str, dict[int, float]] = {arm: {} for arm in arms}
    for record in records(file):
        if record["run"] in arms and record["seed"] in seeds:
            scores[record["run"]][record["seed"]] = record["scores"]["bleu"]["score"]
    of_arms = spread_of(spread, scores)
    if not (estimate := of_arms and of_arms.difference(run, baseline)):
        raise ClaimError(f"lab/results/{file}.jsonl: too few seeds of {run} and {baseline}")
    mean, low, high = (f"{bleu:+.2f}" for bleu in estimate[:3])
    return Derived(mean, f"{low} to {high}", f"{len(scores[run])} seeds")


def share(file: str, names: list[str], right: list[str], total: list[str], form: str) -> Derived:
    """Add up two numbers of the records with these names; the interval of their ratio is Wilson's."""
    counted, n = (sum(_number(file, name, path) for name in names) for path in (right, total))
    digits = form.partition(":.")[2][:1] or "0"  # of the value, if it is a percentage
    low, high = (f"{bound:.{digits}%}" for bound in wilson(counted, n))
    return Derived(form.format(counted, n, counted / n), f"{low} to {high}")


def field(file: str, name: str, path: list[str], form: str) -> Derived:
    """Format a number of the record with a name."""
    return Derived(form.format(_number(file, name, path)))


def area(file: str, name: str, path: list[str]) -> Derived:
    """Format an area under the ROC curve with its interval."""
    value, low, high = (_number(file, name, [*path, key]) for key in ("auc", "low", "high"))
    return Derived(f"{value:.2f}", f"{low:.2f} to {high:.2f}")


def _number(file: str, name: str, path: list[str]) -> Any:
    value: Any = REPEATED.get(name) or next((record for record in records(file) if record.get("name") == name), None)
    for key in path:
        if not isinstance(value, dict) or key not in value:
            raise ClaimError(f"lab/results/{file}.jsonl: the record {name!r} has no {' / '.join(path)}")
        value = value[key]
    return value


DERIVED: dict[str, Callable[..., Derived]] = {"gain": gain, "share": share, "field": field, "area": area}


def derived(claim: Claim) -> Derived:
    """Compute a claim from the rows of `lab/results`."""
    arguments = dict(claim.derive or {})
    return Derived(*(text.replace("%", " %") for text in DERIVED[arguments.pop("how")](**arguments)))


def problems(claims: Mapping[str, Claim]) -> list[str]:
    """Say which claims differ from what their rows give."""
    return [
        f"{claim.id}: the ledger has {claim.value} [{claim.interval}], n = {claim.n}, but lab/results give {result}"
        for claim in claims.values()
        if claim.derive
        and (result := derived(claim)) != Derived(claim.value, claim.interval, claim.n if result.n else "")
    ]


# The page, and the texts of links


def evidence(claims: Mapping[str, Claim]) -> str:
    """Return the page: the claims by subject, those that were measured together in one table."""
    parts = [ABOUT]
    for subject, heading in SUBJECTS.items():
        together: dict[tuple[Any, ...], list[Claim]] = {}
        for claim in claims.values():
            if claim.id.startswith(f"{subject}."):
                together.setdefault(claim.measurement, []).append(claim)
        if together:
            parts += [f"## {heading}", *map(_measurement, together.values())]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _measurement(claims: list[Claim]) -> str:
    first = claims[0]
    return "\n".join([
        *("| claim | n |", "|---|---|"),
        *(f'| <a id="{claim.id}"></a>{claim.text("**")} | {claim.n} |' for claim in claims),
        *("", f"- compared with, or judged by: {first.judge}"),
        *(f"- data: `{data.path}` ({data.address}), SHA-256 `{data.sha256}`" for data in first.data),
        f"- measured: {first.date}, {first.processor}, commit `{first.commit[:8]}`",
        f"- command: `{first.command}`",
    ])  # fmt: skip


def with_texts(text: str, claims: Mapping[str, Claim], page: str) -> str:
    """Return a page with the texts of its links to claims written anew. Code stays."""

    def link(match: re.Match[str]) -> str:
        target, name, title = match.groups()
        if name not in claims:
            raise ClaimError(f"{page}: links to a claim that lab/claims.jsonl lacks: {name!r}")
        shown = getattr(claims[name], title or "value") if title in (None, "interval", "n") else ""
        if not shown:
            raise ClaimError(f'{page}: the claim {name!r} has no {title!r}; a title is "interval" or "n"')
        quoted = f' "{title}"' if title else ""
        return f"[{shown}]({target}#{name}{quoted})"

    return "".join(part if index % 2 else LINK.sub(link, part) for index, part in enumerate(CODE.split(text)))


def outputs(claims: Mapping[str, Claim]) -> dict[Path, str]:
    """Return what all pages should be."""
    paths = sorted({path for pattern in PAGES for path in ROOT.glob(pattern)} - {EVIDENCE})
    pages = {path: with_texts(path.read_text(encoding="utf-8"), claims, str(path.relative_to(ROOT))) for path in paths}
    return {EVIDENCE: evidence(claims)} | pages


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=HelpFormatter).parse_args()
    claims = read_claims()
    wrong = problems(claims)
    for path, text in outputs(claims).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_output(path, text)
            print(f"Written to {path}")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)

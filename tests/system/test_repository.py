"""The repository keeps to its limits: its size, the properties that tests cite, the versions that constraints pin."""

import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
MOST_BYTES = 5_000_000  # beside the released checkpoints
PAGE = TESTS / "PROPERTIES.md"
NUMBERS = r"\d+(?:(?:, | and | to |, and )\d+)*"
CITATION = re.compile(rf"\bpropert(?:y|ies) ({NUMBERS})")


def tracked_files() -> list[Path]:
    """List the files that git tracks here; skip the test where nobody can."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no git checkout: the size is that of the files that git tracks")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [path for name in listed.decode().split("\0")[:-1] if (path := ROOT / name).is_file()]


def test_the_tree_stays_small():
    files = tracked_files()
    beside = [path for path in files if path.relative_to(ROOT).parts[0] != "checkpoints"]
    largest = sorted(((path.stat().st_size, str(path.relative_to(ROOT))) for path in beside), reverse=True)[:5]
    assert sum(path.stat().st_size for path in beside) <= MOST_BYTES, f"the largest files: {largest}"


def cited_in(text: str) -> set[int]:
    """Read "property 12", "properties 1 and 2" and "properties 39 to 42, 45 and 46"."""
    found: set[int] = set()
    for citation in CITATION.findall(text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", citation):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_citations_are_read():
    assert cited_in("# property 12") == {12}
    assert cited_in('"""Properties: see there; properties 39 to 42, 45 and 46, and what is given') == {
        39,
        40,
        41,
        42,
        45,
        46,
    }
    assert cited_in("the property of 3 capsules") == set()


def test_properties_and_tests_name_each_other():
    listed = [int(number) for number in re.findall(r"^\| (\d+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)]
    assert len(listed) == len(set(listed))
    cited = {
        number
        for path in TESTS.rglob("test_*.py")
        if path != Path(__file__)
        for number in cited_in(path.read_text(encoding="utf-8"))
    }
    assert cited == set(listed)


def test_no_test_cites_what_is_not_in_the_repository():
    for path in TESTS.rglob("*.py"):
        assert path == Path(__file__) or not re.search(r"\bSPEC\b", path.read_text(encoding="utf-8")), path


# constraints.txt pins everything that an installation with all extras brings, on each supported Python
EXTRAS = ("train", "eval", "analysis", "demo", "serve", "test", "dev", "docs")  # those that the Makefile installs
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PINS = [Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[:1] not in ("", "#")]


def environment(python: str) -> dict[str, str]:
    here = default_environment()
    full = here["python_full_version"] if here["python_version"] == python else f"{python}.0"
    return {**here, "python_version": python, "python_full_version": full}


def pins(python: str) -> dict[str, Requirement]:
    """The pins that are active on a Python, by name."""
    active = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate(environment(python))]
    names = [canonicalize_name(pin.name) for pin in active]
    assert len(set(names)) == len(names), "a name is pinned twice"
    return dict(zip(names, active, strict=True))


def requirements(python: str) -> set[str]:
    """The names of all that `hf-capsule-mt` with its extras requires there, as far as it is installed here."""
    found: set[str] = set()
    wanted = [("hf-capsule-mt", extra) for extra in EXTRAS]
    seen = set()
    while wanted:
        name, extra = wanted.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            required = [Requirement(line) for line in distribution(name).requires or ()]
        except PackageNotFoundError:
            continue
        for requirement in required:
            settings = {**environment(python), "extra": extra}
            if requirement.marker is None or requirement.marker.evaluate(settings):
                inner = canonicalize_name(requirement.name)
                found.add(inner)
                wanted += [(inner, each) for each in ("", *requirement.extras)]
    return found


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_pinned(python):
    pinned, required = pins(python), requirements(python)
    assert len(required) > 30
    assert required - pinned.keys() == set()
    assert all(len(pin.specifier) == 1 and str(pin.specifier).startswith("==") for pin in pinned.values())


def test_pythons_are_those_the_supported_ones():
    text = (ROOT / "pyproject.toml").read_text()
    assert f'requires-python = ">={PYTHONS[0]}"' in text

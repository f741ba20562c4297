"""constraints.txt pins everything that an installation with all extras brings, on each supported Python."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
# those that the Makefile installs
EXTRAS = [("hf-capsule-mt", extra) for extra in ("train", "eval", "analysis", "test", "dev", "docs")]
EXTRAS += [("capsule-mt", "serve"), ("capsule-mt", "auto")]
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
    """The names of all that both distributions with their extras require there, as far as it is installed here."""
    found: set[str] = set()
    wanted = [*EXTRAS]
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
    return found - {"capsule-mt"}


@pytest.mark.parametrize("python", PYTHONS)
def test_every_requirement_is_pinned(python):
    pinned, required = pins(python), requirements(python)
    assert len(required) > 30
    assert required - pinned.keys() == set()
    assert all(len(pin.specifier) == 1 and str(pin.specifier).startswith("==") for pin in pinned.values())


def test_pythons_are_those_the_supported_ones():
    for file in ("pyproject.toml", "capsule_mt/pyproject.toml"):
        assert f'requires-python = ">={PYTHONS[0]}"' in (ROOT / file).read_text()

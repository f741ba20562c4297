"""Who may import whom: the table of rooms, read from the source."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "hf_capsule_mt"

# what each room may import from the others: a whole room, or one module of it
ALLOWED = {
    "routing": set(),
    "configuration": set(),
    "data": {"files"},
    "evaluation": {"files"},
    "modeling": {"routing", "configuration"},
    "fast": {"modeling", "routing", "configuration"},
    "pipelines": {"configuration", "modeling", "fast", "files"},
    "training": {"data", "configuration", "modeling", "evaluation", "files"},
    "analysis": {"modeling", "evaluation", "files"},
    "hub": {"configuration", "modeling", "fast", "evaluation.results"},
    "serve": {"pipelines", "files", "hub.card_sources"},
    "__init__": {"configuration", "fast", "modeling", "pipelines"},
    "__main__": {"capsule_mt"},
    "files": set(),
    # leaves beside the rooms
    "command_line": {"extras", "modeling.loading"},
    "extras": set(),
}
PACKAGE_ROOMS = set(ALLOWED)
ALLOWED |= {
    "commands": PACKAGE_ROOMS,
    "capsule_mt": {"commands"},
    "scripts": {"commands"},
    "lab": PACKAGE_ROOMS,
    "lab/tests": PACKAGE_ROOMS | {"lab", "tests"},
    "tests": PACKAGE_ROOMS | {"commands", "capsule_mt", "scripts"},
}
# the core leaves with every checkpoint
CORE = {"routing", "configuration", "modeling", "__init__"}
CORE_LIBRARIES = {"torch", "transformers", "huggingface_hub"}
OWN = {PACKAGE, "capsule_mt", "scripts", "lab", "tests"}

FOLDERS = (PACKAGE, "scripts", "lab", "tests")
FILES = [ROOT / "capsule_mt.py", *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]


def imports(path: Path, source: str):
    """Yield every module that the file imports, absolute, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = path.parent.relative_to(ROOT).parts
                module = ".".join((*base[: len(base) - node.level + 1], *filter(None, [node.module])))
            if module == PACKAGE:  # a room, or a public name
                rooms = [f"{PACKAGE}.{alias.name}" for alias in node.names if alias.name in ALLOWED]
                yield from ((name, node.lineno) for name in rooms or [PACKAGE])
            else:
                yield module, node.lineno


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == PACKAGE:
        return parts[1]
    return "lab/tests" if parts[:2] == ("lab", "tests") else parts[0]


def room_of_module(module: str) -> str:
    parts = module.split(".")
    if parts[0] != PACKAGE:
        return "lab/tests" if parts[:2] == ["lab", "tests"] else parts[0]
    return parts[1] if len(parts) > 1 else "__init__"


def forbidden(path: Path, source: str) -> list[str]:
    """Return what the rooms' table forbids this file to import."""
    room = room_of(path)
    assert room in ALLOWED, f"{path}: a room that the table does not know"
    found = []
    for module, line in imports(path, source):
        library = module.split(".")[0]
        if library in OWN:
            target = room_of_module(module)
            one_module = ".".join(module.split(".")[1:3])
            if not (target == room or target in ALLOWED[room] or one_module in ALLOWED[room]):
                found.append(f"{path}:{line}: {room} must not import {module}")
        elif room in CORE and library not in CORE_LIBRARIES | sys.stdlib_module_names:
            found.append(f"{path}:{line}: the core must not import {module}")
    return found


def test_imports():
    assert [one for path in FILES for one in forbidden(path, path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("place", "source", "message"),
    [
        ("hf_capsule_mt/routing/common.py", "from ..configuration import common", "routing must not import"),
        ("hf_capsule_mt/routing/common.py", "from hf_capsule_mt import training", "routing must not import"),
        ("hf_capsule_mt/routing/common.py", "import datasets", "the core must not import datasets"),
        ("hf_capsule_mt/hub/cards.py", "import hf_capsule_mt.evaluation.metrics", "hub must not import"),
        ("hf_capsule_mt/hub/cards.py", "from hf_capsule_mt.evaluation.results import read_result", None),
        ("hf_capsule_mt/evaluation/metrics.py", "import lab.over_seeds", "evaluation must not import"),
        ("scripts/train.py", "from hf_capsule_mt.training import run_recipe", "scripts must not import"),
        ("lab/timing.py", "from tests.fixtures.tiny import tiny_model", "lab must not import"),
        ("lab/tests/test_speed.py", "from tests.fixtures.tiny import tiny_model", None),
    ],
)
def test_the_rule_bites(place, source, message):
    found = forbidden(ROOT / place, source)
    assert message in found[0] if message else not found


def names_of(tree: ast.Module):
    """What a module defines at its top level, imports apart."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                yield from (name.id for name in ast.walk(target) if isinstance(name, ast.Name))


def defined_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    """The names that more than one of the modules defines at its top level."""
    places: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in set(names_of(ast.parse(source))):
            places.setdefault(name, []).append(module)
    return {name: modules for name, modules in places.items() if len(modules) > 1 and not name.startswith("__")}


def test_no_name_of_the_core_is_defined_twice():
    """The core leaves with a checkpoint as one file, in which every name is one thing."""
    core = [path for path in FILES if room_of(path) in CORE]
    assert len(core) > 20
    assert defined_twice({str(path): path.read_text(encoding="utf-8") for path in core}) == {}

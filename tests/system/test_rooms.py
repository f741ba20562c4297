"""Who may import whom, by room, which is our word for a folder of a package: see CONTRIBUTING.md.

A folder within a room is part of it, unless the tables list it as a room of its own.
"""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("capsule_mt", "hf_capsule_mt")

LIGHT = {
    # a file beside the rooms is a room of its own
    "messages": set(),
    "files": {"messages"},
    "text": {"files.reading", "messages"},
    "options": set(),
    "engine": {"options"},
    "formats": {"coverage.problems", "files", "messages", "text"},
    "models": {"engine", "files", "messages", "options", "text"},
    "conversions": {"engine", "messages", "models"},
    "catalog": {"files", "messages", "models.encoder_loading", "models.probing", "models.registry", "text"},
    "checks": {"text"},
    "coverage": {"checks", "engine", "text"},
    "judge": {
        *("catalog.entries", "catalog.store", "checks", "coverage.judgement", "engine", "messages", "models", "text"),
        "translate.first_use",
    },
    "translate": {
        *("engine", "models", "catalog", "checks", "coverage", "text", "files", "messages", "options"),
        "__init__",
    },
    # it fits the numbers that coverage reads, with a complete translator, so coverage must not import it
    "coverage.calibration": {
        *("conversions", "coverage", "engine", "files", "judge", "models", "text", "translate"),
        "__init__",
    },
    "serve": {
        *("catalog", "coverage", "engine", "files", "formats", "messages", "options", "text", "translate"),
        "__init__",
    },
    "web": {"catalog.pairs", "checks", "coverage", "engine", "models", "options", "translate", "text"},
    "commands": {
        *("web", "engine", "files", "formats", "judge", "models", "catalog", "conversions", "coverage", "text"),
        *("messages", "options", "translate", "coverage.calibration", "serve", "__init__"),
    },
    "__init__": {"checks", "engine", "formats", "judge", "models", "coverage", "translate"},
    "__main__": {"commands"},
}
HEAVY = {
    "routing": set(),
    "configuration": set(),
    "data": {"capsule_mt.files"},
    "evaluation": {"capsule_mt.coverage.calibration", "capsule_mt.files"},
    "modeling": {"routing", "configuration"},
    "adapters": {"configuration", "extras", "modeling"},
    "loading": {
        "adapters",
        "data.separate_tokenizer",
        "modeling",
        "capsule_mt.engine",
        "capsule_mt.models",
        "capsule_mt.catalog.entries",
    },
    "decoding": {
        *("data.separate_tokenizer", "loading", "modeling"),
        *(f"capsule_mt.{room}" for room in ("catalog", "coverage", "coverage.calibration", "engine", "files")),
        *(f"capsule_mt.{room}" for room in ("models", "options", "text", "translate")),
    },
    "training": {"adapters", "data", "hub.trainer_pushes", "loading", "modeling", "evaluation", "capsule_mt.files"},
    "analysis": {"adapters", "modeling", "capsule_mt.files"},
    "hub": {
        *("configuration", "loading", "modeling"),
        *(f"capsule_mt.{room}" for room in ("catalog", "conversions", "engine", "models", "text")),
    },
    "quickstart": {"decoding", "training", "evaluation", "capsule_mt.coverage.problems"},
    "__init__": {"adapters", "configuration", "modeling", "decoding", "capsule_mt.__init__", "capsule_mt.commands"},
    "extras": set(),
}


def full(package: str, rooms: set[str]) -> set[str]:
    return {room if room.startswith("capsule_mt.") else f"{package}.{room}" for room in rooms}


# what each room may import from the others: a whole room, or one module of it
ALLOWED = {f"capsule_mt.{room}": full("capsule_mt", rooms) for room, rooms in LIGHT.items()}
ALLOWED |= {f"hf_capsule_mt.{room}": full("hf_capsule_mt", rooms) for room, rooms in HEAVY.items()}
ROOMS = set(ALLOWED)
ALLOWED |= {
    "hf_capsule_mt.commands": ROOMS,
    "scripts": {"hf_capsule_mt.commands", "capsule_mt.commands"},
    "lab": ROOMS | {"hf_capsule_mt.commands.arguments"},
    "tools": ROOMS,
    "lab/tests": ROOMS | {"hf_capsule_mt.commands", "lab", "tests"},
    "tests": ROOMS | {"hf_capsule_mt.commands", "scripts", "tools"},
}
# the core leaves with every checkpoint
CORE = {f"hf_capsule_mt.{room}" for room in ("routing", "configuration", "modeling")}
CORE_LIBRARIES = {"torch", "transformers", "huggingface_hub"}
# the light distribution; all but tokenizers come with its extras
LIGHT_LIBRARIES = {"tokenizers", "fastapi", "py3langid", "pydantic", "starlette", "uvicorn"}
NEEDS_NUMPY = "capsule_mt.coverage.calibration"  # the extra `calibrate`
OWN = {*PACKAGES, "scripts", "lab", "tests", "tools"}

FOLDERS = (*PACKAGES, "scripts", "lab", "tests", "tools")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py") if path.name != "hatch_build.py")


@cache
def import_nodes(source: str) -> list[ast.Import | ast.ImportFrom]:
    """Return the imports of a file, which several tests read."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(path: Path, source: str):
    """Yield every module that the file imports, absolute, with its line."""
    for node in import_nodes(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        else:
            module = node.module or ""
            if node.level:
                base = path.parent.relative_to(ROOT).parts
                module = ".".join((*base[: len(base) - node.level + 1], *filter(None, [node.module])))
            rooms = [f"{module}.{alias.name}" for alias in node.names if f"{module}.{alias.name}" in ROOMS]
            # not a room: of a package, a public name; of a room, a module or its contents
            named = [f"{module}.__init__" if module in PACKAGES else module] if len(rooms) < len(node.names) else []
            yield from ((name, node.lineno) for name in (*rooms, *named))


def room_of(path: Path) -> str:
    return room_of_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def room_of_module(module: str) -> str:
    parts = module.split(".")
    if ".".join(parts[:3]) in ROOMS:  # a room within a room
        return ".".join(parts[:3])
    if parts[0] in PACKAGES:
        return ".".join([parts[0], *(parts[1:2] or ["__init__"])])
    return "lab/tests" if parts[:2] == ["lab", "tests"] else parts[0]


def forbidden(path: Path, source: str) -> list[str]:
    """Return what the rooms' table forbids this file to import."""
    room = room_of(path)
    assert room in ALLOWED, f"{path}: a room that the table does not know"
    complaints = []
    for module, line in imports(path, source):
        library = module.split(".")[0]
        if library in OWN:
            target = room_of_module(module)
            one_module = ".".join(module.split(".")[:3])
            if not (target == room or target in ALLOWED[room] or one_module in ALLOWED[room]):
                complaints.append(f"{path}:{line}: {room} must not import {module}")
        elif room in CORE and library not in CORE_LIBRARIES | sys.stdlib_module_names:
            complaints.append(f"{path}:{line}: the core must not import {module}")
        elif room == NEEDS_NUMPY and library == "numpy":
            continue
        elif room.startswith("capsule_mt.") and library not in LIGHT_LIBRARIES | sys.stdlib_module_names:
            complaints.append(f"{path}:{line}: capsule_mt must not import {module}")
    return complaints


def permissions_used(package: str) -> dict[str, set[str]]:
    """Return which permissions of the table the files of a package use, by room."""
    used: dict[str, set[str]] = {}
    for path in FILES:
        room = room_of(path)
        if not room.startswith(f"{package}."):
            continue
        for module, _ in imports(path, path.read_text(encoding="utf-8")):
            if module.split(".")[0] in PACKAGES:
                used.setdefault(room, set()).update({room_of_module(module), ".".join(module.split(".")[:3])})
    return used


@pytest.mark.parametrize(("package", "rooms"), [("capsule_mt", LIGHT), ("hf_capsule_mt", HEAVY)])
def test_every_permission_is_used(package, rooms):
    used = permissions_used(package)
    unused = {
        f"{package}.{room}": full(package, names) - used.get(f"{package}.{room}", set())
        for room, names in rooms.items()
    }
    assert {room: sorted(names) for room, names in unused.items() if names} == {}


def test_imports():
    assert [complaint for path in FILES for complaint in forbidden(path, path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("path", "source", "message"),
    [
        ("hf_capsule_mt/routing/common.py", "from ..configuration import common", "routing must not import"),
        ("hf_capsule_mt/routing/common.py", "import datasets", "the core must not import datasets"),
        ("capsule_mt/models/marian.py", "import numpy", "capsule_mt must not import numpy"),
        ("capsule_mt/translate/translator.py", "from hf_capsule_mt.decoding import fast", "translate must not import"),
        ("capsule_mt/engine/library.py", "from capsule_mt.models import loading", "engine must not import"),
        ("capsule_mt/models/loading.py", "from capsule_mt.conversions import to_int8", "models must not import"),
        ("capsule_mt/checks/rules.py", "from capsule_mt.coverage import names", "checks must not import"),
        ("capsule_mt/coverage/methods.py", "from capsule_mt.coverage.calibration import fitting", "must not import"),
        ("capsule_mt/coverage/methods.py", "from capsule_mt.coverage import calibration", "must not import"),
        ("capsule_mt/coverage/calibration/fitting.py", "from capsule_mt.coverage import curves", None),
        ("hf_capsule_mt/hub/cards.py", "import hf_capsule_mt.evaluation.metrics", "hub must not import"),
        ("hf_capsule_mt/hub/cards.py", "from hf_capsule_mt.decoding import fast", "hub must not import"),
        ("hf_capsule_mt/decoding/translator.py", "import hf_capsule_mt.data.separate_tokenizer", None),
        ("hf_capsule_mt/evaluation/metrics.py", "import lab.over_seeds", "evaluation must not import"),
        ("scripts/train.py", "from hf_capsule_mt.training import run_recipe", "scripts must not import"),
        ("lab/timing.py", "from tests.fixtures.tiny import tiny_model", "lab must not import"),
        ("lab/tests/test_speed.py", "from tests.fixtures.tiny import tiny_model", None),
    ],
)
def test_the_rule_bites(path, source, message):
    complaints = forbidden(ROOT / path, source)
    assert message in complaints[0] if message else not complaints


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_by_module(sources: dict[str, str]) -> dict[str, set[str]]:
    """Return which of these modules each one imports: at its top, in a function, or for types alone.

    `from room import module` runs the room's `__init__` first, so it imports both.
    """
    graph: dict[str, set[str]] = {}
    for module, source in sources.items():
        targets = set[str]()
        for node in import_nodes(source):
            if isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
            elif node.module and not node.level:
                targets.update({node.module, *(f"{node.module}.{alias.name}" for alias in node.names)})
        graph[module] = (targets & sources.keys()) - {module}
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, directly or by way of others."""
    reachable: dict[str, set[str]] = {}
    for module in graph:
        pending = list(graph[module])
        reachable[module] = set()
        while pending:
            target = pending.pop()
            if target not in reachable[module]:
                reachable[module].add(target)
                pending += graph[target]
    groups = {
        tuple(sorted(target for target in reachable[module] if module in reachable[target]))
        for module in graph
        if module in reachable[module]
    }
    return sorted(map(list, groups))


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_of_imports(package):
    files = [path for path in FILES if path.is_relative_to(ROOT / package)]
    # the package itself names every public type, late, and is imported for its version alone
    sources = {
        module_of(path): path.read_text(encoding="utf-8") for path in files if path != ROOT / package / "__init__.py"
    }
    assert len(sources) > 50
    assert circles(imports_by_module(sources)) == []


def test_a_circle_is_seen():
    sources = {
        "room.a": "from room.b import B",
        "room.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from room import c",
        "room.c": "def late():\n    from room.a import A",
        "room.d": "import room.a",
        "shelf": "from shelf.e import E",
        "shelf.e": "from shelf import f",
        "shelf.f": "import room.a",
    }
    assert circles(imports_by_module(sources)) == [["room.a", "room.b", "room.c"], ["shelf", "shelf.e"]]


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
    paths_of: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in set(names_of(ast.parse(source))):
            paths_of.setdefault(name, []).append(module)
    return {name: modules for name, modules in paths_of.items() if len(modules) > 1 and not name.startswith("__")}


def test_no_name_of_the_core_is_defined_twice():
    """The core leaves with a checkpoint as one file, in which every name is one thing."""
    core = [path for path in FILES if room_of(path) in CORE]
    assert len(core) > 20
    assert defined_twice({str(path): path.read_text(encoding="utf-8") for path in core}) == {}

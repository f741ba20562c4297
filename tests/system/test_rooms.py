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
    "decoding": {"modeling", "routing", "configuration", "capsule_mt"},
    "pipelines": {"configuration", "modeling", "decoding", "files"},
    "training": {"data", "configuration", "modeling", "evaluation", "files"},
    "analysis": {"modeling", "evaluation", "files"},
    "hub": {"configuration", "modeling", "decoding", "evaluation.results"},
    "demo": {"pipelines", "analysis"},
    "serve": {"pipelines", "files", "hub.card_sources"},
    "__init__": {"configuration", "decoding", "modeling", "pipelines"},
    "__main__": {"capsule_mt"},
    "files": set(),
    # leaves beside the rooms
    "command_line": {"extras", "modeling.loading"},
    "extras": set(),
}
PACKAGE_ROOMS = set(ALLOWED)
ALLOWED |= {
    "commands": PACKAGE_ROOMS | {"capsule_mt"},
    "capsule_mt": {"commands"},
    "scripts": {"commands"},
    "lab": PACKAGE_ROOMS | {"capsule_mt"},
    "lab/tests": PACKAGE_ROOMS | {"capsule_mt", "lab", "tests"},
    "tests": PACKAGE_ROOMS | {"commands", "capsule_mt", "scripts"},
}
# the core leaves with every checkpoint
CORE = {"routing", "configuration", "modeling", "__init__"}
CORE_LIBRARIES = {"torch", "transformers", "huggingface_hub"}
OWN = {PACKAGE, "capsule_mt", "scripts", "lab", "tests"}

FOLDERS = (PACKAGE, "capsule_mt", "scripts", "lab", "tests")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
# rooms of capsule_mt that take nothing but the standard library and tokenizers; each may import those before it
LIGHT = ("text", "engine", "models", "coverage")


def imports(path: Path):
    """Yield every module that the file imports, absolute, with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(path):
    room = room_of(path)
    assert room in ALLOWED, f"{path}: a room that the table does not know"
    for module, line in imports(path):
        library = module.split(".")[0]
        if library in OWN:
            target = room_of_module(module)
            one_module = ".".join(module.split(".")[1:3])
            allowed = target == room or target in ALLOWED[room] or one_module in ALLOWED[room]
            assert allowed, f"{path}:{line}: {room} must not import {module}"
        elif room in CORE:
            allowed = library in CORE_LIBRARIES or library in sys.stdlib_module_names
            assert allowed, f"{path}:{line}: the core must not import {module}"


@pytest.mark.parametrize("room", LIGHT)
def test_rooms_of_the_light_distribution(room):
    allowed = {
        *sys.stdlib_module_names,
        "tokenizers",
        *(f"capsule_mt.{one}" for one in LIGHT[: LIGHT.index(room) + 1]),
    }
    for path in (ROOT / "capsule_mt" / room).rglob("*.py"):
        for module, line in imports(path):
            parts = module.split(".")
            name = ".".join(parts[:2]) if parts[0] == "capsule_mt" else parts[0]
            assert name in allowed, f"{path}:{line}: {room} must not import {module}"


@pytest.mark.parametrize(
    ("place", "source", "message"),
    [
        ("hf_capsule_mt/routing/common.py", "from ..configuration import common", "routing must not import"),
        ("hf_capsule_mt/routing/common.py", "from hf_capsule_mt import training", "routing must not import"),
        ("hf_capsule_mt/routing/common.py", "import datasets", "the core must not import datasets"),
        (
            "hf_capsule_mt/modeling/losses.py",
            "from hf_capsule_mt.decoding.fast import to_fast",
            "modeling must not import",
        ),
        ("hf_capsule_mt/hub/cards.py", "import hf_capsule_mt.evaluation.metrics", "hub must not import"),
        ("hf_capsule_mt/hub/cards.py", "from hf_capsule_mt.evaluation.results import read_result", None),
        ("hf_capsule_mt/evaluation/metrics.py", "import lab.over_seeds", "evaluation must not import"),
        ("hf_capsule_mt/training/run.py", "from hf_capsule_mt.commands import start", "training must not import"),
        ("scripts/train.py", "from hf_capsule_mt.training import run_recipe", "scripts must not import"),
        ("hf_capsule_mt/command_line.py", "from hf_capsule_mt.data import encode", "command_line must not import"),
        ("hf_capsule_mt/training/run.py", "from hf_capsule_mt.command_line import run", "training must not import"),
        ("lab/timing.py", "from hf_capsule_mt.commands import start", "lab must not import"),
        ("lab/timing.py", "from hf_capsule_mt.command_line import run", None),
        ("lab/timing.py", "from tests.fixtures.tiny import tiny_model", "lab must not import"),
        ("lab/tests/test_speed.py", "from tests.fixtures.tiny import tiny_model", None),
        ("tests/training/test_run.py", "import lab.throughput", "tests must not import"),
    ],
)
def test_the_rule_bites(place, source, message, monkeypatch):
    monkeypatch.setattr(Path, "read_text", lambda self, encoding=None: source)
    if message is None:
        test_imports(ROOT / place)
    else:
        with pytest.raises(AssertionError, match=message):
            test_imports(ROOT / place)


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
    found = defined_twice({"one": "x = 1\ndef f(): y = 2\n", "two": "def g(): f = y = 3\nx: int = 2\n__all__ = []"})
    assert found == {"x": ["one", "two"]}

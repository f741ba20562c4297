"""Who may import whom: the table of rooms, read from the source."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "hf_capsule_mt"

# what each room may import from the others; the core rooms leave with every checkpoint
ALLOWED = {
    "routing": set(),
    "configuration": set(),
    "data": set(),
    "evaluation": set(),
    "modeling": {"routing", "configuration"},
    "fast": {"modeling", "routing", "configuration"},
    "pipelines": {"configuration", "modeling", "fast"},
    "training": {"data", "configuration", "modeling", "evaluation"},
    "analysis": {"modeling", "evaluation"},
    "hub": {"configuration", "modeling", "evaluation"},
    "demo": {"pipelines", "analysis"},
    "__main__": set(),
    "__init__": {"configuration", "modeling", "pipelines"},
}
ALLOWED["commands"] = set(ALLOWED)
CORE = {"routing", "configuration", "modeling", "__init__"}
CORE_LIBRARIES = {"torch", "transformers", "huggingface_hub"}


def imports(path: Path):
    """Every module that the file imports, absolute, with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                base = path.parent.relative_to(ROOT).parts
                base = base[: len(base) - node.level + 1]
                yield ".".join((*base, *filter(None, [node.module]))), node.lineno
            else:
                yield node.module, node.lineno


FILES = sorted((ROOT / PACKAGE).rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports(path):
    room = room_of(path)
    assert room in ALLOWED, f"{path}: a room that the table does not know"
    for module, line in imports(path):
        parts = module.split(".")
        if parts[0] == PACKAGE:
            target = parts[1] if len(parts) > 1 else "__init__"
            assert target == room or target in ALLOWED[room], f"{path}:{line}: {room} must not import {module}"
        assert parts[0] not in ("scripts", "tests", "lab"), f"{path}:{line}: nothing imports {module}"
        if room in CORE:
            allowed = parts[0] in CORE_LIBRARIES | {PACKAGE} or parts[0] in sys.stdlib_module_names
            assert allowed, f"{path}:{line}: the core must not import {module}"


def test_the_rule_bites(tmp_path, monkeypatch):
    bad = ROOT / PACKAGE / "routing" / "common.py"
    source = "from hf_capsule_mt.modeling import outputs\nfrom ..configuration import common\nimport datasets\n"
    monkeypatch.setattr(Path, "read_text", lambda self, encoding=None: source)
    found = {module for module, _ in imports(bad)}
    assert found == {"hf_capsule_mt.modeling", "hf_capsule_mt.configuration", "datasets"}
    with pytest.raises(AssertionError, match="routing must not import"):
        test_imports(bad)


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

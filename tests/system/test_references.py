"""Every path and dotted name that code and pages mention is there."""

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("capsule_mt", "hf_capsule_mt", "lab", "scripts", "tests", "tools")
WEB = tuple(path for folder in (".", "native", "page") for path in (ROOT / "web" / folder).glob("*.*"))
NAMES = ("README.md", "AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")
# Evidence names programs of older commits; lab/tests/test_claims.py checks it
PAGES = (*(path for path in ROOT.glob("docs/**/*.md") if path.name != "evidence.md"), *(ROOT / name for name in NAMES))
SOURCES = tuple(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
NATIVE = (*(ROOT / "capsule_mt").rglob("*.[ch]"), *(path for path in WEB if path.suffix in (".c", ".h", ".js", ".ts")))
ROOMS = "|".join(FOLDERS)
PATH = re.compile(rf"(?<![\w./-])(?:{ROOMS}|web)(?:/[\w-]+)+\.(?:py|c|h|def|js|md|json|sh|toml|yaml)\b")
DOTTED = re.compile(rf"(?<![\w./@-])(?:{ROOMS})(?:\.[A-Za-z_]\w*)+")
SUFFIXES = ("py", "c", "h", "js", "json", "md", "wasm", "sh", "def", "toml", "yaml")


def prose(path: Path) -> str:
    """Return the docstrings and comments of a file in Python, the whole of any other."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return text
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    return "\n".join([*docstrings, *re.findall(r"(?<=# ).*", text)])


def missing_paths(text: str) -> list[str]:
    """Return the paths in a text that lead nowhere."""
    return [path for path in PATH.findall(text) if not (ROOT / path).exists()]


def missing_names(text: str) -> list[str]:
    """Return the dotted names in a text that cannot be imported."""
    return sorted(
        name for name in set(DOTTED.findall(text)) if name.rsplit(".", 1)[1] not in SUFFIXES and not exists(name)
    )


def exists(name: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:count])
        if not (module.is_dir() or module.with_suffix(".py").is_file()):
            continue
        if count == len(parts):
            return True
        value = importlib.import_module(".".join(parts[:count]))
        for part in parts[count:]:
            fields = getattr(value, "__annotations__", {})
            if not hasattr(value, part) and part not in fields:
                return False
            value = getattr(value, part, None)
        return True
    return False


@pytest.mark.parametrize("kind", ["pages", "sources", "native"])
def test_what_is_mentioned_is_there(kind):
    paths = {"pages": PAGES, "sources": SOURCES, "native": NATIVE}[kind]
    missing = {}
    for path in paths:
        text = prose(path)
        if wrong := missing_paths(text) + missing_names(text):
            missing[str(path.relative_to(ROOT))] = wrong
    assert missing == {}


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see tests/system/test_references.py", []),
        ("see tests/system/test_nothing.py", ["tests/system/test_nothing.py"]),
        ("`capsule_mt.text.sentences`, `capsule_mt.Translator`", []),
        ("`capsule_mt.text.nothing`, `capsule_mt.Nobody`", ["capsule_mt.Nobody", "capsule_mt.text.nothing"]),
    ],
)
def test_the_search_bites(text, missing):
    assert missing_paths(text) + missing_names(text) == missing

"""Count the names that say nothing of what they hold: pronouns and participles such as `found`, `one` or `given`.

    python tools/names.py                 # the share of each package, and fail over the limit
    python tools/names.py --list engine   # each such name in files whose path has "engine", with its line

A name is counted once for each function, class or module that binds it, parameters and attributes included.
"""

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("capsule_mt", "hf_capsule_mt", "lab", "tests", "tools")
LIMIT = 0.005  # the share of names; sacreBLEU, nanochat, JoeyNMT and CTranslate2 have 0.000 to 0.001
EMPTY_NAMES = frozenset(
    """
    all another anything before between both done each either everything few found from_ given gone had
    has held here it its kept known last_of least left made many meant more most much need needed
    neither none nothing of one ones other others own place placed places rest said same seen so some
    something such taken that them these they thing things this those to told two wanted what when where
    which whole whose with_ within
    """.split()  # noqa: SIM905  a word a line would be eighty lines
)


class Binding(NamedTuple):
    """A name bound in a file."""

    path: Path
    line: int
    name: str


def bindings(path: Path) -> Iterator[Binding]:
    """Yield each name that a file binds, once a scope."""
    yield from _scope_bindings(path, ast.parse(path.read_text(encoding="utf-8")))


def _scope_bindings(path: Path, scope: ast.AST) -> Iterator[Binding]:
    names: dict[str, int] = {}
    inner_scopes = []
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        for name in _bound_by(node):
            names[name] = min(node.lineno, names.get(name, node.lineno))  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            inner_scopes.append(node)
        else:
            pending += ast.iter_child_nodes(node)
    for name, line in names.items():
        yield Binding(path, line, name)
    for inner in inner_scopes:
        yield from _scope_bindings(path, inner)


def _bound_by(node: ast.AST) -> list[str]:
    """Return the names that a node binds itself."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    if isinstance(node, ast.ExceptHandler) and node.name:
        return [node.name]
    if isinstance(node, ast.alias) and node.asname:
        return [node.asname]
    return []


def is_empty(name: str) -> bool:
    """Return whether a name says nothing of what it holds; `_found` is as empty as `found`, `__all__` is Python's."""
    return not name.endswith("__") and name.strip("_").lower() in EMPTY_NAMES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="PART", help="print the names in files whose path has this part")
    parser.add_argument("--limit", type=float, default=LIMIT, help="the largest share (default: %(default)s)")
    arguments = parser.parse_args()
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    names = [name for path in files for name in bindings(path)]
    if arguments.list is not None:
        for binding in names:
            if is_empty(binding.name) and arguments.list in str(binding.path.relative_to(ROOT)):
                print(f"{binding.path.relative_to(ROOT)}:{binding.line}: {binding.name}")
        return 0
    empty_names = [binding for binding in names if is_empty(binding.name)]
    counts, empty_counts = (Counter(_package_of(binding) for binding in group) for group in (names, empty_names))
    shares = {package: empty_counts[package] / count for package, count in counts.items()}
    for package, share in shares.items():
        print(f"{package:20} {empty_counts[package]:5} of {counts[package]:5}  {share:6.2%}")
    print(", ".join(f"{name} {count}" for name, count in Counter(b.name for b in empty_names).most_common(12)))
    print(f"at most {arguments.limit:.1%} of each")
    return int(max(shares.values()) > arguments.limit)


def _package_of(binding: Binding) -> str:
    return binding.path.relative_to(ROOT).parts[0]


if __name__ == "__main__":
    sys.exit(main())

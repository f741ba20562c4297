"""Bundle the package's own source into one file, which transformers loads with `trust_remote_code=True`."""

import ast
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

PACKAGE = __name__.partition(".")[0]


def bundle(roots: Iterable[str], header: str) -> str:
    """Return one file with every module of the package that `roots` need, and `header` as its docstring.

    Names stay as they are. So modules of the core import each other at the top level with `from
    hf_capsule_mt.<room>.<module> import name`, and no two define one name: tests/system/test_rooms.py.
    """
    bodies: dict[str, str] = {}
    imports: set[str] = set()
    for root in roots:
        _add(root, bodies, imports)
    parts = [f'"""{header}"""', "\n".join(sorted(imports))]
    parts += [f"# {'-' * 20} {module}\n\n{body}" for module, body in bodies.items()]
    return "\n\n\n".join(parts) + "\n"


def _add(module: str, bodies: dict[str, str], imports: set[str]) -> None:
    """Add the body of a module, after those of every module of the package that it imports, and its other imports."""
    spec = find_spec(module)
    source = Path(str(spec and spec.origin)).read_text(encoding="utf-8")
    lines = source.splitlines()
    for number, statement in enumerate(ast.parse(source).body):
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith(f"{PACKAGE}."):
            if str(statement.module) not in bodies:
                _add(str(statement.module), bodies, imports)
        elif isinstance(statement, ast.ImportFrom):
            imports |= {ast.unparse(ast.ImportFrom(statement.module, [alias], 0)) for alias in statement.names}
        elif isinstance(statement, ast.Import):
            imports |= {ast.unparse(ast.Import([alias])) for alias in statement.names}
        elif number > 0:  # no docstring
            continue
        first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
        lines[first:last] = [""] * (last - first)
    bodies[module] = "\n".join(lines).strip("\n")

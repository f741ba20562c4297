"""Bundle the package's own source into one file, which transformers loads with `trust_remote_code=True`."""

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

PACKAGE = __name__.partition(".")[0]
LONGEST_LINE = 119

STAND_INS = '''\
class LeftOut:
    """What the configuration of this checkpoint does not use. It can be named, but neither called nor made."""

    def __init__(self, *args, **kwargs):
        raise NotImplementedError(
            f"{type(self).__name__}: this checkpoint's code has only what its configuration uses. To change the "
            "settings, import hf_capsule_mt"
        )
'''


class Definition(NamedTuple):
    """A statement at the top level of a module.

    names: what it defines.
    uses: the names that it reads, those of its own variables, too.
    source: its text and the comments before it.
    """

    names: frozenset[str]
    uses: frozenset[str]
    source: str


def bundle(
    roots: Iterable[str],
    header: str,
    left_out: Collection[str] = (),
    edit: Callable[[str], str] = str,
) -> str:
    """Return one file with every definition of the package that the modules `roots` need, and `header` on top.

    A definition in `left_out` is replaced by a stand-in that can only be named, and what it alone needs is not there.
    `edit` is a function of a module's source, which returns what is bundled.

    Names stay as they are. So modules of the core import each other at the top level with `from
    hf_capsule_mt.<room>.<module> import name`, and no two define one name: tests/system/test_rooms.py.
    """
    roots = list(roots)
    modules: dict[str, list[Definition]] = {}
    imports: dict[str, str] = {}
    for root in roots:
        _read(root, modules, imports, edit)
    definitions = [definition for module in modules.values() for definition in module]
    places = {name: definition for definition in definitions for name in definition.names}
    needed = [definition for root in roots for definition in modules[root] if definition.names.isdisjoint(left_out)]
    kept: set[int] = set()
    used: set[str] = set()
    while needed:
        definition = needed.pop()
        if id(definition) not in kept:
            kept.add(id(definition))
            used |= definition.uses
            needed += [places[name] for name in definition.uses & places.keys() if name not in left_out]
    stand_ins = [f"class {name}(LeftOut): ..." for name in sorted(used.intersection(left_out, places))]
    parts = [f'"""{header}"""', _imports(imports[name] for name in used & imports.keys())]
    if stand_ins:
        parts.append("\n\n\n".join([STAND_INS.strip("\n"), "\n".join(stand_ins)]))
    for module, in_module in modules.items():
        body = "".join(definition.source for definition in in_module if id(definition) in kept)
        if body:
            parts.append(f"# {'-' * 20} {module.removeprefix(f'{PACKAGE}.')}\n\n" + body.strip("\n"))
    return "\n\n\n".join(parts) + "\n"


def _imports(statements: Iterable[str]) -> str:
    """Join the imports from one module."""
    whole, names = set(), defaultdict(set)
    for statement in statements:
        module, _, name = statement.partition(" import ")
        if name:
            names[module].add(name)
        else:
            whole.add(statement)
    lines = sorted(whole)
    for module, imported in sorted(names.items()):
        line = f"{module} import {', '.join(sorted(imported))}"
        if len(line) > LONGEST_LINE:
            line = f"{module} import (\n" + "".join(f"    {name},\n" for name in sorted(imported)) + ")"
        lines.append(line)
    return "\n".join(lines)


def _read(
    module: str, modules: dict[str, list[Definition]], imports: dict[str, str], edit: Callable[[str], str]
) -> None:
    """Add a module's definitions, after those of the package's modules that it imports, and its other imports."""
    spec = find_spec(module)
    source = edit(Path(str(spec and spec.origin)).read_text(encoding="utf-8"))
    lines = source.splitlines(keepends=True)
    definitions, end = [], 0
    for number, statement in enumerate(ast.parse(source).body):
        start, end = end, statement.end_lineno or statement.lineno
        if isinstance(statement, ast.ImportFrom) and str(statement.module).startswith(f"{PACKAGE}."):
            if str(statement.module) not in modules:
                _read(str(statement.module), modules, imports, edit)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                imports[alias.asname or alias.name] = ast.unparse(ast.ImportFrom(statement.module, [alias], 0))
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                imports[alias.asname or alias.name.partition(".")[0]] = ast.unparse(ast.Import([alias]))
        elif number > 0:  # no docstring
            names, uses = frozenset(_defined(statement)), frozenset(_used(statement))
            definitions.append(Definition(names, uses, "".join(lines[start:end])))
    modules[module] = definitions


def _defined(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
            yield from (node.id for node in ast.walk(target) if isinstance(node, ast.Name))
    else:
        raise ValueError(f"line {statement.lineno} of a bundled module: {type(statement).__name__} defines no name")


def _used(statement: ast.stmt) -> Iterator[str]:
    """The names that a statement reads, and those of annotations in quotes."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
                yield from _used(ast.parse(annotation.value).body[0])

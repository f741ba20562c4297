"""Bundle the package's own source into one file, which transformers loads with `trust_remote_code=True`."""

import ast
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

PACKAGE = __name__.partition(".")[0]
LIGHT_PACKAGE = "capsule_mt"  # whose modules come along
# Installed wherever a checkpoint is loaded, because transformers itself needs them
LIBRARIES = frozenset({"torch", "transformers", "huggingface_hub"})


class BundleError(ValueError):
    """Source that cannot be bundled into one file."""


@dataclass
class Bundle:
    """The modules collected so far, each after those that it imports from."""

    bodies: dict[str, str] = field(default_factory=dict)
    # name -> the import statement that binds it, or the module that defines it
    imported: dict[str, str] = field(default_factory=dict)
    defined: dict[str, str] = field(default_factory=dict)
    started: set[str] = field(default_factory=set)

    def add(self, module: str) -> None:
        """Add a module after every module of the package that it imports."""
        if module in self.started:
            return
        self.started.add(module)
        source = Path(str(_spec(module).origin)).read_text(encoding="utf-8")
        tree = ast.parse(source)
        _refuse_hidden_imports(module, tree)
        is_room = _is_room(module)
        dropped: set[int] = set()
        for number, statement in enumerate(tree.body):
            is_docstring = number == 0 and isinstance(statement, ast.Expr)
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                self._add_import(module, statement)
            elif is_room and not is_docstring and list(_bound_names(statement)) != ["__all__"]:
                raise BundleError(
                    f"{module}:{statement.lineno}: a room's __init__ may only import and name its exports"
                )
            elif not is_room and not is_docstring:
                for name in _bound_names(statement):
                    self._define(name, module)
                continue
            dropped.update(range(statement.lineno, (statement.end_lineno or statement.lineno) + 1))
        if not is_room:
            lines = source.splitlines()
            kept = [line for number, line in enumerate(lines, 1) if number not in dropped]
            self.bodies[module] = "\n".join(kept).strip("\n")

    def _add_import(self, module: str, statement: ast.Import | ast.ImportFrom) -> None:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            raise BundleError(f"{module}:{statement.lineno}: __future__ would hold for all modules")
        is_from = isinstance(statement, ast.ImportFrom)
        if isinstance(statement, ast.ImportFrom) and statement.level:
            raise BundleError(f"{module}:{statement.lineno}: a relative import; write it absolute")
        for alias in statement.names:
            origin = (statement.module or "") if isinstance(statement, ast.ImportFrom) else alias.name
            library = origin.partition(".")[0]
            if library in (PACKAGE, LIGHT_PACKAGE):
                if not is_from or alias.asname or alias.name == "*":
                    raise BundleError(f"{module}:{statement.lineno}: write `from {origin} import name`")
                submodule = f"{origin}.{alias.name}"
                if _is_room(origin) and find_spec(submodule) is not None:
                    raise BundleError(f"{module}:{statement.lineno}: imports the module {submodule}, not a name of it")
                self.add(origin)
                continue
            if library not in LIBRARIES | sys.stdlib_module_names:
                raise BundleError(
                    f"{module}:{statement.lineno}: {library} is not there wherever a checkpoint is loaded"
                )
            name = alias.asname or alias.name  # `import a.b` binds a, which `import a` may do as well
            text = ast.unparse(ast.ImportFrom(origin, [alias], 0) if is_from else ast.Import([alias]))
            if self.imported.setdefault(name, text) != text:
                raise BundleError(f"{module}: `{text}` and `{self.imported[name]}` bind the same name")
            if name.partition(".")[0] in self.defined:
                raise BundleError(f"{module}: `{text}`, but another module defines {name}")

    def _define(self, name: str, module: str) -> None:
        if name in self.imported:
            raise BundleError(f"{module} defines {name}, and `{self.imported[name]}` binds it too")
        if self.defined.setdefault(name, module) != module:
            raise BundleError(f"{self.defined[name]} and {module} both define {name}")

    def text(self, header: str) -> str:
        parts = [f'"""{header}"""', "\n".join(sorted(set(self.imported.values())))]
        parts += [f"# {'-' * 20} {module}\n\n{body}" for module, body in self.bodies.items() if body]
        text = "\n\n\n".join(parts) + "\n"
        compile(text, "<bundle>", "exec")
        return text


def bundle(roots: Iterable[str], header: str) -> str:
    """Return one file with every module of the package that `roots` need, and `header` as its docstring.

    Names stay as they are. So no two modules may define the same name, and modules must import from each other at the
    top level with `from hf_capsule_mt.room.module import name`. `BundleError` names the module and the line that does
    otherwise.
    """
    collected = Bundle()
    for root in roots:
        collected.add(root)
    return collected.text(header)


def _spec(module: str) -> ModuleSpec:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise BundleError(f"there is no module {module}")
    return spec


def _is_room(module: str) -> bool:
    """Return whether the module is a package's `__init__`."""
    return bool(_spec(module).submodule_search_locations)


def _refuse_hidden_imports(module: str, tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if node in tree.body or not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        if any(name.partition(".")[0] in (PACKAGE, LIGHT_PACKAGE) for name in names):
            raise BundleError(f"{module}:{node.lineno}: an import of the package that is not at the top level")


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement binds in its module."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    yield from (
        node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )

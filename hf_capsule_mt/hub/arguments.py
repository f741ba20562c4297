"""Remove arguments that no model of a configuration takes from source code, with what names them."""

import ast
import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any

from hf_capsule_mt.hub.folding import Edit, Text


def without_arguments(source: str, names: Collection[str]) -> str:
    """Return a module's source without these arguments of functions and fields of classes.

    What names them in calls, in lists and in docstrings goes with them, and variables of the same names.
    """
    if not names or not re.search(rf"\b({'|'.join(names)})\b", source):
        return source
    text = Text(source)
    edits: list[Edit] = []
    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            edits += [_without_item(text, argument) for argument in arguments if argument.arg in names]
            parts = list(ast.walk(node))
            own = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
            items = [item for part in parts if isinstance(part, ast.Call) for item in part.args]
            passed_on = set(names) - own
            edits += [_without_item(text, item) for item in items if getattr(item, "id", None) in passed_on]
        elif isinstance(node, ast.Call):
            edits += [_without_item(text, keyword) for keyword in node.keywords if keyword.arg in names]
        elif isinstance(node, (ast.List, ast.Set)):
            edits += [_without_item(text, item) for item in node.elts if getattr(item, "value", None) in names]
        elif isinstance(node, ast.Dict):
            edits += [_without_item(text, item) for item in node.keys if getattr(item, "value", None) in names]
        elif isinstance(node, ast.ClassDef):
            for before, member in pairwise(node.body):
                if isinstance(member, ast.AnnAssign) and getattr(member.target, "id", None) in names:
                    edits.append(text.after(before, member))
        if isinstance(node, (ast.FunctionDef, ast.For, ast.If)):
            for statement in node.body if len(node.body) > 1 else ():
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and _assigned(statement) in names:
                    edits.append(Edit(text.starts[statement.lineno - 1], text.starts[statement.end_lineno or 0], ""))
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            edits += _without_descriptions(text, node.body[0], names)
    shorter = text.edited(edits)
    return shorter if shorter == source else without_arguments(shorter, names)


def _assigned(statement: ast.Assign | ast.AnnAssign) -> str | None:
    """Return the variable that a statement sets, or an item of which it sets."""
    target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return getattr(target.value if isinstance(target, ast.Subscript) else target, "id", None)


def _without_item(text: Text, item: Any) -> Edit:
    """Remove an item of a list, with its annotation, default or value: its line, or what is up to the next item."""
    start = text.span(item)[0]
    match = re.match(rb"[^,()\[\]{}]*(?:\[[^\]]*\])?[^,()\[\]{}]*", text.raw[start:])
    end = start + len(match[0].rstrip() if match else b"")
    if text.raw[end : end + 2] == b",\n":
        return Edit(text.starts[item.lineno - 1], end + 2, "")
    if text.raw[end : end + 2] == b", ":
        return Edit(start, end + 2, "")
    while text.raw[start - 1 : start] in (b" ", b",", b"\n"):
        start -= 1
    return Edit(start, end, "")


def _without_descriptions(text: Text, docstring: ast.stmt, names: Collection[str]) -> Iterator[Edit]:
    """Remove the lines of a docstring that describe arguments or fields."""
    old = text.of(docstring)
    name = "|".join(names)
    new = re.sub(rf"^( +)(?:{name})(?:, (?:{name}))*: [^\n]*\n(?:\1 +[^\n]*\n)*", "", old, flags=re.MULTILINE)
    if new != old:
        new = re.sub(r'\n\n( *""")$', r"\n\1", new)  # an empty line before the end
        yield Edit(*text.span(docstring), re.sub(r'\n *"""$', '"""', new) if new.count("\n") == 1 else new)

"""Fold source code by what a configuration fixes: a test that it decides leaves the branch that is taken.

The text is edited at the positions of its syntax tree, so that what stays keeps its form, its comments and its order.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

# a value on a line of its own, in parentheses that were needed before it was shorter
SPLIT_VALUE = re.compile(r"^( *[\w.]+(?:: [\w.]+)? = |)\(\n +([^\n]+[^\n,(\[{])\n +\)$", re.MULTILINE)
LONGEST_LINE = 119


class Edit(NamedTuple):
    """Replace the bytes from `start` to `end` of a text."""

    start: int
    end: int
    text: str


class Facts(NamedTuple):
    """What tests may read: the values of their variables, and the words of which they read one at least.

    absent: classes that the code does not have, so that nothing is an instance of them.
    """

    values: dict[str, Any]
    words: frozenset[str]
    absent: frozenset[str]


def fold(
    source: str, settings: Mapping[str, Any], variables: Mapping[str, Any], absent: frozenset[str] = frozenset()
) -> str:
    """Return a module's source without the branches that these values rule out.

    Args:
        settings: the values of the configuration's fields and properties.
        variables: the values of variables; of attributes of `self`, such as "self.guided_losses", which are then not
            set; and of calls with any arguments, such as "config.aggregates_heads()".
        absent: classes that the code does not have.
    """
    config = SimpleNamespace(**settings)
    attributes = {name.removeprefix("self."): value for name, value in variables.items() if name.startswith("self.")}
    values = {**variables, "config": config, "self": SimpleNamespace(config=config, **attributes)}
    words = {*settings, *absent, *(re.split(r"\W+", name.removesuffix("()"))[-1] for name in variables)}
    facts = Facts(values, frozenset(words), absent)
    if facts.words.isdisjoint(re.findall(r"\w+", source)):
        return source
    while True:
        text = Text(source)
        folded = text.edited(_edits(text, facts))
        if folded == source:
            return SPLIT_VALUE.sub(_joined, source)
        source = folded


def _joined(match: re.Match[str]) -> str:
    line = match[1] + match[2].strip()
    return line if len(line) <= LONGEST_LINE else match[0]


class Text:
    """A module's source, and the positions of its lines and nodes in bytes."""

    def __init__(self, source: str) -> None:
        self.raw = source.encode()
        self.tree = ast.parse(source)
        self.starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: Any) -> tuple[int, int]:
        return self.starts[node.lineno - 1] + node.col_offset, self.starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, node: Any) -> str:
        start, end = self.span(node)
        return self.raw[start:end].decode()

    def lines(self, first: int, last: int, left: int = 0) -> str:
        """Return the lines from `first` to `last`, counted from 1, moved to the left."""
        rows = self.raw[self.starts[first - 1] : self.starts[last]].decode().splitlines(keepends=True)
        return "".join(row[left:] if row.strip() else row for row in rows)

    def after(self, before: Any, node: Any) -> Edit:
        """Remove a node's lines and all lines between it and the one before, but for a blank line."""
        end = self.starts[node.end_lineno]
        is_apart = self.lines(before.end_lineno + 1, before.end_lineno + 1) == "\n"
        return Edit(self.starts[before.end_lineno], end, "\n" if is_apart and self.raw[end : end + 1] == b" " else "")

    def edited(self, edits: Iterable[Edit]) -> str:
        """Return the text after the edits; of two that overlap, only the first is made."""
        parts, end = [], 0
        for edit in sorted(edits, key=lambda edit: (edit.start, -edit.end)):
            if edit.start >= end:
                parts += [self.raw[end : edit.start], edit.text.encode()]
                end = edit.end
        return b"".join([*parts, self.raw[end:]]).decode()


def _edits(text: Text, facts: Facts) -> Iterator[Edit]:
    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef):
            yield from _edits_of_constants(text, node)
        elif isinstance(node, ast.ClassDef):
            yield from _edits_of_attributes(text, node, facts)
        for name in ("body", "orelse"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                yield from _edits_of_block(text, facts, statements, isinstance(node, ast.Module))
        if isinstance(node, ast.Call) and (classes := _tested_classes(node)):
            present = [item for item in classes if item.id not in facts.absent]
            if 0 < len(present) < len(classes):
                listed = ", ".join(item.id for item in present)
                yield Edit(*text.span(node.args[1]), f"({listed})" if len(present) > 1 else listed)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            for left_out, alternative in ((node.left, node.right), (node.right, node.left)):
                if isinstance(left_out, ast.Name) and left_out.id in facts.absent:
                    yield Edit(*text.span(node), text.of(alternative))
        if isinstance(node, ast.IfExp) and (value := _value(node.test, facts)) is not None:
            yield Edit(*text.span(node), text.of(node.body if value else node.orelse))
        elif isinstance(node, ast.BoolOp):
            open_parts = [part for part in node.values if _value(part, facts) is None]
            if _value(node, facts) is None and len(open_parts) < len(node.values):
                word = " and " if isinstance(node.op, ast.And) else " or "
                yield Edit(*text.span(node), word.join(map(text.of, open_parts)))
        if isinstance(node, (ast.BoolOp, ast.Compare, ast.Attribute)) and (value := _value(node, facts)) is not None:
            yield Edit(*text.span(node), str(value))


def _value(test: ast.expr, facts: Facts) -> bool | None:
    """Return whether a test is true; `None` if the configuration does not decide it."""
    if isinstance(test, ast.BoolOp):
        decisive = isinstance(test.op, ast.Or)
        values = [_value(part, facts) for part in test.values]
        return decisive if decisive in values else None if None in values else not decisive
    if isinstance(test, ast.Constant):  # what an earlier round has left
        return test.value if isinstance(test.value, bool) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        operand = _value(test.operand, facts)
        return None if operand is None else not operand
    if isinstance(test, ast.Call) and isinstance(value := facts.values.get(f"{ast.unparse(test.func)}()"), bool):
        return value
    if isinstance(test, ast.Call) and (classes := _tested_classes(test)):
        return False if facts.absent.issuperset(item.id for item in classes) else None
    if not any(getattr(node, "id", getattr(node, "attr", None)) in facts.words for node in ast.walk(test)):
        return None
    try:
        value = eval(compile(ast.Expression(test), "a test", "eval"), {"__builtins__": {}}, dict(facts.values))
    except Exception:  # it reads what is not known, or is not made to be evaluated here
        return None
    return value if isinstance(value, bool) else None


def _tested_classes(call: ast.Call) -> list[ast.Name]:
    """Return the classes of an `isinstance`; nothing for another call, or if a class is not a plain name."""
    if not (isinstance(call.func, ast.Name) and call.func.id == "isinstance" and len(call.args) == 2):
        return []
    classes = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
    names = [item for item in classes if isinstance(item, ast.Name)]
    return names if len(names) == len(classes) else []


def _edits_of_attributes(text: Text, owner: ast.ClassDef, facts: Facts) -> Iterator[Edit]:
    """Remove what declares or sets an attribute of `self` whose value is known."""
    known = vars(facts.values["self"]).keys() - {"config"}
    blocks = [owner.body, *(member.body for member in owner.body if isinstance(member, ast.FunctionDef))]
    for block in blocks:
        for before, statement in pairwise(block):
            match statement:
                case (
                    ast.AnnAssign(target=ast.Name(id=name))
                    | ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name))
                    | ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)])
                ) if name in known:
                    yield text.after(before, statement)


def _edits_of_constants(text: Text, function: ast.FunctionDef) -> Iterator[Edit]:
    """Put the value of a variable that is set once, to True or False, in its places."""
    for before, statement in pairwise(function.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=bool(value))):
                places = [node for node in ast.walk(function) if isinstance(node, ast.Name) and node.id == name]
                if sum(isinstance(node.ctx, ast.Store) for node in places) == 1:
                    yield text.after(before, statement)
                    yield from (
                        Edit(*text.span(node), str(value)) for node in places if isinstance(node.ctx, ast.Load)
                    )


def _edits_of_block(text: Text, facts: Facts, statements: list[ast.stmt], is_module: bool) -> Iterator[Edit]:
    for number, statement in enumerate(statements):
        if isinstance(statement, ast.If) and (value := _value(statement.test, facts)) is not None:
            yield _branch(text, statement, value, alone=len(statements) == 1)
        if isinstance(statement, (ast.Return, ast.Raise)) and statement is not statements[-1] and not is_module:
            end = statements[-1].end_lineno or 0
            yield Edit(text.starts[statements[number].end_lineno or 0], text.starts[end], "")


def _branch(text: Text, node: ast.If, value: bool, alone: bool) -> Edit:
    """Leave one branch of an `if` or an `elif`."""
    start, end = text.starts[node.lineno - 1], text.starts[node.end_lineno or 0]
    last = node.body[-1].end_lineno or 0
    is_elif = text.raw[text.span(node)[0] :].startswith(b"elif")
    left = node.body[0].col_offset - node.col_offset
    body_line = (node.test.end_lineno or 0) + 1
    while not text.lines(body_line - 1, body_line - 1).rstrip().endswith(":"):  # `):` of a long test
        body_line += 1
    if value and is_elif:
        return Edit(start, end, " " * node.col_offset + "else:\n" + text.lines(body_line, last))
    if value:
        return Edit(start, end, text.lines(body_line, last, left))
    if not node.orelse:
        return Edit(start, end, " " * node.col_offset + "pass\n" if alone and not is_elif else "")
    following = node.orelse[0]
    chain = len(node.orelse) == 1 and text.raw[text.span(following)[0] :].startswith(b"elif")
    otherwise = last + 1
    while not text.lines(otherwise, otherwise).strip().startswith(("else:", "elif ")):
        otherwise += 1
    if is_elif:
        return Edit(start, text.starts[otherwise - 1], "")
    if chain:
        return Edit(start, text.starts[otherwise - 1] + node.col_offset + len("elif"), " " * node.col_offset + "if")
    return Edit(start, end, text.lines(otherwise + 1, node.end_lineno or 0, left))

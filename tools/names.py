"""Count the names that say nothing of what they hold: pronouns and participles such as `found`, `one` or `given`.

    python tools/names.py                 # the share of each package, and fail over the limit
    python tools/names.py --list engine   # each such name in files whose path has "engine", with its line

A name is counted once for each function, class or module that binds it, parameters and attributes included. In
JavaScript, each declaration of a variable, a parameter, a method or a private field counts, and each assignment to
`this`.
"""

import argparse
import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("capsule_mt", "hf_capsule_mt", "lab", "tests", "tools", "web")
SUFFIXES, EXCLUDED = (".py", ".js", ".mjs"), {"interface.js", "node_modules"}
LIMIT = 0.005  # the share of names; sacreBLEU, nanochat, JoeyNMT and CTranslate2 have 0.000 to 0.001
EMPTY_NAMES = frozenset(
    """
    all another anything before between both done each either everything few found from given gone had
    has held here it its kept known least left made many meant more most much need needed
    neither none nothing of one ones other others own place placed places rest said same seen so some
    something such taken that them these they thing things this those to told two wanted what when where
    which whole whose with within
    """.split()  # noqa: SIM905  a word a line would be eighty lines
)
# JavaScript: tokens, words of the language, and words that begin a block with a header in brackets
SKIPPED = r"\s+|//[^\n]*|/\*.*?\*/"
STRING = r""""(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'"""
REGEX = r"/(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\[\n])+/\w*"
MARK = r"=>|&&|\|\||\?\?|[!=]==?|\.{3}|."
NAME = r"#?[A-Za-z_$][\w$]*"
TOKEN = re.compile(f"(?P<skipped>{SKIPPED})|(?P<text>{STRING}|{NAME}|{MARK})", re.DOTALL)
TOKEN_OR_REGEX = re.compile(f"(?P<skipped>{SKIPPED})|(?P<text>{REGEX}|{STRING}|{NAME}|{MARK})", re.DOTALL)
TEMPLATE = re.compile(r"(?P<template>[`}](?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{))", re.DOTALL)
BEFORE_REGEX = frozenset("( , [ = : ? && || ?? ! => { } ; + - return of in".split()) | {""}  # noqa: SIM905
KEYWORDS = frozenset(
    """
    async await class const false from function get in instanceof let new null of return static this true typeof
    undefined
    """.split()  # noqa: SIM905
)
HEADERS = ("if", "for", "while", "switch", "catch")


class Binding(NamedTuple):
    """A name bound in a file."""

    path: Path
    line: int
    name: str


def bindings(path: Path) -> Iterator[Binding]:
    """Yield each name that a file binds, once a scope."""
    script = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        yield from _scope_bindings(path, ast.parse(script))
        return
    tokens = list(_tokens(script))
    for index in sorted({*_declared_in([text for _, text in tokens])}):
        offset, name = tokens[index]
        yield Binding(path, script.count("\n", 0, offset) + 1, name)


def _tokens(script: str) -> Iterator[tuple[int, str]]:
    """Yield the tokens of JavaScript, each after its offset, without comments, space and the strings of templates."""
    offset, last = 0, ""
    depths: list[int] = []  # for each template around the offset, the number of open braces in its ${...}
    while offset < len(script):
        pattern = TOKEN_OR_REGEX if last in BEFORE_REGEX else TOKEN
        if script[offset] == "`" or (script[offset] == "}" and depths[-1:] == [0]):
            pattern = TEMPLATE
        match = pattern.match(script, offset)
        if match is None:
            raise ValueError(f"not JavaScript that can be read here: {script[offset : offset + 40]!r}")
        if match.lastgroup == "template":
            if match[0][0] == "}":
                depths.pop()
            if is_open := match[0].endswith("${"):
                depths.append(0)
            last = "(" if is_open else "`"
        elif match.lastgroup == "text":
            last = match[0]
            if depths and last in ("{", "}"):
                depths[-1] += 1 if last == "{" else -1
            yield offset, last
        offset = match.end()


def _declared_in(texts: list[str]) -> Iterator[int]:
    """Yield the indices of the tokens of JavaScript that declare a name."""
    openings: list[int] = []
    declared: list[range] = []  # patterns: the left sides of `const` and `let`, and the parameters of functions
    pattern_start, pattern_depth = -1, -1  # of the `const` or `let` whose left side goes on
    for index, text in enumerate(texts):
        previous, following = texts[index - 1] if index else "", texts[index + 1] if index + 1 < len(texts) else ""
        if text in ("const", "let"):
            pattern_start, pattern_depth = index, len(openings)
        elif text in ("=", "of", "in", ";") and len(openings) == pattern_depth:
            declared.append(range(pattern_start, index))
            pattern_depth = -1
        elif text in ("(", "[", "{"):
            openings.append(index)
        elif text in (")", "]", "}"):
            opening = openings.pop()
            is_method = following == "{" and texts[opening - 1] not in HEADERS
            if text == ")" and (following == "=>" or is_method):
                declared.append(range(opening - is_method, index))
        is_field = following == "=" and (text[0] == "#" or texts[index - 2 : index] == ["this", "."])
        if previous in ("function", "class") or is_field:
            declared.append(range(index, index + 1))
    for index in (index for indices in declared for index in indices):
        is_name = re.fullmatch(NAME, texts[index]) and texts[index] not in KEYWORDS
        if is_name and texts[index + 1] != ":" and (texts[index - 1] != "." or texts[index - 2] == "this"):
            yield index


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


def empty_among(names: list[Binding]) -> list[Binding]:
    """Return the names that say nothing of what they hold; `_found` is as empty as `found`, `__all__` is Python's.

    `left` is a side, and so not empty, beside a `right` on its line.
    """
    sides = {("left", path, line) for path, line, name in names if name == "right"}
    return [
        binding
        for binding in names
        if not binding.name.endswith("__")
        and binding.name.strip("_#").lower() in EMPTY_NAMES
        and (binding.name, binding.path, binding.line) not in sides
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="PART", help="print the names in files whose path has this part")
    parser.add_argument("--limit", type=float, default=LIMIT, help="the largest share (default: %(default)s)")
    arguments = parser.parse_args()
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*")))
    files = [path for path in paths if path.suffix in SUFFIXES and not EXCLUDED.intersection(path.parts)]
    names = [name for path in files for name in bindings(path)]
    empty_names = empty_among(names)
    if arguments.list is not None:
        for path, line, name in empty_names:
            if arguments.list in str(path.relative_to(ROOT)):
                print(f"{path.relative_to(ROOT)}:{line}: {name}")
        return 0
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

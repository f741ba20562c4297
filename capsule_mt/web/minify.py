"""Join the modules of the npm package into one file for a page, with short names and without comments.

Each variable has one short name throughout a statement of a module, or a member of a class. So it matters which names
are variables and which are properties, but hardly in which scope a variable is: see `_Names`. The code reads the
JavaScript of the package, not the complete language.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count
from string import ascii_lowercase
from typing import NamedTuple, cast

# the names of the language, and those of browsers and node that the package uses
KEYWORDS = """
    as async await break case catch class const continue delete do else export extends false finally for from function
    get if import in instanceof let new null of return static super switch this throw true try typeof undefined void
    while yield
"""
GLOBALS = """
    Array ArrayBuffer BigInt DataView Error Float32Array Infinity Int32Array JSON Map Math Number Object Promise
    RangeError RegExp Set SharedArrayBuffer String TextDecoder TextEncoder TypeError URL Uint16Array Uint32Array
    Uint8Array WebAssembly Worker document fetch globalThis parseInt process self
"""
RESERVED = frozenset(f"{KEYWORDS} {GLOBALS}".split())
TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)|(?P<space>\s+)|(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')"""
    r"""|(?P<number>0x[\da-fA-F]+n?|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?n?)|(?P<name>#?[A-Za-z_$][\w$]*)"""
    r"""|(?P<mark>\.{3}|\?\.|=>|\?\?=?|&&|\|\||\+\+|--|>>>|[-+*/%&|^!=<>]?={1,2}=?|.)""",
    re.DOTALL,
)
COMMENT = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)", re.DOTALL)
REGEX = re.compile(r"(?P<regex>/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*)")
TEMPLATE = re.compile(r"(?P<template>[`}](?:\\.|\$(?!\{)|[^`\\$])*(?:`|\$\{))", re.DOTALL)
SHORTER = {"const": "let", "undefined": "void 0", "Infinity": "1/0", "true": "!0", "false": "!1"}
FIELD = re.compile(r"[a-z]+[A-Z]\w*")
NAMES_OF_PLATFORMS = ("ignoreBOM", "readFile")  # of browsers and node, in objects and patterns of the package
MODIFIERS = ("async", "static", "get", "*")  # of members
# a "/" after one of these begins a regular expression, and a "{" an object or a pattern
OPENING = "( , [ = : ? ?? || && ... return of in const let throw ! + -"
BEFORE_OBJECT = frozenset(OPENING.split())
BEFORE_HEADER = ("if", "for", "while", "switch", "catch")  # then come (...) and a block, as in a method
BEFORE_VALUE = BEFORE_OBJECT | {"", "=>", "{", "}", ";"}
MODULE = r' from "\./\w+\.js"'
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
SHARED = re.compile(r'^(?:import|export) \{([^}]*)\} from "\./capsule\.js"', re.MULTILINE)
DEFINITION = re.compile(r"^(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
CONSTANT_OBJECT = re.compile(r"^const ([A-Z_]+) = (\{\".*\});\n", re.MULTILINE)  # as interface.js has them
WITHOUT_NEW = ("RegExp", "Error", "RangeError", "TypeError")
CONSTANT_VALUE = re.compile(r"^const ([A-Z][A-Z_]*) = (\d[\d.e]*|\"(?:\\.|[^\"\\\n])*\");\n", re.MULTILINE)
MAX_USES = 9  # of a number of one or two digits
MAX_INLINE = 40  # characters of a string that replaces its constant
Token = tuple[str, str]  # its kind, and its text


def page_scripts(modules: Mapping[str, str], entries: Sequence[str] = ("index", "worker")) -> dict[str, str]:
    """Return the scripts of a page by name: the entries, and one, "capsule", with all that they import.

    Args:
        modules: their JavaScript by name; what they import is from each other, and no two define the same name.
    """
    texts = {name: re.sub(MODULE, r' from "./capsule.js"', modules[name]) for name in entries}
    exports = {name.strip() for text in texts.values() for names in SHARED.findall(text) for name in names.split(",")}
    shared = {name: text for name, text in modules.items() if name not in entries}
    public = {name for text in texts.values() for name in re.findall(r"\w+", text)}
    script = with_values_for_constants(with_variables_for_fields(_joined_modules(shared)))
    bundle = minified(script, sorted(exports - {""}), public)
    return {"capsule": bundle} | {name: _minified_entry(text, public) for name, text in texts.items()}


def _minified_entry(text: str, public: Collection[str]) -> str:
    """Return an entry with short names, or only without comments if it imports from elsewhere, such as node."""
    if re.search(r'^import (?!\{[^}]*\} from "\./capsule\.js";$)', text, re.MULTILINE):
        return without_comments(text)
    is_import = re.compile(r'^import \{([^}]*)\} from "\./capsule\.js";\n', re.MULTILINE)
    is_export = re.compile(r'^export \{[^}]*\} from "\./capsule\.js";\n', re.MULTILINE)
    exported = re.findall(r"^export (?:class|function|const) (\w+)", text, re.MULTILINE)
    # as a pattern, imported names get short ones like other variables
    imported = f"const {{{','.join(is_import.findall(text))}}} = capsule;\n"
    body = re.sub(r"^export ", "", is_export.sub("", is_import.sub("", text)), flags=re.MULTILINE)
    script = minified(imported + body, exported, public)
    pattern = cast(re.Match[str], re.match(r"let(\{[^}]*\})=\w+([;,])", script))  # other variables may follow it
    names = pattern[1].replace(":", " as ")
    remaining = script[pattern.end() :] if pattern[2] == ";" else "let " + script[pattern.end() :]
    return f'import{names}from"./capsule.js";{remaining}' + re.sub(
        r"(?<=\W) | (?=\W)", "", "".join(is_export.findall(text))
    )


def with_variables_for_fields(script: str) -> str:
    """Return JavaScript with a variable for each field of a constant object that is only read by its fields' names.

    A variable gets a short name, but a field keeps its own.
    """
    for name, fields in CONSTANT_OBJECT.findall(script):
        variable = rf"(?<![\w$])(?<!(?<!\.\.)\.){name}\b"  # not a field of another object; a spread's dots may precede
        uses = re.findall(rf"{variable}(?:\.(\w+)|)(?! = \{{)", script)
        values = json.loads(fields)
        if all(use in values for use in uses):
            written = "".join(f"const {name}_{field} = {json.dumps(value)};\n" for field, value in values.items())
            script = script.replace(f"const {name} = {fields};\n", written)
            script = re.sub(rf"{variable}\.(\w+)", rf"{name}_\1", script)
    return script


def with_values_for_constants(script: str) -> str:
    """Return JavaScript with their values instead of constants that are numbers, or short strings, and rarely used."""
    for name, value in CONSTANT_VALUE.findall(script):
        variable = rf"(?<![\w$.]){name}\b"
        definition = f"const {name} = {value};\n"
        max_uses = 1 if len(value) <= MAX_INLINE else 0
        if value[0] != '"':
            max_uses = 2 if len(value) > 2 else MAX_USES  # a variable's name is as long
        if 0 < len(re.findall(variable, script)) - 1 <= max_uses:
            escaped = value.replace("\\", r"\\")
            script = re.sub(variable, escaped, script.replace(definition, "", 1))
    return script


def without_comments(script: str) -> str:
    """Return JavaScript without comment lines and indentation."""
    return re.sub(r"^\s*(?:(?://|/\*\*| ?\*).*\n)?", "", script, flags=re.MULTILINE)


def _joined_modules(modules: Mapping[str, str]) -> str:
    """Return modules as one script, each after those that it imports from."""
    ordered: dict[str, str] = {}

    def add(name: str) -> None:
        for imported in IMPORT.findall(modules[name]):
            if imported not in ordered:
                add(imported)
        ordered[name] = re.sub("^export ", "", IMPORT.sub("", modules[name]), flags=re.MULTILINE)

    for name in modules:
        if name not in ordered:
            add(name)
    script = "".join(ordered.values())
    defined = Counter(DEFINITION.findall(script))
    if repeated := sorted(name for name, times in defined.items() if times > 1):
        raise ValueError(f"more than one module of the package defines {', '.join(repeated)}: give each another name")
    return script


def minified(script: str, exports: Iterable[str] = (), public: Collection[str] | None = None) -> str:
    """Return JavaScript without comments and with short names for its variables, of which it exports some.

    public: names that other scripts may use. Other fields and methods get short names, too, if they are written like
        `sourceSpan`: names of data, as in a model's file, are written in another way.
    """
    names = _Names(list(tokens_of(script)), public)
    exported = ",".join(f"{names.shared[name]} as {name}" for name in exports)
    return _joined(names.shortened()) + (f"\nexport{{{exported}}};" if exported else "") + "\n"


def tokens_of(script: str) -> Iterator[Token]:
    """Yield the tokens of JavaScript without comments and space."""
    return ((kind, text) for _, kind, text in located_tokens_of(script))


def located_tokens_of(script: str) -> Iterator[tuple[int, str, str]]:
    """Yield the tokens of JavaScript without comments and space, each after its offset.

    The strings of a template are tokens, and so is the code between them.
    """
    offset, last = 0, ""
    depths: list[int] = []  # for each template around the offset, the number of open braces in its ${...}
    while offset < len(script):
        continues = script[offset] == "}" and depths[-1:] == [0]
        if continues:
            depths.pop()
        kind, text = _token(script, offset, last, continues)
        offset += len(text)
        if kind == "template" and text.endswith("${"):
            depths.append(0)
        elif depths and kind == "mark" and text in "{}":
            depths[-1] += 1 if text == "{" else -1
        if kind not in ("space", "comment"):
            last = _last(kind, text)
            yield offset - len(text), kind, text


def _token(script: str, offset: int, last: str, continues: bool) -> Token:
    """Return the token at an offset; `continues`: it is a "}" after which a template continues."""
    patterns = [TOKEN]
    if script[offset] == "`" or continues:
        patterns = [TEMPLATE]
    elif last in BEFORE_VALUE:
        patterns = [COMMENT, REGEX, TOKEN]
    for pattern in patterns:
        if match := pattern.match(script, offset):
            return match.lastgroup or "", match[0]
    raise ValueError(f"not JavaScript that can be read here: {script[offset : offset + 40]!r}")


def _last(kind: str, text: str) -> str:
    """Return the text by which the next token is read: a template's end counts as a value, its `${` as a bracket."""
    if kind != "template":
        return text
    return "(" if text.endswith("${") else "`"


class _Names:
    """Which tokens name variables, and a short name for each.

    A name is not a variable after a dot, as the key of an object or a pattern, or as a member of a class. `{ name }`
    names a key and a variable: it becomes `{ name: a }`.

    What a statement of the script declares has one short name in the script. All other names are local to their unit,
    which is a statement or a member of a class. Different units reuse the same short names, and so do different scopes
    of a unit, unless one of them uses a variable of the other.
    """

    def __init__(self, tokens: list[Token], public: Collection[str] | None = None) -> None:
        self.tokens = tokens
        self.roles = list(self._roles())
        self.fields = {} if public is None else self._short_fields(public)
        self.units = list(self._units())
        declared = frozenset(self._declared_names())
        uses: list[dict[str, list[int]]] = [{} for _ in range(max(self.units, default=0) + 1)]
        for index, ((_, text), role, unit) in enumerate(zip(tokens, self.roles, self.units, strict=True)):
            if role in ("variable", "both") and text not in RESERVED and text[0] != "#":
                uses[unit].setdefault(text, []).append(index)
        all_uses = Counter[str]()
        for unit_uses in uses:
            all_uses.update({name: len(indices) for name, indices in unit_uses.items() if name in declared})
        self.shared = dict(zip(all_uses, _short_names(ascii_lowercase), strict=False))  # these are for local names
        self.private = self._short_private_names()
        scopes: list[list[range]] = [[] for _ in uses]
        for scope in _scopes(tokens, self.objects):
            scopes[self.units[scope.start]].append(scope)
        self.local = list(map(self._local_names, uses, scopes))

    def _short_private_names(self) -> dict[int, str]:
        """Return a short name for each token that names a private member, of which each class has its own."""
        names: dict[int, str] = {}
        of_class: dict[str, str] = {}
        for index, (kind, text) in enumerate(self.tokens):
            if kind == "name" and text == "class":
                of_class = {}
            elif kind == "name" and text.startswith("#"):
                names[index] = of_class.setdefault(text, f"#{_short(len(of_class))}")
        return names

    def _local_names(self, uses: Mapping[str, list[int]], scopes: list[range]) -> dict[int, str]:
        """Return a short name for each token of a local name; it differs from the shared names that the unit uses.

        uses: for each name, the indices of its tokens.
        """
        shared = {self.shared[name] for name in uses if name in self.shared}
        local_uses = (indices for name, indices in uses.items() if name not in self.shared)
        variables = [
            variable for indices in local_uses for variable in _variables(indices, range(len(self.tokens)), scopes)
        ]
        named: list[tuple[str, _Variable]] = []
        for variable in sorted(variables, key=lambda variable: variable.uses[0]):
            conflicts = {short for short, other in named if variable.is_seen_by(other) and other.is_seen_by(variable)}
            named.append((next(_short_names(shared | conflicts)), variable))
        return {index: short for short, variable in named for index in variable.uses}

    def _short_fields(self, public: Collection[str]) -> dict[str, str]:
        """Return short names for the fields and methods that the script defines and nothing else names."""
        previous = ["", *(text for _, text in self.tokens)]
        quoted = " ".join(text for kind, text in self.tokens if kind in ("string", "template", "regex"))
        others = {*public, *re.findall(r"\w+", quoted), *NAMES_OF_PLATFORMS}
        named = [
            (text, last not in (".", "?."))
            for (_, text), role, last in zip(self.tokens, self.roles, previous, strict=False)
            if role in ("key", "both")
        ]
        defined = {text for text, is_defined in named if is_defined and FIELD.fullmatch(text)} - others
        uses = Counter(text for text, _ in named if text in defined)
        return {name: f"${_short(index)}" for index, (name, _) in enumerate(uses.most_common())}

    def _units(self) -> Iterator[int]:
        """Yield the unit of each token: a statement of the script, or a member of a class."""
        unit = 0
        following = iter([*(text for _, text in self.tokens[1:]), ""])
        for (kind, text), brackets in zip(self.tokens, self.open_brackets, strict=True):
            yield unit
            after = next(following)
            ends = kind == "mark" and (text == ";" or (text == "}" and after not in ("=", ";")))
            unit += ends and brackets in ([], ["class"])

    def _declared_names(self) -> Iterator[str]:
        """Yield the names that statements of the script declare."""
        depth, declares, last = 0, "", ""
        for (kind, text), role in zip(self.tokens, self.roles, strict=True):
            depth += _depth_of(kind, text)
            if depth == 0 and text in ("const", "let"):
                declares = "pattern"
            elif depth == 0 and declares and text == "=":
                declares = "value"
            elif depth == 0 and declares and text == ";":
                declares = ""
            elif depth == 0 and declares == "value" and text == ",":
                raise ValueError(f"a statement declares more than one name, before {last!r}: write one for each")
            elif role in ("variable", "both") and (
                declares == "pattern" or (depth == 0 and last in ("function", "class"))
            ):
                yield text
            last = text

    def _roles(self) -> Iterator[str]:
        """Yield for each token "variable", "key", "both", or "" if it is not a name."""
        following = iter([*self.tokens[1:], ("", "")])
        brackets: list[str] = []
        self.objects: set[int] = set()  # the tokens that begin objects and patterns
        self.open_brackets: list[list[str]] = []  # after each token
        last, before_member, is_class = "", "", False  # the previous token, and the previous one that is no modifier
        for index, (kind, text) in enumerate(self.tokens):
            after = next(following)[1]
            inside = brackets[-1] if brackets else ""
            yield self._role(kind, text, last, before_member, after, inside)
            if kind == "template":
                if text[0] == "}":
                    brackets.pop()
                if text.endswith("${"):
                    brackets.append("template")
            elif kind == "mark" and text in "([{":
                is_object = text == "{" and last in BEFORE_OBJECT
                if is_object or is_class:
                    self.objects.add(index)
                brackets.append("class" if text == "{" and is_class else "object" if is_object else text)
                is_class = False
            elif kind == "mark" and text in ")]}":
                brackets.pop()
            is_class |= text == "class"
            self.open_brackets.append([*brackets])
            last = _last(kind, text)
            if text not in MODIFIERS or before_member not in ("{", "}", ";", ","):
                before_member = last

    def _role(self, kind: str, text: str, last: str, before_member: str, after: str, inside: str) -> str:
        if kind != "name":
            return ""
        if text.startswith("#"):
            return "variable"
        if last in (".", "?."):
            return "key"
        if inside == "class" and before_member in ("{", "}", ";"):
            return "key"
        if inside == "object" and before_member in ("{", ","):
            return "key" if after in (":", "(") or text in RESERVED else "both"
        return "variable"

    def shortened(self) -> Iterator[Token]:
        for index, ((kind, text), role, unit) in enumerate(zip(self.tokens, self.roles, self.units, strict=True)):
            short = self.shared.get(text) or self.private.get(index) or self.local[unit].get(index, text)
            field = self.fields.get(text, text)
            if role == "both":
                yield kind, f"{field}:{short}" if short != field else short
            else:
                yield kind, field if role == "key" else short if role == "variable" else text


class _Variable(NamedTuple):
    """A local variable: the scope that has all its uses, and the indices of its tokens."""

    scope: range
    uses: list[int]

    def is_seen_by(self, other: "_Variable") -> bool:
        """Whether the other variable is used in this one's scope."""
        return any(index in self.scope for index in other.uses)


def _variables(uses: list[int], scope: range, scopes: Sequence[range]) -> Iterator[_Variable]:
    """Yield the variables of a name that a scope uses.

    A declaration is a use. So if all uses are in inner scopes, each of these declares its own variable.
    """
    inner = [other for other in scopes if other != scope and scope.start <= other.start and other.stop <= scope.stop]
    groups: dict[range | None, list[int]] = {}
    for index in uses:
        outermost = max((other for other in inner if index in other), key=len, default=None)
        groups.setdefault(outermost, []).append(index)
    if None in groups:
        yield _Variable(scope, uses)
        return
    for group_scope, indices in groups.items():
        if group_scope is not None:
            yield from _variables(indices, group_scope, inner)


def _scopes(tokens: list[Token], objects: Collection[int]) -> Iterator[range]:
    """Yield the range of tokens of each function, parameters included, and of each block."""
    texts = [*(text for _, text in tokens), "", ""]
    ends = _ends_of_brackets(tokens)
    bodies: set[int] = set()  # of functions: a body and its parameters are one scope
    for opening, end in ends.items():
        is_method = texts[end] == "{" and texts[opening - 1] not in BEFORE_HEADER
        body = end if is_method else end + 1
        if texts[opening] != "(" or not (is_method or texts[end] == "=>"):
            continue
        bodies.add(body)
        yield range(opening, ends[body] if texts[body] == "{" else _end_of_expression(tokens, body))
    for opening, end in ends.items():
        if texts[opening] == "{" and opening not in objects and opening not in bodies:
            yield range(opening, end)


def _ends_of_brackets(tokens: list[Token]) -> dict[int, int]:
    """Return the index after the end of each bracket by that of its beginning."""
    ends: dict[int, int] = {}
    openings: list[int] = []
    for index, (kind, text) in enumerate(tokens):
        if (kind == "mark" and text in (")", "]", "}")) or (kind == "template" and text[0] == "}"):
            ends[openings.pop()] = index + 1
        if (kind == "mark" and text in ("(", "[", "{")) or (kind == "template" and text.endswith("${")):
            openings.append(index)
    return ends


def _end_of_expression(tokens: list[Token], start: int) -> int:
    """Return the index of the token that ends an expression."""
    depth = 0
    for index in range(start, len(tokens)):
        kind, text = tokens[index]
        if depth == 0 and (
            (kind == "mark" and text in (",", ";", ")", "]", "}")) or (kind == "template" and text[0] == "}")
        ):
            return index
        depth += _depth_of(kind, text)
    return len(tokens)


def _depth_of(kind: str, text: str) -> int:
    """Return by how much a token changes the depth of brackets."""
    if kind == "template":
        return text.endswith("${") - (text[0] == "}")
    return (text in "([{") - (text in ")]}") if kind == "mark" else 0


def _short_names(used: Collection[str]) -> Iterator[str]:
    return (name for number in count() if (name := _short(number)) not in RESERVED and name not in used)


def _short(number: int) -> str:
    letters = "etnrisouaflchpdvmgybwESxTNCkLAOMDPHBjFIqRUzWXVJKQGYZ"  # frequent ones first: gzip packs these best
    return letters[number % 52] + (_short(number // 52 - 1) if number >= 52 else "")


def _joined(tokens: Iterable[Token]) -> str:
    """Write tokens with a space only where two would become one; the package ends each statement by a semicolon.

    A constant becomes a variable: `let` is shorter, and joins more declarations. `RegExp` and errors need no `new`.
    """
    script = ""
    shorter = [(kind, SHORTER.get(text, text) if kind == "name" else text) for kind, text in tokens]
    following = [text for _, text in shorter[1:]] + [""]
    shorter = [
        token for token, after in zip(shorter, following, strict=True) if token[1] != "new" or after not in WITHOUT_NEW
    ]
    for _, text in _plainer(_merged_declarations(shorter)):
        touches = script[-1:] + text[:1]
        script += f" {text}" if re.fullmatch(r"[\w$#][\w$#]|\+\+|--|//", touches) else text
    return script


def _merged_declarations(tokens: list[Token]) -> list[Token]:
    """Return tokens with one statement for neighbours such as `let a = 1; let b = 2;`: a comma joins them."""
    merged: list[Token] = []
    openings = [""]  # the first token of the statement in each open bracket; "" before it
    following = iter([*(text for _, text in tokens[1:]), ""])
    for kind, text in tokens:
        after = next(following)
        if merged and merged[-1] == ("mark", ",") and text == openings[-1] == "let":
            continue  # the comma before it replaces the semicolon
        openings[-1] = openings[-1] or text
        depth_change = _depth_of(kind, text)
        if depth_change > 0:
            openings.append("")
        elif depth_change < 0:
            openings.pop()
        if text == ";" and after == openings[-1] == "let":
            merged.append(("mark", ","))
            continue
        if kind == "mark" and (text == ";" or (text == "}" and after == "let")):
            openings[-1] = ""
        merged.append((kind, text))
    return merged


def _plainer(tokens: list[Token]) -> Iterator[Token]:
    """Yield tokens without those that JavaScript does not need.

    These are the brackets around the only parameter of an arrow function, quotes around keys, and the last comma or
    semicolon in brackets.
    """
    texts = ["", *(text for _, text in tokens), "", "", ""]
    ends_parameter = False
    for index, (kind, text) in enumerate(tokens, start=1):
        if text == "(" and texts[index + 2 : index + 4] == [")", "=>"] and tokens[index][0] == "name":
            ends_parameter = True
        elif text == ")" and ends_parameter:
            ends_parameter = False
        elif kind == "string" and texts[index - 1] in ("{", ",") and texts[index + 1] == ":":
            yield "name", text[1:-1] if re.fullmatch("[A-Za-z_]+", text[1:-1]) else text
        elif not _is_last(texts, index):
            yield kind, text


def _is_last(texts: Sequence[str], index: int) -> bool:
    """Return whether a token is a comma or a semicolon that nothing but the end of its brackets follows."""
    if texts[index] == ",":  # [, a] begins without a value
        return texts[index + 1] in (")", "]", "}") and texts[index - 1] not in ("[", ",")
    return texts[index] == ";" and texts[index + 1] == "}"

"""Join the modules of the npm package into one file for a page, with short names and without comments.

A name of a variable becomes the same short name everywhere, whatever its scope. So scopes do not matter, only which
names are variables and which are properties: see `_Names`. It reads the package's JavaScript, not everybody's.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count

# of the language, and of its hosts as far as the package uses them
KEYWORDS = """
    as async await break case catch class const continue delete do else export extends false finally for from function
    get if import in instanceof let new null of return static super switch this throw true try typeof undefined void
    while yield
"""
GLOBALS = """
    Array ArrayBuffer BigInt DataView Error Float32Array Infinity Int32Array JSON Map Math Number Object Promise
    RangeError RegExp Set SharedArrayBuffer String TextDecoder TextEncoder TypeError URL Uint16Array Uint32Array
    Uint8Array WebAssembly Worker atob document fetch globalThis parseInt process self
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
# a "/" after one of these begins a regular expression, and a "{" an object or a pattern
MODIFIERS = ("async", "static", "get", "*")  # of members
OPENING = "( , [ = : ? ?? || && ... return of in const let throw ! + -"
BEFORE_OBJECT = frozenset(OPENING.split())
BEFORE_VALUE = BEFORE_OBJECT | {"", "=>", "{", "}", ";"}
MODULE = r' from "\./\w+\.js"'
IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)
SHARED = re.compile(r'^(?:import|export) \{([^}]*)\} from "\./capsule\.js"', re.MULTILINE)
DEFINITION = re.compile(r"^(?:async )?(?:const|let|function|class) (\w+)", re.MULTILINE)
Token = tuple[str, str]  # its kind, and its text


def page_scripts(modules: Mapping[str, str], entries: Sequence[str] = ("index", "worker")) -> dict[str, str]:
    """Return the scripts of a page by name: the entries, and one, "capsule", with all that they import.

    Args:
        modules: their JavaScript by name; what they import is from each other, and no two define the same name.
    """
    texts = {name: re.sub(MODULE, r' from "./capsule.js"', modules[name]) for name in entries}
    exports = {name.strip() for text in texts.values() for names in SHARED.findall(text) for name in names.split(",")}
    shared = {name: text for name, text in modules.items() if name not in entries}
    bundle = minified(_joined_modules(shared), sorted(exports - {""}))
    return {"capsule": bundle} | {name: without_comments(text) for name, text in texts.items()}


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


def minified(script: str, exports: Iterable[str] = ()) -> str:
    """Return JavaScript without comments and with short names for its variables, of which it exports some."""
    names = _Names(list(tokens_of(script)))
    exported = ",".join(f"{names.short[name]} as {name}" for name in exports)
    return _joined(names.shortened()) + (f"\nexport{{{exported}}};" if exported else "") + "\n"


def tokens_of(script: str) -> Iterator[Token]:
    """Yield the tokens of JavaScript without comments; a line break stays, other space does not.

    The strings of a template are tokens, and so is the code between them.
    """
    offset, last = 0, ""
    depths: list[int] = []  # of the braces that are open in each template around
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
        if kind == "space" and "\n" in text:
            yield "break", "\n"
        elif kind not in ("space", "comment"):
            last = _last(kind, text)
            yield kind, text


def _token(script: str, offset: int, last: str, continues: bool) -> Token:
    """Return the token at an offset; `continues`: a "}" there goes on with a template."""
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
    """Return what a token is for the one that follows it."""
    if kind != "template":
        return text
    return "(" if text.endswith("${") else "`"


class _Names:
    """Which tokens name variables, and a short name for each.

    A name is no variable after a dot, as the key of an object or a pattern, and as a member of a class. `{ name }`
    names both: it becomes `{ name: a }`.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.roles = list(self._roles())
        uses = Counter(
            text
            for (_, text), role in zip(tokens, self.roles, strict=True)
            if role in ("variable", "both") and text not in RESERVED and text[0] != "#"
        )
        short_names = (name for number in count() if (name := _short(number)) not in RESERVED)
        self.short = {name: next(short_names) for name, _ in uses.most_common()}
        private = Counter(text for _, text in tokens if text.startswith("#"))
        self.short |= {name: f"#{_short(number)}" for number, (name, _) in enumerate(private.most_common())}

    def _roles(self) -> Iterator[str]:
        """Yield for each token "variable", "key", "both", or "" if it is not a name."""
        solid = [token for token in self.tokens if token[0] != "break"]
        following = iter([*solid[1:], ("", "")])
        brackets: list[str] = []
        last, before_member, is_class = "", "", False  # the tokens before: the last one, and without modifiers
        for kind, text in self.tokens:
            if kind == "break":
                yield ""
                continue
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
                brackets.append("class" if text == "{" and is_class else "object" if is_object else text)
                is_class = False
            elif kind == "mark" and text in ")]}":
                brackets.pop()
            is_class |= text == "class"
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
        for (kind, text), role in zip(self.tokens, self.roles, strict=True):
            short = self.short.get(text, text) if role in ("variable", "both") else text
            yield kind, f"{text}:{short}" if role == "both" and short != text else short


def _short(number: int) -> str:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return letters[number % 52] + (_short(number // 52 - 1) if number >= 52 else "")


def _joined(tokens: Iterable[Token]) -> str:
    """Write tokens with a space only where two would become one; no empty lines."""
    script = ""
    for _, text in tokens:
        if text == "\n":
            # a line that cannot end here needs no break
            script += "" if script[-1:] in "\n;,{([=>?:&|" or not script else "\n"
        else:
            touches = script[-1:] + text[:1]
            script += f" {text}" if re.fullmatch(r"[\w$#][\w$#]|\+\+|--|//", touches) else text
    return script

"""The package's source for one configuration: without what it does not use, in the same order.

Methods that only the package needs go, tests that the configuration decides are folded (`folding.py`), tables of
methods have only its own, and fields that the code takes for granted have types that refuse another value.
"""

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Any

from transformers import MarianConfig, PreTrainedConfig

from hf_capsule_mt.hub.arguments import without_arguments
from hf_capsule_mt.hub.folding import LONGEST_LINE, Edit, Text, fold
from hf_capsule_mt.hub.seams import (
    PACKAGE_ONLY,
    capsule_sources,
    empty_slots,
    facts,
    matters,
    substitutes,
    unused_arguments,
    unused_definitions,
)

TABLES = {  # of the definitions for the values of fields
    "COMBINATIONS": ("layer_aggregation",),
    "ROUTING_METHODS": ("layer_aggregation", "head_aggregation"),
    "GUIDANCES": ("guided_routing",),
}
# brackets whose content is on one line of its own, or gone
SPLIT_ITEMS = re.compile(r"^( *[^\n#]*[\w ][({])\n(?: +([^\n(]*[^\n(,])\n?)? *([)}][^\n]*)$", re.MULTILINE)
# of what was removed: more than two blank lines, or two inside a class
SPARE_LINES = re.compile(r"\n(?=\n{3}|\n\n +\S)")
VALIDATION = "validate_"  # how the names of a configuration's checks begin


def slim(source: str, config: PreTrainedConfig) -> str:
    """Return a module's source with what a model of this configuration uses."""
    for name, simpler in substitutes(config).items():
        if not re.search(rf"^(class|def) {name}\b", source, re.MULTILINE):
            source = re.sub(rf"\b{name}\b", simpler, source)
    known = facts(config)
    left_out = PACKAGE_ONLY | unused_definitions(config)
    text = Text(source)
    source = text.edited([*_without_members(text, left_out), *_without_slots(text, empty_slots(config))])
    unused = unused_arguments(config)
    text = Text(fold(source, known, {**_consequences(config), **unused}, left_out))
    source = without_arguments(text.edited(_without_checks(text, left_out)), unused.keys())
    text = Text(SPLIT_ITEMS.sub(_joined, source))
    return text.edited([*_without_entries(text, known), *_fixed_fields(text, known)])


def without_unused_fields(code: str, config: PreTrainedConfig) -> str:
    """Return code without those fields and methods of its configuration that it does not read.

    Fields of transformers' Marian stay, those whose value is not the default, and those of which another value would
    change the model, so that it is refused. What describes the others goes with them, and what describes a feature
    that is off.
    """
    text, known = Text(code), facts(config)
    tidied = dict(_tidied_fields(text))
    skipped = {part for node in tidied for part in ast.walk(node)}
    nodes = [node for node in ast.walk(text.tree) if node not in skipped]
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    read |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    defaults = {
        field.name: field.default if field.default_factory is MISSING else field.default_factory()
        for field in fields(config)
    }
    unused = {
        name
        for name, default in defaults.items()
        if name not in read and not hasattr(MarianConfig, name) and default is not MISSING
        if name not in known or not matters(name, config)
        if getattr(config, name) == default
    }
    used = {node.id for node in ast.walk(text.tree) if isinstance(node, ast.Name)}
    edits: list[Edit] = []
    for node in text.tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            members = [(before, member) for before, member in pairwise(node.body) if _is_unread(member, unused, read)]
            edits += [text.after(before, member) for before, member in members]
            at_default = {name for name in known if known[name] == defaults.get(name, MISSING)}
            edits += _described(text, node.body[0], unused | at_default, known)
        elif isinstance(node, ast.ImportFrom):
            names = [alias for alias in node.names if (alias.asname or alias.name) in used]
            if 0 < len(names) < len(node.names):
                edits.append(Edit(*text.span(node), ast.unparse(ast.ImportFrom(node.module, names, 0))))
    for statement, name in tidied.items():
        if name in unused:
            edits.append(Edit(text.starts[statement.lineno - 1], text.starts[statement.end_lineno or 0], ""))
    shorter = SPARE_LINES.sub("", text.edited(edits))
    return shorter if shorter == code else without_unused_fields(shorter, config)


def _tidied_fields(text: Text) -> Iterator[tuple[ast.stmt, str]]:
    """Yield the statements of a `__post_init__` that only replace the value of one field, with its name."""
    for owner in text.tree.body:
        for member in owner.body if isinstance(owner, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and member.name == "__post_init__":
                for statement in member.body:
                    if isinstance(statement, (ast.Assign, ast.If)):
                        names = {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
                        if len(names) == 1:
                            yield statement, names.pop()


def _is_unread(member: ast.stmt, unused: Collection[str], read: Collection[str]) -> bool:
    """Return whether a member of a configuration class is an unused field, or a method that nothing calls."""
    if isinstance(member, ast.FunctionDef):
        return not member.name.startswith("__") and member.name not in read
    return isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and member.target.id in unused


def _consequences(config: PreTrainedConfig) -> dict[str, Any]:
    """Return what variables and attributes hold because of a configuration's values, where code tests them."""
    consequences: dict[str, Any] = {"_is_exported": lambda config_class: True, "type": type}
    if getattr(config, "share_encoder_decoder_embeddings", True):
        consequences["has_separate_vocabularies()"] = False
    if len(sources := capsule_sources(config)) == 1:
        consequences["capsule_source"] = sources.pop()
    if getattr(config, "layer_aggregation_update_scale", 1.0) == 1.0:
        consequences["update_scale"] = 1.0
    if hasattr(config, "separable_scoring"):
        consequences["self.scores_separately"] = config.separable_scoring
        consequences["self.adds_positions"] = config.position_aware
    if hasattr(config, "em_input_activation"):
        consequences["self.activates_each_output"] = config.em_input_activation == "vector"
    if hasattr(config, "layer_aggregation_placement"):
        consequences["self.adds"] = config.layer_aggregation_placement == "adds"
    if getattr(config, "head_aggregation", "concat") == "concat":
        consequences["config.aggregates_heads()"] = False
    if getattr(config, "head_aggregation_placement", "replaces") == "replaces":
        consequences["self.added_routing"] = None
    consequences["has_one_vocabulary"] = lambda config: getattr(config, "share_encoder_decoder_embeddings", True)
    if not getattr(config, "has_guided_losses", False):
        consequences["self.guided_losses"] = None
        consequences["has_guided_losses"] = False
    return consequences


def _without_members(text: Text, left_out: Collection[str]) -> Iterator[Edit]:
    """Remove methods and attributes of classes, with the comments before them."""
    for node in text.tree.body:
        if isinstance(node, ast.ClassDef):
            for before, member in pairwise(node.body):
                target = member.targets[0] if isinstance(member, ast.Assign) else getattr(member, "target", None)
                name = getattr(member, "name", getattr(target, "id", ""))
                if f"{node.name}.{name}" in left_out or name.startswith(VALIDATION):
                    yield text.after(before, member)


def _without_slots(text: Text, slots: Collection[str]) -> Iterator[Edit]:
    """Remove what declares, makes and calls the modules of these slots, and what notes their weights."""
    slot = f"(?:{'|'.join(slots)})"
    pattern = re.compile(
        rf'self\.{slot} = |{slot}: [^=]+$|[\w\[\]\-, ]+ = self\.{slot}[(\[]|routings\["\w+\.{slot}"\] = '
    )
    for node in ast.walk(text.tree):
        if slots and isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.For)):
            for statement in node.body:
                if isinstance(statement, (ast.Assign, ast.AnnAssign)) and pattern.match(text.of(statement)):
                    yield Edit(text.starts[statement.lineno - 1], text.starts[statement.end_lineno or 0], "")


def _without_checks(text: Text, left_out: Collection[str]) -> Iterator[Edit]:
    """Remove decorators and statements that only call what is left out, and loops and branches of nothing else."""
    names = {name.rpartition(".")[2] for name in left_out}

    def is_check(statement: ast.stmt) -> bool:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))):
                return name in names
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name))):
                return name in names
            case ast.For() | ast.If():
                return not statement.orelse and all(map(is_check, statement.body))
        return False

    for node in ast.walk(text.tree):
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Name) and decorator.id in names:
                    yield Edit(text.starts[decorator.lineno - 1], text.starts[decorator.lineno], "")
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            for statement in block if isinstance(block, list) and len(block) > 1 else ():
                if is_check(statement):
                    yield Edit(text.starts[statement.lineno - 1], text.starts[statement.end_lineno or 0], "")


def _joined(match: re.Match[str]) -> str:
    """Join the lines of a match into one, unless it is too long."""
    line = "".join(part.strip() if number else part for number, part in enumerate(match.groups(default="")))
    return line if len(line) <= LONGEST_LINE else match[0]


def _without_entries(text: Text, settings: dict[str, Any]) -> Iterator[Edit]:
    """Remove the entries of tables for values that the configuration does not have."""
    for node in text.tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and text.of(node.target) in TABLES:
            values = {settings.get(field) for field in TABLES[text.of(node.target)]}
            before: ast.AST = node.annotation
            for key, entry in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and key.value not in values:
                    yield text.after(before, entry)
                before = entry


def _fixed_fields(text: Text, settings: dict[str, Any]) -> Iterator[Edit]:
    """Let the fields whose values are fixed take no other."""
    for node in text.tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            for member in node.body:
                if isinstance(member, ast.AnnAssign) and (name := text.of(member.target)) in settings:
                    value = _literal(settings[name])
                    yield Edit(*text.span(member), f"{name}: Literal[{value}] = {value}")


def _described(text: Text, docstring: ast.stmt, unused: Collection[str], known: dict[str, Any]) -> Iterator[Edit]:
    """Remove the paragraphs of a docstring's arguments, and say what a fixed field always is."""
    old = text.of(docstring)
    paragraph = re.compile(r"^        (\w+) \(`[^\n]*\n(?:            [^\n]*\n)*", re.MULTILINE)

    def described(match: re.Match[str]) -> str:
        if match[1] in unused or match[1] not in known:
            return "" if match[1] in unused else match[0]
        return re.sub(r"defaults to `.*`\):", f"always `{_literal(known[match[1]])}`):", match[0])

    new = re.sub(r"\n    Args:\n(?=    \"\"\")", "", paragraph.sub(described, old))
    if new != old:
        yield Edit(*text.span(docstring), new)


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)

"""The package's source for one configuration: without what it does not use, in the same words and order.

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

from hf_capsule_mt.hub.folding import Edit, Text, fold
from hf_capsule_mt.hub.seams import PACKAGE_ONLY, facts, substitutes, unused_definitions

TABLES = ("COMBINATIONS", "ROUTING_METHODS", "GUIDANCES")  # of the definitions for the values of a field
VALIDATION = "validate_"  # how the names of a configuration's checks begin


def slim(source: str, config: PreTrainedConfig) -> str:
    """Return a module's source with what a model of this configuration uses."""
    for name, simpler in substitutes(config).items():
        if not re.search(rf"^(class|def) {name}\b", source, re.MULTILINE):
            source = re.sub(rf"\b{name}\b", simpler, source)
    known = facts(config)
    text = Text(source)
    source = text.edited(_without_members(text, PACKAGE_ONLY | unused_definitions(config)))
    text = Text(fold(source, known, _consequences(config)))
    return text.edited([*_without_entries(text, set(known.values())), *_fixed_fields(text, known)])


def without_unused_fields(code: str, config: PreTrainedConfig) -> str:
    """Return code without those fields and methods of its configuration that it does not read.

    Fields of transformers' Marian stay, and those whose value is not the default. What describes them goes with them,
    and what describes a feature that is off.
    """
    text = Text(code)
    nodes = list(ast.walk(text.tree))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    read |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    defaults = {field.name: field.default for field in fields(config)}
    unused = {
        name
        for name, default in defaults.items()
        if name not in read and not hasattr(MarianConfig, name) and default is not MISSING
        if getattr(config, name) == default
    }
    fixed = {name for name in facts(config) if getattr(config, name) == defaults.get(name, MISSING)}
    edits: list[Edit] = []
    for node in text.tree.body:
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            members = [(before, member) for before, member in pairwise(node.body) if _is_unread(member, unused, read)]
            edits += [text.after(before, member) for before, member in members]
            edits += _without_paragraphs(text, node.body[0], unused | fixed)
    return text.edited(edits)


def _is_unread(member: ast.stmt, unused: Collection[str], read: Collection[str]) -> bool:
    """Return whether a member of a configuration class is an unused field, or a method that nothing calls."""
    if isinstance(member, ast.FunctionDef):
        return not member.name.startswith("__") and member.name not in read
    return isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name) and member.target.id in unused


def _consequences(config: PreTrainedConfig) -> dict[str, Any]:
    """Return what variables and attributes hold because of a configuration's values, where code tests them."""
    consequences: dict[str, Any] = {"_is_exported": lambda config_class: True, "type": type}
    if hasattr(config, "share_encoder_decoder_embeddings"):
        consequences["has_one_vocabulary"] = lambda config: config.share_encoder_decoder_embeddings
    if getattr(config, "layer_aggregation", None) == "none":
        consequences["enabled"] = consequences["connects"] = False
    if not getattr(config, "has_guided_losses", False):
        consequences["self.guided_losses"] = None
        consequences["has_guided_losses"] = False
    return consequences


def _without_members(text: Text, left_out: Collection[str]) -> Iterator[Edit]:
    """Remove methods and attributes of classes, with the comments before them."""
    for node in text.tree.body:
        if isinstance(node, ast.ClassDef):
            for before, member in pairwise(node.body):
                name = getattr(member, "name", getattr(getattr(member, "target", None), "id", ""))
                if f"{node.name}.{name}" in left_out or name.startswith(VALIDATION):
                    yield text.after(before, member)


def _without_entries(text: Text, values: set[Any]) -> Iterator[Edit]:
    """Remove the entries of tables for values that the configuration does not have."""
    for node in text.tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and text.of(node.target) in TABLES:
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
                    value = f'"{settings[name]}"' if isinstance(settings[name], str) else repr(settings[name])
                    yield Edit(*text.span(member), f"{name}: Literal[{value}] = {value}")


def _without_paragraphs(text: Text, docstring: ast.stmt, unused: Collection[str]) -> Iterator[Edit]:
    """Remove the paragraphs of a docstring's arguments."""
    old = text.of(docstring)
    paragraph = re.compile(r"^        (\w+) \(`[^\n]*\n(?:            [^\n]*\n)*", re.MULTILINE)
    new = paragraph.sub(lambda match: "" if match[1] in unused else match[0], old)
    if new != old:
        yield Edit(*text.span(docstring), new)

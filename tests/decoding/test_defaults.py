"""The light distribution's readers and the configurations have the same defaults, which both state."""

import ast
import re
from pathlib import Path

import pytest

import capsule_mt.models
from hf_capsule_mt import CapsNMTConfig, CapsuleMarianConfig, CapsuleRNMTConfig

READERS = {
    "capsnmt.py": [CapsNMTConfig],
    "capsule_rnmt.py": [CapsuleRNMTConfig],
    "guidance.py": [CapsuleMarianConfig, CapsuleRNMTConfig],
    "marian.py": [CapsuleMarianConfig],
    "recurrent.py": [CapsNMTConfig, CapsuleRNMTConfig],
}
METHODS = ("number", "real", "flag", "choice")
VARIABLES = {"side": "(?:encoder|decoder)", "seam": "(?:head|layer)_aggregation"}  # what stands in a reader's f-string


def read_defaults(file: str) -> list[tuple[str, object]]:
    """Return the fields that a reader takes, as patterns, with the defaults that it states as a literal."""
    tree = ast.parse(Path(capsule_mt.models.__path__[0], file).read_text(encoding="utf-8"))
    defaults = []
    for node in ast.walk(tree):
        is_read = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS
        if is_read and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            defaults.append((pattern_of(node.args[0]), node.args[1].value))
    return defaults


def pattern_of(name: ast.expr) -> str:
    if isinstance(name, ast.Constant):
        return re.escape(name.value)
    if isinstance(name, ast.JoinedStr):
        return "".join(
            VARIABLES[ast.unparse(part.value)]
            if isinstance(part, ast.FormattedValue)
            else re.escape(ast.literal_eval(part))
            for part in name.values
        )
    return "(?!)"  # a variable: nothing to compare


@pytest.mark.parametrize("file", READERS)
def test_a_reader_has_the_configurations_defaults(file):
    compared = 0
    for pattern, default in read_defaults(file):
        for config_class in READERS[file]:
            config = config_class()
            for field in vars(config):
                if re.fullmatch(pattern, field):
                    assert getattr(config, field) == default, f"{config_class.__name__}.{field}"
                    compared += 1
    assert compared > 0

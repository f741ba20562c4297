"""Text needs the standard library alone."""

import ast
import subprocess
import sys
from pathlib import Path

import capsule_mt.text

FOLDER = Path(capsule_mt.text.__file__).parent


def test_what_text_imports():
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                library = name.partition(".")[0]
                assert library in sys.stdlib_module_names or name.startswith("capsule_mt.text"), (path, name)


def test_cutting_text_imports_little():
    """A command translates one sentence in less than a tenth of a second: what it does not need waits."""
    program = "import sys, capsule_mt.text.segments; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", program], cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert not {"logging", "json", "hashlib", "socket", "tempfile"} & set(done.stdout.split()), done.stderr
    assert "capsule_mt.text.sentences" in done.stdout

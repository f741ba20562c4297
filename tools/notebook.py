"""Run the code of a notebook in this process, without Jupyter.

python -m tools.notebook examples/firefox_student.ipynb
"""

import argparse
import json
import os
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path, help="the file, .ipynb")
    parser.add_argument("settings", nargs="*", metavar="NAME=VALUE", help="environment variables")
    arguments = parser.parse_args()
    notebook = arguments.notebook
    for setting in arguments.settings:
        name, equals, value = setting.partition("=")
        if not equals:
            parser.error(f"a setting must be NAME=VALUE, got {setting!r}")
        os.environ[name] = value
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)


if __name__ == "__main__":
    main()

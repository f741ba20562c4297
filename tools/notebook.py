"""Run the code of a notebook in this process, without Jupyter.

python -m tools.notebook examples/firefox_student.ipynb
"""

import argparse
import json
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path, help="the file, .ipynb")
    notebook = parser.parse_args().notebook
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, cell {number}", "exec"), names)


if __name__ == "__main__":
    main()

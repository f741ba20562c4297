"""Bundle the modules of the npm package into a few short scripts for a page, by esbuild.

    npm ci --prefix web    # installs esbuild: the version, and the checksum, are those of web/package-lock.json

A page needs no bundle: without esbuild, it loads the modules as they are, which takes longer.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from capsule_mt.web.build import FOLDER

# the first browsers that have all that the modules use: vectors in WebAssembly and lookbehind (Safari 16.4), module
# workers and `toReversed` (Firefox 115, Chrome 110)
TARGET = "chrome110,firefox115,safari16.4,node20"
OPTIONS = (
    *("--bundle", "--splitting", "--minify", "--format=esm", f"--target={TARGET}"),
    *("--external:node:*", "--chunk-names=capsule", "--log-level=warning"),
)
PROGRAMS = FOLDER / "node_modules" / ".bin"


def esbuild() -> str | None:
    """Return the path of esbuild as `npm ci` installs it in the package's folder, or None."""
    return shutil.which("esbuild", path=PROGRAMS)


def bundled(modules: Mapping[str, str], program: str, entries: Sequence[str] = ("index", "worker")) -> dict[str, str]:
    """Return scripts by name: the entries, and `capsule`, which has what they share.

    Args:
        modules: their JavaScript by name.
        program: the path of esbuild.
    """
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        for name, script in modules.items():
            (folder / f"{name}.js").write_text(script, encoding="utf-8")
        command = [program, *(f"{entry}.js" for entry in entries), *OPTIONS, "--outdir=out"]
        process = subprocess.run(command, cwd=folder, capture_output=True, text=True, encoding="utf-8")
        if process.returncode:
            raise OSError(f"esbuild failed: {process.stderr.strip()}")
        return {path.stem: path.read_text(encoding="utf-8") for path in sorted((folder / "out").glob("*.js"))}

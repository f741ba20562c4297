"""Add the native engine and the npm package's sources to the wheel; without a compiler, build it without the engine.

The environment variable HF_CAPSULE_MT_TARGET cross-compiles for another platform (see capsule_mt/engine/build.py).
"""

import importlib.util
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def web_sources(package: Path) -> dict[str, str]:
    """Map the npm package's sources to their paths in a distribution, without what its build generates."""
    generated = ("interface.js", "interface.d.ts")
    suffixes = (".js", ".ts", ".json", ".c", ".h")
    files = sorted(path for folder in (".", "native", "page") for path in (package / folder).glob("*.*"))
    return {
        str(path): f"web/package/{path.relative_to(package).as_posix()}"
        for path in files
        if path.suffix in suffixes and path.name not in generated
    }


class BuildHook(BuildHookInterface):
    """Compile capsule_mt/engine/native into a shared library, and add the npm package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        # in a source distribution this finds nothing: the npm package is already at its final path
        build_data["force_include"].update(web_sources(Path(self.root).parent / "web"))
        if self.target_name == "wheel":
            self.add_engine(version, build_data)

    def add_engine(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "engine")
        specification = importlib.util.spec_from_file_location("build_engine", folder / "build.py")
        assert specification is not None
        assert specification.loader is not None
        build = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(build)
        requested_target = os.environ.get("HF_CAPSULE_MT_TARGET")
        target = requested_target or build.this_platform()
        in_place = version == "editable" or target == build.this_platform()
        output = folder / "native" if in_place else Path(self.directory, "native", target)
        try:
            # a wheel to publish names its target, and is always compiled anew
            library = build.build(target, output) if requested_target else build.current_library(target, output)
        except (OSError, RuntimeError, ValueError) as error:
            self.app.display_warning(f"capsule-mt is installed without its native engine: {error}")
            return
        build_data["force_include"][str(library)] = f"engine/native/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{build.TARGETS[target].tag}"

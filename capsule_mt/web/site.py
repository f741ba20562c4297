"""Write the page of `capsule-mt serve` as a site of static files, which translates in the reader's browser.

python -m capsule_mt.web.site OUT MODEL ...    # then serve OUT by any web server
"""

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from capsule_mt.catalog.pairs import LanguagePair, describe_languages
from capsule_mt.models.weights import CheckpointError, SafetensorsFile
from capsule_mt.web.build import FOLDER, INTERFACE, MODULES, build, interface, is_current
from capsule_mt.web.bundle import bundled, esbuild
from capsule_mt.web.model_file import MODEL_FILE

PAGE = Path(__file__).parents[1] / "serve" / "page"
MAX_BEAMS = 8


def write_site(out: Path, models: Sequence[Path]) -> None:
    """Write a site with these models: what `capsule-mt convert --to web` writes, folders or the files in them."""
    if not FOLDER.is_dir():
        raise FileNotFoundError(f"{FOLDER} is missing: install capsule-mt from a wheel, or from a whole clone")
    paths = [model / MODEL_FILE if model.is_dir() else model for model in models]
    files = {_languages(path): path for path in paths}
    scripts = out / "capsule"
    scripts.mkdir(parents=True, exist_ok=True)
    for folder in (PAGE, FOLDER / "page"):  # the second's service.js replaces the first's
        for source in folder.iterdir():
            shutil.copyfile(source, out / source.name)
    if is_current(FOLDER):
        for name in MODULES:
            shutil.copyfile(FOLDER / name, scripts / name)
    else:
        build(scripts)
    for name, script in _scripts().items():
        (scripts / f"{name}.js").write_text(script, encoding="utf-8")
    for pair, model in files.items():
        shutil.copyfile(model, out / f"{pair}.capsule")
    description = {
        "languages": describe_languages(files),
        "models": {str(pair): f"{pair}.capsule" for pair in files},
        "settings": {"maxBeams": MAX_BEAMS, "verified": [], "keyRequired": False},
    }
    (out / "site.json").write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _scripts() -> dict[str, str]:
    """Return the page's scripts by name: a bundle, or without esbuild the modules."""
    if program := esbuild():
        return bundled(sources(), program)
    hint = f"for a page that loads faster, install esbuild by `npm ci --prefix {FOLDER}`, then write the site again"
    print(f"capsule_mt.web.site: {hint}", file=sys.stderr)
    return sources()


def sources() -> dict[str, str]:
    """Return the JavaScript of the npm package by module."""
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.js"))}
    return scripts | {Path(INTERFACE).stem: interface()}


def _languages(model: Path) -> LanguagePair:
    description = SafetensorsFile(model).metadata.get("model")
    if not isinstance(description, str):
        raise CheckpointError(f"{model}: is not a file of `capsule-mt convert --to web`")
    return LanguagePair(*json.loads(description)["languages"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder to write")
    parser.add_argument("models", type=Path, nargs="+", help="what `capsule-mt convert --to web` wrote")
    arguments = parser.parse_args()
    try:
        write_site(arguments.out, arguments.models)
    except (OSError, CheckpointError) as error:
        raise SystemExit(f"capsule_mt.web.site: {error}") from None
    print(arguments.out / "index.html")


if __name__ == "__main__":
    main()

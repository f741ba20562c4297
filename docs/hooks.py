"""Hooks of mkdocs: pages and files of the site that stand outside docs/, and the links to them."""

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "capsule_mt/README.md": "translator.md",
    "lab/REPORT.md": "report.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
# a relative link of Markdown: what leads to its target, the target, its anchor
LINK = re.compile(r"(\]\()(?![a-z]+:|#)([^)#\s]+)([^)]*\))")
BADGE = re.compile(r"^!\[[^\]]*\]\(https://img\.shields\.io/[^)]*\)\n", re.MULTILINE)  # a picture from another server
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


def origin(uri: str) -> Path:
    """Return the file that a page of the site is made of."""
    if uri.startswith("files/"):
        return ROOT / uri.removeprefix("files/")
    return ROOT / next((path for path, page in PAGES.items() if page == uri), f"docs/{uri}")


def address(target: str, page: Path) -> str:
    """Return where the target of a link on `page` is in the site: a page, a file of docs/, or a copy under files/."""
    path = (page.parent / target).resolve().relative_to(ROOT).as_posix()
    return PAGES.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else f"files/{path}")


def prose(text: str) -> list[str]:
    """Split a page at its fenced blocks, which are every second part."""
    return FENCE.split(text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    uris = [file.src_uri for file in files.documentation_pages()]
    for uri in uris:
        page = origin(uri)
        for part in prose(page.read_text(encoding="utf-8"))[::2]:
            for _, target, _ in LINK.findall(part):
                place = address(target, page)
                if place.startswith("files/") and files.get_file_from_path(place) is None:
                    source = (page.parent / target).resolve()
                    files.append(File.generated(config, place, abs_src_path=str(source)))
                    uris += [place] if source.suffix == ".md" else []  # its links lead on
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    folder = Path(uri).parent

    def rewrite(link: re.Match[str]) -> str:
        return link[1] + os.path.relpath(address(link[2], origin(uri)), folder) + link[3]

    parts = prose(BADGE.sub("", markdown))
    parts[::2] = [LINK.sub(rewrite, part) for part in parts[::2]]
    return "".join(parts)

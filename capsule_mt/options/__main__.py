"""Print docs/options.md: the table of options for readers."""

import argparse
from collections.abc import Iterator

from capsule_mt.options.table import SEARCH_OPTIONS, Option

HEAD = """\
# Search options

Each option has one name everywhere. A call of `Translator` and `generation_config.json` accept all of them. The last
three columns show which are also a flag of `capsule-mt translate` (with dashes), a field of `POST /translate`, and an
option of `translate` in the npm package. Names and meanings are those of transformers' `generate()`, except for
`most_repeated`. An unknown name raises an error that suggests a similar one or lists all. Options of `generate()` that
only change sampling, such as `temperature`, are accepted, and do nothing without it.
An option that you do not set has the checkpoint's value or, if the checkpoint does not set it, the default; the server
sets `most_repeated` to 24.

A `Translator` of `hf_capsule_mt` also accepts the other options of its model's `generate()`.

| option | value | default | effect | flag | server | npm |
|---|---|---|---|---|---|---|
"""


def page() -> str:
    """Return docs/options.md."""
    return HEAD + "".join(f"| {' | '.join(_cells(option))} |\n" for option in SEARCH_OPTIONS)


def _cells(option: Option) -> Iterator[str]:
    yield f"`{option.name}`"
    yield option.expected
    yield {None: "", (): "none"}.get(option.default, f"`{option.default}`")
    effect = option.help + ("; only with beam search" if option.beams_only else "")
    yield effect + ("; not in transformers" if option.ours else "")
    yield f"`{option.flag}`" if "flag" in option.interfaces else ""
    yield "yes" if "server" in option.interfaces else ""
    yield "yes" if "browser" in option.interfaces else ""


def main() -> None:
    program = "python -m capsule_mt.options"  # argparse's would be __main__.py
    argparse.ArgumentParser(prog=program, description=__doc__).parse_args()
    print(page(), end="")


if __name__ == "__main__":
    main()

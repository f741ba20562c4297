"""What commands ask about the formats before they import a reader.

`python -m capsule_mt.formats --index` writes this file from the rows beside the readers.
"""

# name, module, suffixes, and the facts that hold
ROWS: tuple[tuple[str, str, tuple[str, ...], dict[str, bool]], ...] = (
    ("html", "html", (".html", ".htm", ".xhtml"), {}),
    ("srt", "subtitles", (".srt",), {}),
    ("vtt", "subtitles", (".vtt",), {}),
    ("ass", "subtitles", (".ass", ".ssa"), {}),
    ("po", "po", (".po", ".pot"), {"has_flags": True}),
    ("xliff", "xliff", (".xliff", ".xlf", ".sdlxliff", ".mqxliff", ".mxliff", ".poxliff"), {"has_flags": True}),
    ("markdown", "markdown", (".md", ".markdown", ".mdx"), {}),
    ("docx", "docx", (".docx",), {"is_binary": True}),
    ("pptx", "pptx", (".pptx",), {"is_binary": True}),
    ("odt", "odt", (".odt", ".odp"), {"is_binary": True}),
    ("epub", "epub", (".epub",), {"is_binary": True}),
    ("json", "json_catalog", (".json",), {}),
    ("arb", "json_catalog", (".arb",), {}),
    ("yaml", "yaml_catalog", (".yml", ".yaml"), {}),
    ("properties", "properties", (".properties",), {}),
    ("strings", "apple", (".strings",), {}),
    ("stringsdict", "apple", (".stringsdict",), {}),
    ("android", "android", (".xml",), {}),
    ("resx", "resx", (".resx", ".resw"), {}),
    ("qt", "qt", (".ts",), {"has_flags": True}),
    ("tsv", "table", (".tsv",), {"needs_column": True}),
    ("csv", "table", (".csv",), {"needs_column": True}),
)

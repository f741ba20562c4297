"""Refuse files that are not text, by their names or first bytes, and say what to do with them."""

import os

NUL = b"\0"
SAVE_AS_WORD = "save it as .docx"
UNPACK = "unpack it first"
IMAGE = "an image", "a program for text recognition reads its text"
MEDIA = "audio or video", "translate its subtitles, an .srt or a .vtt"
PDF = "a PDF", "convert it by `pdftotext FILE.pdf FILE.txt`, or save it as .docx"
# the first bytes, what such a file is, and what to do
SIGNATURES = (
    (b"%PDF-", *PDF),
    (b"%!PS", "a PostScript file", "convert it by `ps2ascii FILE.ps FILE.txt`"),
    (b"{\\rtf", "an RTF document", SAVE_AS_WORD),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office file, such as .doc", SAVE_AS_WORD),
    (b"PK\x03\x04", "a zip archive, such as .xlsx", "save a document as .docx, unpack anything else"),
    (b"PK\x05\x06", "an empty zip archive", "choose another file"),
    (b"\x1f\x8b", "a gzip file", "let its name end in .gz"),
    (b"BZh", "a bzip2 file", UNPACK),
    (b"\xfd7zXZ\0", "an xz file", UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
    (b"Rar!\x1a\x07", "a RAR archive", UNPACK),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", UNPACK),
    (b"\x89PNG\r\n", *IMAGE),
    (b"\xff\xd8\xff", *IMAGE),
    (b"GIF8", *IMAGE),
    (b"II*\0", *IMAGE),
    (b"MM\0*", *IMAGE),
    (b"RIFF", *MEDIA),
    (b"ID3", *MEDIA),
    (b"OggS", *MEDIA),
    (b"\x1aE\xdf\xa3", *MEDIA),
    (b"\x7fELF", "a program", "choose a file of text"),
)
# suffixes of files that are not text, what such a file is, and what to do
REFUSED_SUFFIXES = {
    ".pdf": PDF,
    ".ps": ("a PostScript file", "convert it by `ps2ascii FILE.ps FILE.txt`"),
    ".rtf": ("an RTF document", SAVE_AS_WORD),
    **dict.fromkeys((".doc", ".dot", ".docm", ".wps", ".wpd", ".pages"), ("another program's document", SAVE_AS_WORD)),
    **dict.fromkeys(
        (".ppt", ".pps", ".ppsx", ".pptm", ".key"), ("another program's presentation", "save it as .pptx")
    ),
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".numbers"), ("a spreadsheet", "save each sheet as .csv")),
    **dict.fromkeys((".mobi", ".azw", ".azw3", ".fb2"), ("another kind of book", "convert it to .epub")),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".heic", ".djvu"), IMAGE),
    **dict.fromkeys((".mp3", ".mp4", ".m4a", ".mkv", ".avi", ".mov", ".wav", ".ogg", ".webm", ".flac"), MEDIA),
    ".mo": ("a compiled catalog", "translate its .po, or one that `msgunfmt` makes of it"),
    ".qm": ("a compiled catalog", "translate its .ts, or one that `lconvert` makes of it"),
    **dict.fromkeys(
        (".mqxlz", ".sdlppx", ".sdlrpx", ".xcloc"),
        ("a package of a translation tool", "unpack it, and translate the XLIFF in it"),
    ),
    **dict.fromkeys((".zip", ".7z", ".rar", ".tar", ".bz2", ".xz", ".zst"), ("an archive", UNPACK)),
}


def refusal_of(name: object) -> str | None:
    """Return why a file with this name is not read, and what to do; `None` for other names."""
    kind, advice = REFUSED_SUFFIXES.get(os.path.splitext(str(name))[1].lower(), (None, None))
    return None if kind is None else f"is {kind}, not text: {advice}"


def refuse_binary(beginning: bytes, name: object, encoding: str | None = None) -> None:
    """Raise an error if a file begins as a binary format does, or if its beginning has NUL bytes.

    Args:
        encoding: the requested encoding; without one, only a byte-order mark of UTF-16 or UTF-32 allows NUL bytes.
    """
    for signature, kind, advice in SIGNATURES:
        # a text may begin with "RIFF" or "ID3", too: signatures of letters count only beside NUL bytes
        if beginning.startswith(signature) and (not signature.isalnum() or NUL in beginning):
            raise ValueError(f"{name}: is {kind}, not text: {advice}")
    if NUL in beginning and encoding is None:
        from capsule_mt.files.encodings import encoding_hint, encoding_of_mark  # late: most files are UTF-8

        if encoding_of_mark(beginning) not in ("utf-16", "utf-32"):
            raise ValueError(f"{name}: is not text in UTF-8, since it has NUL bytes{encoding_hint(beginning)}")

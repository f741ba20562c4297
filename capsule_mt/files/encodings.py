"""The encodings of text files: what a file states, or looks like."""

import codecs

# only Python has them, or they are unsafe: they decode to half characters, or in quadratic time
REFUSED_ENCODINGS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
# guesses for files that are not UTF-8; the first of equally likely ones wins
CANDIDATES = ("cp1252", "cp1251", "koi8-r", "cp1250", "cp1253", "shift_jis", "euc_jp", "euc_kr", "gb18030", "big5")
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
MAX_SAMPLE = 1 << 16  # bytes that a guess reads
# the letters beyond ASCII of the languages that are written in these encodings
COMMON_LETTERS = {
    "cp1252": "àáâãäåæçèéêëìíîïñòóôõöøùúûüßœ",
    "cp1250": "ąćęłńóśźżáčďéěíňóřšťúůýžäöüßăâîșțőű",
    "cp1251": "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєў",
    "koi8-r": "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "cp1253": "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ",
}


def known_encoding(name: str) -> str:
    """Return the name of an encoding of text files, or raise an error that says what is accepted."""
    try:
        codec = codecs.lookup(name)
    except LookupError:
        codec = None
    if codec is None or codec.name in REFUSED_ENCODINGS or not getattr(codec, "_is_text_encoding", True):
        examples = "such as utf-8, utf-16 or cp1252"
        raise ValueError(f"`encoding` must be one that Python knows, {examples}, got {name[:40]!r}")
    return name


def encoding_of_mark(content: bytes) -> str | None:
    """Return the encoding that a byte-order mark states."""
    return next((name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), None)


def is_utf8(content: bytes) -> bool:
    """Return whether bytes are UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def hint(content: bytes) -> str:
    """Return the end of an error message with the likely encoding of these bytes, or an empty string."""
    likely = likely_encoding(content)
    return f"; it looks like {likely}: `--encoding {likely}` reads it" if likely else ""


def likely_encoding(content: bytes) -> str | None:
    """Guess the encoding of a text that is not UTF-8; `None` if none of them is likely."""
    sample = content[:MAX_SAMPLE]
    marked_encoding = encoding_of_mark(sample)
    if marked_encoding is not None:
        return marked_encoding
    for name, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if zeros and zeros.count(0) > len(zeros) / 2:
            return name
    best = max(CANDIDATES, key=lambda name: _likelihood(sample, name))
    return best if _likelihood(sample, best) > 0.5 else None


def _likelihood(sample: bytes, encoding: str) -> float:
    """Return the share of the characters beyond ASCII that are common letters beside other letters."""
    text = sample.decode(encoding, errors="replace")
    offsets = [offset for offset, character in enumerate(text) if character > "\x7f"]
    if not offsets:
        return 0.0
    letters = COMMON_LETTERS.get(encoding)
    if letters is None:
        return _multibyte_likelihood([text[offset] for offset in offsets], encoding)
    plausible = 0
    for offset in offsets:
        previous, following = text[offset - 1 : offset], text[offset + 1 : offset + 2]
        in_word = previous.isalpha() or following.isalpha()
        is_odd_capital = text[offset].isupper() and previous.islower()  # a wrong encoding often swaps the case
        plausible += text[offset].lower() in letters and in_word and not is_odd_capital
    return plausible / len(offsets)


def _multibyte_likelihood(characters: list[str], encoding: str) -> float:
    """Return the likelihood of an encoding with several bytes a character, by the scripts of its language."""
    kana = sum("\u3040" <= character <= "\u30ff" for character in characters)
    if encoding in ("shift_jis", "euc_jp"):
        kanji = sum("\u4e00" <= character <= "\u9fff" for character in characters)
        plausible = kana + kanji if kana > len(characters) / 5 else 0  # Japanese always has kana
    elif encoding == "euc_kr":
        plausible = sum("\uac00" <= character <= "\ud7a3" for character in characters)
    else:  # the frequent characters have the lower bytes
        first, last = (0xB0, 0xD7) if encoding == "gb18030" else (0xA4, 0xC6)
        han = [character.encode(encoding, "replace") for character in characters if "\u4e00" <= character <= "\u9fff"]
        plausible = sum(len(code) == 2 and first <= code[0] <= last for code in han)
    marks = sum("\u3000" <= character <= "\u303f" or "\uff00" <= character <= "\uffef" for character in characters)
    return (plausible + (marks if plausible else 0) - 4 * characters.count("\ufffd")) / len(characters)

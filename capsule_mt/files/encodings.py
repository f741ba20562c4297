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


def check_encoding(name: str) -> str:
    """Return `name`; raise a `ValueError` unless it is an encoding of text files."""
    try:
        codec = codecs.lookup(name)
    except LookupError:
        codec = None
    if codec is None or codec.name in REFUSED_ENCODINGS or not getattr(codec, "_is_text_encoding", True):
        raise ValueError(
            "`encoding` must be a text encoding such as utf-8, utf-16 or cp1252 (not utf-7 or escapes), got "
            f"{name[:40]!r}"
        )
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


def encoding_hint(content: bytes) -> str:
    """Return the end of an error message: the likely encoding of these bytes, if any, and what to do."""
    likely = likely_encoding(content)
    if likely is None:
        return "; if it is text, save it as UTF-8 or name its encoding by `--encoding`"
    return f"; it looks like {likely}: `--encoding {likely}` reads it, or save it as UTF-8"


def likely_encoding(content: bytes) -> str | None:
    """Guess the encoding of a text that is not UTF-8; `None` if no candidate is likely."""
    sample = content[:MAX_SAMPLE]
    marked_encoding = encoding_of_mark(sample)
    if marked_encoding is not None:
        return marked_encoding
    for name, high_bytes in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if high_bytes and high_bytes.count(0) > len(high_bytes) / 2:
            return name
    best = max(CANDIDATES, key=lambda name: _likelihood(sample, name))
    return best if _likelihood(sample, best) > 0.5 else None


def _likelihood(sample: bytes, encoding: str) -> float:
    """Return the share of common letters beside other letters among the characters beyond ASCII."""
    text = sample.decode(encoding, errors="replace")
    offsets = [offset for offset, character in enumerate(text) if character > "\x7f"]
    if not offsets:
        return 0.0
    letters = COMMON_LETTERS.get(encoding)
    if letters is None:
        return _multibyte_likelihood([text[offset] for offset in offsets], encoding)
    num_plausible = 0
    for offset in offsets:
        previous, following = text[offset - 1 : offset], text[offset + 1 : offset + 2]
        in_word = previous.isalpha() or following.isalpha()
        is_odd_capital = text[offset].isupper() and previous.islower()  # a wrong encoding often swaps the case
        num_plausible += text[offset].lower() in letters and in_word and not is_odd_capital
    return num_plausible / len(offsets)


def _multibyte_likelihood(characters: list[str], encoding: str) -> float:
    """Return the likelihood of an encoding with several bytes a character, by the scripts of its language."""
    num_kana = sum("\u3040" <= character <= "\u30ff" for character in characters)
    if encoding in ("shift_jis", "euc_jp"):
        num_kanji = sum("\u4e00" <= character <= "\u9fff" for character in characters)
        num_plausible = num_kana + num_kanji if num_kana > len(characters) / 5 else 0  # Japanese always has kana
    elif encoding == "euc_kr":
        num_plausible = sum("\uac00" <= character <= "\ud7a3" for character in characters)
    else:  # frequent characters have the lower first bytes
        min_first_byte, max_first_byte = (0xB0, 0xD7) if encoding == "gb18030" else (0xA4, 0xC6)
        han_codes = [
            character.encode(encoding, "replace") for character in characters if "\u4e00" <= character <= "\u9fff"
        ]
        num_plausible = sum(len(code) == 2 and min_first_byte <= code[0] <= max_first_byte for code in han_codes)
    num_punctuation_marks = sum(
        "\u3000" <= character <= "\u303f" or "\uff00" <= character <= "\uffef" for character in characters
    )
    num_undecodable = characters.count("\ufffd")
    num_supporting = num_plausible + num_punctuation_marks if num_plausible else 0
    return (num_supporting - 4 * num_undecodable) / len(characters)

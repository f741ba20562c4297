"""The encodings of text files: which one a file states, or looks like."""

import codecs

# of Python alone, or unsafe: they decode to half characters, or in quadratic time
NOT_OF_FILES = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7")
# of files that are not UTF-8, in the order of preference between equals
CANDIDATES = ("cp1252", "cp1251", "koi8-r", "cp1250", "cp1253", "shift_jis", "euc_jp", "euc_kr", "gb18030", "big5")
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
LONGEST_SAMPLE = 1 << 16
# blocks of the letters of languages that are written in these encodings
COMMON_LETTERS = {
    "cp1252": "àáâãäåæçèéêëìíîïñòóôõöøùúûüßœ",
    "cp1250": "ąćęłńóśźżáčďéěíňóřšťúůýžäöüßăâîșțőű",
    "cp1251": "абвгдежзийклмнопрстуфхцчшщъыьэюяёіїєў",
    "koi8-r": "абвгдежзийклмнопрстуфхцчшщъыьэюяё",
    "cp1253": "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ",
}


def known_encoding(name: str) -> str:
    """Return the name of an encoding of text, or raise an error that says what is accepted."""
    try:
        codec = codecs.lookup(name)
    except LookupError:
        codec = None
    if codec is None or codec.name in NOT_OF_FILES or not getattr(codec, "_is_text_encoding", True):
        examples = "such as utf-8, utf-16 or cp1252"
        raise ValueError(f"`encoding` must be one that Python knows, {examples}, got {name[:40]!r}")
    return name


def encoding_of_mark(content: bytes) -> str | None:
    """Return the encoding that a byte-order mark states."""
    return next((name for mark, name in BYTE_ORDER_MARKS.items() if content.startswith(mark)), None)


def hint(content: bytes) -> str:
    """Return a sentence for the end of an error: the encoding that some bytes look like, or nothing."""
    likely = likely_encoding(content)
    return f"; it looks like {likely}: `--encoding {likely}` reads it" if likely else ""


def likely_encoding(content: bytes) -> str | None:
    """Return the encoding that a text which is not UTF-8 looks like, if it looks like any."""
    sample = content[:LONGEST_SAMPLE]
    stated = encoding_of_mark(sample)
    if stated is not None:
        return stated
    for name, zeros in (("utf-16-le", sample[1::2]), ("utf-16-be", sample[::2])):
        if zeros and zeros.count(0) > len(zeros) / 2:
            return name
    best = max(CANDIDATES, key=lambda name: _likelihood(sample, name))
    return best if _likelihood(sample, best) > 0.5 else None


def _likelihood(sample: bytes, encoding: str) -> float:
    """Return the share of the characters beyond ASCII that are common letters, in words with letters like them."""
    text = sample.decode(encoding, errors="replace")
    beyond = [place for place, character in enumerate(text) if character > "\x7f"]
    if not beyond:
        return 0.0
    letters = COMMON_LETTERS.get(encoding)
    if letters is None:
        return _likelihood_of_wide([text[place] for place in beyond], encoding)
    good = 0
    for place in beyond:
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        in_word = before.isalpha() or after.isalpha()
        good += text[place].lower() in letters and in_word and not (text[place].isupper() and before.islower())
    return good / len(beyond)


def _likelihood_of_wide(characters: list[str], encoding: str) -> float:
    """Return the same for an encoding with several bytes a character, by the scripts of its language."""
    kana = sum("\u3040" <= one <= "\u30ff" for one in characters)
    if encoding in ("shift_jis", "euc_jp"):
        kanji = sum("\u4e00" <= one <= "\u9fff" for one in characters)
        good = kana + kanji if kana > len(characters) / 5 else 0
    elif encoding == "euc_kr":
        good = sum("\uac00" <= one <= "\ud7a3" for one in characters)
    else:  # the frequent characters have the lower bytes
        first, last = (0xB0, 0xD7) if encoding == "gb18030" else (0xA4, 0xC6)
        han = [one.encode(encoding, "replace") for one in characters if "\u4e00" <= one <= "\u9fff"]
        good = sum(len(one) == 2 and first <= one[0] <= last for one in han)
    marks = sum("\u3000" <= one <= "\u303f" or "\uff00" <= one <= "\uffef" for one in characters)
    return (good + (marks if good else 0) - 4 * characters.count("\ufffd")) / len(characters)

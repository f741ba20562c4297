r"""The table of rules: most changes that we make to what people typed are rows.

`rewriting` interprets the table. The build of `web` writes it into interface.js for JavaScript, and `python -m
tools.rules` prints docs/rules.md, with what each row earns on natural text by lab/rules.py. Columns:

id       the name of the rule, which `Translation.edits` and `--explain` show.
stage    when it runs. `keep` and `form` run together, in one scan of the user's text: of all rows that match, the
         leftmost match wins, and from one offset the first row. Then letters change case, and the `late` rows see what
         the vocabulary still lacks, in one scan of the form. `before`, `after` and `ending` see one sentence of the
         form; `back` sees its translation.
kind     of `keep` and `late` rows ("languages": of models with tokens of target languages): what the argument `keep` and `parts_of` call it. A row of a kind is tried only if
         the call keeps that kind. The other kinds than `KEEP_KINDS` are kept unless copying is off.
needs    a pattern that is cheap to search for: without a match of it in the text, the row is not tried.
match    the pattern. A `late` row is matched against a copy of the form with `LACKED_LETTER`, `LACKED_SIGN` or, of
         mathematics (category Sm, and & * @ ^), `LACKED_FORMULA` for each character that the vocabulary lacks, and
         U+0301 for each mark that combines; `<lacked>` stands for any of the first three, `<formula>` for the last.
model    what the model reads instead: a text; `COPY`: the match itself, or a stand-in for it; "" nothing; `BREAK`: a
         line break; or ":name" of code, mostly a function of `rewriting` that returns one of these. If it returns
         `None`, or for `form` and `late` rows the match itself, nothing changes, and other rows may match there.
back     what the translation has for it: `COPY`, the user's characters; ":name"; `None`: whatever the model writes.
when     a condition beside `kind`: "lacks X" (the vocabulary lacks this character), "no ordinals" (of the source
         language), "unpaired" (no partner of a sign in the match stands in the sentence), "fr" (target).
example  a text, and `read`, what a model from English to Portuguese reads of it whose vocabulary has the
         characters of ASCII, "€", "à" and the words "so", "of", "is" and "it" (of `back`: what it becomes).

An item, that is, a match with `COPY`, is one character of the form, `ITEM`, whatever it holds. Matches with "" or
`BREAK` and a `back` are tags: they stand between characters of the form, or are one `BREAK`. In a translation, `back`
rows and `finishing` see an item as one `ITEM`, and a tag as one `TAG_MARK`.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, cast

from capsule_mt.text.sentences import CLOSING, OPENING, UNSPACED_STOPS

ITEM, TAG_MARK, BREAK, COPY = "\ue000", "\ue003", "\x1e", "="
_OUR_MARKS = f"[{ITEM}{TAG_MARK}]"
LACKED_LETTER, LACKED_SIGN, LACKED_FORMULA = "\ua7f7", "\ue001", "\ue002"
KEEP_KINDS = ("tags", "urls", "placeholders", "numbers")  # the kinds that `keep` takes
# kept by default
COPIED_KINDS = (
    *("tags", "urls", "placeholders", "breaks", "code", "names", "emoji", "emphasis", "numerals", "signs", "unknown"),
)
NON_WORDS = ("tags", "urls", "placeholders", "breaks", "code", "names")  # a text of these alone has no words


class Row(NamedTuple):
    """A rule; the module describes the columns."""

    id: str
    stage: str
    kind: str
    needs: str
    match: str
    model: str
    back: str | None
    when: str | None
    example: str
    read: str


# ---- parts of patterns
LETTER, SMALL, CAPITAL = r"[^\W\d_]", "a-z\xdf-\xff\u0430-\u045f", "A-Z\xc0-\xde"
# letters; combining marks belong to the word
_LETTERS = rf"{LETTER}(?:[\u0300-\u036f]*{LETTER})*[\u0300-\u036f]*"
CASED_WORD = rf"{_LETTERS}(?:['\u2019-]{_LETTERS})*"
# remarks of HTML, Jinja, ERB, JSP, Handlebars, JSX and Go, also over several lines: each looks no further than to the
# next beginning of its kind, for linear time
REMARK = "|".join(
    rf"(?s:{start}(?:(?!{start}).)*?{end})"
    for start, end in (
        ("<!--", "-->"),
        (r"\{#", r"#\}"),
        ("<%#", "%>"),
        ("<%--", "--%>"),
        (r"\{\{!--", r"--\}\}"),
        (r"\{\{!\s", r"\}\}"),
        (r"\{\{?/\*", r"\*/\}\}?"),
    )
)
MARKUP = r"(?<!<)</?(?:[A-Za-z][^<>]*|\d+\s*/?)>"  # of HTML, and of i18next
TAG = f"{REMARK}|{MARKUP}"
# tags that end a sentence, as "\n" does
BLOCK_TAG = (
    r"(?i:</?(?:p|div|br|hr|h[1-6]|ul|ol|dl|li|dt|dd|table|thead|tbody|tr|td|th|pre|blockquote|section|article)(?!\w))"
)
ADDRESS = rf"(?i:https?://|www\.)(?:[^\s<>\"'{{}}\\{UNSPACED_STOPS}]|\{{[^\s{{}}]*\}})*(?:[\w/]|(?<=\}}))"
EMAIL = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
URL = f"{ADDRESS}|{EMAIL}"
UNIT = r"(?:[kKMGT]?i?B|[mn]?s|[ckm]?m|[km]?g|px|pt|r?em|min|h|k?Hz|[MG]Hz|dpi|fps|th|x)(?!\w)"
_ICU_DEPTH = 6  # of braces inside a plural or a selection of ICU, which may hold others
_ICU_BODY = "[^{}]*"
for _ in range(_ICU_DEPTH):
    _ICU_BODY = rf"(?:[^{{}}]|\{{{_ICU_BODY}\}})*"
# types of arguments of ICU and of Java's `MessageFormat`
_ARGUMENT_TYPE = "(?:plural|select(?:ordinal)?|choice|number|date|time|spellout|ordinal|duration)"
_PRINTF_NAME = r"%(?:\([\w.]+\)|<\w+>|\d+\$)?"  # printf's %, with a name of Python or Ruby, or with an index
# flags, width, precision and size of the argument; a "*" takes an argument of its own
PRINTF_FORMAT = r"[-+#0]*(?:[1-9]\d*|\*)?(?:\.(?:\d+|\*))?(?:hh?|ll?|z|j|I64)?"
# of Mustache, Jinja, Liquid, Angular; statements of Jinja; ERB; ICU, left whole; shells, Ruby, Python; Qt
_PLACEHOLDER = (
    r"(?:\{\{\{[^{}\n]{0,120}\}\}\}|\{\{[^{}\n]{0,120}\}\}|\{%.{0,120}?%\}|<%.{0,120}?%>"
    rf"|\{{\s*\w+\s*,\s*{_ARGUMENT_TYPE}(?!\w){_ICU_BODY}\}}"
    r"|[$#]\{[^{}\n]{0,120}\}|\[%.{0,200}?%\]"  # expressions of Java, JavaScript, Ruby; keys of Home Assistant
    r"|[$%#]?\{\{?[^{}\s]*\}\}?|\{\s?[\w.]+\s?\}|\$[A-Za-z_]\w+"
    r"|\[\[[\w.]+\]\]|[%#]{2}\w+[%#]{2}|(?<![\w:/])@:[\w.]*\w"  # of Angular 1, mails and vue-i18n
    r"|\$t\([\w.:-]+\)"  # a nested key of i18next
    r"|(?<![\w:/@]):[A-Za-z_]\w+(?![\w:])"  # of Laravel
    r"|(?<![^\t\n (\"'>])![a-z_]\w+"  # of Drupal
    rf"|{_PRINTF_NAME}(?:{PRINTF_FORMAT}[sdifucxXegr](?:(?!\w)|(?={UNIT}|[A-Z][a-z ]))|@)"
    # %PRODUCTNAME is of LibreOffice, %title of Drupal; of "%sfiles", nothing tells whether it is one
    r"|%(?:L?\d{1,2}|n)(?!\w)|%\w+%|(?<![\w%])(?<!\d )%[A-Za-z_]\w+|%%)"
)
# signs of currency, mathematics and trade that may be glued to a placeholder: "{price}\u20ac", "\u2248{n}"
_GLUED_SIGNS = r"\xa1-\xaa\xae-\xba\xbf\xd7\u2030-\u27bf"
# Text glued to a placeholder is a part of it: "{w}px", "#{id}", "v{version}", "{path}/a.txt", "{year}-{month}".
# A longer word, or a capitalised one, is not: a sentence ends or begins there.
_GLUED_BEFORE = (
    r"(?:(?<![\w./\\~-])[\w./\\~-]{0,64}[/_\\]"
    rf"|(?<![^\W_])(?:[a-z]{{1,3}}|[A-Z]{{2,3}}|\d[\d.,]{{0,20}})[-.:\xba]?|>=|[@$#^+~=<{_GLUED_SIGNS}])?"
)
_GLUED_AFTER = (
    rf"(?:[%\xb0\u2030+]?(?:{UNIT}|(?:[a-z]{{1,3}}|[A-Z]{{2,3}}|[B-HJ-Z]|\d{{1,3}})(?![^\W_]))"
    rf"|[%+>{_GLUED_SIGNS}]"
    r"|(?!\\[nrt](?![a-z]))[/_@\\][\w./\\-]{0,64}(?<=\w)(?!\w)|\.[a-z]\w{0,3}(?!\w)|-\d+(?!\w)){0,2}"
)
BARE_PLACEHOLDERS = (
    rf"{_PLACEHOLDER}(?:(?:[-_.:/+@\u2013\u2026\xa0{_GLUED_SIGNS}]|&nbsp;|[a-z]{{1,2}})?{_PLACEHOLDER})*"  # "{h}h{m}"
)
PLACEHOLDER = f"{_GLUED_BEFORE}{BARE_PLACEHOLDERS}{_GLUED_AFTER}"
# A placeholder that a program fills with a number: by its name ({count}, {num_files}, {fileCount}), by its type in
# printf, Python, .NET or ICU, or as Qt and the branches of an ICU plural have it
_NUMBER_WORDS = (
    "n num number count counter cnt total amount quantity length size limit max min maximum minimum"
    " days hours minutes seconds weeks months years percent"
)
_NUMBER_NAME = (
    r"(?:(?<![A-Za-z\"'])|(?<=[a-z])(?=[A-Z]))"
    rf"(?:{'|'.join(f'[{word[0]}{word[0].upper()}]{word[1:]}' for word in _NUMBER_WORDS.split())})(?![a-z])"
)
NUMBER_PLACEHOLDER = (
    rf"(?:[$%#]?\{{{{1,3}}|%\(|[:$]|%%?)[^{{}}()/]{{0,80}}{_NUMBER_NAME}[^{{}}()/]{{0,80}}(?:\}}{{0,3}}|\)[a-z]|%%?)"
    rf"|{_PRINTF_NAME}{PRINTF_FORMAT}[difuxXeg]"
    r"|\{\w*:[-+,.\d]*[,dfnN]\d*\}|\{[^{}]{1,80},\s*number(?!\w)[^{}]{0,80}\}|%n|%L\d+|\{#\}"
)
# in "C:\Program Files (x86)\App": a space, if the words after it begin like a name's, up to the next folder
_SPACE_OF_PATH = r" (?=(?:(?:[A-Z(&\d][^\s\\:]*|and|de) ){0,3}[A-Z(\d][^\s\\:]*\\)"
# words in paths whose "\n" or "\t" begins no line: "folder\new", not "one\nline"
_FOLDER_NAME = r"\\(?:n(?:ew|otes)|temp)(?![\w-])"
# names of files, of any folder or of these
_EXTENSION = (
    "(?i:7z|apk|asc|avi|bak|bash|bat|bin|bmp|bz2|cc|cfg|conf|cpp|cs|css|csv|dat|db|deb|dll|dmg|docx?|env|epub|exe|flac|gif|go"
    "|gz|hpp|html?|ico|ini|ipynb|iso|jar|java|jpe?g|js|json|jsx|key|kt|lock|log|lua|md|mjs|mkv|mo|mov|mp3|mp4|odp|ods|odt|ogg"
    "|otf|pdf|pem|php|pl|png|po|pot|pptx?|ps1|py|rar|rb|rpm|rs|rst|rtf|scss|sh|so|spm|sql|sqlite|srt|svg|tar|tex|tgz|tiff?"
    "|toml|tsv|tsx?|ttf|txt|vtt|wav|webm|webp|woff2?|xlsx?|xml|xz|ya?ml|zip|zst)"
)
# "report.pdf", "REPORT.PDF"; but not "I was tired.So I left", and "4.GO" is a number and a word
_FILE = (
    r"(?:[\w+-][\w.+-]{0,64}\.(?!\w*[A-Z])"
    rf"|(?![\d.]*\.[A-Z])(?:(?![a-z\xdf-\xff])[\w.+-]){{1,65}}\.(?!\w*[a-z])){_EXTENSION}"
)
_FOLDER = "(?:bin|dist|docs?|etc|lib|opt|pkg|src|tmp|usr|var)"
# with circled letters and numbers, and the information sign, which tokenizers read as plain ones
EMOJI = (
    "[\xa9\xae\u2122\u2139\u2460-\u24ff\u3250-\u32bf\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d\u20e3"
    "\U000e0020-\U000e007f]"
)
_EMOJI = rf"{EMOJI}+(?:\s*{EMOJI}+)*"
# Markdown's marks around words; underscores inside words are code
EMPHASIS = "|".join(
    rf"(?<![\w*~\\]){mark}(?=[^\W_]|[\"'\u201c\u2018\xab(\[{{<%$])[^*~\n]{{0,1000}}?(?<=[^\s*~\\]){mark}(?![\w*~])"
    for mark in (r"\*\*\*", r"\*\*", r"\*", "__", "_", "~~")
)
CURRENCIES = "\xa2-\xa5\u20a0-\u20cf"
_SPACES, _SIGNS = " '\u2019\xa0\u2007\u2009\u202f", "'\u2019\xa0\u2007\u2009\u202f"
# Numbers of several groups, or with a group and decimals: models change their digits. A sign of currency is kept with
# its number.
NUMERAL = (
    rf"(?<![\w.,+'\u2019{CURRENCIES}])(?<![{CURRENCIES}][ \xa0])(?<!\d[ \xa0\u2007\u2009\u202f])\d{{1,3}}"
    + "(?:"
    + "|".join(
        rf"{sign}\d{{3}}(?:(?:{sign}\d{{3}})+(?:{decimal}\d+)?|{decimal}\d+)"
        for sign, decimal in ((f"[{_SPACES}]", "[.,]"), (",", r"\."), (r"\.", ","))
    )
    + rf")(?![\w'\u2019]|[.,]\d|-\d\d(?![\d.,])|[ \xa0]?[{CURRENCIES}]|[{_SPACES}]\d)"
)
# numbers joined by hyphens, one of them of three digits or more: "555-1234", "2021-03"; versions: "1.9.5", but not
# of an item, such as "1.2.3 One", nor an amount, such as "\u20ac 1.234.567"
JOINED_NUMBERS = (
    r"(?<![\w.,/:+'\u2019\xa0\u202f-])\+?(?:\d{1,16}-){0,5}(?:\d{3,16}-\d{1,16}|\d{1,16}-\d{3,16})(?:-\d{1,16}){0,5}"
    r"(?![\w-]|[.,/:'\u2019\xa0\u202f]\d)"
    rf"|(?<![\w.,/:{CURRENCIES}-])(?<![{CURRENCIES}][ \xa0])v?\d{{1,4}}(?:\.\d{{1,4}}){{2,}}"
    rf"(?![\w-]|[.,/:]\d|\s+[{CAPITAL}]|[ \xa0]?[{CURRENCIES}])"
)
# with the signs of a language; no address, such as 192.168.100.200, no tax number, such as 123.456.789-09, and no
# number of a section, such as "\xa7 3.2"
SIGNED_NUMBER = (
    rf"(?<![\w.,+'\u2019\xa7\xb6])(?<![\xa7\xb6\u2116][ \xa0\u202f])(?<!\d[{_SIGNS}])(?!(?:[012]\d\d\.){{3}})"
    rf"(?:\d{{1,3}}(?:(?:[{_SIGNS}]\d{{3}})+(?:[.,]\d+)?|(?:[<group>]\d{{3}})+(?:[<point>]\d+)?|(?: \d{{3}})+[<point>]\d+)"
    rf"|\d+[<point>]\d\d?)(?![\w'\u2019]|[.,]\d|-\d\d(?![\d.,])|[ {_SIGNS}]\d)"
)
_SUPERSCRIPTS = "\xb9\xb2\xb3\u2070\u2074-\u207f"
_AFTER_MARK = "(?<=[.,;:!?)\"'\u201d\u2019\xbb%])"
_NUMBER = r"\d(?:[\d.,'\u2019\xa0\u202f]*\d)?"
COMBINING = r"[\u0300-\u036f\u0653-\u0655\u1161-\u11ff\u3099\u309a]"
_EDGE_SIGNS = r"-\u2013\u2014*+#&/<=>\\^|~$\xab\xbb\u2039\u203a\xb7\u2022\u2023\u2190-\u21ff\u25a0-\u25ff"
_STRIPPED = r"*+=|~^<>\xab\xbb\u2039\u203a"
_CLOSING_MARKS = "\"'\u201d\u2019\xbb)\\]"
_FRENCH_SPACE = "[ \xa0\u2009\u202f]{0,2}"
_UNKNOWN_WORD = r"(?<!\w)\w*(?:(?=\w)<lacked>)(?:\w|[\u0300-\u036f])*(?:['\u2019-]\w+)*"
_NON_ASCII = r"[^\x00-\x7f]"
_INNER_CAPITAL = r"(?<=[a-z\xdf-\xf6\xf8-\xff])[A-Z\xc0-\xd6\xd8-\xde]"

# fmt: off
ROWS = tuple(Row(*row) for row in (
    # ---- keep: what a translation copies
    ("language token", "keep", "languages", ">>", r">>[^<>\s]+<<", ":itself", ":none", None, "One word.\n>>por<< Two words.", "One word. Two words."),
    ("remark", "keep", "tags", r"<!--|<%|\{[#{/]", REMARK, "", COPY, None, "<!-- 1 --> a word", "a word"),
    ("tag", "keep", "tags", "<", MARKUP, ":tag", COPY, None, "a <b>word</b> here", "a word here"),
    ("address", "keep", "urls", r"://|w\.|W\.", ADDRESS, COPY, COPY, None, "see www.a.de now", "see www.a.de now"),
    ("email", "keep", "urls", "@", EMAIL, COPY, COPY, None, "ask a@b.de now", "ask a@b.de now"),
    ("placeholder", "keep", "placeholders", r"\{|@|#|\[[\[%]|<%|:(?=[A-Za-z_])|!(?=[a-z_])|\$(?=[A-Za-z_{])"
     r"|%(?=[\w(<+#*@%-]|\.[\d*])", PLACEHOLDER, COPY, COPY, None, "the {n} files", "the 100 files"),
    ("number", "keep", "numbers", r"\d", r"(?<!\w)(?<!&#)(?<!\d[.,:/\-])\d+(?:[.,:/\-]\d+)*(?!\w|[.,:/\-]\d)",
     COPY, COPY, None, "at 7:15 here", "at 7:15 here"),
    # line breaks and tabs as programs write them, "One.\nTwo", but not in a path, TeX, or quoted alone
    ("break", "keep", "breaks", r"\\[nrt]", r"(?:(?<=[^\s\\$({[=])\\[nrt](?![a-z][\w-]*(?:(?:\.|\\[a-z])[a-z]|\{)"
     r"|[\"'`)\u201d\xbb])|(?<!\S)\\n(?=[A-Z\xc0-\xde]))", BREAK, COPY, None, r"One word.\nTwo words.", "One word. Two words."),
    # but not from "don`t" to "can`t"; "`it <b.de>`__" is a link of reStructuredText
    ("ticks", "keep", "code", "`", r"(?<![^\W\d_])(?<!`)`[^`\n]+`(?:__(?!\w)|(?!`))|(?<!`)`[^`\s]+`(?![\w`])"
     r"|(?<!`)(?:```[^`\n]+```|``(?=\S)[^`\n]*(?<=\S)``)(?!`)", COPY, COPY, None, "run `ls -l` now", "run `ls -l` now"),
    ("call", "keep", "code", r"\(\)|::", r"(?<!\w)\w[\w.]{0,64}(?:#\w+)?\(\)"
     r"|(?<![\w:])[A-Za-z]\w{0,64}(?:::\w{1,64})+(?:<[\w:,*& ]{1,64}>)?(?:\(\))?", COPY, COPY, None,
     "call main() now", "call main() now"),
    ("mention", "keep", "code", "[#@]", r"(?<![\w.#])\w{1,64}#\w+|(?<![\w&])[#@]\w+", COPY, COPY, None,
     "ask @tom now", "ask @tom now"),
    ("path", "keep", "code", r":\\|/", rf"(?<!\w)[A-Za-z]:\\(?:\S|{_SPACE_OF_PATH})+"
     r"|(?<![^\s>(\"'\u201c])(?:~|\.{1,2}|/[a-z][\w.+-]*)/[^\s<>()\"'\u201c\u201d]*\w",
     COPY, COPY, None, "in ~/src/a now", "in ~/src/a now"),
    ("identifier", "keep", "code", "_", r"(?<!\w)\w*[A-Za-z]_\w+", COPY, COPY, None, "set max_size now", "set max_size now"),
    ("link", "keep", "code", r"\]\(", r"(?<=\])\([^\s()<>]{0,64}[/.#][^\s()<>]{0,120}\)", COPY, COPY, None,
     "see [it](b/c.x) now", "see [it](b/c.x) now"),
    # a backslash with what is glued to it: "docs\main", "\alpha"; "docs\notes.txt", "src\new\test"; "\n"
    ("backslash", "keep", "code", r"\\", r"(?<![\w\\.-])[\w.-]*(?:\\{1,2}[\w.-]+)*?\\{1,2}(?![nrt])\w(?:[\w.\\-]*\w)?"
     rf"|(?<![\w\\.-])[\w.-]+(?:(?:\\[\w-]+)+\.[a-z]\w*|(?:\\[nrt][a-z][\w-]*){{2,}}|{_FOLDER_NAME})"
     r"|(?:\\{1,2}[nrt])+(?!\w)|(?<![^\s$({[=])\\+(?:[nrt]\w+|(?!\S))", COPY, COPY, None,
     r"in docs\main now", r"in docs\main now"),
    ("file", "keep", "names", r"\.(?=\w{2})", rf"(?<![\w./@-])(?:[\w.+-]{{1,64}}/){{0,9}}{_FILE}(?![\w-])", COPY, COPY, None,
     "open a/b.pdf now", "open a/b.pdf now"),
    ("folder", "keep", "names", "/", rf"(?<![\w./@-]){_FOLDER}(?:/[\w.+-]{{1,64}}){{1,9}}(?<=\w)/?",
     COPY, COPY, None, "in src/main now", "in src/main now"),
    # also an option: "--sort", but a single letter only after a word, for "-I know" begins a dialogue
    ("setting", "keep", "names", "=|--[a-z]| -[a-z]", r"(?<![\w=<>!~.&?-])-{0,2}[A-Za-z_](?:[\w.-]{0,64}\w)?=[\w./:@+-]*\w"
     r"|(?<![\w-])--[a-z][\w-]{1,64}(?<=\w)(?![\w-])|(?<=\S )-[a-z](?![\w'\u2019-])", COPY, COPY, None,
     "with --sort=size now", "with --sort=size now"),
    ("shell", "keep", "names", r"&&|\|\|", r"(?<!\S)(?:&&|\|\|)(?!\S)|(?<!\w)\w{1,64}(?:(?:&&|\|\|)\w{1,64})+", COPY, COPY, None,
     "build && go now", "build && go now"),
    # but "e/o" and "w/o" are words
    ("slash", "keep", "names", "/", r"(?<![\w./-])(?![aeiouywAEIOUYW]/[oeauOEAU])[A-Za-z]/[A-Za-z](?![\w/])", COPY, COPY, None,
     "an a/b test", "an a/b test"),
    # "iPhone" and "LinkedIn", but not German "LehrerIn" and "LehrerInnen"
    ("inner capital", "keep", "names", _INNER_CAPITAL, r"(?<!\w)\w{0,32}[a-z\xdf-\xf6\xf8-\xff]"
     r"(?!Innen|(?<!Linked)In(?!\w))[A-Z\xc0-\xd6\xd8-\xde]\w{0,32}(?!\w)", COPY, COPY, None, "my iPhone here", "my iPhone here"),
    # also in quotes or brackets; not only a joiner or a selector of a variant, which may stand between letters; ":-)"
    ("emoji", "keep", "emoji", rf"{EMOJI}|[:;]-?[)(DP/|]", rf"(?![\u200d\ufe0f](?!\u20e3)){_EMOJI}"
     rf"|[(\"'\u201c\xab]{_EMOJI}[)\"'\u201d\xbb]|(?<!\S)(?:[:;]-?\)|:-?[(DP/|])(?!\w)", "", COPY, None,
     "Yes \U0001f600 no", "Yes  no"),
    ("emphasis", "keep", "emphasis", r"\*|_|~~", EMPHASIS, ":emphasis", COPY, None, "a **bold** word", "a bold word"),
    ("numeral", "keep", "numerals", r"\d\D\d", NUMERAL, COPY, ":target_signs", None, "1,234,567 cows", "1.234.567 cows"),
    ("joined numbers", "keep", "numerals", r"-\d|\.\d+\.\d", JOINED_NUMBERS, COPY, COPY, None, "call 555-1234 now", "call 555-1234 now"),
    # of notes after a word or a mark: "word\xb9", "word*", "end.[2]", "ends(1)"; powers, as in "m\xb2"
    ("note", "keep", "signs", rf"[{_SUPERSCRIPTS}*]|[\[(][1-9]", rf"(?:(?<=[^\W_])|{_AFTER_MARK}|(?<!\S))[{_SUPERSCRIPTS}]+(?![\u1d2c-\u1dbf])"
     rf"|(?:(?<={LETTER}{{2}})|{_AFTER_MARK})(?:\[[1-9]\d{{0,2}}\]|\([1-9]\d?\))+(?!\()|(?<={LETTER}{{2}})\*{{1,3}}(?![\w*])"
     rf"|(?<={LETTER} )\([1-9]\d?\)", "", COPY, None, "the end.[2]", "the end."),
    # an author's; "<< Back", which vocabularies read as "< < Back"; blanks to fill in, as in "My name is ____"
    ("remark of author", "keep", "signs", r"\[[-s+*!?.\u2026]|\([-s+*!?.\u2026]|<<|__", r"(?<=[^\n])[\[(](?:sic|[-+*!?]|\.\.\.|\u2026)[\])]"
     r"|(?<!\S)<<(?!\S)|(?<!\w)__+(?!\w)", "", COPY, None, "he goed [sic] home", "he goed  home"),
    ("private character", "keep", "unknown", _OUR_MARKS, _OUR_MARKS, COPY, COPY, None, f"one {ITEM} two", "one Tom two"),
    # ---- form: what the model reads in another form
    ("entity", "form", "", "&", r"&(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[A-Za-z]\w{1,31});", ":entity", None, None, "a&nbsp;b", "a b"),
    # TeX's and doubled quotes
    ("doubled quote", "form", "", "''|``", r"(?<![\w'`])(?:''|``)(?=[^\s'`])|(?<=[^\s'`\d])''(?![\w'])", '"', None, None,
     "I say ``yes'' now", 'I say "yes" now'),
    ("backtick", "form", "", "`", r"(?<=[A-Za-z\xc0-\u052f])`(?=[A-Za-z\xc0-\u052f])", "'", None, None, "I don`t go", "I don't go"),
    ("space before mark", "form", "", " [,.]", r"(?<=[\w)\]\"'\u201d\u2019\xbb%]) (?=[,.](?:\s|\Z))", "", None, None,
     "one , two .", "one, two."),
    # not in code: "--sort=size,time"; Chinese has no space after one
    ("comma", "form", "", r",(?=[A-Za-z\xc0-\u052f])", r",(?<=[A-Za-z\xc0-\u052f]{2},)(?=[A-Za-z\xc0-\u052f])| ,(?=[A-Za-z\xc0-\u052f])",
     ":comma", None, None, "one,two ,three", "one, two, three"),
    # a plain hyphen would make one word of the words beside a dash
    ("glued hyphens", "form", "", "--", rf"(?<={LETTER})--(?={LETTER})", " - ", None, None, "one--two", "one - two"),
    ("glued dash", "form", "", "\u2014", r"(?<=[A-Za-z\xc0-\u052f])\u2014(?=[A-Za-z\xc0-\u052f])", " - ", None, "lacks \u2014",
     "one\u2014two", "one - two"),
    ("repeated letter", "form", "", r"(?P<twice>[a-zA-Z])(?P=twice){2}", r"(?P<letter>[a-zA-Z])(?P=letter){2,}", ":fewer", None,
     None, "it is sooo good", "it is so good"),
    ("character", "form", "", _NON_ASCII, rf"{_NON_ASCII}{COMBINING}*|[A-Za-z]{COMBINING}+", ":plain", ":typographic", None,
     "\u201cso\u201d \ufb01ne\u2026 now", '"so" fine... now'),
    # ---- late: what the vocabulary still lacks
    # a sign with its number: "\xa320", "3 \xd7 4"
    ("formula", "late", "unknown", "", rf"(?<![\w.,])(?:{_NUMBER}|{LETTER})[ \xa0\u202f]?<formula>[ \xa0\u202f]?"
     rf"(?:[+-]?{_NUMBER}|{LETTER})(?!\w)", COPY, ":target_signs", None, "if x \u2264 5 here", "if 20 here"),
    ("amount", "late", "unknown", "", rf"(?<![\w.,]){_NUMBER}[ \xa0\u202f]?(?=\W)<lacked>(?!\w)"
     rf"|(?=\W)<lacked>[ \xa0\u202f]?[+-]?{_NUMBER}(?:[kKmMbB]n?)?(?!\w)", COPY, ":target_signs", None,
     "pay \xa320 now", "pay 20 now"),
    # a capitalised word that it knows in lowercase or without accents, such as "\xc0s"
    ("lacked capital", "late", "", "", r"(?<!\w)(?=[^\W\d_])[^\W\d_]*<lacked>[^\W\d_]*", ":lowered", None, None, "\xc0 la carte",
     "\xe0 la carte"),
    # with others that follow it
    ("unknown word", "late", "unknown", "", rf"{_UNKNOWN_WORD}(?:[^\w\n{BREAK}{ITEM}.!?\u2026\u3002\uff01\uff1f]{{1,3}}{_UNKNOWN_WORD})*",
     COPY, COPY, None, "ask Brz\u0119cz now", "ask Tom now"),
    ("lacked sign", "late", "signs", "", r"(?=\W)<lacked>", "", COPY, None, "one \u2260 two", "one  two"),
    # ---- before, after: the edges of a sentence, which are copied
    # bullets, also with a box to check, "3)" and "a)", a dash before a word with a capital, as in a dialogue; an ellipsis before one
    ("bullet", "before", "", "", r"(?:(?:>\s+)*[-\u2013\u2014*+\u2022\u2023\u25aa\u25e6\u00b7>#]+|\(?(?:\d{1,3}|[A-Za-z])\))\s+(?:\[[ xX]\]\s+)?"
     rf"|[-\u2013\u2014](?=[{CAPITAL}][a-z\xdf-\xff])|(?:\.\.\.|\u2026)\s?(?=[{CAPITAL}])", "", COPY, None,
     "3) One word", "One word"),
    # "1)One", "a. One", "1 - One", "1.2.3 One", and marks of a menu's keys: "&Open", "_Open"; signs: "| Home", "(*) One"
    ("further bullet", "before", "", "", rf"(?:\d{{1,3}}\)|(?:[a-z]\.|\d{{1,3}}\s+[-\u2013\u2014]|(?:\d{{1,3}}\.){{2,3}}\d{{1,3}})\s+)(?=[{CAPITAL}])"
     rf"|[&_](?=[{CAPITAL}][a-z\xdf-\xff])|(?:[{_EDGE_SIGNS}!?,:;]+\s+|<-+|[{_STRIPPED}-]*[{_STRIPPED}])(?=[^\W\d_]|{ITEM})"
     rf"|#{{2,6}}(?=[^\W\d_])(?!\w+#)|!(?=[{CAPITAL}])|[(\[][-+*!?][)\]]\s*(?=[^\W\d_])", "", COPY, "unpaired",
     "a. One word", "One word"),
    # a list mark, unless the language writes ordinals so: "3. Oktober"
    ("number of item", "before", "", "", rf"(?:\d{{1,3}}\.)+(?:\s+|(?=[{CAPITAL}][a-z\xdf-\xff]))", "", COPY, "no ordinals",
     "1. One word", "One word"),
    # "Home |", "Next>", "(word)  ->"; but not "5 $"
    ("signs at end", "after", "", "", rf"(?:(?<=[^\W_])|(?<=[)\]\"'{ITEM}]))(?!(?<=\d)\s+\$)"
     rf"(?:\s+(?:[{_EDGE_SIGNS}]+|\.{{3,}})|[-\u2013\u2014&|=<>~^\xab\xbb\u2039\u203a]+)\Z", "", COPY, "unpaired",
     "One word |", "One word"),
    # ---- ending: several marks at the end of a sentence, in quotes or brackets, too
    ("marks", "ending", "", r"[.\u2026!?]{2}|\u2026", rf"(?:(?<=[^\W_{ITEM}]|{ITEM})(?:\u2026|[.\u2026]{{2,}})"
     rf"|(?<=[\w%{_CLOSING_MARKS}])(?=[.\u2026]*[!?])[.\u2026!?]{{2,}})(?=[{_CLOSING_MARKS}]*\Z)", ":mark", COPY, None,
     "Is it so?!", "Is it so?"),
    # ---- back: the translation
    # ? ! ; : after a word or a closing mark, where a sentence may end: not in "14:30", "a != b", ";)"; and guillemets
    ("french", "back", "", "[?!;:\xab\xbb]", rf"(?<=[\w)\]\"'\u2019\u201d\xbb%\u2026.{ITEM}{TAG_MARK}]){_FRENCH_SPACE}"
     rf"(?:(?P<high>[?!](?=[?!]*(?:[\s\"'\u201d\xbb)\]]|\Z))|;(?=\s|\Z))|(?P<colon>:)(?=\s|\Z))"
     rf"|(?<=[^\s\xab]){_FRENCH_SPACE}(?P<closing>\xbb)(?!\w)|(?P<opening>\xab){_FRENCH_SPACE}(?=[^\s\xbb])",
     ":french_spaces", None, "fr", "Vraiment?", "Vraiment\u202f?"),
))
# fmt: on

# ---- the plain equivalents of characters
PLAIN = {
    "'": "\u2018\u2019\u201a\u201b\u2032\u2035\u2039\u203a\u02bb\u02bc\u02b9\u00b4\uff07\u05f3",
    '"': "\u201c\u201d\u201e\u201f\u2033\u2036\u00ab\u00bb\u301d\u301e\u301f\u05f4",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043\u2e3a\u2e3b",
    "...": "\u2026\u22ef",
    " ": "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u2800\u3000",
    "/": "\u2044\u2215",
    "!!": "\u203c",
    "!?": "\u2049",
    "?!": "\u2048",
}
PLAIN_FORMS = {character: plain for plain, characters in PLAIN.items() for character in characters}
# soft hyphen, zero-width spaces, marks of direction, lines through letters and under them: a model reads them as the
# ends of words
INVISIBLE = frozenset(
    "\u00ad\u0332\u0335\u0336\u034f\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2061\u2062\u2063\u2064"
    "\u2066\u2067\u2068\u2069\ufe0f\ufeff"
)
# Characters that NFKC replaces without a change of meaning (it would change m² and ½): digraphs, signs of letters,
# Roman numerals, ligatures, Arabic forms, full and half width, letters of mathematics
COMPATIBLE = (
    "[\u0132\u0133\u01c4-\u01cc\u01f1-\u01f3\u2103\u2109\u2113\u2116\u2160-\u217f\ufb00-\ufb4f"
    "\ufb50-\ufdcf\ufdf0-\ufdfc\ufe70-\ufefc\uff01-\uffee\U0001d400-\U0001d7ff]"
)
# frequent in training data: models copy them reliably, and translate the words around them well
STAND_INS = {
    "name": ("Tom", "John", "Boston", "Paris", "London", "David", "Berlin", "Peter", "Anna", "Maria"),
    "amount": ("20", "30", "10", "50", "40", "100", "15", "60", "25", "80"),
    # of placeholders for numbers: the best of eight lists on 130 messages of catalogs, Portuguese and English
    "count": ("100", "200", "300", "400", "500", "600", "700", "800"),
}
# quotation marks from CLDR 48, of languages that use only one pair
_LANGUAGES_OF_QUOTES = {
    ("\u201c", "\u201d"): "da en es ga gl id ko lv ms pt th tr vi zh",
    ("\u201e", "\u201c"): "bg cs de et hr is lt mk sk sl",
    ("\u201e", "\u201d"): "bs hu pl ro sr",
    ("\u201d", "\u201d"): "fi sv",
    ("\xab", "\xbb"): "be ca el it kk nb nn no ru uk",
    ("\xab\xa0", "\xa0\xbb"): "fr",
    ("\u300c", "\u300d"): "ja",
}
QUOTES_OF_LANGUAGE = {code: quotes for quotes, codes in _LANGUAGES_OF_QUOTES.items() for code in codes.split()}
ENCLOSING = {"(": ")", "[": "]", '"': '"', "'": "'"}  # quotes are straight in the form
SIGN_PAIRS = ("<>", "\xab\xbb", "\u2039\u203a")  # a sign of a sentence with both is no sign at its edge
AROUND_ITEMS = f" \t\xa0{OPENING}{CLOSING}"

_caches: list[Any] = []
Answer = TypeVar("Answer")


def of_table(function: Callable[..., Answer], maxsize: int = 128) -> Callable[..., Answer]:
    """Remember what a function makes of the table, until `use_rows` changes it."""
    _caches.append(lru_cache(maxsize)(function))
    return cast(Callable[..., Answer], _caches[-1])


def use_rows(rows: Sequence[Row]) -> None:
    """Read texts by these rows from now on: what a row earns is measured without it."""
    global ROWS
    ROWS = tuple(rows)
    for cache in _caches:
        cache.cache_clear()


@of_table
def rows_of(*stages: str) -> tuple[Row, ...]:
    """Return the rows of some stages, in order."""
    return tuple(row for row in ROWS if row.stage in stages)

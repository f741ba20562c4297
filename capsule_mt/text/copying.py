"""Text that is copied rather than translated: a model that has to translate an emoji or a URL invents something."""

import re
from functools import lru_cache

from capsule_mt.text.sentences import UNSPACED_STOPS, Span

# Patterns are compiled at their first use: that takes milliseconds, and most texts need none of these.
URL = (  # with placeholders, or an e-mail address
    rf"(?i:https?://|www\.)(?:[^\s<>\"'{{}}\\{UNSPACED_STOPS}]|\{{[^\s{{}}]*\}})*(?:[\w/]|(?<=\}}))"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
)
# remarks of HTML, Jinja, ERB, JSP, Handlebars, JSX and Go, also over several lines: each looks no further than to the
# next beginning of its kind, for linear time
_REMARK = "|".join(
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
TAG = rf"{_REMARK}|(?<!<)</?(?:[A-Za-z][^<>]*|\d+\s*/?)>"  # of HTML, and of i18next
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
# letters above the line, and signs over a letter, which tokenizers read as plain letters or drop
_RAISED = "\u02b0-\u02b8\u02e0-\u02e4\u1d2c-\u1dbf\u2071\u207f\u20d0-\u20dc"
# code, but not from "don`t" to "can`t"; calls, members, hashtags and @users, paths, identifiers; a
# unit such as "m\xb2" that begins a line, of which models make words
CODE = (
    r"(?<![^\W\d_])(?<!`)`[^`\n]+`(?!`)|(?<!`)`[^`\s]+`(?![\w`])|(?<!`)(?:```[^`\n]+```|``(?=\S)[^`\n]*(?<=\S)``)(?!`)"
    r"|(?<!\w)\w[\w.]{0,64}(?:#\w+)?\(\)|(?<![\w.#])\w{1,64}#\w+"
    r"|(?<![\w:])[A-Za-z]\w{0,64}(?:::\w{1,64})+(?:<[\w:,*& ]{1,64}>)?(?:\(\))?"  # "std::vector<int>"
    rf"|(?<![\w&])[#@]\w+|(?<!\w)[A-Za-z]:\\(?:\S|{_SPACE_OF_PATH})+|(?<!\S)(?:~|\.{{0,2}})/\S*\w|(?<!\w)\w*[A-Za-z]_\w+"
    r"|(?<=\])\([^\s()<>]{0,64}[/.#][^\s()<>]{0,120}\)"  # the target of Markdown's "[link](docs/a.md)"
    # the version of a package: "torch==2.1", "python>=3.10,<3.14"
    r"|(?<![\w.-])[A-Za-z][\w.-]{0,64}[<>=!~]=\d(?:[\w.,<>=!~]*\w)?"
    r"|(?<![^\n])[ckm]?m[\xb2\xb3](?!\w)"
    # "a\u1d50", "10\u207f", "e\u2071\u02e3", but not ordinals and titles: "1\u02e2\u1d57", "2\u1d49", "M\u1d50\u1d49"
    rf"|(?<![^\W_])(?:[a-z]|[A-Z\d]+(?!\w{{2}}|[\u1d43\u1d49\u02b3\u1d52]))[{_RAISED}]+(?![a-z])"
    # a backslash with what is glued to it: "docs\main", "\alpha", "caf\u00e9"; "docs\notes.txt", "src\new\test"; "\n"
    r"|(?<![\w\\.-])[\w.-]*(?:\\{1,2}[\w.-]+)*?\\{1,2}(?![nrt])\w(?:[\w.\\-]*\w)?"
    rf"|(?<![\w\\.-])[\w.-]+(?:(?:\\[\w-]+)+\.[a-z]\w*|(?:\\[nrt][a-z][\w-]*){{2,}}|{_FOLDER_NAME})"
    r"|(?:\\{1,2}[nrt])+(?!\w)|(?<![^\s$({[=])\\+(?:[nrt]\w+|(?!\S))"
)
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
# "report.pdf", "docs/a.md", "src/main"; "A=B", "--sort=size"; "&&"; "a/b", but not "e/o" and "w/o", which are words;
# "iPhone" and "LinkedIn", but not German "LehrerIn" and "LehrerInnen". Unlike code, a translation may have such names
# where its source has none.
NAMES = (
    rf"(?<![\w./@-])(?:[\w.+-]{{1,64}}/){{0,9}}{_FILE}(?![\w-])"
    rf"|(?<![\w./@-]){_FOLDER}(?:/[\w.+-]{{1,64}}){{1,9}}(?<=\w)/?"
    r"|(?<![\w=<>!~.&?-])-{0,2}[A-Za-z_](?:[\w.-]{0,64}\w)?=[\w./:@+-]*\w"
    r"|(?<!\S)(?:&&|\|\|)(?!\S)|(?<!\w)\w{1,64}(?:(?:&&|\|\|)\w{1,64})+"
    r"|(?<![\w./-])(?![aeiouywAEIOUYW]/[oeauOEAU])[A-Za-z]/[A-Za-z](?![\w/])"
    r"|(?<!\w)\w{0,32}[a-z\xdf-\xf6\xf8-\xff](?!Innen|(?<!Linked)In(?!\w))[A-Z\xc0-\xd6\xd8-\xde]\w{0,32}(?!\w)"
)
# line breaks and tabs as programs write them, "One.\nTwo", but not in a path TeX, or quoted alone: they end a sentence
BREAK = (
    r"(?:(?<=[^\s\\$({[=])\\[nrt](?![a-z][\w-]*(?:(?:\.|\\[a-z])[a-z]|\{)|[\"'`)\u201d\xbb])"
    r"|(?<!\S)\\n(?=[A-Z\xc0-\xde]))"
)
NON_WORDS = rf"{URL}|{TAG}|{PLACEHOLDER}|{BREAK}|{CODE}|{NAMES}"
# `NON_WORDS` matches only around these; without "10:30", "and/or" and "5 %", which are frequent
NON_WORD_SIGNS = (  # each begins with one character, so that a search skips all others quickly
    rf"[{_RAISED}]|`"
    r"|<|@|\{|#|_|\\|\*|~~|\[\[|\[%|\(\)|\]\(|=(?<=[>=!~\w]=)|\xb2(?<=m.)|\xb3(?<=m.)"
    r"|&(?=&)|\|(?=\|)|[A-Z\xc0-\xde](?<=[a-z\xdf-\xff].)|\.(?=\w{2})|/(?<=(?<!\w)[A-Za-z]/)|/(?<=[bcgnprst]/)(?=\w)"
    r"|\.(?<=[wW]{3}.)|:(?=[A-Za-z_()|/-])|;(?=-?\))|!(?=[a-z_])"
    r"|\$(?=[A-Za-z_])|%(?=[\w(<+#*@%-]|\.[\d*])|/(?<![^\s.~]/)"
)
# most sentences: Latin, Greek and Cyrillic letters, and marks of which no number consists, and no item but "www."
ORDINARY = re.compile("[A-Za-z\xc0-\u052f ,.;?'\"-]*")
IN_ORDINARY = r"\.(?=[^\W\d_])|[A-Z\xc0-\xde](?<=[a-z\xdf-\xff].)"  # only around these, it may have an item after all
# with circled letters and numbers, and the information sign, which tokenizers read as plain ones
EMOJI = (
    "[\xa9\xae\u2122\u2139\u2460-\u24ff\u3250-\u32bf\U0001f000-\U0001faff\u2600-\u27bf\u2b00-\u2bff\ufe0f\u200d\u20e3"
    "\U000e0020-\U000e007f]"
)
# bullets, "3)" and "a)", checkboxes, a dash before a word with a capital, as in a dialogue; times as in "[12:30]",
# "[...]", "> >", numbers of sections, an ellipsis or @users before a word with a capital
LIST_MARK = (
    r"(?:(?:>\s+)*[-\u2013\u2014*+\u2022\u2023\u25aa\u25e6\u00b7>#]+|\(?(?:\d{1,3}|[A-Za-z])\))\s+(?:\[[ xX]\]\s+)?"
    r"|\[[ xX]\]\s+|[-\u2013\u2014](?=[A-Z\xc0-\xde][a-z\xdf-\xff])|(?:\.\.\.|\u2026)\s?(?=[A-Z\xc0-\xde])"
    r"|(?:@\w+[,:]?\s+)+(?=[\"'(]?[A-Z\xc0-\xde])"
    r"|(?:\[\d\d?:\d\d(?::\d\d)?\]|\d\d?:\d\d\s+[-\u2013\u2014]|\[(?:\.\.\.|\u2026)\]"
    r"|(?:\d{1,3}\.){2,3}\d{1,3}(?=\s+[A-Z\xc0-\xde]))\s+"
)
_EDGE_SIGNS = r"-\u2013\u2014*+#&/<=>\\^|~$\xab\xbb\u2039\u203a\xb7\u2022\u2023\u2190-\u21ff\u25a0-\u25ff"
# "1)One", "a. One", "1 - One", and marks of a menu's keys: "&Open", "_Open"; other signs before a word: "| Home",
# ">Next", "!Important", "(*) One"
FURTHER_LIST_MARK = (
    r"(?:\d{1,3}\)|(?:[a-z]\.|\d{1,3}\s+[-\u2013\u2014])\s+)(?=[A-Z\xc0-\xde])|[&_](?=[A-Z\xc0-\xde][a-z\xdf-\xff])"
    rf"|(?:[{_EDGE_SIGNS}!?,:;]+\s+|<-+|[*+=|~^<>\xab\xbb\u2039\u203a-]*[*+=|~^<>\xab\xbb\u2039\u203a])(?=[^\W\d_])"
    r"|#{2,6}(?=[^\W\d_])(?!\w+#)"
    r"|!(?=[A-Z\xc0-\xde])|[(\[][-+*!?][)\]]\s*(?=[^\W\d_])"
)
# signs after the last word: "Home |", "Next>", "(word)  ->"; but not "5 $"
SIGNS_AT_END = (
    r"(?:(?<=[^\W_])|(?<=[)\]\"']))(?!(?<=\d)\s+\$)"
    rf"(?:\s+(?:[{_EDGE_SIGNS}]+|\.\.\.)|[-\u2013\u2014&|=<>~^\xab\xbb\u2039\u203a]+)\Z"
)
SIGN_PAIRS = ("<>", "\xab\xbb", "\u2039\u203a")  # a sign of a sentence with both is no sign at its edge
# "1. One", "1.One": a list mark, unless the language writes ordinals so: "3. Oktober"
NUMBERED = r"(?:\d{1,3}\.)+(?:\s+|(?=[A-Z\xc0-\xde][a-z\xdf-\xff]))"
# the leader and the page of a table of contents: "One ..... 12"
LEADER = r"(?<!\s)(?:\s*(?<!\.)\.{4,}\s?\d{1,4}|\s+\.{4,})\Z"
EMOJI_BEFORE = rf"(?:{EMOJI}+\s*)+"


@lru_cache(maxsize=8)  # several steps look at the same text
def is_ordinary(text: str) -> bool:
    """Whether a text surely has no numbers, and no items that are kept: a fast check before the rules about both."""
    # "www.a.de", "a.txt", "iPhone"
    return ORDINARY.fullmatch(text) is not None and re.search(IN_ORDINARY, text) is None


@lru_cache(maxsize=8)
def may_have_non_words(text: str) -> bool:
    """Whether `NON_WORDS` may match in a text: a fast check before the slow pattern."""
    return not is_ordinary(text) and re.search(NON_WORD_SIGNS, text) is not None


@lru_cache(maxsize=8)
def has_signed_numbers(text: str) -> bool:
    """Whether a text has a sign between two digits, as in "3.5": a fast check before the patterns of such numbers."""
    return not is_ordinary(text) and re.search(r"\d\D\d", text) is not None


def lacks_words(text: str) -> bool:
    """Whether a text has nothing to translate: no letters outside URLs, tags, placeholders and code."""
    if not any(map(str.isalpha, text)):
        return True
    return may_have_non_words(text) and not any(map(str.isalpha, re.sub(NON_WORDS, " ", text)))


def without_copied_edges(text: str, sentence: Span, has_ordinals: bool = True) -> Span:
    """Return a sentence without list marks before it and emoji around it, which are copied.

    The span is empty if nothing remains to translate.

    has_ordinals: the language writes ordinal numbers with a full stop, so "3." may belong to the sentence.
    """
    start, end = sentence
    if lacks_words(text[start:end]):
        return Span(start, start)
    if not text[start : start + 2].isalpha():
        patterns = (LIST_MARK, FURTHER_LIST_MARK, EMOJI_BEFORE)
        for pattern in patterns if has_ordinals else (*patterns, NUMBERED):
            match = re.compile(pattern).match(text, start, end)
            start = match.end() if match and not _has_pair(match[0], text[start:end]) else start
    if end - start > 1 and not text[end - 1].isalnum() and (signs := re.search(SIGNS_AT_END, text[start:end])):
        end -= 0 if _has_pair(signs[0], text[start:end]) else len(signs[0])
    if "...." in text[start:end] and (leader := re.search(LEADER, text[start:end])):
        end = start + leader.start()
    if text[end - 1] > "\u1fff":  # emoji have higher code points
        emoji = re.compile(EMOJI)
        if emoji.match(text, end - 1):  # a loop, since a pattern anchored at the end takes quadratic time
            while text[end - 1].isspace() or emoji.match(text, end - 1):
                end -= 1
    return Span(start, end)


def _has_pair(signs: str, sentence: str) -> bool:
    """Whether some of the signs may be one of a pair of brackets or quotes in the sentence."""
    return any(not {*pair}.isdisjoint(signs) and {*pair}.issubset(sentence) for pair in SIGN_PAIRS)

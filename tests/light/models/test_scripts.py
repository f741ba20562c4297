"""Shortlists by script: which tokens a language can be written with."""

import unicodedata

import pytest

from capsule_mt.models.scripts import KNOWN_NAMES, SCRIPT_NAMES, ScriptShortlist, names_of

LANGUAGES = {"deu_Latn": 900, "rus_Cyrl": 901, "zho_Hans": 902, "jpn_Jpan": 903, "hin_Deva": 904, "uzn_Latn": 905,
             "sr": 906, "kor_Hang": 907}  # fmt: skip
UZBEK = "o\N{MODIFIER LETTER TURNED COMMA}"  # a letter of no script
TOKENS = ["▁", "▁Haus", "ß", "▁дом", "д", "▁房子", "房", "のは", "住む", "カード", "▁42", "...", "▁घर", "▁हिंदी", UZBEK,
          "▁집은", "aд", "€", "π", "ππ", "<unk>", "<0x41>"]  # fmt: skip
COMMON = {"▁", "▁42", "...", "€", "ß", "д", "房", "π", "<unk>", "<0x41>"}  # no letters, a single character, or a byte
ALLOWED = {
    "deu_Latn": {"▁Haus", UZBEK},
    "uzn_Latn": {"▁Haus", UZBEK},
    "rus_Cyrl": {"▁дом"},
    "zho_Hans": {"▁房子"},
    "jpn_Jpan": {"▁房子", "のは", "住む", "カード"},
    "hin_Deva": {"▁घर", "▁हिंदी"},
    "sr": {"▁дом", "▁Haus", UZBEK, "aд"},
    "kor_Hang": {"▁집은"},
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_tokens_of_a_language(language):
    shortlist = ScriptShortlist(dict(enumerate(TOKENS)), LANGUAGES, start=0)
    tokens = shortlist.of_source([1, 2], 500, LANGUAGES[language], 3)
    assert list(tokens) == sorted(tokens)
    assert {500, LANGUAGES[language]} == {token for token in tokens if token >= len(TOKENS)}
    assert {TOKENS[token] for token in tokens if token < len(TOKENS)} == COMMON | ALLOWED[language] | {TOKENS[3]}
    assert shortlist.of_source([7], 500, LANGUAGES[language], 3) is tokens
    with pytest.raises(ValueError, match="a translation that begins with its language's token"):
        shortlist.of_source([1], 500)
    with pytest.raises(ValueError, match=f"the shortlist: token {2**40} is outside the vocabulary"):
        shortlist.of_source([1], 2**40, LANGUAGES[language])


def test_every_script_of_nllb_has_characters_of_its_names():
    names = {unicodedata.name(chr(code), "").partition(" ")[0] for code in range(0x30000) if chr(code).isalpha()}
    assert names >= KNOWN_NAMES
    assert all(names_of(f"xxx_{script.title()}") == frozenset(SCRIPT_NAMES[script]) for script in SCRIPT_NAMES)
    assert names_of("de_DE") == names_of("vi") == {"LATIN"}
    assert names_of("zh_CN") == names_of("zh") == {"CJK"}

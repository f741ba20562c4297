"""English names of languages, their codes of two letters, and codes with a region or a script."""

import re

LANGUAGES = {
    "af": "Afrikaans",
    "ar": "Arabic",
    "az": "Azerbaijani",
    "be": "Belarusian",
    "bg": "Bulgarian",
    "bn": "Bengali",
    "bs": "Bosnian",
    "ca": "Catalan",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "et": "Estonian",
    "eu": "Basque",
    "fa": "Persian",
    "fi": "Finnish",
    "fr": "French",
    "ga": "Irish",
    "gl": "Galician",
    "gu": "Gujarati",
    "he": "Hebrew",
    "hi": "Hindi",
    "hr": "Croatian",
    "hu": "Hungarian",
    "hy": "Armenian",
    "id": "Indonesian",
    "is": "Icelandic",
    "it": "Italian",
    "ja": "Japanese",
    "ka": "Georgian",
    "kk": "Kazakh",
    "kn": "Kannada",
    "ko": "Korean",
    "lt": "Lithuanian",
    "lv": "Latvian",
    "mk": "Macedonian",
    "ml": "Malayalam",
    "mr": "Marathi",
    "ms": "Malay",
    "mt": "Maltese",
    "nb": "Norwegian",
    "nl": "Dutch",
    "nn": "Norwegian Nynorsk",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sk": "Slovak",
    "sl": "Slovenian",
    "sq": "Albanian",
    "sr": "Serbian",
    "sv": "Swedish",
    "sw": "Swahili",
    "ta": "Tamil",
    "te": "Telugu",
    "th": "Thai",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "ur": "Urdu",
    "vi": "Vietnamese",
    "zh": "Chinese",
    "zh_hant": "Traditional Chinese",
}

# The three-letter codes of NLLB-200. A language such as Standard Arabic (arb) has the code of its macrolanguage (ar);
# Norwegian (no) counts as Bokmål.
TWO_LETTER_CODES = dict(
    pair.split(":")
    for pair in """
    afr:af aka:ak als:sq amh:am arb:ar asm:as ayr:ay azj:az bak:ba bam:bm bel:be ben:bn bod:bo bos:bs bul:bg cat:ca
    ces:cs cym:cy dan:da deu:de dzo:dz ell:el eng:en epo:eo est:et eus:eu ewe:ee fao:fo fij:fj fin:fi fra:fr fuv:ff
    gaz:om gla:gd gle:ga glg:gl grn:gn guj:gu hat:ht hau:ha heb:he hin:hi hrv:hr hun:hu hye:hy ibo:ig ind:id isl:is
    ita:it jav:jv jpn:ja kan:kn kas:ks kat:ka kaz:kk khk:mn khm:km kik:ki kin:rw kir:ky kmr:ku knc:kr kon:kg kor:ko
    lao:lo lim:li lin:ln lit:lt ltz:lb lug:lg lvs:lv mal:ml mar:mr mkd:mk mlt:mt mri:mi mya:my nld:nl nno:nn no:nb
    nob:nb npi:ne nso:ns nya:ny oci:oc ory:or pan:pa pbt:ps pes:fa plt:mg pol:pl por:pt quy:qu ron:ro run:rn rus:ru
    sag:sg san:sa sin:si slk:sk slv:sl smo:sm sna:sn snd:sd som:so sot:st spa:es srd:sc srp:sr ssw:ss sun:su swe:sv
    swh:sw tam:ta tat:tt tel:te tgk:tg tgl:tl tha:th tir:ti tsn:tn tso:ts tuk:tk tur:tr twi:tw uig:ug ukr:uk urd:ur
    uzn:uz vie:vi wol:wo xho:xh ydd:yi yor:yo zho:zh zsm:ms zul:zu
    """.split()  # noqa: SIM905
)

# codes of three letters, most of them of NLLB-200, for members of a language with a code of two letters
MEMBERS = dict(
    pair.split(":")
    for pair in """
    acm:ar acq:ar aeb:ar ajp:ar apc:ar ars:ar ary:ar arz:ar azb:az bjn:ms ckb:ku cmn:zh ltg:lv min:ms prs:fa yue:zh
    """.split()  # noqa: SIM905
)
# the others of NLLB-200 without a code of two letters; other codes of three letters may be of a group, such as "gmw"
OTHER_LANGUAGES = frozenset(
    """
    ace ast awa ban bem bho bug ceb cjk crh dik dyu fon fur hne ilo kab kac kam kbp kea kmb lij lmo lua luo lus mag mai
    mni mos nus pag pap sat scn shn szl taq tpi tum tzm umb vec war
    """.split()  # noqa: SIM905
)

# a code with a region or a script, in their usual case: pt-BR, pt_BR, es-419, zh-Hant, zh-Hant-TW
REGION = "(?:[A-Z]{2}|[0-9]{3})"
TAG = rf"(?P<language>[a-z]{{2,3}})[-_](?P<subtag>{REGION}|[A-Z][a-z]{{3}})(?:[-_]{REGION})?"
KNOWN_CODES = {*LANGUAGES, *TWO_LETTER_CODES, *TWO_LETTER_CODES.values(), *MEMBERS, *OTHER_LANGUAGES}
TRADITIONAL_CHINESE = ("tw", "hk", "mo", "hant")
SEVERAL_SCRIPTS = frozenset(("zh", "ks", "kr", "ace", "bjn", "min", "taq"))  # in NLLB-200 or Flores-200


def without_region(code: str) -> str:
    """Return a code without its region or script, as models have it: "pt" for "pt-BR"; but "zh_hant" for "zh-TW".

    Upper and lower case mean the same, as in BCP 47.
    """
    tag = re.fullmatch(TAG, code, re.IGNORECASE) if "-" in code or "_" in code else None
    if tag is None:
        return code
    language, subtag = tag["language"].lower(), tag["subtag"].lower()
    return "zh_hant" if language == "zh" and subtag in TRADITIONAL_CHINESE else language


def is_known_language(code: str) -> bool:
    """Return whether this is the code of a language of our tables, also with a region or a script."""
    return without_region(code.lower()) in KNOWN_CODES


def language_of(code: str | None) -> str:
    """Return the language of a code such as "pt_BR", "deu" or "de_DE.UTF-8", in two letters if possible."""
    match = re.match(r"[A-Za-z]{2,3}(?![A-Za-z])", code or "")
    language = match[0].lower() if match else ""
    return TWO_LETTER_CODES.get(language, language)


def file_code(code: str) -> str:
    """Return how a file states a language that has a code of NLLB-200: "de" for "deu_Latn", but "zh_Hant"."""
    match = re.fullmatch(r"([a-z]{3})_([A-Z][a-z]{3})", code)
    if match is None:
        return code
    language = TWO_LETTER_CODES.get(match[1], match[1])
    return f"{language}_{match[2]}" if language in SEVERAL_SCRIPTS else language


def check_language(argument: str, language: str | None, model_language: str, name: str) -> None:
    """Raise an error if a call names a language without a code, or one that surely is not the model's.

    Args:
        argument: the name of the argument, for the error.
        name: the model and its pair, for the error.
    """
    if language and language != model_language and not language_of(language.strip("_")):
        raise ValueError(
            f"`{argument}` must be a code such as {model_language}, or left out, got {language!r}: {name}"
        )
    if is_surely_other_language(language, model_language):
        raise ValueError(
            f"`{argument}` must be {model_language} or left out, got {language!r}: {name}; for another language, "
            "choose another model"
        )


def is_surely_other_language(code: str | None, other_code: str | None) -> bool:
    """Return whether two codes cannot mean the same language; a group of languages such as "gmw" may contain one."""
    languages = [language_of(code), language_of(other_code)]
    codes = [MEMBERS.get(language, language) for language in languages]
    return is_other_language(*codes) and all(len(code) == 2 or code in OTHER_LANGUAGES for code in codes)


def is_other_language(code: str | None, other_code: str | None) -> bool:
    """Return whether both codes name a language, and not the same one; the codes of Norwegian are the same."""
    languages = {language_of(code), language_of(other_code)}
    return "" not in languages and len(languages) > 1 and not languages <= {"no", "nb", "nn"}

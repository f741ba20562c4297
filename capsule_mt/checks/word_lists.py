"""Words that `checks` looks for, by language: numbers, months, weekdays, names of signs, negations."""

import re
from typing import NamedTuple

_NUMBER_WORDS = {
    "de": "null|eins erste ersten erster erstes einmal|zwei zweite zweiten zweiter zweimal|drei dritte dritten "
    "dritter dreimal|vier vierte vierten|fünf fünfte fünften|sechs sechste sechsten|sieben siebte "
    "siebten|acht achte achten|neun neunte neunten|zehn zehnte zehnten|elf elfte|zwölf zwölfte dutzend",
    "en": "zero|one first once|two second twice|three third|four fourth|five fifth|six sixth|seven seventh|"
    "eight eighth|nine ninth|ten tenth|eleven eleventh|twelve twelfth dozen",
    "es": "cero|primer primera primero|dos segundo segunda|tres tercer tercera tercero|cuatro cuarto cuarta|"
    "cinco quinto quinta|seis sexto sexta|siete séptimo séptima|ocho octavo octava|nueve noveno novena|"
    "diez décimo décima|once|doce docena",
    "fr": "zéro|premier première 1er|deux deuxième second seconde|trois troisième|quatre quatrième|cinq "
    "cinquième|six sixième|sept septième|huit huitième|neuf neuvième|dix dixième|onze onzième|douze "
    "douzième midi minuit",
    "it": "zero|primo prima|due secondo seconda|tre terzo terza|quattro quarto quarta|cinque quinto quinta|sei "
    "sesto sesta|sette settimo settima|otto ottavo ottava|nove nono nona|dieci decimo decima|undici|"
    "dodici dozzina",
    "nl": "nul|één eerste|twee tweede|drie derde|vier vierde|vijf vijfde|zes zesde|zeven zevende|acht achtste|"
    "negen negende|tien tiende|elf|twaalf dozijn",
    "pt": "zero|primeiro primeira|dois duas segundo segunda|três terceiro terceira|quatro quarto quarta|cinco "
    "quinto quinta|seis sexto sexta|sete sétimo sétima|oito oitavo oitava|nove nono nona|dez décimo "
    "décima|onze|doze dúzia meio-dia meia-noite",
}
_TENS = {
    "de": "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig hundert",
    "en": "twenty thirty forty fifty sixty seventy eighty ninety hundred",
    "es": "veinte treinta cuarenta cincuenta sesenta setenta ochenta noventa cien",
    "fr": "vingt trente quarante cinquante soixante soixante-dix quatre-vingts quatre-vingt-dix cent",
    "it": "venti trenta quaranta cinquanta sessanta settanta ottanta novanta cento",
    "nl": "twintig dertig veertig vijftig zestig zeventig tachtig negentig honderd",
    "pt": "vinte trinta quarenta cinquenta sessenta setenta oitenta noventa cem",
}
_TEENS = {
    "de": "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
    "en": "thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
    "es": "trece catorce quince dieciséis diecisiete dieciocho diecinueve",
    "fr": "treize quatorze quinze seize dix-sept dix-huit dix-neuf",
    "it": "tredici quattordici quindici sedici diciassette diciotto diciannove",
    "nl": "dertien veertien vijftien zestien zeventien achttien negentien",
    "pt": "treze quatorze quinze dezesseis dezessete dezoito dezenove",
}
# the number that each word stands for, by language
NUMBER_WORDS: dict[str, dict[str, int]] = {
    language: {
        **{word: value for value, words in enumerate(numbers.split("|")) for word in words.split()},
        **{word: 13 + index for index, word in enumerate(_TEENS[language].split())},
        **{word: 20 + 10 * index for index, word in enumerate(_TENS[language].split())},
    }
    for language, numbers in _NUMBER_WORDS.items()
}

_MONTHS = {
    "de": "januar januars jänner jänners|februar februars feber|märz|april aprils|mai|juni junis|juli julis|"
    "august augusts|september septembers|oktober oktobers|november novembers|dezember dezembers",
    "en": "january january's|february february's|march march's|april april's|may may's|june june's|july july's|"
    "august august's|september september's|october october's|november november's|december december's",
    "es": "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre setiembre|octubre|noviembre|diciembre",
    "fr": "janvier|février|mars|avril d'avril|mai|juin|juillet|août aout d'août|septembre|octobre d'octobre|"
    "novembre|décembre",
    "pt": "janeiro|fevereiro|março|abril|maio|junho|julho|agosto|setembro|outubro|novembro|dezembro",
}
# from Monday on; Portuguese names most of them by ordinal numbers: "segunda" is Monday or second
_WEEKDAYS = {
    "de": "montag|dienstag|mittwoch|donnerstag|freitag|samstag sonnabend|sonntag",
    "en": "monday|tuesday|wednesday|thursday|friday|saturday|sunday",
    "es": "lunes|martes|miércoles|jueves|viernes|sábado sábados|domingo domingos",
    "fr": "lundi lundis|mardi mardis|mercredi mercredis|jeudi jeudis|vendredi vendredis|samedi samedis|"
    "dimanche dimanches",
    "pt": "segunda segundas segunda-feira segundas-feiras|terça terças terça-feira terças-feiras|"
    "quarta quartas quarta-feira quartas-feiras|quinta quintas quinta-feira quintas-feiras|"
    "sexta sextas sexta-feira sextas-feiras|sábado sábados|domingo domingos",
}
# what a name of a weekday may end in; not "-e" in German, as "Montage" is assembly, too
_WEEKDAY_ENDINGS = {
    "de": " s es abend abends morgen morgens mittag mittags nachmittag nachmittags vormittag vormittags nacht nachts",
    "en": " s 's",
}
# English names of months that are verbs, too, unless they have a capital within a sentence
VERBS = ("march", "may")


def _values_of_names(names_by_language: dict[str, str], endings: dict[str, str]) -> dict[str, dict[str, int]]:
    """Return the value of each name with each ending, from 1, by language."""
    return {
        language: {
            name + ending: value
            for value, names in enumerate(values.split("|"), start=1)
            for name in names.split()
            for ending in endings.get(language, "").split(" ")
        }
        for language, values in names_by_language.items()
    }


MONTHS = _values_of_names(_MONTHS, {})
WEEKDAYS = _values_of_names(_WEEKDAYS, _WEEKDAY_ENDINGS)

# articles that may be the number one, too
ARTICLES = {
    language: frozenset(words.split())
    for language, words in {
        "de": "ein eine einen einem einer eines",
        "en": "a an",
        "es": "un una uno",
        "fr": "un une",
        "it": "un uno una",
        "nl": "een",
        "pt": "um uma",
    }.items()
}

# parts of larger numbers in words: "trezentos", "half past two"
LARGE_NUMBER = re.compile(
    r"hund(?:ert|red)|t(?:h?ous|aus)and|million|milhão|millón|milion|miljo|halb|half|viertel|quarter|meia|media|demi|mezz|"
    r"cent|ciento|mil\b|mille|mila|"
    + "|".join(word for table in (_TENS, _TEENS) for words in table.values() for word in words.split()),
    re.IGNORECASE,
)

# parts of words that stand for a sign, in any language
SIGN_NAMES = {
    "$": ("dollar", "dólar", "usd", "peso", "доллар"),
    "€": ("euro", "eur", "евро"),
    "£": ("pound", "pfund", "libra", "livre", "sterlin", "gbp", "pond", "фунт"),
    "¥": ("yen", "yuan", "jpy", "cny", "иен"),
    "₹": ("rupee", "rupie", "rupia", "roupie", "inr"),
    "₽": ("rubel", "rouble", "ruble", "rublo", "rub", "руб"),
    "%": ("percent", "per cent", "prozent", "por cento", "por ciento", "pour cent", "per cento", "procent", "процент"),
    "°": ("degree", "grad", "grau", "degré", "graden", "градус", "º"),
    "×": (" x ", "times", "mal", "vezes", "fois", "veces", "volte", "*"),
    "÷": ("divided", "geteilt", "dividid", "divisé", ":"),
    "±": ("plus",),
    "≤": ("<=", "at most", "höchstens"),
    "≥": (">=", "at least", "mindestens"),
    "≠": ("!=",),
    "→": ("->",),
    "←": ("<-",),
    "§": ("section", "paragra", "article", "abs"),
    "©": ("copyright", "(c)"),
    "®": ("(r)",),
    "™": ("(tm)",),
}

NOTHING = r"(?!)"  # matches no text


class NegationWords(NamedTuple):
    """Patterns of words in a language.

    sure: words that negate.
    firm: words that may translate a negation, `sure` ones included.
    weak: words that may translate one, but do so in few texts, such as those that begin with "in".
    """

    sure: str
    firm: str
    weak: str = NOTHING


NEGATION = {
    "de": NegationWords(
        r"\b(?:nicht|kein|keine[rnms]?|niemand|niemals)\b",
        r"\b(?:nichts?|kein\w*|nie\w*|nirgend\w*|ohne|weder|kaum|nein|außer|fehl\w*|miss\w*|selten|wenig\w*|anstatt|statt|"
        r"verbot\w*|leer|weiger\w*|vermeid\w*|egal|vergiss\w*|vergess\w*|verpass\w*|verweiger\w*|sonst|trotz\w*|\w*frei|"
        r"\w*arm|nö|nee|lieber|aufhör\w*)\b",
        r"\b(?:un(?!d\b|s\b|ser|ter)\w+|\w+los\w*|nur|bis|zu|bevor|falls|ob|hör\w*|halt\w*|lass\w*|oder|gelt|ander\w+|"
        r"erst|fast)\b",
    ),
    "en": NegationWords(
        r"\b(?:not|never|nobody|cannot|\w+n\\?['’]t)\b",
        r"\b(?:not|no|never|no[- ]?one|nobody|nothing|none|nowhere|neither|nor|cannot|\w+n\\?['’]t|without|unless|"
        r"\w+less\w*|hardly|barely|fail\w*|lack\w*|refus\w*|avoid\w*|except|miss\w*|den[iy]\w*|forg[eo]t\w*|rarely|"
        r"seldom|non\w*|run out|ran out|out of|anymore|scarce\w*|doubt|hate\w*|dislike\w*|nah|nope|"
        r"dont|cant|wont|isnt|ain)\b",
        r"\b(?:un(?!less|til)\w+|in(?!to\b)\w+|im\w+|ir\w+|dis\w+|il\w+|mis(?!s)\w+|only|but|rather|stop\w*|until|"
        r"instead|few|little|too|any\w*|ever|free|before|other\w*|or|keep|leave|whether|off|beyond|far|else)\b",
    ),
    "es": NegationWords(
        r"\b(?:no|nunca|jamás|nadie)\b",
        r"\b(?:no|nunca|jamás|nad\w+|ning\w+|sin|ni|tampoco|in\w+|im\w+|des\w+)\b",
    ),
    "fr": NegationWords(
        r"\b(?:ne\s|n['’])\S+\s(?:\S+\s)?(?:pas|jamais|plus)\b",
        r"\b(?:ne|n['’]\w*|pas|jamais|rien|aucun\w*|personne|sans|ni|non|sauf|manqu\w*|guère|évit\w*|refus\w*)\b",
        r"\b(?:in\w+|im\w+|dé\w+|mal\w*|peu|trop|avant|seul\w*|arrêt\w*|il\w+|ir\w+)\b",
    ),
    "it": NegationWords(
        r"\b(?:non|nessuno|mai)\b",
        r"\b(?:non|nessun\w*|mai|niente|nulla|senza|né|no|in\w+|im\w+|dis\w+|s\w+)\b",
    ),
    "nl": NegationWords(
        r"\b(?:niet|geen|nooit|niemand)\b",
        r"\b(?:niet|geen|nooit|niemand|niets|zonder|noch|nergens|on\w+|nee)\b",
    ),
    "pt": NegationWords(
        r"\b(?:não|nunca|jamais|ninguém)\b",
        r"\b(?:não|nunca|jamais|ningu[ée]m|nada|nenhum\w*|sem|nem|exceto|falt\w*|recus\w*|evit\w*|tampouco|raramente|"
        r"esque\w*|perd\w*|senão)\b",
        r"\b(?:in\w+|im\w+|des\w+|ir\w+|il\w+|pouc\w+|só|apenas|mal|antes|até|mas|demais|deix\w*|parar|pare|parou|"
        r"par[ae] de|ou|qualquer|outr\w+|além)\b",
    ),
}

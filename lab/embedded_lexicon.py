"""The words of the embedded corpus: a few hundred, English and German, with the forms that its grammar needs."""

from typing import NamedTuple


class Noun(NamedTuple):
    """A countable noun. Gender: m, f or n. The German plural is in the nominative; the grammar derives the dative."""

    english: str
    english_plural: str
    german: str
    german_plural: str
    gender: str


class Verb(NamedTuple):
    """A verb. English: base form, third person, past participle. German: infinitive, third person singular, past
    participle, auxiliary of the perfect (h haben, s sein), and the separable prefix.

    The German forms lack the prefix: aufheben is "heben", "hebt", "gehoben" with the prefix "auf".
    """

    english: str
    english_third: str
    english_participle: str
    german: str
    german_third: str
    german_participle: str
    auxiliary: str = "h"
    prefix: str = ""


class Adjective(NamedTuple):
    """An adjective. The German form is the stem that takes endings; after "to be" it stands alone."""

    english: str
    german: str
    predicative_ending: str = ""


PEOPLE = [
    Noun("man", "men", "Mann", "Männer", "m"),
    Noun("woman", "women", "Frau", "Frauen", "f"),
    Noun("child", "children", "Kind", "Kinder", "n"),
    Noun("girl", "girls", "Mädchen", "Mädchen", "n"),
    Noun("teacher", "teachers", "Lehrer", "Lehrer", "m"),
    Noun("doctor", "doctors", "Ärztin", "Ärztinnen", "f"),
    Noun("neighbour", "neighbours", "Nachbarin", "Nachbarinnen", "f"),
    Noun("baker", "bakers", "Bäcker", "Bäcker", "m"),
    Noun("farmer", "farmers", "Bäuerin", "Bäuerinnen", "f"),
    Noun("guest", "guests", "Gast", "Gäste", "m"),
    Noun("friend", "friends", "Freund", "Freunde", "m"),
    Noun("sister", "sisters", "Schwester", "Schwestern", "f"),
    Noun("brother", "brothers", "Bruder", "Brüder", "m"),
    Noun("mother", "mothers", "Mutter", "Mütter", "f"),
    Noun("father", "fathers", "Vater", "Väter", "m"),
    Noun("uncle", "uncles", "Onkel", "Onkel", "m"),
    Noun("aunt", "aunts", "Tante", "Tanten", "f"),
    Noun("king", "kings", "König", "Könige", "m"),
    Noun("queen", "queens", "Königin", "Königinnen", "f"),
    Noun("thief", "thieves", "Dieb", "Diebe", "m"),
    Noun("painter", "painters", "Malerin", "Malerinnen", "f"),
    Noun("driver", "drivers", "Fahrer", "Fahrer", "m"),
    Noun("singer", "singers", "Sängerin", "Sängerinnen", "f"),
    Noun("judge", "judges", "Richter", "Richter", "m"),
    Noun("pupil", "pupils", "Schülerin", "Schülerinnen", "f"),
    Noun("cook", "cooks", "Koch", "Köche", "m"),
]

THINGS = [
    Noun("book", "books", "Buch", "Bücher", "n"),
    Noun("letter", "letters", "Brief", "Briefe", "m"),
    Noun("apple", "apples", "Apfel", "Äpfel", "m"),
    Noun("cup", "cups", "Tasse", "Tassen", "f"),
    Noun("table", "tables", "Tisch", "Tische", "m"),
    Noun("chair", "chairs", "Stuhl", "Stühle", "m"),
    Noun("lamp", "lamps", "Lampe", "Lampen", "f"),
    Noun("picture", "pictures", "Bild", "Bilder", "n"),
    Noun("key", "keys", "Schlüssel", "Schlüssel", "m"),
    Noun("coat", "coats", "Mantel", "Mäntel", "m"),
    Noun("hat", "hats", "Hut", "Hüte", "m"),
    Noun("shirt", "shirts", "Hemd", "Hemden", "n"),
    Noun("bottle", "bottles", "Flasche", "Flaschen", "f"),
    Noun("knife", "knives", "Messer", "Messer", "n"),
    Noun("plate", "plates", "Teller", "Teller", "m"),
    Noun("flower", "flowers", "Blume", "Blumen", "f"),
    Noun("car", "cars", "Auto", "Autos", "n"),
    Noun("bicycle", "bicycles", "Fahrrad", "Fahrräder", "n"),
    Noun("door", "doors", "Tür", "Türen", "f"),
    Noun("window", "windows", "Fenster", "Fenster", "n"),
    Noun("clock", "clocks", "Uhr", "Uhren", "f"),
    Noun("box", "boxes", "Kiste", "Kisten", "f"),
    Noun("newspaper", "newspapers", "Zeitung", "Zeitungen", "f"),
    Noun("ball", "balls", "Ball", "Bälle", "m"),
    Noun("map", "maps", "Karte", "Karten", "f"),
    Noun("suitcase", "suitcases", "Koffer", "Koffer", "m"),
    Noun("bread", "breads", "Brot", "Brote", "n"),
    Noun("egg", "eggs", "Ei", "Eier", "n"),
    Noun("cake", "cakes", "Kuchen", "Kuchen", "m"),
    Noun("boat", "boats", "Boot", "Boote", "n"),
    Noun("ship", "ships", "Schiff", "Schiffe", "n"),
    Noun("house", "houses", "Haus", "Häuser", "n"),
    Noun("ring", "rings", "Ring", "Ringe", "m"),
    Noun("horse", "horses", "Pferd", "Pferde", "n"),
    Noun("dog", "dogs", "Hund", "Hunde", "m"),
    Noun("cat", "cats", "Katze", "Katzen", "f"),
    Noun("song", "songs", "Lied", "Lieder", "n"),
    Noun("question", "questions", "Frage", "Fragen", "f"),
]

# objects are things
TRANSITIVE = [
    Verb("buy", "buys", "bought", "kaufen", "kauft", "gekauft"),
    Verb("sell", "sells", "sold", "verkaufen", "verkauft", "verkauft"),
    Verb("see", "sees", "seen", "sehen", "sieht", "gesehen"),
    Verb("find", "finds", "found", "finden", "findet", "gefunden"),
    Verb("lose", "loses", "lost", "verlieren", "verliert", "verloren"),
    Verb("paint", "paints", "painted", "malen", "malt", "gemalt"),
    Verb("need", "needs", "needed", "brauchen", "braucht", "gebraucht"),
    Verb("look for", "looks for", "looked for", "suchen", "sucht", "gesucht"),
    Verb("carry", "carries", "carried", "tragen", "trägt", "getragen"),
    Verb("hide", "hides", "hidden", "verstecken", "versteckt", "versteckt"),
    Verb("break", "breaks", "broken", "zerbrechen", "zerbricht", "zerbrochen"),
    Verb("forget", "forgets", "forgotten", "vergessen", "vergisst", "vergessen"),
    Verb("repair", "repairs", "repaired", "reparieren", "repariert", "repariert"),
    Verb("steal", "steals", "stolen", "stehlen", "stiehlt", "gestohlen"),
    Verb("describe", "describes", "described", "beschreiben", "beschreibt", "beschrieben"),
    Verb("admire", "admires", "admired", "bewundern", "bewundert", "bewundert"),
    Verb("clean", "cleans", "cleaned", "putzen", "putzt", "geputzt"),
    Verb("order", "orders", "ordered", "bestellen", "bestellt", "bestellt"),
    Verb("pick up", "picks up", "picked up", "heben", "hebt", "gehoben", prefix="auf"),
    Verb("bring along", "brings along", "brought along", "bringen", "bringt", "gebracht", prefix="mit"),
    Verb("take away", "takes away", "taken away", "nehmen", "nimmt", "genommen", prefix="weg"),
    Verb("throw away", "throws away", "thrown away", "werfen", "wirft", "geworfen", prefix="weg"),
    Verb("collect", "collects", "collected", "holen", "holt", "geholt", prefix="ab"),
    Verb("offer", "offers", "offered", "bieten", "bietet", "geboten", prefix="an"),
    Verb("put back", "puts back", "put back", "stellen", "stellt", "gestellt", prefix="zurück"),
    Verb("look at", "looks at", "looked at", "sehen", "sieht", "gesehen", prefix="an"),
]

# objects are people
TRANSITIVE_PEOPLE = [
    Verb("visit", "visits", "visited", "besuchen", "besucht", "besucht"),
    Verb("greet", "greets", "greeted", "grüßen", "grüßt", "gegrüßt"),
    Verb("love", "loves", "loved", "lieben", "liebt", "geliebt"),
    Verb("understand", "understands", "understood", "verstehen", "versteht", "verstanden"),
    Verb("praise", "praises", "praised", "loben", "lobt", "gelobt"),
    Verb("disturb", "disturbs", "disturbed", "stören", "stört", "gestört"),
    Verb("invite", "invites", "invited", "laden", "lädt", "geladen", prefix="ein"),
    Verb("call", "calls", "called", "rufen", "ruft", "gerufen", prefix="an"),
    Verb("introduce", "introduces", "introduced", "stellen", "stellt", "gestellt", prefix="vor"),
    Verb("laugh at", "laughs at", "laughed at", "lachen", "lacht", "gelacht", prefix="aus"),
]

# a person gets a thing: dative, then accusative
DITRANSITIVE = [
    Verb("give", "gives", "given", "geben", "gibt", "gegeben"),
    Verb("show", "shows", "shown", "zeigen", "zeigt", "gezeigt"),
    Verb("send", "sends", "sent", "schicken", "schickt", "geschickt"),
    Verb("sell", "sells", "sold", "verkaufen", "verkauft", "verkauft"),
    Verb("bring", "brings", "brought", "bringen", "bringt", "gebracht"),
    Verb("promise", "promises", "promised", "versprechen", "verspricht", "versprochen"),
    Verb("lend", "lends", "lent", "leihen", "leiht", "geliehen"),
    Verb("read", "reads", "read", "lesen", "liest", "gelesen", prefix="vor"),
]

INTRANSITIVE = [
    Verb("sleep", "sleeps", "slept", "schlafen", "schläft", "geschlafen"),
    Verb("work", "works", "worked", "arbeiten", "arbeitet", "gearbeitet"),
    Verb("sing", "sings", "sung", "singen", "singt", "gesungen"),
    Verb("wait", "waits", "waited", "warten", "wartet", "gewartet"),
    Verb("laugh", "laughs", "laughed", "lachen", "lacht", "gelacht"),
    Verb("stay", "stays", "stayed", "bleiben", "bleibt", "geblieben", "s"),
    Verb("dance", "dances", "danced", "tanzen", "tanzt", "getanzt"),
    Verb("swim", "swims", "swum", "schwimmen", "schwimmt", "geschwommen", "s"),
    Verb("cook", "cooks", "cooked", "kochen", "kocht", "gekocht"),
    Verb("get up", "gets up", "got up", "stehen", "steht", "gestanden", "s", "auf"),
    Verb("fall asleep", "falls asleep", "fallen asleep", "schlafen", "schläft", "geschlafen", "s", "ein"),
    Verb("arrive", "arrives", "arrived", "kommen", "kommt", "gekommen", "s", "an"),
    Verb("stop", "stops", "stopped", "hören", "hört", "gehört", prefix="auf"),
    Verb("come back", "comes back", "come back", "kommen", "kommt", "gekommen", "s", "zurück"),
]

# verbs of saying and thinking, before a clause with "that"
SAYING = [
    Verb("say", "says", "said", "sagen", "sagt", "gesagt"),
    Verb("think", "thinks", "thought", "denken", "denkt", "gedacht"),
    Verb("know", "knows", "known", "wissen", "weiß", "gewusst"),
    Verb("hope", "hopes", "hoped", "hoffen", "hofft", "gehofft"),
    Verb("believe", "believes", "believed", "glauben", "glaubt", "geglaubt"),
]

ADJECTIVES_OF_PEOPLE = [
    Adjective("old", "alt"),
    Adjective("young", "jung"),
    Adjective("tired", "müd", "e"),
    Adjective("friendly", "freundlich"),
    Adjective("clever", "klug"),
    Adjective("poor", "arm"),
    Adjective("rich", "reich"),
    Adjective("happy", "glücklich"),
    Adjective("hungry", "hungrig"),
    Adjective("famous", "berühmt"),
    Adjective("brave", "tapfer"),
    Adjective("quiet", "still"),
    Adjective("strange", "seltsam"),
    Adjective("lazy", "faul"),
]

ADJECTIVES_OF_THINGS = [
    Adjective("red", "rot"),
    Adjective("green", "grün"),
    Adjective("blue", "blau"),
    Adjective("black", "schwarz"),
    Adjective("white", "weiß"),
    Adjective("big", "groß"),
    Adjective("small", "klein"),
    Adjective("new", "neu"),
    Adjective("old", "alt"),
    Adjective("beautiful", "schön"),
    Adjective("cheap", "billig"),
    Adjective("heavy", "schwer"),
    Adjective("broken", "kaputt"),
    Adjective("round", "rund"),
    Adjective("wooden", "hölzern"),
    Adjective("clean", "sauber"),
]

TIMES = [
    ("today", "heute"),
    ("tomorrow", "morgen"),
    ("now", "jetzt"),
    ("often", "oft"),
    ("on Monday", "am Montag"),
    ("on Friday", "am Freitag"),
    ("on Sunday", "am Sonntag"),
    ("in the morning", "am Morgen"),
    ("in the evening", "am Abend"),
    ("every day", "jeden Tag"),
    ("at night", "in der Nacht"),
    ("in summer", "im Sommer"),
    ("in winter", "im Winter"),
    ("before lunch", "vor dem Mittagessen"),
    ("after the concert", "nach dem Konzert"),
]

# the units that a number of can pass: "in twenty-three minutes", "in dreiundzwanzig Minuten"
SPANS = [
    ("minutes", "Minuten"),
    ("hours", "Stunden"),
    ("days", "Tagen"),
    ("weeks", "Wochen"),
    ("years", "Jahren"),
]

PLACES = [
    ("in the garden", "im Garten"),
    ("in the kitchen", "in der Küche"),
    ("at the station", "am Bahnhof"),
    ("at school", "in der Schule"),
    ("at the market", "auf dem Markt"),
    ("in the forest", "im Wald"),
    ("in the city", "in der Stadt"),
    ("in the village", "im Dorf"),
    ("at the lake", "am See"),
    ("behind the church", "hinter der Kirche"),
    ("under the bridge", "unter der Brücke"),
    ("in front of the museum", "vor dem Museum"),
    ("next to the hotel", "neben dem Hotel"),
    ("at home", "zu Hause"),
    ("in the train", "im Zug"),
]

# English; German, third person singular and plural
MODALS = [
    ("can", "kann", "können"),
    ("must", "muss", "müssen"),
    ("should", "soll", "sollen"),
    ("may", "darf", "dürfen"),
]

SUBORDINATORS = [
    ("because", "weil"),
    ("although", "obwohl"),
    ("when", "wenn"),
    ("while", "während"),
    ("before", "bevor"),
]

COORDINATORS = [("and", "und"), ("but", "aber"), ("or", "oder")]

# English possessive; German stem
POSSESSIVES = [("my", "mein"), ("your", "dein"), ("his", "sein"), ("our", "unser")]

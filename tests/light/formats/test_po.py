"""Catalogs of gettext: what people wrote stays, and `msgfmt -c` takes what is written."""

import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from capsule_mt import Translator
from capsule_mt.formats.plurals import RULES, PluralMessage, rule_of
from capsule_mt.formats.reading import parse, translate_file
from capsule_mt.formats.units import FormatError, Translated, has_other_placeholders, note_of_branches
from capsule_mt.text.languages import LANGUAGES
from tests.light.formats.files import PO

ROOT = Path(__file__).resolve().parents[3]
HEADER = 'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
PLURAL = '#, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] ""\nmsgstr[1] ""\n'


def translated(catalog, translate=str.upper, language=None, **options):
    return translate_file(
        catalog.encode(),
        "po",
        lambda texts, keep: [SimpleNamespace(text=translate(text)) for text in texts],
        name="a.po",
        language=language,
        **options,
    ).decode()


def check_by_msgfmt(catalog, tmp_path):
    """Compile a catalog as gettext does, with all its checks; the result is what a program shows by its text."""
    if shutil.which("msgfmt") is None:
        pytest.skip("msgfmt is not installed (apt install gettext)")
    path = tmp_path / "a.po"
    path.write_text(catalog, encoding="utf-8")
    run = subprocess.run(["msgfmt", "-c", "-o", tmp_path / "a.mo", path], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "error" not in run.stderr
    return (tmp_path / "a.mo").read_bytes()


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_gettext_takes_a_translated_template_in_every_language(language, tmp_path):
    import gettext
    import io

    header = 'Language: \\n"\n"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n'
    template = "#, fuzzy\n" + HEADER.replace('UTF-8\\n"', f'UTF-8\\n"\n"{header}"') + "\n" + PLURAL
    texts = [f"{text} \u00fc" for text in ("%d file", "2 files", "5 files", "%d files")]
    compiled = check_by_msgfmt(translated(template, lambda text: text + " \u00fc", language), tmp_path)
    catalog = gettext.GNUTranslations(io.BytesIO(compiled))
    assert catalog.info()["language"] == language
    for number in (1, 2, 5, 21):
        assert catalog.ngettext("%d file", "%d files", number) in (texts[0], texts[3])


def test_gettext_takes_placeholders_of_java_ruby_and_c(tmp_path):
    entries = "".join(
        f'\n#, {kind}-format\nmsgid "{text}"\nmsgstr ""\n'
        for kind, text in (
            ("java", "There {0,choice,0#are no files|1#is one file|1<are {0,number,integer} files}."),
            ("ruby", "%<count>d files by %<name>s"),
            ("c", "%-*s is %.*f metres"),
        )
    )
    model = Translator.from_pretrained(ROOT / "checkpoints/capsule-marian-en-de", int8=True)
    written = translate_file((HEADER + entries).encode(), "po", model).decode()
    assert "fuzzy" not in written
    check_by_msgfmt(written, tmp_path)


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {"gl", "vi"}))  # CLDR 49 (babel 2.19) changes these two
def test_the_plural_rules_are_those_of_cldr(language):
    babel = pytest.importorskip("babel")
    rule = rule_of(language)
    expected = babel.Locale.parse({"zh_hant": "zh_Hant"}.get(language, language)).plural_form
    assert set(rule.numbers) == set(expected.tags) | {"other"}
    for category, numbers in rule.numbers.items():
        assert {expected(number) for number in numbers} <= {category}


def test_every_language_by_any_of_its_codes():
    assert rule_of("pt_BR").header == rule_of("por").header != rule_of("pt-PT").header
    assert rule_of("sr@latin") == rule_of("sr_RS.UTF-8") == RULES["sr"]
    assert rule_of("zh-Hant") == rule_of("zh_TW") == RULES["zh"]
    assert rule_of("xx") is rule_of("") is rule_of(None) is None


def test_each_plural_form_is_translated_with_a_number_of_it():
    catalog = HEADER + "\n" + PLURAL
    forms = {"1 file": "1 файл", "2 files": "2 файла", "5 files": "5 файлов"}
    written = translated(catalog, forms.__getitem__, "ru")
    assert 'msgstr[0] "%d файл"\nmsgstr[1] "%d файла"\nmsgstr[2] "%d файлов"\n' in written
    assert "fuzzy" not in written


def test_a_plural_form_that_lost_its_number_takes_another_one_for_review():
    written = translated(HEADER + "\n" + PLURAL, lambda text: text.replace("2", "zwei"), "ru")
    assert written.endswith(
        '#, fuzzy, c-format\nmsgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d file"\nmsgstr[1] "%d files"\n'
        'msgstr[2] "%d files"\n'
    )


def test_a_number_that_the_message_also_has_is_no_sample():
    message = PluralMessage({"one": "%d of 2", "other": "%d of 2 parts"}, rule_of("ru").numbers)
    assert message.texts == ["1 of 2", "%d of 2 parts", "5 of 2 parts"]
    message = PluralMessage({"one": "%d of 1", "other": "%d of 1 parts"}, rule_of("de").numbers)
    assert message.texts == ["%d of 1", "%d of 1 parts"]


@pytest.mark.parametrize("count", ["%d", "%(count)s", "{n}", "{{count}}"])
def test_a_singular_is_translated_with_the_number_one(count):
    message = PluralMessage({"one": f"{count} file", "other": f"{count} files"}, rule_of("pt").numbers)
    assert message.texts == ["1 file", f"{count} files"]
    translations = [Translated("1 arquivo"), Translated(f"{count} arquivos")]
    assert message.filled(translations)["one"].text == f"{count} arquivo"
    lost = message.filled([Translated("um arquivo"), translations[1]])["one"]
    assert lost == Translated(f"{count} arquivos", needs_review=True)


@pytest.mark.parametrize("name", ["%s", "{name}", "{0}"])
def test_a_singular_with_a_name_keeps_it(name):
    message = PluralMessage({"one": f"{name} has a file", "other": f"{name} has files"}, rule_of("pt").numbers)
    assert message.texts == [f"{name} has a file", f"{name} has files"]


def test_character_references_are_written_back(tmp_path):
    catalog = f"""{HEADER}
msgid "&Terms &amp; <b>all</b>&nbsp;hats"
msgstr ""

msgid "%d hat&hellip;"
msgid_plural "%d hats & &copy;&hellip;"
msgstr[0] ""
msgstr[1] ""
"""
    seen = []
    written = translated(catalog, lambda text: seen.append(text) or text.replace("hat", "Hut"), "de")
    assert seen == ["Terms & <b>all</b>\xa0hats", "1 hat\u2026", "%d hats & \xa9\u2026"]
    assert b"\0&Terms &amp; <b>all</b>&nbsp;Huts\0" in check_by_msgfmt(written, tmp_path)
    assert 'msgstr[0] "%d Hut&hellip;"\nmsgstr[1] "%d Huts & &copy;&hellip;"' in written


@pytest.mark.parametrize("language", ["de", "pt_BR"])
def test_a_fuzzy_text_of_a_person_stays(language):
    entry = '#, fuzzy\nmsgid "The house."\nmsgstr "Das Haus?"\n'
    assert translated(f"{HEADER}\n{entry}", language=language) == f"{HEADER}\n{entry}"


def test_a_plural_form_of_a_person_stays():
    written = translated(HEADER + "\n" + PLURAL.replace('[0] ""', '[0] "%d Datei"'), language="de")
    assert 'msgstr[0] "%d Datei"\nmsgstr[1] "%d FILES"\n' in written.replace("%D", "%d")


def test_every_translation_is_fuzzy_on_request():
    entries = 'msgid "The house."\nmsgstr ""\n\nmsgid "Done"\nmsgstr "Fertig"\n'
    assert "fuzzy" not in translated(f"{HEADER}\n{entries}")
    flagged = translated(f"{HEADER}\n{entries}", flag_all=True)
    assert '#, fuzzy\nmsgid "The house."\nmsgstr "THE HOUSE."\n' in flagged
    assert '\n\nmsgid "Done"\nmsgstr "Fertig"\n' in flagged
    with pytest.raises(ValueError, match=r"a.html: `flag_all` is for po, xliff, qt; html does not have flags"):
        parse(b"<p>a b", "html", name="a.html", flag_all=True)


def test_the_language_of_the_header():
    german = HEADER.replace('UTF-8\\n"', 'UTF-8\\n"\n"Language: de_AT\\n"')
    pending = '\nmsgid "The house."\nmsgstr ""\n'
    assert "Language: de_AT" in translated(german + pending, language="de")
    assert "Language: de_AT" in translated(german + pending)
    message = r"a.po, line 1: the catalog is for `Language: de_AT`, but the model translates into pt: use"
    with pytest.raises(FormatError, match=message):
        translated(german + pending + '\nmsgid "Done"\nmsgstr "Fertig"\n', language="pt")
    # the catalog of a program's own language is a template
    english = german.replace("de_AT", 'en\\n"\n"Plural-Forms: nplurals=2; plural=n != 1;') + pending + "\n" + PLURAL
    written = translated(english, language="pl")
    assert '"Language: pl\\n"\n"Plural-Forms: nplurals=3;' in written
    assert "msgstr[2]" in written
    note = "the header's `Language: en` becomes `Language: pl`"
    first, *others = parse(english.encode(), "po", name="a.po", language="pl").units
    assert (first.note, {unit.note for unit in others}) == (note, {""})
    for language in ("en", "en_GB", None):
        assert not any(unit.note for unit in parse(english.encode(), "po", name="a.po", language=language).units)
    branched = english.replace("The house.", "Now {n, plural, one {# house}}")
    note += "; {n, plural, ...} stays as it is: this format's reader does not translate the texts in it; translate it"
    assert parse(branched.encode(), "po", name="a.po", language="pl").units[0].note == f"{note} by hand"


def test_an_entry_of_branches_alone_stays_empty_and_is_named():
    catalog = f'{HEADER}\nmsgid "{{n, plural, one {{# house}} other {{# houses}}}}"\nmsgstr ""\n'
    assert translated(catalog, language="pl") == catalog
    (unit,) = parse(catalog.encode(), "po", name="a.po", language="pl").units
    assert "stays as it is" in note_of_branches(unit.text)


def test_a_catalog_without_a_header_gets_one(tmp_path):
    written = translated('msgid "The house."\nmsgstr ""\n', lambda text: "Das Haus, schön.", "de")
    check_by_msgfmt(written, tmp_path)
    assert written.startswith('msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"')


@pytest.mark.parametrize("translate", [str.upper, str, lambda text: text.replace("%", ""), lambda text: "%s %d\n"])
def test_gettext_takes_whatever_a_model_makes_of_placeholders(translate, tmp_path):
    entries = '\n#, c-format\nmsgid "%d of %s\\n"\nmsgstr ""\n\n'
    entries += '#, python-format\nmsgid "Hello %(name)s, %(day)s"\nmsgstr ""\n'
    check_by_msgfmt(translated(PO + entries, translate, "de"), tmp_path)


def test_placeholders_without_a_number_keep_their_order():
    assert not has_other_placeholders("%d of %s", "%d von %s")
    assert has_other_placeholders("%d of %s", "%s: %d")
    assert not has_other_placeholders("%1$s of %2$s, %(a)s %(b)s", "%2$s: %1$s, %(b)s %(a)s")
    assert not has_other_placeholders("{0} of {1}", "{1}: {0}")


@pytest.mark.parametrize(
    ("forms", "message"),
    [
        ("nplurals=2; plural=n;", "`plural` must be an expression of C with a value below nplurals=2 for every n"),
        ("nplurals=2; plural=1%n;", "`plural` must be an expression of C"),
        ("nplurals=2; plural=import os;", "`plural` must be an expression of C"),
        ("nplurals=2; plural=" + "(" * 900, "`plural` must be an expression of C"),
        ("nplurals=2", "`plural` must be an expression of C"),
    ],
)
def test_plural_forms_that_cannot_be(forms, message):
    header = HEADER.replace('UTF-8\\n"', f'UTF-8\\n"\n"Plural-Forms: {forms}\\n"')
    with pytest.raises(FormatError) as error:
        translated(f"{header}\n{PLURAL}")
    assert message in str(error.value)


def test_unknown_plural_forms_are_refused():
    with pytest.raises(FormatError, match=r"a\.po, line 1: the plural forms of tlh are not known: write them"):
        translated(f"{HEADER}\n{PLURAL}", language="tlh")
    assert parse((HEADER + '\nmsgid "a house"\nmsgstr ""\n').encode(), "po", language="tlh").write(
        [Translated("qach")]
    )

"""The engine as WebAssembly in node and in a browser, beside the native one with the same arithmetic."""

import functools
import gzip
import http.server
import json
import random
import re
import shutil
import string
import subprocess
import sys
import threading
from array import array
from html.entities import html5
from pathlib import Path
from typing import get_args

import pytest

from capsule_mt import CoverageOptions, Translator, __version__
from capsule_mt.catalog.pairs import LanguagePair, describe_languages
from capsule_mt.checks.results import CheckKind
from capsule_mt.commands import convert
from capsule_mt.engine.build import SOURCES
from capsule_mt.engine.library import TIER
from capsule_mt.files.lines import coverage_record
from capsule_mt.models.entropy_coding import PARTS, decoded
from capsule_mt.models.loading import load_model
from capsule_mt.models.shortlist import Shortlist
from capsule_mt.models.weights import SafetensorsFile
from capsule_mt.options.table import offered
from capsule_mt.text.entities import without_entities
from capsule_mt.text.rewriting import Rewriter
from capsule_mt.text.rules import COPIED_KINDS, ROWS
from capsule_mt.text.sentences import GROUPING
from capsule_mt.text.vocabulary import Vocabulary
from capsule_mt.web import site
from capsule_mt.web.build import (
    FOLDER,
    INTERFACE,
    LINK_ORDER,
    MODULES,
    TYPES_FILE,
    build,
    interface,
    is_current,
    main,
    types,
)
from capsule_mt.web.bundle import bundled, esbuild
from capsule_mt.web.language import (
    ACCENTS,
    ENTITY_NAMES,
    javascript_pattern,
    sentence_rules,
    typography_of,
    words_of_checks,
)
from capsule_mt.web.model_file import shortlist_tensors, with_tensors
from tests.fixtures.browser import click_word, open_page, readable, texts_of, violations
from tests.fixtures.students import write_student
from tests.fixtures.vectors import FOLDER as VECTORS
from tests.fixtures.vectors import vectors
from tests.light.engine.conftest import TIERS
from tests.light.text.fakes import CharacterTokenizer
from tests.light.text.test_growth import EDGES, GROWTH, LINES, NUM_UNITS, UNITS, text_of

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINTS = ROOT / "checkpoints"
SCRIPTS_OF_PAGE = [ROOT / "capsule_mt/serve/page" / name for name in ("reasons.js", "marks.js")]
# JavaScript does not offer `keep`, nor models of several target languages
EXAMPLES = [row for row in ROWS if row.kind in ("", *COPIED_KINDS)]
# what tokenizers and sentence splitters stumble on
ODD = [
    "Hallo! Wie geht's? Gut. Dr. Müller kam am 3. Oktober.\n\nTom ging ging ging nach Hause.  ",
    "",
    "   ",
    "Ünïcödé ﬁne ①② \uff46\uff55 e\u0301a\u0308 \u1100\u1161\u11a8 😀 👨‍👩‍👧 a\tb\u00a0c\u3000d",
    "- [x] Kauf [zwei] Hunde & Brot.\nTom & Maria lesen C# [], R&D = *gut*.",
    "日本語。テキスト。 <unk> </s> <0x41> ▁x \uf8ff “quotes” — $5 +3 =x ^ `|~",
    "x" * 300,
    "sehr " * 300 + "lang",
]


# letters of several scripts and planes, marks that combine, invisible and private characters, what rules look for
ODD_CHARACTERS = [
    *"aZiI0£≤—«»“\u2019…ﬁßĠžЖשبक漢ｱ\u0130\u0301\u05b0\u200b\u200d\u00ad\u202f\ue000\ue003\ufe0f😀𝐀𐐀",
    *"\\{%}<>[]()#@_*~`'\"=/.:;,!?&-",
]

TAGGED = [
    "The <b>red hat</b> is on the <i>small table</i>.",
    "<p>He bought <a href='https://a.de/1'>the <b>old</b> house</a>.</p><p>She did not.</p>",
    "We saw the dog<sup>1</sup> in the garden \U0001f600 yesterday, and <br/> it <i>ran</i> away.",
    "Click <0>here</0> to open the \u2713 new <1/> window.",
]
CASED = [  # with other edges and with emphasis, too
    "DO NOT TOUCH THE RED HAT, {name}.",
    "THE OLD MAN'S HOUSE\n\nHe bought it in \u201cLondon\u201d\u2026\nThe Small Dog Sleeps Under the Table",
    "the young woman sees tom in the garden. {count} dogs are there",
    "(The **old man** doesn\u2019t buy a red hat)",
    "The old man buys a <b>red hat</b>",
    "The man doesn&rsquo;t buy the <b>red&nbsp;hat</b> &amp; the &quot;dog&quot;. &#8220;He sleeps&#8221;&hellip;",
    "Windows\xae is here\nEdit\n\u2022 <b>Cancel</b>\u2026\nSAVE AS...\nThe dog sleeps...",
    "He said \u201cthe red hat\u201d, and \u201cthe dog\u201d.\n\xabThe dog\xbb\nName :\n\u201dHat\u201d",
    "\u201cShe sleeps.\u201d \u201cHe doesn\u2019t.\u201d",
    "name: ____, *he* paid \u00a3250 for 3 of ***them*** and ~~not~~ 4",
]


def command(*arguments: object) -> None:
    """Run `capsule-mt convert`."""
    old, sys.argv = sys.argv, ["convert", *map(str, arguments)]
    try:
        convert.main()
    finally:
        sys.argv = old


def test_a_file_of_a_model(word_for_word, tmp_path):
    command(word_for_word, tmp_path / "out", "--to", "web", "--languages", "en-de")
    file = SafetensorsFile(tmp_path / "out" / "model.capsule")
    model = json.loads(file.metadata["model"])
    assert model["languages"] == ["en", "de"]
    for number, (outputs, inputs) in enumerate(model["program"]["linears"]):
        parts = {part: file.content(f"linears.{number}.{part}") for part in PARTS}
        assert decoded(parts).codes.shape == (outputs, inputs)
    assert len(json.loads(file.metadata["tokenizers"])) == 1
    with pytest.raises(ValueError, match="--languages"):
        command(word_for_word, tmp_path / "other", "--to", "web")


def test_shortlists_and_tokenizers_of_a_file(run_beside_modules, tmp_path):
    folder = write_student(tmp_path / "student")
    command(folder, tmp_path / "out", "--to", "web", "--languages", "en-pt")
    model = load_model(folder, shortlist=True)
    sources, texts = [[], [9, 20], [29, 0], [3, 4, 5]], ["the old man buys a red hat.", "x", ""]
    actual = run_beside_modules(
        "files", {"path": str(tmp_path / "out/model.capsule"), "sources": sources, "texts": texts}
    )
    assert actual["lists"] == [list(model.shortlist.of_source(source)) for source in sources]
    assert actual["ids"] == [list(model.tokenizer.encode(text).ids) for text in texts]


def test_offsets_of_tokens_after_several_spaces(run_beside_modules, tmp_path):
    """A token begins with at most one of the spaces before it: tags are aligned by the centres of tokens."""
    command(write_student(tmp_path / "student"), tmp_path / "out", "--to", "web", "--languages", "en-pt")
    text = "the  old   man"
    asked = {"path": str(tmp_path / "out/model.capsule"), "sources": [], "texts": [text]}
    *spans, end = run_beside_modules("files", asked)["offsets"][0]
    assert [text[start:stop] for start, stop in spans] == ["the", " old", " man"]
    assert end is None


def test_differences_of_several_bytes():
    lists = [[70_000, 3, 300], [], [255], [256, 256]]
    shortlist = Shortlist.of_translations(dict(enumerate(lists)), [0, 1], (4, 70_001))
    tensors = dict(shortlist_tensors(shortlist))
    assert tensors["shortlist.lengths"].buffer.tolist() == [3, 0, 1, 2]
    planes = tensors["shortlist.differences"]
    assert planes.shape == (3, 6)
    numbers = [int.from_bytes(planes.buffer[index::6], "little") for index in range(6)]
    assert numbers == [3, 297, 69_700, 255, 256, 0]
    assert dict(shortlist_tensors(Shortlist([0], [], [0], 5)))["shortlist.differences"].shape == (1, 0)


def test_tensors_of_a_tokenizer():
    vocab = [["a", -0.5], ["b", -1.25]]
    tokenizer = {
        "normalizer": {"normalizers": [{"type": "Precompiled", "precompiled_charsmap": "AQID"}]},
        "added": [1],
    }
    tensors = {}
    written = with_tensors([{**tokenizer, "model": {"type": "Unigram", "vocab": vocab}}], tensors)
    (charsmap, scores) = (bytes(tensor.buffer) for tensor in tensors.values())
    assert (charsmap, array("f", scores).tolist()) == (b"\1\2\3", [-0.5, -1.25])
    names = list(tensors)
    assert written[0]["normalizer"]["normalizers"][0]["precompiled_charsmap"] == names[0]
    assert written[0]["model"] == {"type": "Unigram", "vocab": ["a", "b"], "scores": names[1]}
    double = {"model": {"type": "Unigram", "vocab": [["a", 0.1]]}}
    assert with_tensors(double, tensors)["model"]["scores"] == [0.1]
    assert list(tensors) == names


def test_a_site_needs_files_of_models(word_for_word, tmp_path):
    with pytest.raises(ValueError, match="is not a file of `capsule-mt convert --to web`"):
        site.write_site(tmp_path / "site", [word_for_word / "model.safetensors"])


def test_versions_are_one():
    assert json.loads((FOLDER / "package.json").read_text())["version"].replace("-dev", ".dev") == __version__


CODES = [*range(0x250), 0x2019, 0xD800, 0xFDD0, 0xFFFD, 0xFFFF, 0x1F600, 0x1FFFE, 0x10FFFF, 0x110000]
ENTITIES = [*(f"&{name}" for name in html5 if name.endswith(";")), *(f"&#{code};" for code in CODES)]
ENTITIES += [*(f"&#x{code:x};" for code in CODES), "&#XE9;", "&#\u0663;", "&gcedil;", "&constructor;", "&eacutes;"]


def test_each_source_file_is_linked_in_order():
    assert sorted(LINK_ORDER) == sorted({path.stem for path in (*SOURCES.glob("*.c"), *FOLDER.glob("native/*.c"))})


@pytest.fixture(scope="module")
def bundler():
    """The path of esbuild."""
    return esbuild() or pytest.skip("no esbuild here: `npm ci --prefix web` installs it")


@pytest.fixture(scope="module", params=["package", "page"])
def run_beside_modules(request, tmp_path_factory):
    """Run a script of this folder beside the modules of the package, or of the page, on a JSON value."""
    program = shutil.which("node") or pytest.skip("no node here")
    folder = tmp_path_factory.mktemp("scripts")
    names = ["vectors", "steps", "files", "forms", "growth"]
    scripts = {name: Path(__file__).with_name(f"{name}.mjs").read_text(encoding="utf-8") for name in names}
    scripts |= site.sources()
    if request.param == "page":
        bundler = request.getfixturevalue("bundler")
        scripts = {name: bundled(scripts, bundler, [name])[name] for name in names}
    for name, script in scripts.items():
        (folder / f"{name}.js").write_text(script, encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}', encoding="utf-8")

    def run(name, value, *arguments):
        process = subprocess.run(
            [program, folder / f"{name}.js", *arguments],
            input=json.dumps(value, default=list),
            capture_output=True,
            text=True,
            timeout=300,
            encoding="utf-8",
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run


@pytest.fixture(scope="module")
def of_vectors(run_beside_modules):
    """What the modules make of tests/vectors, which Python's tests read, too: see vectors.mjs."""
    dotless_i = {case["language"] for case in vectors("dotless_i")["cases"]}
    languages = {"en", *dotless_i, *(case["language"] for case in vectors("sentences")["cases"])}
    rules = {str(code): sentence_rules(code) for code in (*languages, None)}
    pairs = [case["languages"] for case in vectors("checks")["cases"]]
    words = {",".join(code or "" for code in pair): words_of_checks(*pair) for pair in pairs}
    languages = dotless_i | {case.get("language") for cases in vectors("typography").values() for case in cases}
    typography = {str(code): typography_of(code) for code in languages}
    value = {
        "rules": rules,
        "words_of_checks": words,
        "typography": typography,
        "groupings": GROUPING,
        "entities": ENTITIES,
        "examples": {row.id: row.example for row in EXAMPLES},
    }
    return run_beside_modules("vectors", value, VECTORS, *SCRIPTS_OF_PAGE)


@pytest.mark.parametrize("name", sorted({path.stem for path in VECTORS.glob("*.json")} - {"keeping", "normal"}))
def test_vectors(name, of_vectors):
    tables = {key: cases for key, cases in vectors(name).items() if key != "words" and isinstance(cases, list)}
    assert tables.keys() == of_vectors[name].keys()
    for key, cases in tables.items():
        for answer, case in zip(of_vectors[name][key], cases, strict=True):
            assert nearly(answer, case), case


def test_normal_forms(of_vectors):
    expected, answers = vectors("normal"), of_vectors["normal"]
    assert answers["cases"] == expected["cases"]
    assert answers["given"] == expected["given"]
    assert answers["plain"] == {form: [form] * len(characters) for form, characters in expected["plain"].items()}
    assert answers["invisible"] == ""


def test_examples_of_rules(of_vectors):
    """Both languages run the examples of the table: see tests/light/text/test_rules.py."""
    assert of_vectors["examples"] == {row.id: row.read for row in EXAMPLES}


def test_characters_of_entities(of_vectors):
    """JavaScript knows fewer names than Python, but all numbers."""
    actual = dict(zip(ENTITIES, of_vectors["characters"], strict=True))
    expected = {entity: without_entities(entity) for entity in ENTITIES}
    names = {f"&{name};" for name in ENTITY_NAMES.split()}
    names |= {name for name in ENTITIES if name[2:-1] in ACCENTS and expected[name] < "\u0180"}
    known = [name for name in ENTITIES if name in names or name[1] == "#"]
    assert len(known) > 1400
    assert all(actual[entity] == expected[entity] for entity in known)
    assert all(actual[entity] in (entity, expected[entity]) for entity in ENTITIES)


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("{hour}.45", "{later}.30 {second}"),  # times
        ("00 {n},5", "{n}.25"),
        ("same same old same words", "same same old same words"),  # a run of repeated words
    ],
)
def test_checks_take_linear_time(source, translation, run_beside_modules):
    def texts(num_parts):
        texts = (
            " ".join(part.format(n=n, hour=n % 12, later=n % 7 + 13, second=30 + n % 20) for n in range(num_parts))
            for part in (source, translation)
        )
        return [f"{text} {words}." for text, words in zip(texts, ("at 5 p.m. we", "abends we"), strict=True)]

    words = words_of_checks("en", "de")
    short, long = run_beside_modules("steps", {"texts": [texts(200), texts(400)], "words": words})
    assert 200 < long < 2.2 * short


@pytest.mark.parametrize("run_beside_modules", ["package"], indirect=True)
@pytest.mark.parametrize("count", [500, pytest.param(200_000, marks=pytest.mark.slow)])
def test_any_text_is_read_alike_and_comes_back(count, run_beside_modules):
    """Of any text, Python and JavaScript make the same edits, which undone give the text back."""
    source = random.Random(count)
    units = [*(unit.format(i=7) for unit in UNITS), *ODD_CHARACTERS, " ", " ", "\n"]
    reader = Rewriter(Vocabulary(CharacterTokenizer(string.printable)), COPIED_KINDS, src_lang="en", tgt_lang="pt")
    value = {"characters": string.printable, "rules": sentence_rules("en"), "groupings": [",", "."]}
    for _ in range(0, count, 10_000):
        texts = ["".join(source.choices(units, k=source.randint(1, 12))) for _ in range(min(count, 10_000))]
        answers = run_beside_modules("forms", {**value, "texts": texts})
        for text, (form_text, edits, is_undone) in zip(texts, answers, strict=True):
            form = reader.read(text)
            expected = [[edit.row, text[edit.start : edit.end], edit.model, edit.back] for edit in form.edits]
            expected = [edit for edit in expected if edit[1] != edit[2]]
            assert (form_text, edits, is_undone) == (form.text, expected, True), ascii(text)


FUNCTIONS = ("documents", "restored", "retries", "checks")  # of growth.mjs


def escaped(text):
    """Return a text as `str.format` reads it."""
    return text.replace("{", "{{").replace("}", "}}")


@pytest.mark.parametrize("run_beside_modules", ["package"], indirect=True)
@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ([("", unit, "") for unit in ("%Ln", *LINES)], FUNCTIONS),
        pytest.param([*(("", unit, "") for unit in UNITS), *EDGES], FUNCTIONS, marks=pytest.mark.slow),
        pytest.param(
            [("", f"{escaped(row.example)} ", "") for row in EXAMPLES], FUNCTIONS[:2], marks=pytest.mark.slow
        ),
    ],
    ids=["few", "all", "rows"],
)
def test_repeated_texts_take_linear_time(texts, names, run_beside_modules):
    counts = [NUM_UNITS * GROWTH**power for power in range(3)]
    series = [[f"{start}{text_of(unit, count)}{end}" for count in counts] for start, unit, end in texts]
    series.append([f"a {'<b>' * count}x{'</b>' * count} b" for count in counts])
    value = {"names": names, "series": series, "rules": sentence_rules("en"), "words": words_of_checks("en", "pt")}
    assert run_beside_modules("growth", value) == []


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        (r"(?i:ab?c)\d", "aC1 ABC2 \u0661 ac\u0661", ["aC1", "ABC2", "ac\u0661"]),
        (r"(?s:<.*?>)|(?P<rest>\b\w.)", "<a\nb> \xe9\xe9 \xe9\n", ["<a\nb>", "\xe9\xe9"]),
        (r"[^\W\d_]+[\w.-]|\W\Z", "a1 \xe9- _x !", ["a1", "\xe9-", "!"]),
        ("[\U0001f600-\U0001f610]+\\S", "\U0001f601\U0001f602x", ["\U0001f601\U0001f602x"]),
    ],
)
def test_patterns_of_python_in_javascript(pattern, text, matches):
    program = shutil.which("node") or pytest.skip("no node here")
    assert [match[0] for match in re.finditer(pattern, text)] == matches
    script = (
        f"[...{json.dumps(text)}.matchAll(new RegExp({json.dumps(javascript_pattern(pattern))}, 'gu'))].map(String)"
    )
    script = script.replace("String", "(match) => match[0]")
    process = subprocess.run([program, "-p", f"JSON.stringify({script})"], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == matches


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """The npm package, built."""
    pytest.importorskip("ziglang", reason="ziglang compiles the engine")
    folder = tmp_path_factory.mktemp("web") / "package"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("node_modules", *MODULES, INTERFACE))
    build(folder)
    (folder / INTERFACE).write_text(interface(), encoding="utf-8")
    (folder / TYPES_FILE).write_text(types(), encoding="utf-8")
    assert is_current(folder)
    return folder


@pytest.fixture(scope="module")
def node(package, tmp_path_factory):
    """Run a module in node, which has `argument` and the package's `Translator`; return what it makes `answer`."""
    program = shutil.which("node") or pytest.skip("no node here")
    file = tmp_path_factory.mktemp("node") / "script.mjs"

    def run(script, argument):
        head = f'import {{ Translator, TranslatorWorker }} from "{(package / "index.js").as_uri()}";\n'
        head += 'import { pathToFileURL } from "node:url";\n'
        head += 'import { readFileSync } from "node:fs"; let answer; const argument = JSON.parse(readFileSync(0));\n'
        file.write_text(f"{head}{script}\nprocess.stdout.write(JSON.stringify(answer));", encoding="utf-8")
        process = subprocess.run(
            [program, file], input=json.dumps(argument), capture_output=True, text=True, timeout=300
        )
        assert process.returncode == 0, process.stderr
        return json.loads(process.stdout)

    return run


@pytest.fixture
def portable(monkeypatch):
    """The native engine with the arithmetic of WebAssembly."""
    monkeypatch.setenv(TIER, "portable")


def nearly(actual, expected):
    """Whether plain values are equal, but for the rounding of sums."""
    if isinstance(expected, float):
        return actual == pytest.approx(expected, abs=1e-5)
    if isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(nearly(actual[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(nearly, actual, expected))
    return actual == expected


TRANSLATE = """
const translator = await Translator.load(argument.model);
answer = translator.translate(argument.texts, argument.options);
"""


def translator_of(folder, pair, **options):
    """The model of a folder in int8; its languages are stated, as in a file for JavaScript."""
    return Translator.from_pretrained(folder, int8=True, src_lang=pair[:2], tgt_lang=pair[3:], **options)


def translations(translator, texts, **options):
    """What the JavaScript is to answer."""
    outputs = translator(texts, batch_size=16, **options)
    answers = []
    for text, output in zip(texts, outputs, strict=True):
        tokens = [list(part.target_ids[1:]) for part in output.segments]
        edits = [in_utf16_of(text, edit._asdict()) for edit in output.edits]
        answers.append({"text": output.text, "score": output.score, "tokens": tokens, "edits": edits})
        if output.alignment is not None:
            answers[-1]["alignment"] = [list(pair) for pair in output.alignment]
        if output.coverage is not None:
            answers[-1]["coverage"] = in_utf16(coverage_record(output.coverage), text, output.text)
    return answers


def in_utf16(coverage, text, translation):
    """A coverage with offsets as JavaScript counts them."""
    for name, content in (("words", text), ("sentences", text), ("target_words", translation)):
        for entry in coverage.get(name, ()):
            in_utf16_of(content, entry)
    return coverage


def in_utf16_of(content, entry):
    """A span with offsets as JavaScript counts them."""
    for edge in ("start", "end"):
        entry[edge] = len(content[: entry[edge]].encode("utf-16-le")) // 2
    return entry


@pytest.mark.slow
@pytest.mark.parametrize("name", ["capsule-marian-de-en", "capsule-marian-en-de"])
def test_equals_the_native_engine(name, node, portable, tmp_path):
    folder = CHECKPOINTS / name
    command(folder, tmp_path / "out", "--to", "web")
    sources = json.loads((folder / "translations.json").read_text(encoding="utf-8"))["sources"]
    texts = [*sources, *ODD[:3]]
    translator = translator_of(folder, name[-5:])
    options = {"coverage": CoverageOptions(method="attention"), "alignment": True}
    for beams in (1, 4):
        asked = {
            "model": str(tmp_path / "out/model.capsule"),
            "texts": texts,
            "options": {"coverage": True, "alignment": True, "num_beams": beams},
        }
        assert nearly(node(TRANSLATE, asked), translations(translator, texts, num_beams=beams, **options))


# a value of each kind of option that changes how the golden model translates, or is refused; `suppress_tokens` is of a
# frequent token
CHOSEN = {"integer": 2, "number": 1.3, "switch": True, "choice": "never", "tokens": [5, 6, 7]}


@pytest.mark.slow
def test_each_option_of_the_table(node, portable, tmp_path):
    folder = CHECKPOINTS / "capsule-marian-de-en"
    command(folder, tmp_path / "out", "--to", "web")
    texts = json.loads((folder / "translations.json").read_text(encoding="utf-8"))["sources"][:4]
    script = """
    const translator = await Translator.load(argument.model);
    answer = argument.asked.map((options) => {
      try { return translator.translate(argument.texts, options).map(({ tokens }) => tokens); }
      catch (error) { return error.message; }
    });
    answer.push(await Translator.load(argument.model, { thread: 2 }).catch((error) => error.message));
    try { translator.cover("a", "a", { supports: true }); } catch (error) { answer.push(error.message); }
    """
    asked = [{option.name: CHOSEN[option.kind], "num_beams": 3} for option in offered("browser")]
    wrong = [{option.name: {}} for option in offered("browser")] + [{"beams": 4}, {"noRepeat": False}]
    actual = node(script, {"model": str(tmp_path / "out/model.capsule"), "texts": texts, "asked": [*asked, *wrong]})
    translator = translator_of(folder, "de-en")
    expected = [[record["tokens"] for record in translations(translator, texts, **settings)] for settings in asked]
    assert actual[: len(asked)] == expected
    refused = [f"`{option.name}` must be {option.expected}, got {{}}" for option in offered("browser")]
    refused += ["`beams` is not an option of translate: did you mean `num_beams`?"]
    *refusals, unlike, of_load, of_cover = actual[len(asked) :]
    assert refusals == refused
    assert of_load == "`thread` is not an option of load: it takes threads and reverse"
    assert of_cover == "`supports` is not an option of cover: it takes support and marks"
    assert unlike.startswith(
        "`noRepeat` is not an option of translate: it takes coverage, support, alignment, batch_size, "
    )


@pytest.mark.slow
@pytest.mark.parametrize("family", ["capsnmt", "capsule_rnmt"])
def test_other_families(family, node, portable, tmp_path):
    # the tokenizer of all families, and the rest of one
    folder = Path(shutil.copytree(ROOT / "tests/golden/capsule_marian", tmp_path / "model"))
    shutil.copytree(ROOT / "tests/golden" / family, folder, dirs_exist_ok=True)
    command(folder, tmp_path / "out", "--to", "web", "--languages", "en-de")
    texts = ["The old man buys a red hat.", "He sleeps.", "The young woman sees the small dog in the garden."]
    actual = node(
        TRANSLATE, {"model": str(tmp_path / "out/model.capsule"), "texts": texts, "options": {"num_beams": 2}}
    )
    expected = translations(translator_of(folder, "en-de"), texts, num_beams=2)
    assert nearly(actual, expected)


@pytest.mark.slow
def test_opus_mt(node, portable, tmp_path):
    pytest.importorskip("torch", reason="the fixture needs hf-capsule-mt")
    from tests.fixtures.opus_mt import save_opus_mt

    folder = save_opus_mt(tmp_path / "opus-mt-en-de")
    command(folder, tmp_path / "out", "--to", "web")
    texts = ["The old man buys a red hat.", "he sleeps, ΩΩ and 5 % 😀", "constructor"]
    translator = translator_of(folder, "en-de")
    sources = [list(translator.loaded.tokenizer.encode(text).ids) for text in texts]
    script = "answer = (await Translator.load(argument.model)).translate(argument.texts, { num_beams: 2 });"
    asked = {"model": str(tmp_path / "out/model.capsule"), "texts": texts}
    assert nearly(node(script, asked), translations(translator, texts, num_beams=2))
    script = "const { tokenizer } = await Translator.load(argument.model);"
    script += "answer = argument.texts.map((text) => tokenizer.encode(text).ids);"
    assert node(script, asked) == sources
    with pytest.raises(ValueError, match="tokens of languages, such as >>deu<<"):
        command(save_opus_mt(tmp_path / "many-en-de", ("deu",)), tmp_path / "other", "--to", "web")


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.1, 0.5, 2.5])
def test_a_translation_has_at_most_a_factor_of_its_source(factor, node, portable, tmp_path):
    """As a configuration of Marian's says; the translations of this model reach every limit."""
    folder = write_student(tmp_path / "student")
    with open(folder / "config.yml", "a", encoding="utf-8") as file:
        file.write(f"max-length-factor: {factor}\n")
    command(folder, tmp_path / "out", "--to", "web", "--languages", "xx-yy")
    texts = ["the old man buys a red hat.", "a hat", "the man, the hat and the old man. a hat."]
    expected = translations(translator_of(folder, "xx-yy", shortlist=True), texts)
    script = "answer = (await Translator.load(argument.model)).translate(argument.texts);"
    assert nearly(node(script, {"model": str(tmp_path / "out/model.capsule"), "texts": texts}), expected)


# each public method that takes a text
TIMED = {
    "translate": "translator.translate(text, { coverage: true, alignment: true })",
    "cover": "translator.cover(text, text)",
}


def test_every_method_that_takes_a_text_is_timed():
    text = (FOLDER / "index.d.ts").read_text(encoding="utf-8")
    for name in ("Translator", "TranslatorWorker"):
        declared = re.search(rf"export class {name} {{(.*?)\n}}", text, re.DOTALL)[1]
        assert set(re.findall(r"(?m)^  (\w+)\(texts?:", declared)) == set(TIMED)


def test_the_types_name_every_kind_of_check():
    (declared,) = re.findall(
        r"(?s)interface Check {\n  kind: (.*?);", (FOLDER / "index.d.ts").read_text(encoding="utf-8")
    )
    assert re.findall(r'"(\w+)"', declared) == [*get_args(CheckKind)]


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a. ", "<b>a</b> ", "%s, "])
@pytest.mark.parametrize("method", TIMED)
def test_a_method_takes_linear_time(method, unit, node, tmp_path):
    """Four times the text takes less than eight times as long, in one of five turns; quadratic time has sixteen."""
    command(CHECKPOINTS / "capsule-marian-en-de", tmp_path / "out", "--to", "web")
    script = f"""
    const translator = await Translator.load(argument.model);
    const seconds = (text) => {{
      const start = process.cpuUsage();
      {TIMED[method]};
      const {{ user, system }} = process.cpuUsage(start);
      return (user + system) / 1e6;
    }};
    const [short, long] = argument.texts;
    seconds(short);
    answer = [];
    while (answer.length < 5 && !(answer.at(-1) < 8)) answer.push(seconds(long) / seconds(short));
    """
    ratios = node(script, {"model": str(tmp_path / "out/model.capsule"), "texts": [unit * 50, unit * 200]})
    assert ratios[-1] < 8, ratios


@pytest.mark.slow
def test_odd_texts(node, portable, tmp_path):
    folder = CHECKPOINTS / "capsule-marian-de-en"
    command(folder, tmp_path / "out", "--to", "web")
    translator = translator_of(folder, "de-en")
    for copy in (True, False):
        options = {"num_beams": 1, "copy": copy}
        answers = node(TRANSLATE, {"model": str(tmp_path / "out/model.capsule"), "texts": ODD, "options": options})
        expected = translations(translator, ODD, **options)
        assert [answer["tokens"] for answer in answers] == [answer["tokens"] for answer in expected]
        assert [answer["text"] for answer in answers] == [answer["text"] for answer in expected]


@pytest.mark.slow
@pytest.mark.parametrize("calibrated", [True, False])
def test_what_a_translation_keeps(calibrated, node, portable, tmp_path):
    """Tags, placeholders, URLs, emoji and signs are where Python puts them, by a head or without one."""
    folder = Path(shutil.copytree(CHECKPOINTS / "capsule-marian-en-de", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not calibrated:
        del config["coverage_calibration"]
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    command(folder, tmp_path / "out", "--to", "web", "--languages", "en-de")
    keeping = vectors("keeping")
    texts = [text for text, _ in (*keeping["placeholders"], *keeping["signs"])]
    texts += [*TAGGED, *CASED, "I like it \U0001f600 \u2764\ufe0f. Yes!"]
    options = {"num_beams": 1, "coverage": calibrated, "alignment": calibrated}  # slow without a head
    translator = translator_of(folder, "en-de")
    request = {"model": str(tmp_path / "out/model.capsule"), "texts": texts, "options": options}
    options = {"coverage": CoverageOptions(method="attention")} if calibrated else {}
    expected = translations(translator, texts, num_beams=1, alignment=calibrated, **options)
    assert nearly(node(TRANSLATE, request), expected)


@pytest.mark.slow
def test_given_translations_and_a_worker(node, portable, tmp_path):
    folder = CHECKPOINTS / "capsule-marian-de-en"
    command(folder, tmp_path / "out", "--to", "web")
    script = """
    const translator = await TranslatorWorker.load(argument.model);
    const { source, target, marks } = translator;
    const { text } = await translator.translate(argument.text, { num_beams: 1 });
    const coverage = await translator.cover(argument.text, argument.given, { marks: "all" });
    const unmarked = await translator.cover(argument.text, argument.given);
    const wrong = { marks: true };
    const notMarks = await translator.cover(argument.text, argument.given, wrong).catch((one) => one.message);
    const error = await translator.translate(argument.text, { num_beams: 0 }).catch((one) => one.message);
    const notText = await translator.translate([argument.text, null]).catch((one) => one.message);
    translator.close();
    const closed = await translator.translate(argument.text).catch((one) => one.message);
    const byUrl = await TranslatorWorker.load(pathToFileURL(argument.model));
    const again = (await byUrl.translate([argument.text], { num_beams: 1 }))[0].text;
    byUrl.close();
    const missing = await TranslatorWorker.load(argument.model + "x").catch((one) => one.message);
    const errors = { notMarks, error, notText, closed, missing };
    answer = { known: { source, target, marks }, text, again, coverage, unmarked, ...errors };
    """
    text, translation = "Der alte Mann kauft einen roten Hut.", "The man buys a hat."
    actual = node(script, {"model": str(tmp_path / "out/model.capsule"), "text": text, "given": translation})
    translator = translator_of(folder, "de-en")
    expected = translator.cover([text], [translation], coverage=CoverageOptions(method="attention"))
    assert actual["known"] == {"source": "de", "target": "en", "marks": True}
    assert actual["text"] == actual["again"] == translator(text, num_beams=1).text
    assert nearly(actual["coverage"], coverage_record(expected[0]))
    assert [word["word"] for word in actual["coverage"]["words"] if word["untranslated"]] == ["alte", "roten"]
    unmarked = [{**word, "untranslated": False} for word in actual["coverage"]["words"]]  # there is no alarm
    assert actual["unmarked"] == {**actual["coverage"], "words": unmarked}
    assert "`marks` must be sure, likely or all, got true" in actual["notMarks"]
    assert "`num_beams` must be a whole number from 1 to 256, got 0" in actual["error"]
    assert "texts[1] must be a string, got null" in actual["notText"]
    assert "was closed" in actual["closed"]
    assert "no such file" in actual["missing"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["de-en", "en-de"])
def test_words_that_were_made_up(name, node, portable, tmp_path):
    for pair in ("de-en", "en-de"):
        command(CHECKPOINTS / f"capsule-marian-{pair}", tmp_path / pair, "--to", "web")
    folder, reverse = CHECKPOINTS / f"capsule-marian-{name}", f"{name[3:]}-{name[:2]}"
    texts = json.loads((folder / "translations.json").read_text(encoding="utf-8"))["sources"]
    tagged = ["Der <b>alte</b> Mann <a href='x'>schläft</a>.", "<p>Er schläft.</p><p>Er liest und <i>isst</i>.</p>"]
    texts += [*ODD[:3], *tagged] if name == "de-en" else TAGGED
    unrelated = [*texts[1:], texts[0]]  # of other texts
    script = """
    const options = { reverse: argument.reverse };
    const translator = await Translator.load(argument.model, options);
    const cover = (text, number) => translator.cover(text, argument.given[number], { support: true, marks: "all" });
    const covered = argument.texts.map(cover);
    const translated = translator.translate(argument.texts, { support: true, num_beams: 2 });
    const inWorker = await TranslatorWorker.load(argument.model, options);
    const again = await inWorker.translate(argument.texts, { support: true, num_beams: 2 });
    inWorker.close();
    const alone = await Translator.load(argument.model);
    try { alone.translate("a", { support: true }); } catch (error) { answer = { error: error.message }; }
    Object.assign(answer, { covered, translated, again });
    """
    models = {"model": str(tmp_path / name / "model.capsule"), "reverse": str(tmp_path / reverse / "model.capsule")}
    actual = node(script, {**models, "texts": texts, "given": unrelated})
    backwards = translator_of(CHECKPOINTS / f"capsule-marian-{reverse}", reverse)
    translator = translator_of(folder, name, reverse=backwards)
    options = CoverageOptions(method="attention", support=True)
    expected = translations(translator, texts, num_beams=2, coverage=options)
    assert nearly(actual["translated"], expected)
    assert actual["again"] == actual["translated"]
    covered = translator.cover(texts, unrelated, coverage=options)
    records = map(in_utf16, map(coverage_record, covered), texts, unrelated)
    assert nearly(actual["covered"], list(records))
    assert sum(
        word["unsupported"] for coverage in actual["covered"] for word in coverage.get("target_words", ())
    ) > len(texts)
    assert "load this one with `reverse`" in actual["error"]


@pytest.mark.slow
def test_threads_change_nothing(node, tmp_path):
    folder = CHECKPOINTS / "capsule-marian-de-en"
    command(folder, tmp_path / "out", "--to", "web")
    script = """
    answer = [];
    for (const threads of [1, 2, 3]) {
      const translator = await Translator.load(argument.model, { threads });
      if (translator.engine.threads.length !== threads - 1) throw new Error("no threads");
      answer.push([1, 4].map((beams) => translator.translate(argument.texts, { num_beams: beams, coverage: true })));
      translator.close();
    }
    answer.push(await Translator.load(argument.model, { threads: 0 }).catch((error) => error.message));
    """
    texts = json.loads((folder / "translations.json").read_text(encoding="utf-8"))["sources"]
    single, *several, wrong = node(script, {"model": str(tmp_path / "out/model.capsule"), "texts": texts})
    assert several == [single, single]
    assert "threads must be at least 1, got 0" in wrong


@pytest.mark.slow
def test_damaged_files(node, word_for_word, tmp_path):
    command(word_for_word, tmp_path / "out", "--to", "web", "--languages", "en-de")
    model_bytes = (tmp_path / "out/model.capsule").read_bytes()
    contents = {
        "empty": b"",
        "cut": model_bytes[:-100],
        "other": model_bytes[:8] + b"x" + model_bytes[9:],
        "head": model_bytes[:400],
    }
    start = 8 + int.from_bytes(model_bytes[:8], "little")
    header = json.loads(model_bytes[8:start])
    for part in ("stream", "frequencies", "layout"):
        first = start + header[f"linears.0.{part}"]["data_offsets"][0]
        contents[part] = model_bytes[:first] + bytes([model_bytes[first] ^ 1]) + model_bytes[first + 1 :]
    layout, metadata = header["linears.0.layout"], header["__metadata__"]
    changes = {
        "no offsets": {"linears.0.layout": {**layout, "data_offsets": None}},
        "odd offsets": {"linears.0.layout": {**layout, "data_offsets": [0, 7]}},
        "no tokenizers": {"__metadata__": {**metadata, "tokenizers": "[]"}},
        "half a model": {"__metadata__": {**metadata, "model": '{"format": 5}'}},
    }
    for name, change in changes.items():
        changed = json.dumps(header | change).encode()
        contents[name] = len(changed).to_bytes(8, "little") + changed + model_bytes[start:]
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    script = "answer = {}; for (const [name, file] of Object.entries(argument)) {"
    script += "answer[name] = await Translator.load(file).then(() => null, (error) => error.message); }"
    errors = node(script, {name: str(tmp_path / name) for name in contents})
    assert [errors[name] for name in ("stream", "frequencies")] == [
        "the engine refused: a damaged stream of codes"
    ] * 2
    assert errors["layout"] == "the model's linears.0 is damaged: download or convert it again"
    for name in changes:
        assert errors.pop(name).startswith("the model cannot be loaded: download or convert it again (")
    assert set(errors.values()) <= {
        "the model is not a file of `capsule-mt convert --to web`, or it is cut off",
        "the model is cut off: download it again",
        "the model's linears.0 is damaged: download or convert it again",
        "the engine refused: a damaged stream of codes",
    }


@pytest.mark.slow
def test_the_package(package):
    npm = shutil.which("npm") or pytest.skip("no npm here")
    process = subprocess.run(
        [npm, "pack", "--dry-run", "--json", "--offline"], cwd=package, capture_output=True, timeout=300
    )
    (packed,) = json.loads(process.stdout)
    names = {file["path"] for file in packed["files"]}
    scripts = {path.name for path in package.glob("*.js")}
    assert names - {"LICENSE"} == scripts | set(MODULES) | {
        "index.d.ts",
        "interface.d.ts",
        "package.json",
        "README.md",
    }


class Isolated(http.server.SimpleHTTPRequestHandler):
    """It sends the headers that let a page share memory between threads."""

    def end_headers(self):
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


@pytest.fixture(scope="module")
def served_site(package, tmp_path_factory):
    """The address of a site with a released model."""
    folder = tmp_path_factory.mktemp("site")
    command(CHECKPOINTS / "capsule-marian-de-en", folder / "model", "--to", "web")
    site.write_site(folder / "site", [folder / "model/model.capsule"])
    files = functools.partial(Isolated, directory=folder / "site")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.parametrize(("argument", "code"), [("--help", 0), ("--unknown", 2)])
def test_the_command_builds_only_without_arguments(argument, code, monkeypatch, capsys):
    monkeypatch.setattr("capsule_mt.web.build.build", lambda folder: pytest.fail("it builds"))
    monkeypatch.setattr("sys.argv", ["build.py", argument])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == code
    printed = capsys.readouterr()
    assert "usage: " in printed.out + printed.err


def test_an_interface_of_other_sources_is_not_current(tmp_path):
    for name in MODULES:
        (tmp_path / name).touch()
    assert not is_current(tmp_path)
    (tmp_path / INTERFACE).write_text(interface(), encoding="utf-8")
    assert is_current(tmp_path)
    (tmp_path / INTERFACE).write_text(interface().replace("VERSION", "VERSION_"), encoding="utf-8")
    assert not is_current(tmp_path)


def test_a_bundle_that_fails(bundler):
    with pytest.raises(OSError, match=r'esbuild failed: [^`]*Could not resolve "./other.js"'):
        bundled({"index": 'export { name } from "./other.js";', "worker": ""}, bundler)


@pytest.mark.parametrize("program", [None, "esbuild"])
def test_the_scripts_of_a_page(program, monkeypatch, tmp_path, capsys):
    """Without esbuild, they are the modules."""
    monkeypatch.setattr(site, "esbuild", lambda: program)
    monkeypatch.setattr(site, "bundled", lambda modules, program: {"index": program})
    monkeypatch.setattr(site, "is_current", lambda folder: True)
    monkeypatch.setattr(site, "MODULES", ())
    site.write_site(tmp_path, [])
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in (tmp_path / "capsule").iterdir()}
    assert scripts == ({"index": program} if program else site.sources())
    assert ("npm ci --prefix" in capsys.readouterr().err) == (program is None)


@pytest.mark.slow
def test_a_small_download(package, bundler):
    scripts = [script.encode() for script in bundled(site.sources(), bundler).values()]
    for module in MODULES:  # a page loads one
        files = (*scripts, (package / module).read_bytes())
        assert sum(map(len, map(gzip.compress, files))) < (74_200 if "threads" in module else 73_000)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_a_page_gives_the_same_tokens(threads, served_site, browser, portable):
    folder = CHECKPOINTS / "capsule-marian-de-en"
    texts = json.loads((folder / "translations.json").read_text(encoding="utf-8"))["sources"]
    loaded = []
    page = browser.new_page()
    page.on("request", lambda request: loaded.append(request.url.rpartition("/")[2]))
    page.goto(served_site)
    script = """async ([texts, threads]) => {
      const { TranslatorWorker } = await import("./capsule/index.js");
      const translator = await TranslatorWorker.load(new URL("./de-en.capsule", document.baseURI), { threads });
      return translator.translate(texts, { coverage: true, num_beams: 4 });
    }"""
    options = {"coverage": CoverageOptions(method="attention"), "num_beams": 4}
    expected = translations(translator_of(folder, "de-en"), texts, **options)
    assert nearly(page.evaluate(script, [texts, threads]), expected)
    if "avxvnni" in TIERS:
        module = "engine.relaxed.wasm" if threads == 1 else "engine.threads.relaxed.wasm"
        assert set(MODULES) & set(loaded) == {module}


@pytest.fixture
def site_without_models(tmp_path, monkeypatch):
    """The address of a site for German and English that does not have a model."""
    monkeypatch.setattr(site, "is_current", lambda folder: True)
    monkeypatch.setattr(site, "MODULES", ())
    site.write_site(tmp_path / "site", [])
    description = json.loads((tmp_path / "site/site.json").read_text())
    description["languages"] = describe_languages([LanguagePair("de", "en"), LanguagePair("en", "de")])
    (tmp_path / "site/site.json").write_text(json.dumps(description))
    files = functools.partial(Isolated, directory=tmp_path / "site")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), files)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.mark.slow
def test_the_page_says_what_it_does_not_do(site_without_models, browser):
    """It opens text files only, and does not detect the language."""
    page = open_page(browser, site_without_models)
    assert texts_of(page, "#from option") == ["Choose the language: it is not detected here", "German", "English"]
    assert page.locator("#from").input_value() == "de"
    assert page.locator("#from option").first.is_disabled()

    def open_file(name, content):
        page.locator("#source").fill("before")
        page.locator("#file").set_input_files({"name": name, "mimeType": "", "buffer": content})
        page.locator(f"#status:not(.busy):has-text('{name}')").wait_for()
        return page.locator("#status").inner_text(), page.locator("#source").input_value()

    advice = "Paste its text here, or translate the file with `capsule-mt translate` or a server."
    for name in ("report.docx", "page.html", "no suffix"):
        message = f"{name} is not a text file (.txt), and this page opens no others. {advice}"
        assert open_file(name, b"PK\x03\x04") == (message, "before")
        assert page.locator("#status").get_attribute("class") == "error"
    for content in (b"\xff\xfea\0", b"Caf\xe9", b"PK\x03\x04\0\0"):
        message = "notes.txt is not text in UTF-8. Save it as UTF-8, or paste its text here."
        assert open_file("notes.txt", content) == (message, "before")
    assert open_file("NOTES.TXT", "\ufeffgrün\n".encode()) == ("Opened NOTES.TXT.", "grün\n")
    assert page.problems == []


@pytest.mark.slow
def test_the_page(served_site, browser, screenshots, portable):
    text = "Der alte Mann kauft einen roten Hut. Das Wetter ist heute viel besser als gestern."
    expected = translator_of(CHECKPOINTS / "capsule-marian-de-en", "de-en")(text).text
    for scheme, width in (("light", 1280), ("dark", 1280), ("light", 375), ("dark", 375)):
        page = open_page(browser, served_site, width, scheme)
        page.locator("#source").fill(text)
        page.locator("#translate").click()
        page.locator("#status", has_text="Translated.").wait_for(timeout=60_000)
        assert page.locator("#target").input_value() == expected
        click_word(page, "source", "Hut.")
        assert texts_of(page, ".lit") == ["Hut.", "hat."]
        assert page.locator("#source-note").inner_text() == "“Hut.” became “hat.”."
        assert violations(page) == []
        page.locator("#target").fill("The man buys a hat. The weather is much better today than yesterday.")
        page.locator("#check").click()
        page.locator("#status", has_text="Checked.").wait_for()
        assert (
            texts_of(page, "#source-marks :is(.probable, .hint)") == []
        )  # by default, only in sentences that raise an alarm
        readable(page)
        page.screenshot(path=screenshots / f"web-{scheme}-{width}.png", full_page=True)
        assert page.problems == []
        page.close()

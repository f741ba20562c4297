"""The page in a browser: what it shows, in both themes, on wide and narrow screens, and to a screen reader."""

import asyncio
import re
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from capsule_mt import CoverageOptions, Translator
from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.answers import RequestLimits
from capsule_mt.serve.app import build_app
from capsule_mt.serve.batching import Batcher
from capsule_mt.serve.clients import Keys
from capsule_mt.serve.files import Readers
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.running import bind
from capsule_mt.text.detecting import Detected
from tests.fixtures.browser import click_word, open_page, readable, texts_of, violations
from tests.light.serve.fakes import Checked, Upper

ROOT = Path(__file__).resolve().parents[3]
EN_DE, DE_EN = LanguagePair("en", "de"), LanguagePair("de", "en")
WIDTHS = (320, 375, 1280)


class Detector:
    """Takes a text for German if it has an umlaut, else for English."""

    def rank(self, text):
        return [Detected("de" if "ü" in text.lower() else "en", 1.0)]


@contextmanager
def served(translators, limits=None, detector=None):
    """Serve in a thread; yield the address."""
    batchers = {pair: Batcher(translator, wait_seconds=0.0) for pair, translator in translators.items()}
    readers = Readers()
    app = build_app(batchers, limits or RequestLimits(), Metrics(), detector, readers)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    listener = bind("127.0.0.1", 0)
    listener.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(120)
        readers.close()
        for batcher in batchers.values():
            batcher.close()


def translate(page, text):
    page.locator("#source").fill(text)
    page.locator("#translate").click()
    page.locator("#status", has_text="Translated.").wait_for()


def check(page, text, translation):
    page.locator("#source").fill(text)
    page.locator("#target").fill(translation)
    page.locator("#check").click()
    page.locator("#status", has_text="Checked.").wait_for()


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(("browser_name", "scheme"), [("browser", "dark"), ("browser", "light"), ("firefox", "light")])
def test_problems_are_marked_and_listed(request, screenshots, browser_name, scheme, width):
    with served({EN_DE: Checked()}) as address:
        page = open_page(request.getfixturevalue(browser_name), address, width, scheme)
        assert texts_of(page, "h1") == ["Translate"]
        assert texts_of(page, "#from option, #to option") == ["English", "German"]
        assert not page.locator("#problems, #copy, #check, #clear").locator("visible=true").count()
        translate(page, "a quick <b>fox</b>")
        assert page.locator("#target").input_value() == "A <B>FOX</B>"
        assert page.locator("#status").inner_text() == "Translated. 1 thing to look at."
        assert texts_of(page, "#source-marks :is(.probable, .hint)") == ["quick"]
        assert texts_of(page, "#problem-list li") == ["Perhaps left out: quick"]
        page.locator("#again").click()
        page.get_by_text("No problems found.").wait_for()
        assert texts_of(page, "#problem-list li") == []
        assert page.locator("#marks").is_visible()  # to choose more marks
        check(page, "a quick fox has 500 hens and is quick", "a fox dreams and has 50 hens")
        assert texts_of(page, "#problem-list li") == [
            "The number 500 is missing in the translation.",
            "The number 50 is only in the translation.",
            "Probably left out: quick",
            "Probably left out: is quick",
            "Probably made up: dreams",
        ]
        assert (texts_of(page, ".marks .fault"), texts_of(page, "#target-marks :is(.probable, .hint)")) == (
            ["500", "50"],
            ["dreams"],
        )
        page.locator("#problem-list button").last.click()
        assert page.locator("#target-note").inner_text() == (
            "Probably made up: dreams. Only 0 % of it seems to come from the text."
        )
        assert texts_of(page, ".lit") == ["dreams"]
        readable(page)
        assert not page.problems  # before a picture, for which playwright adds a style that Firefox reports
        page.screenshot(path=screenshots / f"problems-{browser_name}-{scheme}-{width}.png", full_page=True)
        page.locator("#marks").select_option("sure")
        page.locator("#status", has_text="Checked.").wait_for()
        page.locator("#target").press_sequentially("!")
        assert not page.locator(".probable, .hint, .fault, #problems").locator("visible=true").count()


@pytest.mark.slow
def test_checks_of_every_kind_in_plain_words(browser):
    with served({EN_DE: Checked()}) as address:
        page = open_page(browser, address)
        source = "It costs $3. See {name} at https://a.de/b (now), does he not like the small red house?"
        check(page, source, "It is is drei. See at now, we like the small red house.")
        assert texts_of(page, "#problem-list li")[:7] == [
            "The address https://a.de/b is missing in the translation.",
            "The placeholder {name} is missing in the translation.",
            "The sign $ is missing in the translation.",
            "The text ends with “?”, the translation with “.”.",
            "Not translated: like the small red house",
            "Probably left out: costs $3",
            "Probably left out: does",
        ]
        assert "The negation not is missing in the translation." in texts_of(page, "#problem-list li")
        assert texts_of(page, "#source-marks .fault") == (
            ["$", "{name}", "https://a.de/b", "like", " ", "the", " ", "small", " ", "red", " ", "house", "?"]
        )
        assert not page.problems


@pytest.mark.slow
def test_words_that_belong_together_and_their_notes(browser):
    with served({EN_DE: Upper()}) as address:
        page = open_page(browser, address)
        translate(page, "😀 a quick fox")  # the first character takes two of JavaScript's units
        assert texts_of(page, "#source-marks :is(.probable, .hint)") == ["quick"]
        click_word(page, "source", "fox")
        assert texts_of(page, ".lit") == ["fox", "FOX"]
        assert page.locator("#source-note").inner_text() == "“fox” became “FOX”."
        click_word(page, "target", "A")
        assert page.locator("#target-note").inner_text() == "“A” comes from “a”."
        assert not page.locator("#source-note").is_visible()
        page.keyboard.press("Escape")
        assert not page.locator("#target-note").is_visible()
        page.locator("#source").focus()
        page.keyboard.press("End")
        for _ in "k fox":
            page.keyboard.press("ArrowLeft")
        assert page.locator("#source-note").inner_text() == (
            "Perhaps left out, unverified: quick. Only 0 % of it seems to be in the translation."
            " The model did not see “q”, by the rule “q”."
        )


@pytest.mark.slow
def test_detect_and_swap(browser):
    with served({EN_DE: Upper(), DE_EN: Upper()}, detector=Detector()) as address:
        page = open_page(browser, address)
        assert texts_of(page, "#from option") == ["Detect language", "German", "English"]
        assert page.locator("#swap").is_disabled()
        page.locator("#to").select_option("en")
        translate(page, "grün")
        assert texts_of(page, "#from option")[0] == "German (detected)"
        assert page.locator("#source").get_attribute("lang") == "de"
        page.locator("#swap").click()
        assert [page.locator(id).input_value() for id in ("#from", "#to")] == ["en", "de"]
        assert [page.locator(id).input_value() for id in ("#source", "#target")] == ["GRÜN", "grün"]
        page.locator("#from").select_option("auto")
        page.locator("#translate").click()
        page.get_by_text("The text is already in German.").wait_for()
        page.locator("#to").select_option("en")
        check(page, "grün", "GREEN")
        assert texts_of(page, "#problem-list li") == ["Perhaps left out, unverified: grün"]
        assert not page.problems


# of both lists of languages, the width that the chosen name needs, and the list's
WIDTHS_OF_LISTS = """() => ["from", "to"].map((id) => {
  const list = document.getElementById(id);
  const copy = list.cloneNode();
  copy.append(list.selectedOptions[0].cloneNode(true));
  copy.style.cssText = "position: absolute; width: max-content; max-width: none";
  document.body.append(copy);
  const widths = [copy.getBoundingClientRect().width, list.getBoundingClientRect().width];
  copy.remove();
  return widths; })"""


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_no_name_of_a_language_is_cut(browser, screenshots, width):
    with served({EN_DE: Upper(), LanguagePair("en", "pt"): Upper()}, detector=Detector()) as address:
        page = open_page(browser, address, width)
        page.locator("#to").select_option("pt")
        translate(page, "fox")
        assert texts_of(page, "#from option:checked, #to option:checked") == ["English (detected)", "Portuguese"]
        for required, actual in page.evaluate(WIDTHS_OF_LISTS):
            assert required <= actual
        page.screenshot(path=screenshots / f"detected-{width}.png")
        readable(page)


@pytest.mark.slow
def test_the_pair_and_the_texts_are_remembered(browser):
    with served({EN_DE: Upper(), DE_EN: Upper()}) as address:
        page = open_page(browser, address)
        page.locator("#from").select_option("de")
        translate(page, "a fox")
        page.reload()
        page.locator("#translate:enabled").wait_for()
        assert [page.locator(id).input_value() for id in ("#from", "#to")] == ["de", "en"]
        assert [page.locator(id).input_value() for id in ("#source", "#target")] == ["a fox", "A FOX"]
        page.locator("#clear").click()
        page.reload()
        page.locator("#translate:enabled").wait_for()
        assert [page.locator(id).input_value() for id in ("#source", "#target")] == ["", ""]


@pytest.mark.slow
def test_copy_download_and_files(browser, tmp_path):
    (tmp_path / "a report.txt").write_text("a fox\n")
    with served({EN_DE: Upper()}) as address:
        page = open_page(browser, address)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        translate(page, "a fox")
        page.locator("#copy").click()
        page.get_by_text("Copied.").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "A FOX"
        with page.expect_download() as download:
            page.locator("#download").click()
        assert download.value.suggested_filename == "translation.de.txt"
        assert Path(download.value.path()).read_text() == "A FOX"
        with page.expect_file_chooser() as chooser:
            page.locator("#upload").click()
        chooser.value.set_files(tmp_path / "a report.txt")
        page.get_by_text("Translated a report.txt.").wait_for()
        with page.expect_download() as download:
            page.get_by_text("Download a report.de.txt").click()
        assert download.value.suggested_filename == "a report.de.txt"
        assert Path(download.value.path()).read_text() == "A FOX\n"
        assert not page.problems


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("browser_name", ["browser", "firefox"])
def test_the_layer_of_marks_has_the_lines_of_the_field(request, browser_name, width):
    text = "a quick fox\tand  a verylongword" + "x" * 60 + " :\n\n" + "some more of the same words. " * 12 + "\n"
    with served({EN_DE: Upper()}) as address:
        page = open_page(request.getfixturevalue(browser_name), address, width)
        translate(page, text)
        for side in ("source", "target"):
            field, layer = (page.locator(f"#{side}{suffix}").bounding_box() for suffix in ("", "-marks"))
            assert field == layer
            # the field is just as high as its text, or the layer's lines would break elsewhere
            heights = page.locator(f"#{side}").evaluate("field => [field.scrollHeight, field.clientHeight]")
            assert heights[0] == heights[1]
        click_word(page, "source", "more")
        assert page.locator("#source").evaluate("field => field.value.slice(0, field.selectionStart)")[-2:] == "mo"
        assert "more" in texts_of(page, ".lit")
        assert not page.problems


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
def test_a_long_text_scrolls_and_the_limit_is_shown(browser, width):
    text = "some more of the same words. " * 150 + "a quick fox"
    with served({EN_DE: Checked()}, RequestLimits(max_characters=5000)) as address:
        page = open_page(browser, address, width)
        assert texts_of(page, "#count") == ["0 of 5000 characters"]
        check(page, text, "a fox dreams")
        assert texts_of(page, "#count") == [f"{len(text)} of 5000 characters"]
        box_of = lambda selector: page.locator(selector).first.bounding_box()  # noqa: E731
        assert box_of("#source") == box_of("#source-marks")
        assert box_of("#source")["height"] > 800 > 0.7 * 800 >= box_of(".scroll")["height"]
        assert box_of("#problems")["height"] < 800  # although a problem is as long as the text
        page.locator("#problem-list button", has_text="quick").click()  # the text scrolls to it
        word, note, view = map(box_of, ("#source-marks .lit", "#source-note", ".scroll"))
        assert view["y"] <= word["y"] < note["y"] <= view["y"] + view["height"] + 10
        page.locator(".scroll").first.evaluate("view => view.scrollTo(0, 0)")
        page.locator("#source-note").wait_for(state="hidden")
        page.locator("#source").focus()
        page.keyboard.press("Control+End")
        page.keyboard.type("x")
        assert page.locator(".scroll").first.evaluate("view => view.scrollTop") > 0
        readable(page)
        assert not page.problems


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_nothing_that_axe_objects_to(browser, scheme):
    with served({EN_DE: Checked()}) as address:
        page = open_page(browser, address, 375, scheme)
        assert violations(page) == []
        check(page, "a quick fox has 500 hens", "a fox dreams")
        page.locator("#problem-list button").last.click()
        assert violations(page) == []


@pytest.mark.slow
def test_waiting_and_errors(browser, tmp_path):
    translator = Upper()
    (tmp_path / "keys").write_text("key\n")
    with served({EN_DE: translator}, RequestLimits(max_characters=20, keys=Keys.load(tmp_path / "keys"))) as address:
        page = open_page(browser, address)
        status = page.locator("#status")
        page.locator("#translate").click()
        assert status.inner_text() == "Type a text first."
        page.locator("#source").fill("a fox")
        page.locator("#translate").click()
        status.get_by_text("This server needs an API key").wait_for()
        page.locator("#api_key").fill("key")
        translator.free.clear()
        page.locator("#translate").click()
        status.get_by_text(re.compile(r"Translating … \d+ s")).wait_for()
        assert page.locator("button:enabled").locator("visible=true").count() == 0
        page.locator("#source").fill("a quick fox")
        translator.free.set()
        status.get_by_text("Translated.").wait_for()
        assert page.locator("#target").input_value() == "A FOX"
        assert not page.locator("#problems").is_visible()  # they would be those of another text
        page.locator("#source").fill("a" * 21)
        assert page.locator("#count").inner_text() == "21 of 20 characters"
        page.locator("#translate").click()
        status.get_by_text("request (21) exceeds text limit (20)").wait_for()
    page.locator("#translate").click()
    status.get_by_text("The server does not answer.").wait_for()


@pytest.mark.slow
def test_the_picture_of_the_readme(browser, screenshots):
    """What the page shows by default: a translation by a released model, with the words that it leaves out.

    PAGE_SCREENSHOTS=docs pytest -m slow tests/light/serve/test_page.py -k picture     # takes docs/page*.png anew
    """
    image = pytest.importorskip("PIL.Image")
    names = {DE_EN: "capsule-marian-de-en", EN_DE: "capsule-marian-en-de"}
    translators = {pair: Translator.from_pretrained(ROOT / "checkpoints" / name) for pair, name in names.items()}
    source = "Die Kinder spielen heute im Garten ihrer Großmutter. Das Eis kostet 3 Euro."
    (translation,) = translators[DE_EN]([source], coverage=CoverageOptions())
    missing = [word.text for word in translation.coverage.untranslated]
    assert missing == ["ihrer", "Großmutter"]
    with served(translators) as address:
        page = open_page(browser, address, width=1180)
        page.locator("#from").select_option("de")
        translate(page, source)
        assert page.locator("#target").input_value() == translation.text
        assert texts_of(page, ".marks :is(.probable, .hint)") == ["ihrer", " ", "Großmutter"]
        assert texts_of(page, "#problem-list") == [
            "Probably left out: ihrer Großmutter (50 % of such marks are right)"
        ]
        page.locator("#problem-list button").click()
        page.wait_for_timeout(300)
        end = page.locator("#status").bounding_box()
        clip = {"x": 0, "y": 0, "width": 1180, "height": end["y"] + end["height"] + 16}
        for scheme, name in (("light", "page.png"), ("dark", "page-dark.png")):
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=screenshots / name, clip=clip, full_page=True)
            with image.open(screenshots / name) as picture:
                is_dark = picture.convert("L").resize((1, 1)).getpixel((0, 0)) < 128
                few_colours = picture.convert("RGB").quantize(128, dither=image.Dither.NONE)
            assert is_dark == (scheme == "dark")
            few_colours.save(screenshots / name, optimize=True)
            assert (screenshots / name).stat().st_size <= 65_000

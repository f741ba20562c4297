"""The page in a browser: what it shows, in both themes, on wide and narrow screens."""

import asyncio
import itertools
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import uvicorn

from capsule_mt import Translator
from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.serve.answers import Limits
from capsule_mt.serve.app import build_app
from capsule_mt.serve.batching import Batcher
from capsule_mt.serve.clients import Keys
from capsule_mt.serve.metrics import Metrics
from capsule_mt.serve.running import bind
from tests.fixtures.browser import open_page, readable, texts_of
from tests.light.serve.fakes import Upper

ROOT = Path(__file__).resolve().parents[3]
EN_DE = LanguagePair("en", "de")


@contextmanager
def served(translators, limits=None):
    """Serve in a thread; yield the address."""
    batchers = {pair: Batcher(translator, wait_seconds=0.0) for pair, translator in translators.items()}
    server = uvicorn.Server(uvicorn.Config(build_app(batchers, limits or Limits(), Metrics()), log_level="error"))
    listener = bind("127.0.0.1", 0)
    listener.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listener])))
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    for batcher in batchers.values():
        batcher.close()


@pytest.mark.slow
def test_translate_try_again_and_check(browser, screenshots):
    text = "a quick <b>fox</b>"
    with served({EN_DE: Upper()}) as address:
        for scheme, width in itertools.product(("dark", "light"), (375, 1280)):
            page = open_page(browser, address, width, scheme)
            assert texts_of(page, "#from option, #to option") == ["English", "German"]
            page.locator("#source").fill(text)
            page.locator("#translate").click()
            page.locator("#result").wait_for()
            assert page.locator("#target").input_value() == "A <B>FOX</B>"
            assert texts_of(page, "#sentences .left") == ["quick"]
            assert "Perhaps left out, 1 of 5 words: quick." in page.locator("#score").inner_text()
            assert page.locator("#sentences .left").get_attribute("data-tip") == "perhaps left out; translated 0 %"
            page.locator("#sentences [data-tip]").last.hover()
            readable(page)
            page.screenshot(path=screenshots / f"coverage-{scheme}-{width}.png", full_page=True)
            page.locator("#again").click()
            page.locator("#status", has_text="with 8 beams").wait_for()
            assert (texts_of(page, "#sentences .left"), page.locator("#again").is_visible()) == ([], False)
            assert "(before: 9" in page.locator("#score").inner_text()
            page.locator("#target").fill("A")
            page.locator("#check").click()
            page.locator("#status", has_text="Checked").wait_for()
            assert texts_of(page, "#sentences .left") == ["quick", "b", "fox", "b"]
            assert not page.problems
            page.close()


@pytest.mark.slow
def test_operating_points_that_nobody_read(browser):
    unread = Upper(verifies=True)
    unread.precision = None
    with served({EN_DE: unread}) as address:
        page = open_page(browser, address, 375, "light")
        page.locator("#source").fill("a quick fox")
        page.locator("#translate").click()
        page.locator("#result").wait_for()
        assert page.locator("#marks").is_visible()
        assert page.locator("#precision").inner_text() == ""
        page.close()


@pytest.mark.slow
def test_what_was_made_up_and_operating_points(browser, screenshots):
    with served({EN_DE: Upper(verifies=True)}) as address:
        for scheme, width in itertools.product(("dark", "light"), (375, 1280)):
            page = open_page(browser, address, width, scheme)
            page.locator("#source").fill("a quick fox")
            page.locator("#target").fill("a fox dreams")
            page.locator("#check").click()
            page.locator("#result").wait_for()
            assert texts_of(page, "#sentences .left") == ["quick"]
            assert texts_of(page, "#targets .new") == ["dreams"]
            assert "Perhaps made up: dreams." in page.locator("#score").inner_text()
            assert page.locator("#targets .new").get_attribute("data-tip") == "perhaps made up; supported 0 %"
            assert page.locator("#sentences .badge.low").count() == 1  # 67 % is below 0.7
            assert {legend.is_visible() for legend in page.locator(".legend li").all()} == {True}
            assert "60 % were right" in page.locator("#precision").inner_text()
            page.locator("#marks").select_option("sure")
            page.get_by_text("80 % were right").wait_for()
            readable(page)
            page.screenshot(path=screenshots / f"made-up-{scheme}-{width}.png", full_page=True)
            page.locator("#target").fill("a quick fox")
            page.locator("#check").click()
            page.get_by_text("No word seems to be left out").wait_for()
            assert not page.locator("#alarm").is_visible()
            assert not page.problems
            page.close()


@pytest.mark.slow
def test_waiting_and_errors(browser, tmp_path):
    translator = Upper()
    (tmp_path / "keys").write_text("key\n")
    with served({EN_DE: translator}, Limits(max_characters=20, keys=Keys.load(tmp_path / "keys"))) as address:
        page = open_page(browser, address)
        status = page.locator("#status")
        page.locator("#check").click()
        assert status.inner_text() == "Type a text first."
        page.locator("#source").fill("a fox")
        page.locator("#translate").click()
        status.get_by_text("This server needs an API key").wait_for()
        page.locator("#api_key").fill("key")
        translator.free.clear()
        page.locator("#translate").click()
        status.get_by_text("Translating … 1").wait_for()
        assert page.locator("button:enabled").count() == 0
        translator.free.set()
        status.get_by_text("Translated in").wait_for()
        page.locator("#source").fill("a" * 21)
        page.locator("#translate").click()
        status.get_by_text("request (21) exceeds text limit (20)").wait_for()
        assert not page.locator("#result").is_visible()
    page.locator("#translate").click()
    status.get_by_text("The server does not answer.").wait_for()


@pytest.mark.slow
def test_the_picture_of_the_readme(browser, screenshots):
    """A translation that is wrong on both sides is checked by the released model.

    PAGE_SCREENSHOTS=docs pytest -m slow tests/light/serve/test_page.py -k picture     # takes docs/page.png anew
    """
    image = pytest.importorskip("PIL.Image")
    translator = Translator.from_pretrained(ROOT / "checkpoints" / "capsule-marian-de-en")
    source, given = "Die Kinder spielen heute im Garten ihrer Großmutter.", "The old children are playing today."
    missing = [word.text for word in translator.cover([source], [given])[0].untranslated]
    assert "Großmutter" in missing
    with served({LanguagePair("de", "en"): translator}) as address:
        page = open_page(browser, address, width=1020)
        page.locator("#source").fill(source)
        page.locator("#target").fill(given)
        page.locator("#check").click()
        page.locator("#result").wait_for()
        assert texts_of(page, "#sentences .left") == missing
        assert texts_of(page, "#targets .new") == ["old"]
        page.locator("h1").click()  # away from the button
        page.wait_for_timeout(300)
        end = page.locator("#translated").bounding_box()
        clip = {"x": 0, "y": 0, "width": 1020, "height": end["y"] + end["height"] + 16}
        page.screenshot(path=screenshots / "page.png", clip=clip, full_page=True)
    with image.open(screenshots / "page.png") as picture:
        few_colours = picture.convert("RGB").quantize(128, dither=image.Dither.NONE)
    few_colours.save(screenshots / "page.png", optimize=True)
    assert (screenshots / "page.png").stat().st_size <= 65_000

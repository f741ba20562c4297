"""The page: what it computes, what it shows, and itself in a real browser."""

import html
import itertools
import re
import socket
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, pipeline

pytest.importorskip("gradio")
pytest.importorskip("matplotlib")

import gradio
import httpx

from hf_capsule_mt import CapsuleMarianMTModel, Translator
from hf_capsule_mt.demo.explanation import Explanation, SourceWord, explain, target_steps
from hf_capsule_mt.demo.page import EXAMPLES, build_page, checked, render, serve, shade, source_language, summary
from tests.fixtures.tiny import save_tiny_checkpoint
from tests.fixtures.word_for_word import sentences


@pytest.fixture(scope="module")
def guided(word_for_word, tmp_path_factory):
    """A trained checkpoint with PAST and FUTURE, and with routed layers to draw, which leave its function as it is."""
    folder = tmp_path_factory.mktemp("guided")
    torch.manual_seed(0)
    model = CapsuleMarianMTModel.from_marian(
        word_for_word,
        layer_aggregation="dynamic_routing",
        layer_aggregation_side="encoder",
        layer_aggregation_num_capsules=16,
        layer_aggregation_residual=True,
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(word_for_word).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    torch.manual_seed(0)
    return str(save_tiny_checkpoint(tmp_path_factory.mktemp("plain")))


@pytest.fixture
def translator(guided):
    return Translator.from_pretrained(guided)


TEXT = next(text for text in sentences(20, seed=3) if len(text.split()) == 7)


def test_past_grows_word_by_word(translator, tmp_path):
    explanation = explain(translator, f"  {TEXT} ", tmp_path)
    words = TEXT.split()
    assert [word.text for word in explanation.source_words] == words
    assert explanation.source[explanation.source_words[1].start :].startswith(words[1])
    assert explanation.translation.split() == explanation.target_words
    steps = len(explanation.target_words)
    for number, word in enumerate(explanation.source_words):
        assert len(word.past) == len(word.future) == steps + 1
        assert word.past[0] < 0.5 or number == 0  # nothing has been said
        if number < steps:  # said after as many words as its place
            assert word.past[min(number + 1, steps)] > word.past[0]
    (record,) = pipeline("translation", model=translator.model, tokenizer=translator.tokenizer)(
        TEXT, return_coverage=True
    )
    assert explanation.score == pytest.approx(record["coverage"]["score"], abs=1e-5)
    at_the_end = [word["past"] for word in record["coverage"]["words"]]
    assert [word.past[-1] for word in explanation.source_words] == pytest.approx(at_the_end, abs=1e-4)
    assert [Path(path).name for path, _ in explanation.pictures] == ["encoder.layer_aggregation.png"]
    for chart, said in zip(explanation.charts, ("PAST of each", "FUTURE of each", "Which capsule"), strict=True):
        assert said in chart
        assert all(f'">{word}</th>' in chart for word in words)
    assert explanation.charts[0].count("<td") == len(words) * (steps + 1)
    assert all(Path(path).stat().st_size > 5_000 for path, _ in explanation.pictures)


def test_steps_of_subwords(plain):
    tokenizer = Translator.from_pretrained(plain).tokenizer
    ids = tokenizer("The twenty-three 🙂 apples")["input_ids"]
    ends, words = target_steps(tokenizer, ids)
    assert words == ["The", "twenty-three", "🙂", "apples"]
    assert ends[0] == 0
    assert ends == sorted(ends)
    assert tokenizer.decode(ids[: ends[2]]).strip() == "The twenty-three"
    assert ends[-1] == len(ids) - 1  # without the end token


def test_shading(translator, tmp_path):
    explanation = explain(translator, TEXT, tmp_path)
    pages = [render(explanation, step) for step in range(len(explanation.target_words) + 1)]
    colours = [re.findall(r"background: (#\w{6})", page) for page in pages]
    assert all(len(shades) == len(TEXT.split()) for shades in colours)
    assert colours[0] != colours[-1]
    for shades, later in itertools.pairwise(colours):
        assert shades != later
    assert pages[1].count('class="word read"') == 1
    assert f"{explanation.score:.0%}" in summary(explanation)
    explanation.source_words[0].untranslated = True
    assert 'class="word shaded untranslated"' in render(explanation, 99)
    assert 'class="word shaded untranslated"' not in render(explanation, 0)
    assert explanation.source_words[0].text in summary(explanation)


def test_a_given_translation_is_checked(translator, guided, tmp_path):
    whole = explain(translator, TEXT, tmp_path)
    given = " ".join(whole.translation.split()[:3])
    explanation = checked(translator, TEXT, str(tmp_path), given)
    assert (explanation.translation, explanation.target_words) == (given, given.split())
    assert explanation.score == pytest.approx(translator.cover([TEXT], [given])[0].score, abs=1e-5)
    assert explanation.score < whole.score
    assert len(explanation.source_words[0].past) == 4
    page = build_page({"guided": guided})
    (check,) = [function.fn for function in page.fns.values() if function.api_name == "check"]
    shown = check(TEXT, "guided", given)
    assert shown[1] == given
    assert "Perhaps left out" in shown[2]
    assert check(TEXT, "guided", " ")[1:3] == (" ", "⚠️ Type a translation first.")


def test_the_last_step_shows_what_decides_about_the_frames(translator, tmp_path):
    explanation = explain(translator, TEXT, tmp_path)
    word = explanation.source_words[0]
    word.covered = 0.0
    last = render(explanation, len(explanation.target_words))
    assert f'background: {shade(0, 1)}" title="translated 0%"' in last


def test_text_is_not_markup(translator, tmp_path):
    page = render(explain(translator, "balu <script>alert(1)</script>", tmp_path), 1)
    assert "<script" not in page
    assert "&lt;" in page


def test_the_words_of_a_visitor_are_no_markup(translator, guided):
    """Neither in what the page says about a translation nor in an error, which may quote the text."""
    picture = "![x](http://127.0.0.1:9/x.png)<img/src=x>"
    explanation = Explanation("", "", [SourceWord(picture, 0, 1, untranslated=True)], [], 0.5, [picture])
    page = build_page({"guided": guided})
    (said,) = [block for block in page.blocks.values() if block.elem_id == "said"]
    assert isinstance(said, gradio.HTML)
    assert html.escape(picture) in summary(explanation)
    assert "<img" not in summary(explanation)
    (translate,) = [function.fn for function in page.fns.values() if function.api_name == "translate"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_capsule_mt.demo.page.checked", _raise_value_error)
        shown = translate(picture, "guided")[2]
    assert html.escape(picture) in shown
    assert "<img" not in shown


def _raise_value_error(translator, text, folder, given):
    raise ValueError(f"cannot translate {text}")


def test_a_model_without_past_and_future(plain, tmp_path):
    explanation = explain(Translator.from_pretrained(plain), "The child sleeps.", tmp_path)
    assert 0 <= explanation.score <= 1
    page = render(explanation, 1)
    assert "no PAST and FUTURE" in page
    assert page.count('class="word shaded') == 4
    assert f"{explanation.score:.0%}" in summary(explanation)
    assert "." not in [word.text for word in explanation.source_words if word.untranslated]


def test_the_example_is_in_the_language_of_the_model(tmp_path):
    (tmp_path / "recipe.yaml").write_text("about: x\nlanguages:\n  source: de\n  target: en\n")
    assert source_language(str(tmp_path)) == "de"
    (tmp_path / "recipe.yaml").write_text("languages: {source: fr, target: en}\n")
    assert source_language(str(tmp_path)) == "fr"
    assert source_language("checkpoints/capsule-marian-de-en") == "de"
    assert source_language("Helsinki-NLP/opus-mt-xx-en") == "en"


def test_what_is_refused(translator, tmp_path):
    with pytest.raises(ValueError, match=r"Type a sentence first\."):
        checked(translator, " ", str(tmp_path))
    with pytest.raises(ValueError, match="has 500 characters; this page takes at most 400"):
        checked(translator, "a" * 500, str(tmp_path))
    with pytest.raises(ValueError, match="has 500 characters; this page takes at most 400"):
        checked(translator, "a", str(tmp_path), "a" * 500)
    with pytest.raises(ValueError, match="longer than the 32"):
        checked(translator, "balu " * 50, str(tmp_path))
    with pytest.raises(ValueError, match="at least one model"):
        build_page({})


def test_a_taken_port_is_one_sentence(monkeypatch):
    monkeypatch.setattr("hf_capsule_mt.demo.page.build_page", lambda models: pytest.fail("a model was loaded"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"`--host 127.0.0.1 --port {port}` cannot be listened on: .*in use"):
            serve({"guided": "outputs/gdr"}, port=port)


def test_limits_and_loopback(guided, monkeypatch):
    monkeypatch.delenv("GRADIO_SERVER_NAME", raising=False)
    page = serve({"guided": guided}, prevent_thread_lock=True, quiet=True)
    try:
        assert page.local_url.startswith("http://127.0.0.1:")
        assert page.share_url is None
        answer = httpx.post(f"{page.local_url}gradio_api/upload", files={"files": ("large.bin", b"x" * 2000)})
        assert answer.status_code == 413
        assert page._queue.max_size == 16
        assert page._queue.default_concurrency_limit == 1
    finally:
        page.close()


# of each piece of text on the page, its contrast with what is behind it, as WCAG 2 defines it
CONTRASTS = """() => {
  const light = ([r, g, b]) => { const [R, G, B] = [r, g, b].map(v => (v /= 255) <= 0.03928 ? v / 12.92
    : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * R + 0.7152 * G + 0.0722 * B; };
  const numbers = colour => colour.match(/[0-9.]+/g).map(Number);
  const behind = node => { for (; node; node = node.parentElement) {
    const colour = numbers(getComputedStyle(node).backgroundColor);
    if (colour.length < 4 || colour[3] == 1) return colour; } return [255, 255, 255]; };
  return [...document.querySelectorAll("#said, #source-words .word, #target-words .read, .chart th, .chart p, .step")]
    .filter(node => node.innerText.trim()).map(node => {
      const [a, b] = [light(numbers(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
      return [node.innerText, (a + 0.05) / (b + 0.05)]; });
}"""


@pytest.mark.slow
def test_the_picture_of_the_readme(chromium, screenshots):
    """A shortened translation is checked by the released model, and all is readable, in light and dark.

    PAGE_SCREENSHOTS=docs pytest -m slow tests/demo -k picture     # takes docs/page.png anew
    """
    from PIL import Image
    from playwright.sync_api import sync_playwright

    root = Path(__file__).resolve().parents[2]
    checkpoint = str(root / "checkpoints" / "capsule-marian-de-en")
    source, given = "Die Kinder spielen heute im Garten ihrer Großmutter.", "The children are playing."
    missing = [word.text for word in Translator.from_pretrained(checkpoint).cover([source], [given])[0].untranslated]
    assert "Großmutter" in missing
    app = serve({"capsule-marian-de-en": checkpoint}, prevent_thread_lock=True, quiet=True)
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for scheme, width in itertools.product(("dark", "light"), (375, 1100)):
                page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
                page.goto(app.local_url)
                page.wait_for_selector("#source-words .word", timeout=120_000)
                page.locator("#sentence textarea").fill(source)
                page.locator("#translation textarea").fill(given)
                page.locator("#check").click()
                page.wait_for_function("document.querySelector('#said').innerText.includes('Großmutter')")
                page.wait_for_function("document.querySelector('#words').innerText.includes('after 4 of 4')")
                assert page.locator("#source-words .untranslated").all_inner_texts() == missing
                assert {text: ratio for text, ratio in page.evaluate(CONTRASTS) if ratio < 4.5} == {}
                page.locator("h1").click()  # away from the button
                page.wait_for_timeout(1000)
                end = page.locator("#words").bounding_box()
                clip = {"x": 0, "y": 0, "width": width, "height": end["y"] + end["height"] + 14}
                page.screenshot(path=screenshots / "page.png", clip=clip, full_page=True)  # the last one stays
                page.close()
            browser.close()
    finally:
        app.close()
    with Image.open(screenshots / "page.png") as picture:
        few_colours = picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few_colours.save(screenshots / "page.png", optimize=True)
    assert (screenshots / "page.png").stat().st_size <= 65_000


@pytest.mark.slow
def test_in_a_browser(guided, plain, chromium, screenshots, monkeypatch):
    from playwright.sync_api import sync_playwright

    monkeypatch.setitem(EXAMPLES, "en", TEXT)  # the model knows no English
    page_app = serve({"guided": guided, "plain": plain}, prevent_thread_lock=True, quiet=True)
    problems, outside = [], []
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for width, height in ((1280, 900), (375, 800)):
                page = browser.new_page(viewport={"width": width, "height": height})
                page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
                page.on("pageerror", lambda error: problems.append(str(error)))
                page.on(
                    "request",
                    lambda request: (
                        None
                        if request.url.startswith((page_app.local_url, "data:", "blob:", "ws://127.0.0.1"))
                        else outside.append(request.url)
                    ),
                )
                page.goto(page_app.local_url)
                page.wait_for_selector("#source-words .word", timeout=60_000)  # the example
                page.locator("#sentence textarea").fill("")
                page.locator("#translate").click()
                page.wait_for_function("document.querySelector('#said').innerText.includes('Type a sentence first.')")
                page.locator("#sentence textarea").fill(TEXT)
                page.locator("#translate").click()
                page.wait_for_selector("#source-words .word", timeout=60_000)
                expected = pipeline("translation", model=guided)(TEXT)[0]["translation_text"]
                assert page.locator("#translation textarea").input_value() == expected

                def colours(page=page):
                    return page.eval_on_selector_all(
                        "#source-words .word", "words => words.map(word => getComputedStyle(word).backgroundColor)"
                    )

                at_the_end = colours()
                assert len(at_the_end) == len(TEXT.split())
                page.screenshot(path=screenshots / f"page-{width}-end.png", full_page=True)
                page.locator("#slider input[type=range]").focus()
                for _ in range(2):
                    page.keyboard.press("ArrowLeft")
                steps = len(expected.split())
                page.wait_for_function(
                    f"document.querySelector('#words').innerText.includes('after {steps - 2} of {steps}')"
                )
                assert colours() != at_the_end
                page.locator("#pictures img").first.wait_for()
                page.wait_for_timeout(500)
                page.screenshot(path=screenshots / f"page-{width}.png", full_page=True)
                overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
                assert overflow <= 0
                page.close()
            browser.close()
    finally:
        page_app.close()
    assert not problems
    assert not outside
    assert len(list(screenshots.glob("page-*.png"))) == 4

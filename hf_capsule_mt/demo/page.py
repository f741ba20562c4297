"""The Gradio app; it serves on this machine only, unless `host` names another address."""

import base64
import functools
import html
import os
import re
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from capsule_mt.text.words import is_mark
from hf_capsule_mt.demo import charts
from hf_capsule_mt.demo.charts import FUTURE_COLOUR, PAST_COLOUR
from hf_capsule_mt.demo.explanation import Explanation, explain
from hf_capsule_mt.pipelines import Translator

LONGEST_TEXT = 400
WAITING_VISITORS = 16
DARKEST = 0.6  # of a chip's colour, so that its text stays readable
EXAMPLES = {
    "de": "Der alte Mann kauft seiner Frau einen roten Hut, weil sie morgen Geburtstag hat.",
    "en": "The old man buys a red hat because the child sleeps.",
    "fr": "Le vieil homme achète un chapeau rouge parce que l'enfant dort.",
}

STYLE = (
    """
.words { display: flex; flex-wrap: wrap; gap: 6px; font-size: 1.15rem; line-height: 1.5; }
.words span.word { padding: 2px 7px; border-radius: 5px; border: 2px solid transparent;
  color: var(--body-text-color); }
.words span.shaded { color: #111827; }
.words span.untranslated { border: 2px dashed #b91c1c; }
.step { margin: 14px 0 6px; }
.words span.read { font-weight: 600; }
.words span.unread { opacity: 0.6; }
.swatch { display: inline-block; width: 1em; height: 1em; border-radius: 3px; vertical-align: -0.1em; }
.figures { display: flex; flex-wrap: wrap; gap: 16px; }
.figures figure { margin: 0; flex: 1 1 320px; max-width: 640px; }
.figures img { max-width: 100%; background: white; }
.dark .figures img { filter: invert(0.93) hue-rotate(180deg); }
footer { display: none !important; }
"""
    + charts.STYLE
)

NO_CURVES = (
    "This model has no PAST and FUTURE. The shades say how likely each word was translated: blue likely, orange not."
)
INTRODUCTION = """# What was translated, what was left out
Translate a sentence, or check a translation: shorten it, or paste one from elsewhere. Each word of the sentence is
shaded by how much of it is translated already (**PAST**) and how much is still to come (**FUTURE**)."""


def shade(past: float, future: float) -> str:
    """Return the colour of a word with these shares: white, blended with that of PAST and that of FUTURE."""
    blended = [
        round(255 - past * (255 - p) * DARKEST - future * (255 - f) * DARKEST)
        for p, f in zip(PAST_COLOUR, FUTURE_COLOUR, strict=True)
    ]
    return "#" + "".join(f"{min(max(value, 0), 255):02x}" for value in blended)


def legend() -> str:
    def swatch(colour: tuple[int, int, int]) -> str:
        blended = ",".join(str(round(255 - (255 - value) * DARKEST)) for value in colour)
        return f'<span class="swatch" style="background: rgb({blended})"></span>'

    return (
        f"<p>{swatch(PAST_COLOUR)} PAST: translated already. {swatch(FUTURE_COLOUR)} FUTURE: still to be translated. "
        "White: the model takes it for neither. After the last word: how likely it was translated. A dashed red "
        "frame: it may have been left out.</p>"
    )


def render(explanation: Explanation | None, step: int) -> str:
    """Return the source words, shaded, and the target words read after `step` of them, as HTML."""
    if explanation is None:
        return ""
    if not explanation.source_words:
        return ""
    steps = len(explanation.target_words)
    has_curves = bool(explanation.source_words[0].past)
    step = min(max(int(step), 0), steps) if has_curves else steps
    source = []
    for word in explanation.source_words:
        at_the_end = word.untranslated and step == steps
        # in the end, the (calibrated) coverage that decides about the frames
        past, future = (word.past[step], word.future[step]) if step < steps else (word.covered, 1 - word.covered)
        said = f"PAST {past:.0%}, FUTURE {future:.0%}" if step < steps else f"translated {word.covered:.0%}"
        said += ", untranslated" * at_the_end
        source.append(
            f'<span class="word shaded{" untranslated" * at_the_end}" style="background: {shade(past, future)}" '
            f'title="{said}" aria-label="{html.escape(word.text)}: {said}">{html.escape(word.text)}</span>'
        )
    target = [
        f'<span class="word {"read" if number < step else "unread"}">{html.escape(word)}</span>'
        for number, word in enumerate(explanation.target_words)
    ]
    return (
        f'<div class="words" id="source-words">{"".join(source)}</div>'
        f'<p class="step">after {step} of {steps} words of the translation:</p>'
        f'<div class="words" id="target-words">{"".join(target)}</div>' + ("" if has_curves else f"<p>{NO_CURVES}</p>")
    )


def summary(explanation: Explanation) -> str:
    """Summarise coverage in a sentence or two, as HTML."""
    if explanation.score is None:
        return ""
    missing = [word.text for word in explanation.source_words if word.untranslated]
    counted = sum(not is_mark(word.text) for word in explanation.source_words)
    said = f"Coverage: {explanation.score:.0%} of the sentence was translated. "
    said += (
        f"Perhaps left out, {len(missing)} of {counted} words: <strong>{html.escape(', '.join(missing))}</strong>."
        if missing
        else "No word seems to be left out."
    )
    if explanation.repetitions:
        said += f" Said twice in a row: <em>{html.escape(', '.join(explanation.repetitions))}</em>."
    return said


def build_page(models: Mapping[str, str]) -> gr.Blocks:
    """Build the page for checkpoints, by the names they are shown with."""
    if not models:
        raise ValueError("the page needs at least one model")

    @functools.lru_cache(maxsize=2)
    def load(name: str) -> Translator:
        return Translator.from_pretrained(models[name])

    load(next(iter(models)))  # a checkpoint that does not load ends the program, not the first visit

    def translate(text: str, name: str, given: str | None = None) -> tuple[object, ...]:
        explanation, said, pictures = None, "", ""
        try:
            with tempfile.TemporaryDirectory() as folder:
                explanation = checked(load(name), text, folder, given)
                said, pictures = summary(explanation), figures(explanation)
        except Exception as error:  # show any error as a sentence on the page
            said = html.escape(f"⚠️ {str(error) or type(error).__name__}")
        words = len(explanation.target_words) if explanation else 1
        return (
            explanation,
            explanation.translation if explanation else given or "",
            said,
            gr.update(maximum=max(words, 1), value=words, interactive=has_curves(explanation)),
            render(explanation, words),
            pictures,
        )

    with gr.Blocks(title="Capsule translation", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gr.Markdown(INTRODUCTION)
        state = gr.State()
        with gr.Row():
            with gr.Column():
                example = EXAMPLES[source_language(next(iter(models.values())))]
                text = gr.Textbox(example, label="Sentence", lines=3, max_length=LONGEST_TEXT, elem_id="sentence")
                model = gr.Dropdown(list(models), value=next(iter(models)), label="Model", elem_id="model")
                button = gr.Button("Translate", variant="primary", elem_id="translate")
            with gr.Column():
                translation = gr.Textbox(label="Translation", lines=3, interactive=True, elem_id="translation")
                check = gr.Button("Check this translation", elem_id="check")
                said = gr.HTML(elem_id="said")
        slider = gr.Slider(0, 1, 1, step=1, label="Target words so far", interactive=False, elem_id="slider")
        words = gr.HTML(elem_id="words")
        gr.HTML(legend())
        pictures = gr.HTML(elem_id="pictures")
        outputs = [state, translation, said, slider, words, pictures]
        gr.on([button.click, text.submit], translate, [text, model], outputs, api_name="translate")
        given = [text, model, translation]
        gr.on([check.click, translation.submit], translate, given, outputs, api_name="check")
        page.load(translate, [text, model], outputs, api_name=False, show_progress="hidden")
        slider.change(render, [state, slider], words, show_progress="hidden", queue=False)
    page.queue(max_size=WAITING_VISITORS, default_concurrency_limit=1)
    return page


def has_curves(explanation: Explanation | None) -> bool:
    """Return whether the shares of the words are known at each step."""
    return explanation is not None and bool(explanation.source_words) and bool(explanation.source_words[0].past)


def source_language(folder: str) -> str:
    """Return the language that a checkpoint translates from, by its recipe or its name; English if neither says it."""
    recipe = Path(folder) / "recipe.yaml"
    text = recipe.read_text(encoding="utf-8") if recipe.is_file() else ""
    found = re.search(r"^\s*source:\s*([a-z]{2})\s*$|\bsource:\s*([a-z]{2})\b", text, re.MULTILINE)
    found = found or re.search(r"(?:^|[-_/])([a-z]{2})[-_]([a-z]{2})$", folder)
    languages = [language for language in (found.groups() if found else ()) if language in EXAMPLES]
    return languages[0] if languages else "en"


def figures(explanation: Explanation) -> str:
    """Return the charts, and the pictures as HTML with the files embedded."""
    shown = []
    for path, title in explanation.pictures:
        data = base64.b64encode(Path(path).read_bytes()).decode()
        shown.append(
            f"<figure><figcaption>{html.escape(title)}</figcaption>"
            f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}"></figure>'
        )
    return f'{"".join(explanation.charts)}<div class="figures">{"".join(shown)}</div>'


def checked(translator: Translator, text: str, folder: str, given: str | None = None) -> Explanation:
    """Explain a translation of a text; raise an error if either is blank or too long."""
    if not text or not text.strip():
        raise ValueError("Type a sentence first.")
    if given is not None and not given.strip():
        raise ValueError("Type a translation first.")
    if (length := max(len(text), len(given or ""))) > LONGEST_TEXT:
        raise ValueError(f"The text has {length} characters; this page takes at most {LONGEST_TEXT}.")
    return explain(translator, text, folder, given)


def serve(models: Mapping[str, str], host: str | None = None, port: int | None = None, **settings: Any) -> gr.Blocks:
    """Build and serve the page at `host`, else GRADIO_SERVER_NAME, else 127.0.0.1."""
    host = host or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1")
    if port is not None:
        _check_free(host, port)
    page = build_page(models)
    fonts = ["system-ui", "sans-serif"]
    page.launch(
        server_name=host,
        server_port=port,
        share=False,
        max_file_size=1,  # byte: the page takes no files
        theme=gr.themes.Default(font=fonts, font_mono=["ui-monospace", "monospace"]),
        css=STYLE,
        **settings,
    )
    return page


def _check_free(host: str, port: int) -> None:
    """Raise an `OSError` if nobody can listen on a port, before any model is loaded."""
    try:
        socket.create_server((host, port)).close()
    except (OSError, OverflowError) as error:
        raise OSError(f"`--host {host} --port {port}` cannot be listened on: {error}") from None

"""The Gradio app; it serves on this machine only, unless `host` names another address."""

import base64
import functools
import html
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")

import gradio as gr

from hf_capsule_mt.demo.explanation import Explanation, SourceWord, explain
from hf_capsule_mt.pipelines import Translator

LONGEST_TEXT = 400
WAITING_VISITORS = 16
PAST_COLOUR, FUTURE_COLOUR = (37, 99, 235), (217, 119, 6)

STYLE = """
.words { display: flex; flex-wrap: wrap; gap: 6px; font-size: 1.15rem; line-height: 1.5; }
.words span.word { padding: 2px 7px; border-radius: 5px; color: #111827; border: 2px solid transparent; }
.words span.untranslated { border: 2px dashed #b91c1c; }
.words span.read { font-weight: 600; }
.words span.unread { color: #6b7280; }
.swatch { display: inline-block; width: 1em; height: 1em; border-radius: 3px; vertical-align: -0.1em; }
.figures { display: flex; flex-wrap: wrap; gap: 16px; }
.figures figure { margin: 0; flex: 1 1 320px; max-width: 640px; }
.figures img { max-width: 100%; background: white; }
footer { display: none !important; }
"""

INTRODUCTION = """# What was translated, what was left out
Type a sentence. The model says, for each word of it, how much it has already translated (**PAST**) and how much is
still to come (**FUTURE**)."""


def shade(word: SourceWord, step: int) -> str:
    """Return the colour of a word after `step` target words: white, blended with that of PAST and that of FUTURE."""
    past, future = word.past[step], word.future[step]
    blended = [
        round(255 - past * (255 - p) * 0.75 - future * (255 - f) * 0.75)
        for p, f in zip(PAST_COLOUR, FUTURE_COLOUR, strict=True)
    ]
    return "#" + "".join(f"{min(max(value, 0), 255):02x}" for value in blended)


def legend() -> str:
    def swatch(colour: tuple[int, int, int]) -> str:
        blended = ",".join(str(round(255 - (255 - value) * 0.75)) for value in colour)
        return f'<span class="swatch" style="background: rgb({blended})"></span>'

    return (
        f"<p>{swatch(PAST_COLOUR)} PAST: translated already. {swatch(FUTURE_COLOUR)} FUTURE: still to be translated. "
        "White: the model takes it for neither. A dashed red frame: the model gave the word up more than "
        "it translated it, so it may have been left out.</p>"
    )


def render(explanation: Explanation | None, step: int) -> str:
    """Return the source words, shaded, and the target words read after `step` of them, as HTML."""
    if explanation is None:
        return ""
    if not explanation.source_words or not explanation.source_words[0].past:
        return "<p>This model has no PAST and FUTURE (its guided routing is off), so there is nothing to shade.</p>"
    step = min(max(int(step), 0), len(explanation.target_words))
    source = []
    for word in explanation.source_words:
        at_the_end = word.untranslated and step == len(explanation.target_words)
        said = f"PAST {word.past[step]:.0%}, FUTURE {word.future[step]:.0%}" + ", untranslated" * at_the_end
        source.append(
            f'<span class="word{" untranslated" * at_the_end}" style="background: {shade(word, step)}" title="{said}" '
            f'aria-label="{html.escape(word.text)}: {said}">{html.escape(word.text)}</span>'
        )
    target = [
        f'<span class="word {"read" if number < step else "unread"}">{html.escape(word)}</span>'
        for number, word in enumerate(explanation.target_words)
    ]
    return (
        f'<div class="words" id="source-words">{"".join(source)}</div>'
        f"<p>after {step} of {len(explanation.target_words)} words of the translation:</p>"
        f'<div class="words" id="target-words">{"".join(target)}</div>'
    )


def summary(explanation: Explanation) -> str:
    """Summarise coverage in a sentence or two, as HTML."""
    if explanation.score is None:
        return ""
    missing = [word.text for word in explanation.source_words if word.untranslated]
    said = f"Coverage: {explanation.score:.0%} of the sentence was translated. "
    said += (
        f"Perhaps left out: <strong>{html.escape(', '.join(missing))}</strong>."
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

    def translate(text: str, name: str) -> tuple[object, ...]:
        explanation, said, pictures = None, "", ""
        try:
            with tempfile.TemporaryDirectory() as folder:
                explanation = checked(load(name), text, folder)
                said, pictures = summary(explanation), figures(explanation)
        except Exception as error:  # show any error as a sentence on the page
            said = html.escape(f"⚠️ {str(error) or type(error).__name__}")
        words = len(explanation.target_words) if explanation else 1
        return (
            explanation,
            explanation.translation if explanation else "",
            said,
            gr.update(maximum=max(words, 1), value=words, interactive=bool(explanation and explanation.score)),
            render(explanation, words),
            pictures,
        )

    with gr.Blocks(title="Capsule translation", analytics_enabled=False, delete_cache=(3600, 3600)) as page:
        gr.Markdown(INTRODUCTION)
        state = gr.State()
        with gr.Row():
            with gr.Column():
                text = gr.Textbox(label="Sentence", lines=3, max_length=LONGEST_TEXT, elem_id="sentence")
                model = gr.Dropdown(list(models), value=next(iter(models)), label="Model", elem_id="model")
                button = gr.Button("Translate", variant="primary", elem_id="translate")
            with gr.Column():
                translation = gr.Textbox(label="Translation", lines=3, interactive=False, elem_id="translation")
                said = gr.HTML(elem_id="said")
        slider = gr.Slider(0, 1, 1, step=1, label="Target words so far", interactive=False, elem_id="slider")
        words = gr.HTML(elem_id="words")
        gr.HTML(legend())
        pictures = gr.HTML(elem_id="pictures")
        outputs = [state, translation, said, slider, words, pictures]
        gr.on([button.click, text.submit], translate, [text, model], outputs, api_name="translate")
        slider.change(render, [state, slider], words, show_progress="hidden", queue=False)
    page.queue(max_size=WAITING_VISITORS, default_concurrency_limit=1)
    return page


def figures(explanation: Explanation) -> str:
    """Return the pictures as HTML with the files embedded."""
    shown = []
    for path, title in explanation.pictures:
        data = base64.b64encode(Path(path).read_bytes()).decode()
        shown.append(
            f"<figure><figcaption>{html.escape(title)}</figcaption>"
            f'<img alt="{html.escape(title)}" src="data:image/png;base64,{data}"></figure>'
        )
    return f'<div class="figures">{"".join(shown)}</div>'


def checked(translator: Translator, text: str, folder: str) -> Explanation:
    """Explain a text; raise an error if it is blank or too long."""
    if not text or not text.strip():
        raise ValueError("Type a sentence first.")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"The text has {len(text)} characters; this page takes at most {LONGEST_TEXT}.")
    return explain(translator, text, folder)


def serve(models: Mapping[str, str], host: str | None = None, port: int | None = None, **settings: Any) -> gr.Blocks:
    """Build and serve the page at `host`, else GRADIO_SERVER_NAME, else 127.0.0.1."""
    page = build_page(models)
    fonts = ["system-ui", "sans-serif"]
    page.launch(
        server_name=host or os.environ.get("GRADIO_SERVER_NAME", "127.0.0.1"),
        server_port=port,
        share=False,
        max_file_size=1,  # byte: the page takes no files
        theme=gr.themes.Default(font=fonts, font_mono=["ui-monospace", "monospace"]),
        css=STYLE,
        **settings,
    )
    return page

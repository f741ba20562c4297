"""A page that translates a sentence and draws its routing: a Space of Hugging Face, or on your own machine.

pip install ./capsule_mt ".[analysis]" gradio
python examples/space/app.py                        # the included checkpoints
CHECKPOINTS=outputs/em python examples/space/app.py # yours, such as one with a routing of layers
"""

import base64
import os
import tempfile
from functools import cache
from pathlib import Path

import gradio
import torch

from hf_capsule_mt.analysis.routing_statistics import encoded_batches, routing_statistics
from hf_capsule_mt.analysis.sentences import draw_averages, draw_sentence
from hf_capsule_mt.loading import load_checkpoint
from hf_capsule_mt.modeling.target_text import decode_target

FOLDERS = [Path(folder) for folder in os.environ.get("CHECKPOINTS", "").split()]
NAMES = ("capsule-marian-de-en", "capsule-marian-en-de", "capsnmt-de-en")
INCLUDED = next(
    (path for path in (Path("checkpoints"), Path(__file__).parents[2] / "checkpoints") if path.is_dir()), Path()
)
MODELS = {folder.name: folder for folder in FOLDERS or [INCLUDED / name for name in NAMES]}
SENTENCE = "Ich habe gestern ein neues Buch gekauft."
load = cache(load_checkpoint)


@torch.no_grad()
def explain(name, text):
    """Return the translation of a sentence, and pictures of its routing as HTML."""
    if not text.strip():
        raise gradio.Error("Write a sentence.")
    model, tokenizer = load(MODELS[name])
    tokens = model.generate(**tokenizer(text, return_tensors="pt"), num_beams=4)
    translation = decode_target(tokenizer, tokens[0])
    statistics = routing_statistics(model, encoded_batches(tokenizer, [text], [translation]))
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, name)
        pictures = [*draw_sentence(model, tokenizer, text, translation, output), *draw_averages(statistics, output)]
        images = [base64.b64encode(picture.read_bytes()).decode() for picture in pictures]
    return translation, "".join(f'<p><img alt="routing" src="data:image/png;base64,{image}"></p>' for image in images)


with gradio.Blocks(title="Routing by agreement") as page:
    gradio.Markdown(
        "# Routing by agreement\n\nA translation model routes each source word to PAST (P, translated) or FUTURE (F, "
        "still to come) at every target word. CapsNMT routes a sentence into a fixed number of capsules."
    )
    model_name = gradio.Dropdown(list(MODELS), label="Model")
    sentence = gradio.Textbox(SENTENCE, label="Sentence")
    button = gradio.Button("Translate and draw", variant="primary")
    result = gradio.Textbox(label="Translation")
    pictures_of_routing = gradio.HTML()
    gradio.on([button.click, sentence.submit], explain, [model_name, sentence], [result, pictures_of_routing])

if __name__ == "__main__":
    page.launch()

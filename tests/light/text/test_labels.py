"""Labels, words alone on their lines as in menus: what the model reads instead, and which translation wins."""

import re

import pytest

from capsule_mt import CoverageOptions
from capsule_mt.engine.search import Hypothesis
from capsule_mt.text.edges import label_in, without_enclosing
from capsule_mt.text.finishing import as_label
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.sentences import Span
from tests.fixtures.vectors import vectors
from tests.light.decoders import END, translator
from tests.light.text.fakes import WordTokenizer, outside_items

VECTORS = vectors("labels")


FURTHER = ({"text": "E" * 65, "label": None}, {"text": "O\nand a line", "label": "O"})


@pytest.mark.parametrize("case", [*VECTORS["labels"], *FURTHER], ids=repr)
def test_what_is_a_label(case):
    text, label = case["text"], case["label"]
    start = re.search(rf"[\"']?{re.escape(label or text.split()[0])}", text).start()
    end = next(end for end in range(start, len(text) + 1) if text[end : end + 1] in ("", " ", "\n"))
    span = label_in(text, without_enclosing(text, Span(start, end)))
    assert (span and text[slice(*span)]) == label


@pytest.mark.parametrize("case", VECTORS["translations"], ids=repr)
def test_translations_of_labels(case):
    assert outside_items(as_label, case["text"], case["source"]) == case["restored"]


@pytest.mark.parametrize("case", VECTORS["forms"], ids=repr)
def test_the_forms_of_a_label(case):
    segmenter = Segmenter(WordTokenizer(), None)
    (piece,) = segmenter.document(case["text"]).pieces
    assert piece.is_label
    assert [form.text for form in segmenter.label_forms(piece)] == case["forms"]
    assert {form.span for form in segmenter.label_forms(piece)} == {piece.span}


def test_forms_that_do_not_fit_or_that_the_vocabulary_lacks():
    (piece,) = Segmenter(WordTokenizer(), None).document("Edit").pieces
    assert Segmenter(WordTokenizer(unknown=["Edit:"]), None).label_forms(piece)[0].text == "edit:"
    assert Segmenter(WordTokenizer(), 1).label_forms(piece) == []


class Dictionary:
    """A decoder that looks each source up."""

    prefers_no_scores = False

    def __init__(self, tokenizer, translations):
        self.tokenizer, self.translations, self.sources = tokenizer, translations, []

    def translate(self, sources, options):
        texts = [self.tokenizer.decode(source) for source in sources]
        self.sources += texts
        rows = []
        for text, source in zip(texts, sources, strict=True):
            ids = self.tokenizer.encode_target(self.translations.get(text, text))
            attention = [[1.0 / len(source)] * len(source) for _ in ids]
            rows.append([Hypothesis(ids, [-1.0] * len(ids), False, attention)] * options.num_return_sequences)
        return rows


def translate(text, translations, **options):
    tokenizer = WordTokenizer()
    decoder = Dictionary(tokenizer, translations)
    return translator(decoder, tokenizer, end=END)(text, **options), decoder.sources


@pytest.mark.parametrize("case", VECTORS["votes"], ids=repr)
def test_which_translation_wins(case):
    """One word goes first, then what does not repeat itself, then what most forms have, then the earliest form."""
    source, text = case["source"], case["translation"]
    translations = dict(zip((source, f"{source}:", f"{source.lower()}:"), case["answers"], strict=True))
    assert translate(source, translations)[0].text == text
    assert translate(f"- {source}...", translations)[0].text == f"- {text}..."
    assert translate(f"<i>{source}</i>", translations)[0].text.removeprefix("<i>").startswith(text)


def test_only_labels_take_another_search():
    for text in ("Edit me", "Edit.", "No! Edit", "one two three"):
        assert "Edit:" not in translate(text, {})[1]
    assert translate("Edit\n\nMe too", {})[1] == ["Me too", "Edit", "Edit:", "edit:"]
    assert translate("Edit", {"Edit": "Edit Edit"}, copy=False)[0].text == "Edit Edit"


def test_coverage_and_alignment_are_of_the_label_itself():
    translations = {"Editar": "Edit Edit", "Editar:": "Edit:", "editar:": "edit:"}
    options = {"coverage": CoverageOptions(), "alignment": True, "num_beams": 2, "num_return_sequences": 2}
    for translation in translate("Editar", translations, **options)[0]:
        assert translation.text == "Edit"
        assert [(word.text, word.start, word.end) for word in translation.coverage.words] == [("Editar", 0, 6)]
        assert translation.alignment == ((0, 0),)

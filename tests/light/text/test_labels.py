"""Labels, words alone on their lines as in menus: what the model reads instead, and which translation wins."""

import pytest

from capsule_mt import CoverageOptions
from capsule_mt.engine.search import Hypothesis
from capsule_mt.text.edges import as_label, label_in
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.sentences import Span
from tests.light.decoders import END, translator
from tests.light.text.fakes import WordTokenizer


@pytest.mark.parametrize(
    ("text", "label"),
    [
        *(("Edit", "Edit"), ("edit", "edit"), ("Edit...", "Edit"), ("Edit\u2026", "Edit"), ("Name:", "Name")),
        *(("Plug-ins", "Plug-ins"), ("Isn\u2019t", "Isn\u2019t"), ("3. Edit", "Edit"), ("{0}Edit", "Edit")),
        *(("one two\nEdit\nthree four", "Edit"), (">>por<< Edit", "Edit"), ("Edit 12", "Edit")),
        *(
            ("Edit.", None),
            ("Edit!", None),
            ("Edit?", None),
            ("Edit me", None),
            ("No! Edit", None),
            ("Edit. No!", None),
        ),
        *(("E" * 65, None), ("x2", None)),
    ],
)
def test_what_is_a_label(text, label):
    start = text.index(label or text.split()[0])
    end = next(end for end in range(start, len(text) + 1) if text[end : end + 1] in ("", " ", "\n"))
    span = label_in(text, Span(start, end))
    assert (span and text[slice(*span)]) == label


@pytest.mark.parametrize(
    ("translation", "source", "restored"),
    [
        *(("Cancel:", "Cancelar", "Cancel"), ("Annuler :", "Cancel", "Annuler"), ("Cancel.", "Cancelar", "Cancel")),
        *(
            ("\u53d6\u6d88\uff1a", "Cancel", "\u53d6\u6d88"),
            ("fronteira", "Border", "Fronteira"),
            ("Fim", "end", "Fim"),
        ),
        *(("<b>name:</b>", "Nome", "<b>Name</b>"), ("**name**:", "Nome", "**Name**:"), ("No: 5", "N", "No: 5")),
        *(("...", "Mais", "..."), (":", "Dois", ":"), ("", "Mais", ""), ("Go...", "Ir", "Go...")),
    ],
)
def test_translations_of_labels(translation, source, restored):
    assert as_label(translation, source) == restored


@pytest.mark.parametrize(
    ("text", "forms"),
    [("Edit", ["Edit:", "edit:"]), ("edit", ["edit:"]), ("EDIT", ["EDIT:"]), ("<b>Edit</b>", ["Edit:", "edit:"])],
)
def test_forms(text, forms):
    segmenter = Segmenter(WordTokenizer(), None)
    (piece,) = segmenter.document(text).pieces
    assert piece.is_label
    assert [form.text for form in segmenter.label_forms(piece)] == forms
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


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        (("Edit Edit", "Edit:", "editing:"), "Edit"),  # one word goes first, then the earliest form
        (("Edits", "Alter:", "alter"), "Alter"),  # what two of three forms have
        (("Edit", "Change:", "Alter:"), "Edit"),
        (("edit", "Edit:", "Alter:"), "Edit"),  # in the case of the source
        (("Edit Edit", "You said:", "we said"), "You said"),  # what does not repeat itself
        (("Edit Edit", "Said said:", "Alter alter:"), "Edit Edit"),
    ],
)
def test_which_translation_wins(answers, text):
    translations = dict(zip(("Editar", "Editar:", "editar:"), answers, strict=True))
    assert translate("Editar", translations)[0].text == text
    assert translate("- Editar...", translations)[0].text == f"- {text}..."
    assert translate("<i>Editar</i>", translations)[0].text.removeprefix("<i>").startswith(text)


def test_only_labels_take_another_search():
    for text in ("Edit me", "Edit.", "No! Edit", "one two three"):
        assert "Edit:" not in translate(text, {})[1]
    assert translate("Edit\n\nMe too", {})[1] == ["Me too", "Edit", "Edit:", "edit:"]
    assert translate("Edit", {"Edit": "Edit Edit"}, copy=False)[0].text == "Edit Edit"


def test_what_comes_with_the_translation():
    translations = {"Editar": "Edit Edit", "Editar:": "Edit:", "editar:": "edit:"}
    options = {"coverage": CoverageOptions(), "alignment": True, "num_beams": 2, "num_return_sequences": 2}
    for translation in translate("Editar", translations, **options)[0]:
        assert translation.text == "Edit"
        assert [(word.text, word.start, word.end) for word in translation.coverage.words] == [("Editar", 0, 6)]
        assert translation.alignment == ((0, 0),)

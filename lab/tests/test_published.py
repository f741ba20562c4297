"""What people labelled, by the formats in which it was published, beside given marks."""

import json

import pytest

from capsule_mt.coverage.results import Coverage, TargetWord, Word
from lab.area_under_curve import area_under_curve
from lab.published import LEFT_OUT, MADE_UP, measured, read_annotations, read_halomi, table, units_of


def coverage(source, target, doubts, supports):
    words = [
        kind(text, at, at + len(text), share, share < 0.5)
        for kind, line, shares in ((Word, source, doubts), (TargetWord, target, supports))
        for text, at, share in zip(line.split(), spans_in(line), shares, strict=True)
    ]
    sources = tuple(word for word in words if isinstance(word, Word))
    return Coverage(1.0, sources, (), (), target_words=tuple(w for w in words if isinstance(w, TargetWord)))


def spans_in(line):
    return [sum(len(word) + 1 for word in line.split()[:number]) for number in range(len(line.split()))]


def test_halomi(tmp_path):
    file = tmp_path / "halomi.tsv"
    names = "src_lang tgt_lang src_text mt_text omit_spans hall_spans class_hall class_omit"
    rows = [
        "deu eng|der alte Hut|the hat|der <<<alte>>> Hut|the hat|1_No_hallucination|2_Small_omission",
        "deu eng|der Hut|the black hat|der Hut|the <<<black hat>>>|4_Full_hallucination|1_No_omission",
        "eng deu|the hat|der Hut|the hat|der Hut|1_No_hallucination|1_No_omission",
    ]
    lines = [names.replace(" ", "\t"), *(row.replace("|", "\t").replace("deu eng", "deu\teng") for row in rows)]
    file.write_text("\n".join(line.replace("eng deu", "eng\tdeu") for line in lines) + "\n")
    first, second = read_halomi(file, ["deu", "eng"])
    assert (first.source, first.wrong) == ("der alte Hut", {LEFT_OUT: [(4, 8)], MADE_UP: []})
    assert second.is_wrong == {LEFT_OUT: False, MADE_UP: True}
    coverages = [coverage("der alte Hut", "the hat", [0.9, 0.1, 0.4], [0.9, 0.8])]
    coverages.append(coverage("der Hut", "the black hat", [0.9, 0.9], [0.7, 0.2, 0.6]))
    assert units_of(first, LEFT_OUT, coverages[0]) == [
        (pytest.approx(0.1), False, False),
        (0.9, True, True),
        (0.6, True, False),
    ]
    measures = measured([first, second], dict.fromkeys(("sure", "likely", "all"), coverages))
    assert measures[LEFT_OUT]["auc"]["auc"] == 1.0
    assert measures[LEFT_OUT]["marks"]["likely"] == {"marks": 2, "right": 1}
    assert measures[MADE_UP]["wrong"] == 2
    record = {"model": "m", "translations": 2, "measures": measures, "sentences": {}}
    assert "| `m`, 2 | left out | 1 of 5 | 1.00 [1.00, 1.00] | 1 of 2 | 1 of 2 | 1 of 2 | 1.00 |  |" in table([record])


def test_annotations(tmp_path):
    """Fields as Vamvas and Sennrich have them; one label alone, or an error of the source, is no judgement."""
    row = {"data": "Bitte raus.", "source": "Please exit the plane now.", "coverage_error_type": "undertranslation"}
    row |= {"predicted_undertranslation_spans": "12-21 | 22-25", "predicted_overtranslation_spans": ""}
    labels = [
        ["bad-translation", "UT-important-information"],
        ["good-translation"],
        ["good-translation", "source-error"],
    ]
    file = tmp_path / "en-de.annotator1.jsonl"
    file.write_text("".join(json.dumps({**row, "label": label}) + "\n" for label in labels))
    (annotation,) = read_annotations(file)
    assert annotation.judged == {LEFT_OUT: [([(12, 21), (22, 25)], True)]}
    measured = coverage(annotation.source.rstrip("."), "Bitte raus", [0.9, 0.9, 0.4, 0.2, 0.9], [0.9, 0.9])
    assert units_of(annotation, LEFT_OUT, measured) == [(0.8, True, True)]
    assert units_of(annotation, MADE_UP, measured) == []


def test_area_under_curve_by_hand() -> None:
    # of the four pairs (labelled, not labelled) three have the labelled one on top
    assert area_under_curve([1, 2, 3, 4], [False, True, False, True])["auc"] == 0.75
    assert area_under_curve([0, 2, 2, 3], [False, True, False, True])["auc"] == (1 + 0.5 + 1 + 1) / 4
    perfect = area_under_curve([0.0, 1.0, 2.0, 3.0], [False, False, True, True])
    assert perfect == {"auc": 1, "low": 1, "high": 1, "positives": 2, "negatives": 2}

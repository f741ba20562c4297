"""docs/endpoints.md is made from the application."""

from capsule_mt.coverage.results import Coverage, SentenceCoverage, TargetWord, Word
from capsule_mt.files.lines import coverage_record
from capsule_mt.serve.endpoints import COVERAGE_FIELDS, page
from tests.light.serve.processes import ROOT


def test_the_page_is_made_from_the_application():
    """After a change: python -m capsule_mt.serve.endpoints > docs/endpoints.md."""
    assert (ROOT / "docs/endpoints.md").read_text(encoding="utf-8") == page()


def test_the_page_names_every_field_of_coverage():
    words, target_words = (Word("a", 0, 1, 1.0, False),), (TargetWord("b", 0, 1, 1.0, False),)
    sentences = (SentenceCoverage(0, 1, 1.0),)
    coverage = Coverage(1.0, words, sentences, (), 0.5, 1.0, target_words, (), "verified", precision=0.5)
    record = coverage_record(coverage)
    assert {*record, "problems"} == set(COVERAGE_FIELDS)
    described = " ".join(COVERAGE_FIELDS.values())
    values = {key for name in ("words", "sentences", "target_words") for key in record[name][0]}
    assert all(f"`{key}`" in described for key in values - {"word", "start", "end"})

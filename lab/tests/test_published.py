"""What people labelled, by the formats in which it was published, beside a judge that is given."""

import pytest

from capsule_mt.coverage.judgement import JudgedWord, Judgement, Reason
from lab.published import area_under_curve, bands_of, correlation, halomi, mqm, synced


class Doubts:
    """A judge for which each word in capitals was left out or made up, more surely the longer it is."""

    def score(self, sources, translations, *, src_lang=None, tgt_lang=None):
        return [Judgement(words_of(source), words_of(target), 0.9, reasons_of(target))
                for source, target in zip(sources, translations, strict=True)]  # fmt: skip


def reasons_of(target):
    return (Reason("made up", False, "", target),) if target.isupper() else ()


def words_of(line):
    starts = [sum(len(word) + 1 for word in line.split()[:number]) for number in range(len(line.split()))]
    return tuple(
        JudgedWord(word, start, start + len(word), 0.6 + 0.04 * len(word) if word.isupper() else 0.1, word.isupper())
        for word, start in zip(line.split(), starts, strict=True)
    )


def write_table(path, rows):
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def test_halomi_reads_every_second_row_of_two_directions(tmp_path):
    names = ["src_lang", "tgt_lang", "src_text", "mt_text", "omit_spans", "hall_spans"]
    chosen = ["deu_Latn", "eng_Latn", "ein HUT", "a hat", "ein HUT", "a hat"]
    held_out = [
        ["deu_Latn", "eng_Latn", "der ALTE Hut", "the hat", "der <<<ALTE>>> Hut", "the hat"],
        ["eng_Latn", "deu_Latn", "the OLD hat", "der KLEINE Hut", "the OLD hat", "der <<<KLEINE>>> Hut"],
        ["deu_Latn", "eng_Latn", "der Hut", "the BLACK hat", "der Hut", "the <<<BLACK>>> hat"],
        ["eng_Latn", "deu_Latn", "the new hat", "der Hut", "the <<<new>>> hat", "der Hut"],
    ]
    french = ["deu_Latn", "fra_Latn", "der Hut", "le chapeau", "der Hut", "le chapeau"]
    rows = [row for pair in held_out for row in (chosen, french, pair)]
    record = halomi(Doubts(), write_table(tmp_path / "halomi.tsv", [names, *rows]))
    assert record["pairs"] == 4
    assert record["auc"]["left out, de-en"]["auc"] == 1
    assert record["auc"]["left out, en-de"]["auc"] == pytest.approx(0.4)  # `OLD` above the lost `new`, four below
    bands = record["bands"]["left out"]
    assert bands["0.7 to 0.9"] == {"mean": pytest.approx(0.74), "marked": 1, "words": 2}


def test_bands_hold_their_lower_end_and_the_last_one_its_upper():
    bands = bands_of([(0.4, True), (0.5, True), (0.7, False), (0.8, True), (1.0, True)])
    assert [(band["marked"], band["words"]) for band in bands.values()] == [(1, 1), (1, 2), (1, 1)]


def test_synced_counts_what_is_flagged(tmp_path):
    rows = [["a hat", "EIN HUT", "ERR"], ["a hat", "ein Hut", "ERR"], ["a cat", "EINE KATZE", "NOT"]]
    rows += [["a cat", "eine Katze", "NOT"], ["a dog", "ein Hund", "NOT"]]
    record = synced(Doubts(), write_table(tmp_path / "gold.tsv", rows))
    assert record["flagged of wrong"] == {"flagged": 1, "pairs": 2}
    assert record["flagged of right"] == {"flagged": 1, "pairs": 3}
    assert record["mcc"] == pytest.approx((1 * 2 - 1 * 1) / (2 * 3 * 2 * 3) ** 0.5)
    assert correlation(0, 2, 0, 3) == 0


def test_mqm_compares_what_two_raters_miss_with_what_none_does(tmp_path):
    names = ["system", "globalSegId", "rater", "source", "target", "category"]
    categories_of = {
        ("A", "1", "a SMALL hat"): ("Accuracy/Omission (Translation)", "Accuracy/Omission (Translation 2)", "Other"),
        ("A", "2", "a hat"): ("No-error", "Found", "Other"),
        ("B", "2", "a HAT"): ("No-error", "Accuracy/Omission", "Other"),  # only one rater
        ("refA", "1", "a LOST hat"): ("No-error",) * 3,
    }
    rows = [
        [system, segment, str(rater), source, "<v>ein</v> Hut", category]
        for (system, segment, source), categories in categories_of.items()
        for rater, category in enumerate(categories)
    ]
    record = mqm(Doubts(), write_table(tmp_path / "mqm.tsv", [names, *rows]))
    assert (record["pairs"], record["auc"]["auc"], record["auc"]["positives"]) == (2, 1, 1)


def test_area_under_curve_by_hand() -> None:
    # of the four pairs (labelled, not labelled) three have the labelled one on top
    assert area_under_curve([1, 2, 3, 4], [False, True, False, True])["auc"] == 0.75
    assert area_under_curve([0, 2, 2, 3], [False, True, False, True])["auc"] == (1 + 0.5 + 1 + 1) / 4
    perfect = area_under_curve([0.0, 1.0, 2.0, 3.0], [False, False, True, True])
    assert perfect == {"auc": 1, "low": 1, "high": 1, "positives": 2, "negatives": 2}

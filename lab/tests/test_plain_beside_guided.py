"""A sheet to read blind: who is first is a coin, and what was read is counted for the right system."""

import pytest
import torch

from hf_capsule_mt.modeling import CapsuleMarianMTModel
from lab.plain_beside_guided import MEASURES, SIDES, SYSTEMS, counted, drawn, plain_model, sheet_of, systems_of
from lab.records import read_rows
from lab.report import LAB
from tests.fixtures.tiny import tiny_model, tiny_tokenizer


def test_a_sheet_has_the_sentences_that_differ_and_no_names():
    plain = [f"a {number}" for number in range(300)]
    guided = [f"b {number}" if number % 2 else line for number, line in enumerate(plain)]
    text = sheet_of({"plain": plain, "guided": guided})
    _header, *rows = [line.split("\t") for line in text.splitlines()]
    assert not any(system in text for system in SYSTEMS)
    assert len(rows) == 100
    assert all({row[1][0], row[2][0]} == {"a", "b"} for row in rows)
    assert 30 < sum(row[1][0] == "a" for row in rows) < 70  # fixed by the seed
    for line, first, second, *_ in rows:
        assert [{"a": "plain", "b": "guided"}[text[0]] for text in (first, second)] == list(systems_of(int(line)))
    assert drawn([3, 1, 2]) == [1, 2, 3]


def test_what_was_read_is_counted_by_system():
    rows = []
    for line in range(1, 11):  # the guided one misses no word, the plain one misses one of five, and is worse
        better = dict(zip(systems_of(line), ("first", "second"), strict=True))["guided"]
        rows.append(
            {"line": str(line)}
            | {f"quality {side}": "4" if side == better else "3" for side in ("first", "second")}
            | {f"over {side}": "0" for side in ("first", "second")}
            | {f"under {side}": "0" if side == better else "1" for side in ("first", "second")}
        )
    by_measure = counted(rows, [5] * 10)
    assert by_measure["quality"] | {"interval": None} == {
        "plain": 3, "guided": 4, "difference": 1, "interval": None, "higher": 10, "lower": 0, "p_sign": 2 / 1024
    }  # fmt: skip
    assert (by_measure["under"]["plain"], by_measure["under"]["guided"]) == (20, 0)
    assert by_measure["over"]["p_sign"] == 1
    rows[3]["under first"] = ""
    with pytest.raises(ValueError, match="line 4: 'under first' must be a number, got '': read it first"):
        counted(rows, [5] * 10)


def test_every_line_of_the_sheet_was_read():
    rows = read_rows(LAB / "sheets" / "pairs" / "plain_guided_de_en.tsv")
    assert len(rows) == 100
    for row in rows:
        assert all(row[f"quality {side}"] in "12345" for side in SIDES)
        assert all(row[f"{measure} {side}"].isdigit() for measure in MEASURES for side in SIDES)


def test_the_plain_model_is_the_one_that_guidance_was_put_on():
    """`from_marian` starts as the plain model, so without guidance the logits are those of the plain model again."""
    plain = tiny_model(tiny_tokenizer()).eval()
    guided = CapsuleMarianMTModel.from_marian(plain, guided_routing="guided", guided_capsule_dim=4, guided_ffn_dim=8)
    torch.nn.init.normal_(guided.model.decoder.guidance.fc2.weight)
    ids = torch.tensor([[5, 6, 7, 0]])
    with torch.no_grad():
        logits = [model(input_ids=ids, decoder_input_ids=ids).logits for model in (plain, plain_model(guided), guided)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.equal(logits[0], logits[2])

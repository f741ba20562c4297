"""Sequence-level distillation: sharded, killed, resumed, and a data source at the end."""

import itertools
import json
import math
import signal

import pytest
from accelerate import PartialState

from hf_capsule_mt import Translator
from hf_capsule_mt.commands import distill as command
from hf_capsule_mt.data import sentence_pairs
from hf_capsule_mt.training.distillation import RESULT_FILE, SUMMARY_FILE, distill
from tests.fixtures.tiny import save_tiny_marian
from tests.training.small import die, in_process, in_processes

SOURCES = [english for english, _ in itertools.islice(sentence_pairs(), 57)] + ["Twice.", "Twice.", "Zwölf\u2028x."]
SETTINGS = {"source_language": "en", "target_language": "de", "lines_per_part": 8}


def reversed_words(texts):
    return [" ".join(reversed(text.split())) for text in texts]


def translate_and_die(folder, at, processes=1):
    translated = 0

    def translate(texts):
        nonlocal translated
        translated += len(texts)
        if at is not None and translated > at:
            die()
        return reversed_words(texts)

    distill(translate, SOURCES, folder, sentences_per_batch=3, **SETTINGS)
    assert PartialState().num_processes == processes
    if processes > 1:
        assert translated < len(SOURCES)  # each its share


def result(folder):
    rows = [json.loads(line) for part in sorted(folder.glob("part-*.jsonl")) for line in part.open(encoding="utf-8")]
    return {row["index"]: row["translation"] for row in rows}, len(rows)


EXPECTED = {index: {"en": text, "de": reversed_words([text])[0]} for index, text in enumerate(SOURCES)}


def test_killed_and_resumed_it_loses_no_line_and_repeats_none(tmp_path):
    for at in (4, 13, 0, 22):
        assert in_process(translate_and_die, tmp_path, at) == -signal.SIGKILL
        assert not (tmp_path / SUMMARY_FILE).exists()
    assert len(list(tmp_path.rglob("*.part"))) == 3  # of 8 lines each
    assert in_process(translate_and_die, tmp_path, None) == 0
    rows, number = result(tmp_path)
    assert rows == EXPECTED
    assert number == len(SOURCES)
    parts = sorted(path.name for path in tmp_path.glob("part-*.jsonl"))
    assert parts == [f"part-{number:06d}.jsonl" for number in range(math.ceil(len(SOURCES) / 8))]
    assert {path.name for path in tmp_path.iterdir()} == {"settings.json", *parts, SUMMARY_FILE}
    sizes = [len((tmp_path / part).read_text("utf-8").splitlines()) for part in parts]
    assert sizes[:-1] == [8] * (len(parts) - 1)


def test_with_any_number_of_processes(tmp_path):
    assert in_process(translate_and_die, tmp_path, 20) == -signal.SIGKILL
    assert in_processes(2, translate_and_die, tmp_path, None, 2) == [0, 0]
    assert result(tmp_path) == (EXPECTED, len(SOURCES))
    assert json.loads((tmp_path / SUMMARY_FILE).read_text())["lines"] == len(SOURCES)


def test_other_sources_and_another_teacher_are_named(tmp_path):
    teacher = {"teacher_files": {"config.json": "1", "model.safetensors": "2"}}
    distill(reversed_words, SOURCES[:9], tmp_path, settings=teacher, **SETTINGS)
    other_sources = ["Another sentence.", *SOURCES[1:9]]
    with pytest.raises(ValueError, match=r"another distillation \(sources differs\): restore"):
        distill(reversed_words, other_sources, tmp_path, settings=teacher, **SETTINGS)
    changed = {"teacher_files": {"config.json": "1", "model.safetensors": "3"}}
    with pytest.raises(ValueError, match=r"\(teacher_files\.model\.safetensors: '2' then, '3' now\): restore"):
        distill(reversed_words, SOURCES[:9], tmp_path, settings=changed, **SETTINGS)


def test_a_damaged_result_is_written_again(tmp_path):
    distill(reversed_words, SOURCES, tmp_path, **SETTINGS)
    for name in (RESULT_FILE, "part-000001.jsonl"):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content.replace(b"the", b"tho"))
        distill(reversed_words, SOURCES, tmp_path, **SETTINGS)
        assert (tmp_path / name).read_bytes() == content


def test_a_line_that_fails_is_left_out_and_costs_no_other(tmp_path):
    bad = {3, 20, 57}  # the last stands twice

    def translate(texts):
        if {SOURCES[index] for index in bad} & set(texts):
            raise RecursionError("too deep")
        return reversed_words(texts)

    for function in (translate, None):  # the second time everything is there
        facts = distill(function, SOURCES, tmp_path, sentences_per_batch=5, **SETTINGS)
        assert facts["failures"] == dict.fromkeys((3, 20, 57, 58), "RecursionError: too deep")
    rows, number = result(tmp_path)
    assert rows == {index: pair for index, pair in EXPECTED.items() if index not in facts["failures"]}
    assert number == len(SOURCES) - 4
    assert json.loads((tmp_path / SUMMARY_FILE).read_text())["failures"]["20"] == "RecursionError: too deep"


def test_the_command_writes_what_the_translator_says(tmp_path, monkeypatch):
    save_tiny_marian(tmp_path / "teacher")
    text = " ".join(SOURCES)  # longer than the teacher takes at once
    texts = [text, *SOURCES[:9]]
    (tmp_path / "text.tsv").write_text("".join(f"{line}\tKurz.\n" for line in texts), encoding="utf-8")
    recipe = {"data": {"train": {"tsv": str(tmp_path / "text.tsv")}}, "languages": {"source": "en", "target": "de"}}
    recipe |= {"model": {"model_type": "capsnmt"}, "tokenizer": {"vocab_size": 300}}
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    words = ["recipe.yaml", "out", "--teacher", "teacher", "--cpu", "--max-new-tokens", "6", "--num-beams", "2"]
    monkeypatch.setattr("sys.argv", ["capsule-mt distill", *words])
    monkeypatch.chdir(tmp_path)
    assert command.main() == 0
    translator = Translator.from_pretrained(tmp_path / "teacher")
    expected = [translation.text for translation in translator(texts, num_beams=2, max_new_tokens=6)]
    assert [row["de"] for _, row in sorted(result(tmp_path / "out")[0].items())] == expected
    model = translator.model
    model.get_input_embeddings().weight.data.neg_()
    model.save_pretrained(tmp_path / "teacher")
    with pytest.raises(ValueError, match=r"\(teacher_files\.model\.safetensors differs\): restore"):
        command.main()

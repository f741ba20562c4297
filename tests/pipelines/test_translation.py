"""The translation pipeline, for our models and for transformers' own Marian."""

import subprocess
import sys

import pytest
import torch
from hf_capsule_mt.pipelines import restore_translation_task
from hf_capsule_mt.pipelines.limits import with_limits
from transformers import AutoTokenizer, MarianMTModel, pipeline
from transformers.pipelines import PIPELINE_REGISTRY

from hf_capsule_mt import CapsuleMarianMTModel, TranslationPipeline
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian
from tests.fixtures.word_for_word import sentences

TEXTS = ["The child sleeps.", "An old man buys twenty-three red apples at the market.", "Who laughs?", "No."]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(save_tiny_checkpoint(tmp_path_factory.mktemp("capsule"), layer_aggregation="em_routing"))


@pytest.fixture(scope="module")
def translator(checkpoint):
    return pipeline("translation", model=checkpoint)


def by_hand(translator, text, **settings):
    batch = translator.tokenizer(text, return_tensors="pt")
    ids = translator.model.generate(**batch, **settings)
    return translator.tokenizer.batch_decode(ids, skip_special_tokens=True)


def test_shapes_of_the_results(translator):
    expected = [by_hand(translator, text)[0] for text in TEXTS]
    assert translator(TEXTS[0]) == [{"translation_text": expected[0]}]
    assert translator(TEXTS) == [{"translation_text": text} for text in expected]
    assert translator(TEXTS, batch_size=3) == [{"translation_text": text} for text in expected]
    several = translator(TEXTS, num_beams=3, num_return_sequences=2)
    assert [[record["translation_text"] for record in records] for records in several] == [
        by_hand(translator, text, num_beams=3, num_return_sequences=2) for text in TEXTS
    ]


def test_lazy_inputs(translator):
    from datasets import Dataset
    from transformers.pipelines.pt_utils import KeyDataset

    expected = translator(TEXTS)
    assert [records[0] for records in translator(text for text in TEXTS)] == expected
    dataset = Dataset.from_dict({"en": TEXTS})
    assert [records[0] for records in translator(KeyDataset(dataset, "en"), batch_size=2)] == expected


def test_token_ids(translator):
    (record,) = translator(TEXTS[0], return_tensors=True)
    assert set(record) == {"translation_token_ids"}
    assert (
        translator.tokenizer.decode(record["translation_token_ids"], skip_special_tokens=True)
        == by_hand(translator, TEXTS[0])[0]
    )
    assert set(translator(TEXTS[0], return_text=True)[0]) == {"translation_text"}
    with pytest.raises(ValueError, match="exclude each other"):
        translator(TEXTS[0], return_text=True, return_tensors=True)


def test_settings_at_init_and_at_call(checkpoint, translator):
    made = pipeline("translation", model=checkpoint, max_new_tokens=3, num_beams=2)
    expected = [by_hand(translator, text, max_new_tokens=3, num_beams=2)[0] for text in TEXTS]
    assert [record["translation_text"] for record in made(TEXTS)] == expected
    assert [record["translation_text"] for record in translator(TEXTS, max_new_tokens=3, num_beams=2)] == expected


@pytest.mark.parametrize("task", ["translation_en_to_de", "translation_eng_Latn_to_deu_Latn"])
def test_task_with_languages(checkpoint, translator, task):
    named = pipeline(task, model=checkpoint)
    assert named(TEXTS) == translator(TEXTS)
    source, target = task.removeprefix("translation_").split("_to_")
    assert named._preprocess_params == {"src_lang": source, "tgt_lang": target}
    named = pipeline(task, model=checkpoint, src_lang="bar", tgt_lang="nds")
    assert named._preprocess_params | named._sanitize_parameters()[0] == {"src_lang": "bar", "tgt_lang": "nds"}


def test_any_other_model(tmp_path):
    save_tiny_marian(tmp_path)
    translator = pipeline("translation", model=str(tmp_path))
    assert isinstance(translator.model, MarianMTModel)
    assert [record["translation_text"] for record in translator(TEXTS)] == [
        by_hand(translator, text)[0] for text in TEXTS
    ]


def test_a_saved_pipeline_needs_no_remote_code(translator, tmp_path):
    translator.save_pretrained(tmp_path)
    assert [path.name for path in tmp_path.glob("*.py")] == ["modeling_hf_capsule_mt.py"]  # no pipeline
    assert "custom_pipelines" not in (tmp_path / "config.json").read_text()
    assert pipeline("translation", model=str(tmp_path))(TEXTS) == translator(TEXTS)


def without_saved_limit(checkpoint):
    model = CapsuleMarianMTModel.from_pretrained(checkpoint)
    model.generation_config.max_new_tokens = None
    model.generation_config.max_length = 20  # what transformers puts there by itself
    return TranslationPipeline(model=model, tokenizer=AutoTokenizer.from_pretrained(checkpoint))


def test_limits_by_the_length_of_the_source(checkpoint):
    translator = without_saved_limit(checkpoint)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    given = with_limits(translator.model, {"attention_mask": mask}, {})
    assert given["limits"].tolist() == [39, 36]
    assert given["max_length"] == 1 + 39
    assert with_limits(translator.model, {"attention_mask": torch.ones(1, 150)}, {})["limits"].tolist() == [
        199
    ]  # positions
    assert with_limits(translator.model, {"attention_mask": mask}, {"max_length": 9}) == {"max_length": 9}
    translator.model.generation_config.max_length = 30
    assert with_limits(translator.model, {"attention_mask": mask}, {})["limits"].tolist() == [29, 29]


@pytest.mark.parametrize("beams", [1, 3])
def test_a_translation_does_not_depend_on_its_batch(checkpoint, beams, caplog):
    # the random model does not end by itself: each translation must stop at its own limit
    translator = without_saved_limit(checkpoint)
    alone = [translator(text, num_beams=beams, return_tensors=True)[0]["translation_token_ids"] for text in TEXTS]
    together = translator(TEXTS, num_beams=beams, return_tensors=True, batch_size=4)
    for text, one, other in zip(TEXTS, alone, together, strict=True):
        assert one.tolist() == other["translation_token_ids"].tolist()
        assert len(one) <= 1 + 30 + 3 * len(translator.tokenizer(text)["input_ids"])
    assert len({len(one) for one in alone}) > 1
    assert "reached the limit of their length" in caplog.text


def test_warning_of_a_limit(translator, caplog):
    tokens = len(translator(TEXTS[0], max_new_tokens=60, return_tensors=True)[0]["translation_token_ids"]) - 1
    assert tokens == 60
    assert "1 of 1 translations reached the limit" in caplog.text
    end = int(translator(TEXTS[0], max_new_tokens=5, return_tensors=True)[0]["translation_token_ids"][3])
    caplog.clear()
    translator(TEXTS[0], max_new_tokens=5, eos_token_id=end)  # the third token ends it
    assert not caplog.text


def test_sentences_of_a_text(translator):
    first, second = (by_hand(translator, text)[0] for text in ("The child sleeps.", "Who laughs?"))
    assert translator("The child sleeps.  Who laughs?\n\nThe child sleeps.\n") == [
        {"translation_text": f"{first}  {second}\n\n{first}"}
    ]
    whole = by_hand(translator, "The child sleeps. Who laughs?")[0]
    assert translator(" The child sleeps. Who laughs? ", split_sentences=False) == [{"translation_text": whole}]
    (record,) = translator("The child sleeps. Who laughs?", return_tensors=True)
    assert record["translation_token_ids"].tolist() == [
        token
        for text in ("The child sleeps.", "Who laughs?")
        for token in translator(text, return_tensors=True)[0]["translation_token_ids"].tolist()
    ]


def test_blank_texts_stay_blank(translator):
    records = translator(["", "No.", " \n\t", "\u3000"])
    assert [bool(record["translation_text"]) for record in records] == [False, True, False, False]
    several = translator(["", "No."], num_beams=2, num_return_sequences=2)
    assert [len(records) for records in several] == [2, 2]
    assert several[0] == [{"translation_text": ""}] * 2
    assert translator("", return_tensors=True)[0]["translation_token_ids"].tolist() == []
    assert translator([]) == []


def test_sources_beyond_the_positions(translator, caplog):
    text = "the old man buys twenty-three red apples, " * 40
    (record,) = translator(text, return_scores=True)
    assert record["score"] < 0
    assert record["translation_text"]
    with pytest.raises(ValueError, match=r"longer than the 200 that the model takes: 'the old man"):
        translator(text, split_sentences=False)
    with pytest.raises(ValueError, match=r"longer than the 10 that"):
        translator(
            "An old man buys twenty-three red apples at the market.", max_source_tokens=10, split_sentences=False
        )
    with pytest.raises(ValueError, match=r"`max_source_tokens` must be at least 2, got 1"):
        translator(text, max_source_tokens=1)
    with pytest.raises(ValueError, match=r"the character '🙂' alone is \d tokens, more than the 3"):
        translator("🙂🙂🙂", max_source_tokens=3)
    caplog.clear()
    translator(text, truncation=True, split_sentences=False)
    assert "was cut to 200" in caplog.text


def test_work_is_done_in_order_of_length(translator, monkeypatch):
    shapes = []
    monkeypatch.setattr(translator.translator, "fast", None)
    generate = translator.model.generate

    def recorded(**inputs):
        shapes.append(tuple(inputs["input_ids"].shape))
        return generate(**inputs)

    monkeypatch.setattr(translator.model, "generate", recorded)
    texts = [text for _ in range(3) for text in TEXTS]
    expected = translator(TEXTS) * 3
    shapes.clear()
    assert translator(texts, batch_size=3) == expected
    assert [rows for rows, _ in shapes] == [3] * 4
    widths = [width for _, width in shapes]
    assert widths == sorted({len(translator.tokenizer(text)["input_ids"]) for text in TEXTS}, reverse=True)


def test_iterables_are_read_lazily(translator):
    read = []

    def texts():
        for text in TEXTS * 20:
            read.append(text)
            yield text

    results = iter(translator(texts()))
    assert next(results) == translator(TEXTS[0])
    assert len(read) == 1
    results = iter(translator(texts(), batch_size=2))
    next(results)
    assert len(read) == 1 + 2 * 32
    dictionary = dict.fromkeys(TEXTS)
    assert len(translator(dictionary.keys())) == len(TEXTS)  # for a progress bar
    assert [records[0] for records in translator(dictionary.keys())] == translator(TEXTS)
    assert [records[0] for records in translator(map(str, TEXTS))] == translator(tuple(TEXTS))


def test_scores(translator):
    (record,) = translator(TEXTS[0], num_beams=2, max_new_tokens=6, return_scores=True)
    batch = translator.tokenizer(TEXTS[0], return_tensors="pt")
    output = translator.model.generate(
        **batch, num_beams=2, max_new_tokens=6, return_dict_in_generate=True, output_scores=True
    )
    assert record["score"] == pytest.approx(float(output.sequences_scores[0]), abs=1e-4)


def test_int8(word_for_word):
    path, texts = str(word_for_word), sentences(40, seed=99)
    settings = {"num_beams": 4, "batch_size": 8, "return_scores": True}
    expected = pipeline("translation", model=path)(texts, **settings)
    rounded = pipeline("translation", model=path, int8=True)
    assert rounded.translator.fast.int8
    pairs = list(zip(rounded(texts, **settings), expected, strict=True))
    assert sum(one["translation_text"] == other["translation_text"] for one, other in pairs) >= 0.9 * len(texts)
    assert max(abs(one["score"] - other["score"]) for one, other in pairs) > 0


def test_languages_of_the_tokenizer(checkpoint):
    translator = pipeline("translation_en_to_de", model=checkpoint)
    asked = []

    def build(text, return_tensors, src_lang, tgt_lang, **options):
        asked.append((src_lang, tgt_lang))
        return {**type(translator.tokenizer).__call__(translator.tokenizer, text), "forced_bos_token_id": 300}

    translator.tokenizer._build_translation_inputs = build
    (record,) = translator(TEXTS[0], tgt_lang="fr", src_lang="de", return_tensors=True)
    assert record["translation_token_ids"][1] == 300
    assert set(asked) == {("de", "fr")}
    translator(TEXTS[0])
    assert asked[-1] == ("en", "de")


def test_task_settings_of_a_checkpoint(checkpoint):
    model = CapsuleMarianMTModel.from_pretrained(checkpoint)
    translator = pipeline("translation_en_to_de", model=model, tokenizer=AutoTokenizer.from_pretrained(checkpoint))
    plain = translator("translate English to German: No.", max_new_tokens=4, split_sentences=False)
    settings = {"prefix": "translate English to German: ", "max_new_tokens": 4}
    model.config.task_specific_params = {"translation_en_to_de": settings}
    assert translator("No.") == plain


def test_errors(translator):
    with pytest.raises(ValueError, match="`num_beams` must be at least 1, got 0"):
        translator("No.", num_beams=0)
    with pytest.raises(ValueError, match="`coverage_retry` must be at least 2, got 1"):
        translator("No.", coverage_threshold=0.5, coverage_retry=1)
    with pytest.raises(ValueError, match="translates strings and lists of strings, got a int"):
        translator(3)
    with pytest.raises(KeyError):
        pipeline("translate", model=translator.model, tokenizer=translator.tokenizer)


def test_an_existing_task_is_left_alone(monkeypatch):
    tasks = {"translation": "native"}
    monkeypatch.setattr(PIPELINE_REGISTRY, "supported_tasks", tasks)
    restore_translation_task()
    assert tasks == {"translation": "native"}


def test_without_the_package_the_task_is_gone(checkpoint):
    # if this fails, transformers has the task again, and ours must step back
    program = f"from transformers import pipeline; pipeline('translation', model={checkpoint!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode != 0

"""`hf_capsule_mt.Translator`: any model and tokenizer of transformers behind the light one."""

import copy
import json
import logging
import re
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    EvalPrediction,
    GenerationConfig,
    MarianTokenizer,
    NllbTokenizer,
    pipeline,
)

import capsule_mt
from capsule_mt.text.segments import Segmenter
from capsule_mt.text.words import words_of
from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel, CoverageOptions, Translator, to_fast
from hf_capsule_mt.decoding.transformers_tokenizer import TransformersTokenizer, language_code, searched_offsets
from hf_capsule_mt.evaluation.metrics import compute_metrics
from hf_capsule_mt.modeling.encoder_decoder import EncoderDecoderModel
from hf_capsule_mt.modeling.target_text import decode_target
from tests.fixtures.opus_mt import train_pieces
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian, sizes_for, tiny_tokenizer
from tests.fixtures.word_for_word import sentences

TEXTS = sentences(6, seed=99)
TEXT = "An old man buys twenty-three red apples at the market."


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    torch.manual_seed(0)
    return str(save_tiny_checkpoint(tmp_path_factory.mktemp("plain")))


@pytest.fixture(scope="module")
def fast(word_for_word):
    return Translator.from_pretrained(word_for_word, device="cpu")


@pytest.fixture(scope="module")
def slow(word_for_word):
    return Translator.from_pretrained(word_for_word, device="cpu", backend="transformers")


def assert_close(actual, expected, tolerance=1e-4):
    assert (actual.text, actual.segments) == (expected.text, expected.segments)
    assert actual.score == pytest.approx(expected.score, abs=tolerance)
    if expected.coverage is not None:
        assert actual.coverage.score == pytest.approx(expected.coverage.score, abs=tolerance)
        for word, expected_word in zip(actual.coverage.words, expected.coverage.words, strict=True):
            assert (word.text, word.start, word.end, word.marked) == (
                expected_word.text,
                expected_word.start,
                expected_word.end,
                expected_word.marked,
            )
            assert word.covered == pytest.approx(expected_word.covered, abs=tolerance)


# ---- what decodes
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 4, "length_penalty": 0.0},
        {"num_beams": 3, "no_repeat_ngram_size": 1, "min_new_tokens": 6},
        {"max_new_tokens": 2},
        {"coverage": CoverageOptions()},
        {"coverage": CoverageOptions(method="attention")},
        {"coverage": CoverageOptions(method="deletion")},
        {"coverage": CoverageOptions(threshold=0.9, retry_beams=4)},
        {"coverage": CoverageOptions(weight=5.0), "num_beams": 4},
    ],
)
def test_the_light_translator_the_engine_and_generate_are_equal(word_for_word, fast, slow, options, monkeypatch):
    light = capsule_mt.Translator.from_pretrained(word_for_word)
    curves = {"attention": {"head": [1, 2]}} if options.get("coverage") == CoverageOptions(method="attention") else {}
    light.set_calibration(curves)
    for translator in (fast, slow):
        monkeypatch.setattr(translator.model.config, "coverage_calibration", curves)
    assert (light.backend, fast.backend, slow.backend) == ("native", "native", "transformers")
    expected = slow(TEXTS, batch_size=4, **options)
    with monkeypatch.context() as patched:  # the engine makes no second pass
        patched.delattr(EncoderDecoderModel, "forward")
        for first, second, third in zip(
            fast(TEXTS, batch_size=4, **options), light(TEXTS, **options), expected, strict=True
        ):
            assert_close(first, third)
            assert_close(second, third)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"dtype": "bfloat16"}, "a model in bfloat16"),
        ({"guided_routing": "classifier"}, "`guided_routing` 'classifier'"),
    ],
)
def test_what_generate_decodes_instead_of_the_engine_is_logged(settings, reason, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    dtype = settings.pop("dtype", "float32")
    folder = str(save_tiny_checkpoint(tmp_path, **settings))
    caplog.clear()
    assert Translator.from_pretrained(folder, device="cpu", dtype=dtype).fast is None
    (line,) = [message for message in caplog.messages if message.endswith("transformers' generate() decodes.")]
    assert line.startswith(reason)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [("shortlist", 3.5, "`shortlist` must be True, False or a file of `capsule-mt shortlist`, got 3.5 (float)"),
     ("shortlist", ["lex.bin"], "`capsule-mt shortlist`, got ['lex.bin'] (list)"),
     ("ensemble", 3.5, "`ensemble` must be a list of models or paths, got 3.5"),
     ("ensemble", [5], "`ensemble` must be a list of models or paths, got 5 in the list"),
     ("task", 3.5, "`task` must be a string such as 'translation_en_to_de', got 3.5")],
)  # fmt: skip
def test_an_argument_of_a_wrong_type_is_named(plain, argument, value, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        Translator.from_pretrained(plain, device="cpu", **{argument: value})


def test_backends(plain):
    fast = Translator.from_pretrained(plain, device="cpu")
    slow = Translator.from_pretrained(plain, device="cpu", backend="transformers")
    assert (fast.fast.backend, slow.fast) == ("native", None)
    further = {"encoder_repetition_penalty": 1.5}
    assert fast(TEXT, **further).text == slow(TEXT, **further).text != fast(TEXT).text
    in_bfloat16 = Translator.from_pretrained(plain, device="cpu", dtype=torch.bfloat16)
    assert in_bfloat16.fast is None
    for options, named in (
        ({"backend": "native", "ensemble": [plain]}, r"`backend='native'` is for one float32 .* 2 models"),
        ({"int8": True, "ensemble": [plain]}, r"`int8=True` is for one float32 model on a CPU"),
        ({"int8": True, "backend": "transformers"}, r"`int8=True` is for .* another `backend`"),
        ({"backend": "onnx"}, "`backend` must be 'auto', 'native' or 'transformers', got 'onnx'"),
    ):
        with pytest.raises(ValueError, match=named):
            Translator.from_pretrained(plain, device="cpu", **options)
    native = Translator.from_pretrained(plain, device="cpu", backend="native")
    with pytest.raises(ValueError, match=r'`backend="native"` does not support `encoder_repetition_penalty=1.5`'):
        native(TEXT, encoder_repetition_penalty=1.5)


def test_a_dtype_and_a_device_that_torch_does_not_have_are_named(plain, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available: None)
    for options, message in (
        ({"dtype": "float61"}, "`dtype` must be 'auto', 'float32', .*, got 'float61'"),
        ({"dtype": "nn"}, "`dtype` must be 'auto', 'float32', .*, got 'nn'"),  # in torch, but not a dtype
        ({"device": "cuda"}, "`device` is 'cuda', but torch .* does not find such a device here: use 'cpu'"),
    ):
        with pytest.raises(ValueError, match=message):
            Translator.from_pretrained(plain, **options)
    assert Translator.from_pretrained(plain, dtype="float32").fast.backend == "native"


@pytest.mark.parametrize("value", [None, False, 0, 3])
def test_an_unknown_option_is_an_error_whatever_its_value(plain, value):
    for backend in ("native", "transformers"):
        translate = Translator.from_pretrained(plain, device="cpu", backend=backend)
        with pytest.raises(ValueError, match=r"`num_beam` is not an option of .*: did you mean `num_beams`"):
            translate("", num_beam=value)
    assert translate(TEXT, penalty_alpha=None, output_scores=False).text == translate(TEXT).text


def test_a_pair_and_any_other_model(tmp_path):
    save_tiny_marian(tmp_path)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    ids = model.eval().generate(**tokenizer(TEXT, return_tensors="pt"), num_beams=2)
    translator = Translator(model.train(), tokenizer)
    # with `copy`, the doubled words of a random model start a second search
    assert translator(TEXT, num_beams=2, copy=False).text == tokenizer.decode(ids[0], skip_special_tokens=True)
    assert not model.training
    with pytest.raises(ValueError, match='"attention"` needs a head that aligns words'):
        translator(TEXT, coverage=CoverageOptions(method="attention"))
    words = translator(TEXT, num_beams=2, coverage=CoverageOptions(threshold=0.9, retry_beams=3)).coverage.words
    assert [word.text for word in words] == [*TEXT[:-1].split(), "."]
    assert all(0 <= word.covered <= 1 for word in words)
    with pytest.raises(AttributeError, match="`loaded` must come with `model` and `tokenizer`"):
        translator.loaded = translator.loaded


# ---- how it is asked
@pytest.mark.parametrize("config_options", [8, None])
@pytest.mark.parametrize(
    ("call_options", "in_config"),
    [
        ({"max_length": 5}, False),
        ({"max_new_tokens": None, "max_length": 5}, False),
        ({"max_new_tokens": 3, "max_length": 9}, False),
        ({"max_length": 7}, True),
        ({"max_new_tokens": 4}, True),
    ],
)
def test_the_limit_is_that_of_generate(fast, config_options, call_options, in_config):
    model = copy.deepcopy(fast.model)
    model.generation_config.max_new_tokens = config_options
    end = [model.generation_config.eos_token_id]
    never_ends = (
        {"generation_config": GenerationConfig(**call_options, suppress_tokens=end)}
        if in_config
        else {**call_options, "suppress_tokens": end}
    )
    generated = model.generate(**fast.tokenizer(TEXTS[0], return_tensors="pt"), **never_ends)
    translation = Translator(model, fast.tokenizer)(TEXTS[0], copy=False, **never_ends)
    assert translation.token_ids == tuple(generated[0].tolist())
    assert translation.was_cut


@pytest.mark.parametrize("max_length", [5, 20])  # before 5.15, transformers took 20 as its own default
def test_the_limit_of_the_checkpoint_is_that_of_generate(fast, max_length):
    model = copy.deepcopy(fast.model)
    settings = model.generation_config
    settings.max_new_tokens, settings.max_length, settings.suppress_tokens = None, max_length, [settings.eos_token_id]
    generated = model.generate(**fast.tokenizer(TEXTS[0], return_tensors="pt"))
    assert generated.shape == (1, max_length)
    translation = Translator(model, fast.tokenizer)(TEXTS[0])
    assert translation.token_ids == tuple(generated[0].tolist())
    assert translation.was_cut


def test_languages_and_settings_of_the_task(plain):
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(plain), AutoTokenizer.from_pretrained(plain)
    settings = {"prefix": "translate English to German: ", "max_new_tokens": 4}
    # without copying, or the colon, which this vocabulary lacks, would not be read
    expected = Translator(model, tokenizer)(
        "translate English to German: No.", max_new_tokens=4, split_sentences=False, copy=False
    )
    model.config.task_specific_params = {"translation_en_to_de": settings}
    translator = Translator(model, tokenizer, task="translation_en_to_de")
    assert translator("No.").text == expected.text
    segment = translator("No.").segments[0]
    assert (segment.start, segment.end, segment.source_ids) == (0, 3, expected.segments[0].source_ids)
    assert [word.text for word in translator("No.", coverage=CoverageOptions()).coverage.words] == ["No", "."]
    scored = translator.score(["No."], [expected.text])[0]
    assert scored.segments[0].source_ids == expected.segments[0].source_ids
    of_a_call = Translator(model, tokenizer)("No.", src_lang="en", tgt_lang="de")
    assert of_a_call.segments == translator("No.").segments


def test_a_tokenizer_with_languages(plain):
    """As those of NLLB and mBART: it says what a source is, and which token a translation begins with."""
    translator = Translator.from_pretrained(plain, device="cpu", task="translation_en_to_de")
    asked, call = [], type(translator.tokenizer).__call__

    def build(text, return_tensors, src_lang, tgt_lang, **options):
        asked.append((src_lang, tgt_lang))
        return {**call(translator.tokenizer, text, **options), "forced_bos_token_id": 300}

    translator.tokenizer._build_translation_inputs = build
    translation = translator("The child sleeps.", tgt_lang="fr", src_lang="de")
    assert translation.token_ids[1] == 300
    assert set(asked) == {("de", "fr")}


@pytest.fixture
def nllb():
    """A tokenizer of NLLB without words, whose translations begin with their language."""
    return NllbTokenizer()


def test_a_given_translation_has_its_language(nllb):
    tokenizer = TransformersTokenizer(nllb, "eng_Latn", "deu_Latn")
    german, english = nllb.convert_tokens_to_ids(["deu_Latn", "eng_Latn"])
    assert tokenizer.encode("no").ids[0] == english
    assert tokenizer.settings == {"forced_bos_token_id": german}
    assert tokenizer.encode_target("nein")[-1] == nllb.eos_token_id
    assert tokenizer.labels("nein") == [german, *tokenizer.encode_target("nein")]


def test_languages_by_the_codes_of_other_models(nllb):
    tokenizer = TransformersTokenizer(nllb, "en", "de_DE")
    german, english = nllb.convert_tokens_to_ids(["deu_Latn", "eng_Latn"])
    assert tokenizer.encode("no").ids[0] == english
    assert tokenizer.settings == {"forced_bos_token_id": german}
    assert tokenizer.labels("nein")[0] == german


def test_a_language_that_the_tokenizer_lacks_is_refused(nllb):
    with pytest.raises(ValueError, match=r"`tgt_lang` must be one of the model's languages, such as .*'Klingon'"):
        segmenter(nllb, src_lang="eng_Latn", tgt_lang="Klingon")
    nllb.add_tokens(["tyv_Cyrl"])
    for name in ("eng_Latn", "tyv_Cyrl", None):
        assert language_code(nllb, "src_lang", name) == name
    nllb.add_special_tokens({"additional_special_tokens": ["tyv_Cyrl"]})
    assert language_code(nllb, "src_lang", "eng_Latn") == "eng_Latn"


def test_words_that_a_translation_must_contain(fast):
    """transformers leaves them to code from the Hub, and says so."""
    with pytest.raises(ValueError, match="Constrained Beam Search requires `trust_remote_code=True`"):
        fast(TEXTS[0], num_beams=2, force_words_ids=[[23, 24]])


def test_a_calibration_is_checked(fast, monkeypatch):
    with pytest.raises(ValueError, match=r"^`set_calibration`: `coverage_calibration.attention.head` must be a layer"):
        fast.set_calibration({"attention": {"head": [9, 0]}})
    monkeypatch.setattr(fast.model.config, "coverage_calibration", {"attention": {"head": [9, 0]}})
    with pytest.raises(ValueError, match=r"`coverage_calibration\.attention\.head` must be a layer and a head of .*9"):
        Translator(fast.model, fast.tokenizer)


def test_pairs_are_for_the_light_distribution():
    with pytest.raises(ValueError, match=r"en-pt: no such folder; .* `capsule_mt\.Translator`"):
        Translator.from_pretrained("en-pt")


# ---- tokenizers
def segmenter(tokenizer, **options):
    languages = (options.get("src_lang"), options.get("tgt_lang"))
    return Segmenter(TransformersTokenizer(tokenizer, *languages), None, **options)


@pytest.fixture
def unequal(tmp_path):
    """A `MarianTokenizer` of 7 source tokens, the last of them the padding, and of 10 target tokens."""
    vocabularies = {}
    settings = {"model_type": "word", "pad_id": -1, "bos_id": -1, "eos_id": 0, "unk_id": 1}
    for side, text in (("source", "one two three four"), ("target", "eins zwei drei vier fuenf sechs sieben")):
        tokens = [*train_pieces(tmp_path / f"{side}.spm", [text], 20, **settings), "<pad>"]
        vocabularies[side] = {token: number for number, token in enumerate(tokens)}
        (tmp_path / f"{side}.json").write_text(json.dumps(vocabularies[side]))
    files = [str(tmp_path / name) for name in ("source.spm", "target.spm", "source.json", "target.json")]
    return MarianTokenizer(*files, separate_vocabs=True), vocabularies["target"]


@pytest.mark.parametrize("fast", [True, False])
def test_offsets_of_subwords(fast):
    tokenizer = tiny_tokenizer()
    text = "The 🙂 café's twenty-three apples."
    token_ids = tokenizer(text)["input_ids"]
    fake = SimpleNamespace(
        is_fast=False,
        unk_token_id=None,
        all_special_ids=tokenizer.all_special_ids,
        convert_ids_to_tokens=tokenizer.convert_ids_to_tokens,
    )
    measured = TransformersTokenizer(tokenizer).encode(text).offsets
    offsets = measured if fast else searched_offsets(fake, text, token_ids)
    assert len(offsets) == len(token_ids)
    words = {text[span.start : span.end]: tokens for span, tokens in words_of(text, offsets)}
    expected = ["The", "🙂", "café's", "twenty-three", "apples", "."]
    assert list(words) == [word for word in expected if fast or word != "🙂"]  # whose bytes say nothing of it
    assert tokenizer.decode([token_ids[n] for n in words["twenty-three"]]) == "twenty-three"
    assert token_ids.index(tokenizer.eos_token_id) not in {n for tokens in words.values() for n in tokens}


@pytest.mark.parametrize("start", ["<pad>", "the source's <pad>"])
def test_vocabularies_of_unequal_size(unequal, start):
    tokenizer, target = unequal
    start_id = target.get(start, tokenizer.pad_token_id)
    (word,) = [token for token, number in target.items() if number == tokenizer.pad_token_id]
    config = CapsuleMarianConfig(
        **sizes_for(tokenizer) | {"decoder_start_token_id": start_id, "decoder_vocab_size": len(target)},
        share_encoder_decoder_embeddings=False,
    )
    model = CapsuleMarianMTModel(config)
    with torch.no_grad():
        model.final_logits_bias[0, target[word]] = 1000.0
    (piped,) = pipeline("translation", model=model, tokenizer=tokenizer)("one two", max_new_tokens=3)
    expected = " ".join([word.removeprefix("▁")] * 3)
    assert piped["translation_text"] == expected
    scored = Translator(model, tokenizer).score(["one two"], [expected])[0]
    assert scored.segments[0].target_ids == (start_id, *[target[word]] * 3, target["</s>"])
    sequence = torch.tensor([start_id, *[target[word]] * 3, target["</s>"], config.pad_token_id])
    assert decode_target(tokenizer, sequence) == expected
    labels = torch.cat([sequence[1:5], torch.tensor([-100])])[None]
    for_trainer = EvalPrediction(sequence[None].numpy(), labels.numpy())
    scores = compute_metrics(tokenizer, ["chrf"], partial(decode_target, tokenizer))(for_trainer)
    assert scores == {"chrf": 100, "generated_tokens": 4}
    with pytest.raises(ValueError, match="`decode` must be given"):
        compute_metrics(tokenizer)


def test_max_time_ends_a_translation(fast):
    """By `generate()` and by the engine, under both of their names."""
    end = [fast.model.generation_config.eos_token_id]
    settings = {"max_time": 1e-9, "max_new_tokens": 60, "suppress_tokens": end}
    for translator in (fast, Translator(fast.model, fast.tokenizer, backend="transformers")):
        translation = translator(TEXTS[0], **settings)
        assert (translation.was_cut, len(translation.token_ids) < 60) == (True, True)
    sequences = to_fast(fast.model).generate(**fast.tokenizer(TEXTS[0], return_tensors="pt"), **settings)
    assert sequences.shape[1] < 60

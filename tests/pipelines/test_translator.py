"""The typed translator: its results, its options, and how often it runs the encoder and the tokenizer."""

import copy
import dataclasses
import json
from functools import partial

import pytest
import sentencepiece
import torch
from hf_capsule_mt.pipelines import PrefixedText, Translation
from hf_capsule_mt.pipelines.limits import TargetPrefix, given_limit, with_limits
from hf_capsule_mt.pipelines.tokenizer import TransformersTokenizer, check_language, token_offsets
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    EvalPrediction,
    GenerationConfig,
    MarianTokenizer,
    NllbTokenizer,
    pipeline,
)

import hf_capsule_mt
from capsule_mt.text.segments import Segmenter
from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel, CoverageOptions, Translator
from hf_capsule_mt.evaluation.metrics import compute_metrics
from hf_capsule_mt.modeling.vocabulary import decode_target
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian, sizes_for
from tests.fixtures.word_for_word import sentences

TEXTS = sentences(12, seed=99)


@pytest.fixture(scope="module")
def translator(word_for_word):
    return Translator.from_pretrained(word_for_word)


@pytest.fixture(scope="module")
def pipe(word_for_word):
    return pipeline("translation", model=str(word_for_word))


def count_calls(monkeypatch, owner, name):
    """The arguments of each call of a method from now on."""
    calls, method = [], getattr(owner, name)

    def counted(*args, **kwargs):
        calls.append((args, kwargs))
        return method(*args, **kwargs)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_one_string(translator, pipe):
    translation = translator(TEXTS[0])
    (record,) = pipe(TEXTS[0], return_scores=True)
    assert isinstance(translation, Translation)
    assert translation.text == record["translation_text"]
    assert translation.score == pytest.approx(record["score"], abs=1e-5)
    assert translation.coverage is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        translation.text = ""


def test_lists_and_what_one_sentence_was_made_of(translator, pipe):
    translations = translator(TEXTS, batch_size=5, scores=False)
    assert [found.text for found in translations] == [record["translation_text"] for record in pipe(TEXTS)]
    assert [found.score for found in translations] == [None] * len(TEXTS)
    text = f"  {TEXTS[0]}.  \n\n {TEXTS[1]} "
    (found,) = translator((text,))
    assert [text[segment.start : segment.end] for segment in found.segments] == [f"{TEXTS[0]}.", TEXTS[1]]
    (record,) = pipe(text, return_tensors=True)
    assert list(found.token_ids) == record["translation_token_ids"].tolist()
    assert list(found.segments[1].source_ids) == pipe.tokenizer(TEXTS[1])["input_ids"]
    assert not found.was_cut
    assert translator(text, max_new_tokens=2).was_cut


@pytest.mark.parametrize("own", [8, None])
@pytest.mark.parametrize(
    "given",
    [
        {"max_length": 5},
        {"max_new_tokens": None, "max_length": 5},
        {"max_new_tokens": 3, "max_length": 9},
        {"generation_config": GenerationConfig(num_beams=2)},
        {"generation_config": GenerationConfig(max_length=7)},
    ],
)
def test_the_limit_is_that_of_generate(translator, own, given):
    model = copy.deepcopy(translator.model)
    model.generation_config.max_new_tokens = own
    source = translator.tokenizer(TEXTS[0], return_tensors="pt")
    made = model.generate(**source, **given, suppress_tokens=[model.generation_config.eos_token_id])
    assert made.shape[1] - 1 == given_limit(model, given)


def test_a_limit_of_time_leaves_that_of_the_length(translator):
    text, model = "the farmer sees the house and " * 9, translator.model
    source = translator.tokenizer(text, return_tensors="pt")
    expected = with_limits(model, source, {})["limits"].tolist()
    in_config = {"generation_config": GenerationConfig(num_beams=2)}
    limited = with_limits(model, source, in_config)["generation_config"]
    assert (limited.num_beams, limited.max_new_tokens) == (2, max(expected))
    for given in ({"max_time": 60.0}, {"stopping_criteria": []}, in_config):
        assert with_limits(model, source, given)["limits"].tolist() == expected
    for given in ({"max_new_tokens": 5}, {"generation_config": GenerationConfig(max_length=7)}):
        assert "limits" not in with_limits(model, source, given)


def test_a_string_is_no_list_of_texts(translator):
    with pytest.raises(TypeError, match="`texts` must be a list of strings, got the string 'the farmer'"):
        translator.score("the farmer", "der Bauer.")
    with pytest.raises(TypeError, match="`translations` must be a list"):
        translator.cover(["no."], "Nein")
    with pytest.raises(ValueError, match="`batch_size` must be at least 1, got 0"):
        translator.score(["no"], ["nein"], batch_size=0)


def test_a_retry_has_beams_for_all_translations(translator):
    retry = CoverageOptions(threshold=1.1, retry_beams=2)
    assert len(translator(TEXTS[0], num_beams=4, num_return_sequences=3, coverage=retry)) == 3


def test_any_other_iterable_is_read_lazily(translator):
    read = []

    def texts():
        for text in TEXTS * 20:
            read.append(text)
            yield text

    found = iter(translator(texts()))
    assert next(found) == translator(TEXTS[0])
    assert len(read) == 1
    assert next(found).text == translator(TEXTS[1]).text
    next(iter(translator(texts(), batch_size=2)))
    assert len(read) == 2 + 2 * 32
    in_order = [found.text for found in translator(iter(TEXTS), batch_size=4)]
    assert in_order == [found.text for found in translator(TEXTS)]
    assert len(translator(dict.fromkeys(TEXTS).keys())) == len(TEXTS)


def test_several_translations_of_each_text(translator, pipe):
    several = translator(TEXTS[:3], num_beams=3, num_return_sequences=2)
    expected = pipe(TEXTS[:3], num_beams=3, num_return_sequences=2, return_scores=True)
    assert [[found.text for found in n_best] for n_best in several] == [
        [record["translation_text"] for record in records] for records in expected
    ]
    best, second = translator(TEXTS[0], num_beams=3, num_return_sequences=2)
    assert [best.score, second.score] == pytest.approx([record["score"] for record in expected[0]], abs=1e-5)


def test_blank_texts(translator):
    blank, text = translator(["\n", TEXTS[0]], coverage=CoverageOptions())
    assert (blank.text, blank.score, blank.segments) == ("", None, ())
    assert (blank.coverage.score, blank.coverage.words) == (1.0, ())
    assert text.text
    assert translator([]) == []


@pytest.mark.parametrize(
    ("options", "keys"),
    [
        (CoverageOptions(), {}),
        (CoverageOptions(threshold=0.9), {"coverage_threshold": 0.9}),
        (CoverageOptions(threshold=0.9, retry_beams=4), {"coverage_threshold": 0.9, "coverage_retry": 4}),
        (CoverageOptions(weight=5.0), {"coverage_weight": 5.0, "num_beams": 4}),
    ],
)
def test_coverage_equals_the_pipelines(translator, pipe, options, keys):
    settings = {"batch_size": 6, **{name: value for name, value in keys.items() if name == "num_beams"}}
    found = translator(TEXTS, coverage=options, **settings)
    expected = pipe(TEXTS, return_coverage=True, return_scores=True, **{**keys, **settings})
    for one, other in zip(found, expected, strict=True):
        coverage = other["coverage"]
        assert one.text == other["translation_text"]
        assert one.score == pytest.approx(other["score"], abs=1e-5)
        assert one.coverage.score == pytest.approx(coverage["score"], abs=1e-5)
        assert [word.text for word in one.coverage.words] == [word["word"] for word in coverage["words"]]
        left_out = [word["word"] for word in coverage["words"] if word["untranslated"]]
        assert [word.text for word in one.coverage.untranslated] == left_out
        for word, same in zip(one.coverage.words, coverage["words"], strict=True):
            for name in ("past", "future", "covered"):
                assert getattr(word, name) == pytest.approx(same[name], abs=1e-5)
        assert [sentence.start for sentence in one.coverage.sentences] == [0]
    assert any(one.coverage.untranslated for one in found)


def test_the_encoder_and_the_tokenizer_run_once(translator, monkeypatch):
    monkeypatch.setattr(translator, "fast", None)
    encoder_calls = count_calls(monkeypatch, translator.model.get_encoder(), "forward")
    tokenizer_class = type(translator.tokenizer)
    tokenizer_calls = count_calls(monkeypatch, tokenizer_class, "__call__")
    retry = CoverageOptions(threshold=1.1, retry_beams=4)  # every sentence falls short
    for settings in (
        {},
        {"coverage": CoverageOptions()},
        {"coverage": retry},
        {"coverage": CoverageOptions(weight=1.0)},
    ):
        encoder_calls.clear()
        tokenizer_calls.clear()
        translator(TEXTS, batch_size=6, num_beams=3, **settings)
        assert len(encoder_calls) == 2  # batches
        assert sum(len(kwargs["input_ids"]) for _, kwargs in encoder_calls) == len(TEXTS)
        assert len(tokenizer_calls) == len(TEXTS)


def test_a_fast_backend_leaves_nothing_to_the_encoder(translator, monkeypatch):
    encoder_calls = count_calls(monkeypatch, translator.model.get_encoder(), "forward")
    translator(TEXTS, batch_size=6, num_beams=3)
    assert encoder_calls == []
    translator(TEXTS, batch_size=6, num_beams=3, coverage=CoverageOptions())
    assert encoder_calls == []


def test_a_sentence_in_pieces_is_tokenised_once_a_piece(translator, monkeypatch):
    calls = count_calls(monkeypatch, type(translator.tokenizer), "__call__")
    translation = translator(" ".join(TEXTS), coverage=CoverageOptions(), max_source_tokens=12)
    texts = [args[1] for args, _ in calls]
    assert len(translation.segments) > 4
    assert len(texts) == len(set(texts))  # the halves that did not fit, and the pieces
    assert [word.text for word in translation.coverage.words] == " ".join(TEXTS).split()


def test_a_pair_and_any_other_model(tmp_path):
    save_tiny_marian(tmp_path)
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    text = "An old man buys twenty-three red apples at the market."
    expected = pipeline("translation", model=str(tmp_path))(text, num_beams=2)[0]["translation_text"]
    assert Translator(model.train(), tokenizer)(text, num_beams=2).text == expected
    assert not model.training
    with pytest.raises(ValueError, match='"guided"` needs a model with guided routing, got a MarianMTModel'):
        Translator(model, tokenizer)(text, coverage=CoverageOptions(method="guided"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    torch.manual_seed(0)
    return str(save_tiny_checkpoint(tmp_path_factory.mktemp("plain")))


def test_backends(plain):
    text = "An old man buys twenty-three red apples at the market."
    fast = Translator.from_pretrained(plain, device="cpu")
    slow = Translator.from_pretrained(plain, device="cpu", backend="transformers")
    assert fast.fast.backend == "native"
    assert slow.fast is None
    for settings in ({}, {"num_beams": 4}):
        one, other = (translator(text, **settings) for translator in (fast, slow))
        assert one.text == other.text
        assert one.score == pytest.approx(other.score, abs=1e-4)
    in_bfloat16 = Translator.from_pretrained(plain, device="cpu", dtype=torch.bfloat16)
    assert in_bfloat16.fast is None
    with pytest.raises(ValueError, match="an ensemble needs"):
        Translator.from_pretrained(plain, device="cpu", backend="native", ensemble=[plain])
    with pytest.raises(ValueError, match="`int8=True` is for one model in the native engine, got an ensemble"):
        Translator.from_pretrained(plain, device="cpu", int8=True, ensemble=[plain])
    native = Translator.from_pretrained(plain, device="cpu", backend="native")
    with pytest.raises(ValueError, match=r'`backend="native"` does not take `repetition_penalty=1.5`'):
        native(text, repetition_penalty=1.5)
    assert fast(text, repetition_penalty=1.5).text == slow(text, repetition_penalty=1.5).text
    with pytest.raises(ValueError, match="`backend` must be 'auto', 'native' or 'transformers', got 'onnx'"):
        Translator.from_pretrained(plain, backend="onnx")
    with pytest.raises(ValueError, match="`int8=True` needs another `backend`"):
        Translator.from_pretrained(plain, backend="transformers", int8=True)


def test_languages_and_settings_of_the_task(plain):
    model, tokenizer = AutoModelForSeq2SeqLM.from_pretrained(plain), AutoTokenizer.from_pretrained(plain)
    settings = {"prefix": "translate English to German: ", "max_new_tokens": 4}
    expected = Translator(model, tokenizer)(
        "translate English to German: No.", max_new_tokens=4, split_sentences=False
    )
    model.config.task_specific_params = {"translation_en_to_de": settings}
    assert Translator(model, tokenizer, task="translation_en_to_de")("No.").text == expected.text


@pytest.mark.parametrize("mark", ["\u0301", "\u200d", "\ufe0f"])
def test_a_letter_with_a_thousand_marks(plain, mark):
    translation = Translator.from_pretrained(plain)("e" + mark * 1000, batch_size=8, scores=False, max_new_tokens=2)
    assert "".join(("e" + mark * 1000)[segment.start : segment.end] for segment in translation.segments)[0] == "e"


def test_what_is_refused(translator):
    with pytest.raises(TypeError, match="`texts` must be a string or an iterable of strings, got a int"):
        translator(3)
    with pytest.raises(TypeError, match="a text must be a string, got a NoneType"):
        translator([None])
    for name in ("batch_size", "batch_tokens", "num_beams"):
        with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
            translator(TEXTS[0], **{name: 0})
    with pytest.raises(ValueError, match="`max_source_tokens` must be at least 2, got 1"):
        translator(TEXTS[0], max_source_tokens=1)
    with pytest.raises(ValueError, match="`retry_beams` must be at least 2, got 1"):
        CoverageOptions(threshold=0.5, retry_beams=1)
    with pytest.raises(ValueError, match=r"`retry_beams` \(4\) needs a `threshold`"):
        CoverageOptions(retry_beams=4)
    with pytest.raises(ValueError, match="`num_beams` is 1"):
        translator(TEXTS[0], coverage=CoverageOptions(weight=1.0))


@pytest.mark.parametrize("num_beams", [1, 3])
def test_target_prefixes(translator, pipe, num_beams):
    words = translator.tokenizer.convert_ids_to_tokens(range(23, 43))
    given = [f"{words[3]} {words[9]}", words[0], ""]
    texts = [PrefixedText(text, prefix) for text, prefix in zip(TEXTS, given, strict=False)]
    found = translator([*texts, TEXTS[3]], num_beams=num_beams, batch_size=4)
    assert [one.text for one in found] == [translator(text, num_beams=num_beams).text for text in [*texts, TEXTS[3]]]
    assert [one.text for one in found[2:]] == [one.text for one in translator(TEXTS[2:4], num_beams=num_beams)]
    for text, prefix, one in zip(TEXTS, given[:2], found, strict=False):
        assert one.text.startswith(prefix)
        model, tokenizer = translator.model, translator.tokenizer
        source = tokenizer(text, return_tensors="pt")
        start = [model.config.decoder_start_token_id, *tokenizer.convert_tokens_to_ids(prefix.split())]
        source["decoder_input_ids"] = torch.tensor([start])
        ids = model.generate(**source, num_beams=num_beams, max_length=13)
        assert one.text == tokenizer.decode(ids[0], skip_special_tokens=True)
        assert one.score == pytest.approx(translator.score([text], [one.text])[0].score, abs=1e-4)
    records = pipe(texts, num_beams=num_beams)
    assert [record["translation_text"] for record in records] == [one.text for one in found[:3]]
    best = translator(texts[0], num_beams=3, num_return_sequences=2)
    assert all(one.text.startswith(given[0]) for one in best)


def test_a_prefix_after_the_language():
    prefix = TargetPrefix([[5], []], first=2)
    scores = torch.zeros(4, 8)
    assert torch.equal(prefix(torch.zeros(4, 1), scores), scores)
    forced = prefix(torch.zeros(4, 2), scores)
    assert forced.isfinite().sum(dim=1).tolist() == [1, 1, 8, 8]
    assert forced[0, 5] == 0


def test_words_that_a_translation_must_contain(translator, tmp_path):
    """transformers leaves them to code from the Hub, here from a folder."""
    wanted = [[23, 24]]
    for name, backend in (("force_words_ids", "auto"), ("constraints", "transformers")):
        strict = Translator(translator.model, translator.tokenizer, backend=backend)
        with pytest.raises(ValueError, match=f"`{name}`.*constrained-beam-search.*PrefixedText"):
            strict(TEXTS[0], num_beams=2, **{name: wanted})
    (tmp_path / "custom_generate").mkdir()
    code = """
def generate(model, inputs=None, force_words_ids=None, **kwargs):
    sequences = model.generate(**{name: kwargs[name] for name in ("input_ids", "attention_mask")}, max_length=13)
    sequences[:, 1] = force_words_ids[0][0]
    return sequences
"""
    (tmp_path / "custom_generate" / "generate.py").write_text(code)
    hub = {"custom_generate": str(tmp_path), "trust_remote_code": True}
    found = translator(TEXTS[0], num_beams=2, force_words_ids=wanted, **hub)
    assert found.token_ids[1] == 23
    assert found.score is not None


@pytest.fixture
def unequal(tmp_path):
    """A `MarianTokenizer` of 7 source tokens, the last of them the padding, and of 10 target tokens."""
    vocabularies = {}
    for side, text in (("source", "one two three four"), ("target", "eins zwei drei vier fuenf sechs sieben")):
        model = tmp_path / f"{side}.spm"
        with open(model, "wb") as stream:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter([text]),
                model_writer=stream,
                model_type="word",
                vocab_size=20,
                hard_vocab_limit=False,
                pad_id=-1,
                bos_id=-1,
                eos_id=0,
                unk_id=1,
                minloglevel=2,
            )
        processor = sentencepiece.SentencePieceProcessor(model_file=str(model))
        tokens = [*(processor.id_to_piece(number) for number in range(processor.get_piece_size())), "<pad>"]
        vocabularies[side] = {token: number for number, token in enumerate(tokens)}
        (tmp_path / f"{side}.json").write_text(json.dumps(vocabularies[side]))
    files = [str(tmp_path / name) for name in ("source.spm", "target.spm", "source.json", "target.json")]
    return MarianTokenizer(*files, separate_vocabs=True), vocabularies["target"]


def segmenter(tokenizer, **options):
    languages = (options.get("src_lang"), options.get("tgt_lang"))
    return Segmenter(TransformersTokenizer(tokenizer, *languages), None, **options)


def test_every_sentence_has_the_language_of_its_text(unequal):
    tokenizer, _ = unequal
    tokenizer.encoder |= {">>fra<<": 20, ">>ita<<": 21}
    tokenizer.supported_language_codes = [">>fra<<", ">>ita<<"]
    tokenizer.decoder = {number: token for token, number in tokenizer.encoder.items()}
    text = " >>fra<< One two. Three four."
    pieces = segmenter(tokenizer, tgt_lang="ita").document(text).pieces
    assert [text[piece.span.start : piece.span.end] for piece in pieces] == ["One two.", "Three four."]
    assert [piece.ids[0] for piece in pieces] == [20, 20]
    text = ">>fra<< One two. >>ita<< Three four. Two two."
    pieces = segmenter(tokenizer).document(text).pieces
    assert [text[piece.span.start : piece.span.end] for piece in pieces] == ["One two.", "Three four.", "Two two."]
    assert [piece.ids[0] for piece in pieces] == [20, 21, 20]
    text = "one  two"
    (piece,) = segmenter(tokenizer, tgt_lang="ita", with_words=True).document(text).pieces
    assert piece.ids[0] == 21
    assert [text[word.span.start : word.span.end] for word in piece.words] == ["one", "two"]
    assert segmenter(tokenizer).document(">>fra<< ").pieces == []


def test_a_language_that_the_tokenizer_lacks_is_refused():
    tokenizer = NllbTokenizer()
    with pytest.raises(ValueError, match="`tgt_lang` 'de' is no language of NllbTokenizer; it has deu_Latn"):
        segmenter(tokenizer, src_lang="eng_Latn", tgt_lang="de").document("no")
    tokenizer.add_tokens(["tyv_Cyrl"])
    for name in ("eng_Latn", "tyv_Cyrl", None):
        check_language(tokenizer, "src_lang", name)
    tokenizer.add_special_tokens({"additional_special_tokens": ["tyv_Cyrl"]})
    check_language(tokenizer, "src_lang", "eng_Latn")


def test_places_in_text_that_the_tokenizer_normalises(unequal):
    tokenizer, _ = unequal
    for text in ("one            two three", "one" + "\u200b" * 10 + " two three", "one \uff54wo \u2003 three"):
        ids = tokenizer(text)["input_ids"]
        places = [place and text[slice(*place)] for place in token_offsets(tokenizer, text, ids, "")]
        assert places[-2] == "three", (text, places)


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
    sequence = torch.tensor([start_id, *[target[word]] * 3, target["</s>"], config.pad_token_id])
    assert decode_target(tokenizer, sequence) == expected
    labels = torch.cat([sequence[1:5], torch.tensor([-100])])[None]
    for_trainer = EvalPrediction(sequence[None].numpy(), labels.numpy())
    scores = compute_metrics(tokenizer, ["chrf"], partial(decode_target, tokenizer))(for_trainer)
    assert scores == {"chrf": 100, "generated_tokens": 4}
    with pytest.raises(ValueError, match="`decode` must be given"):
        compute_metrics(tokenizer)


def test_it_is_public():
    assert {"Translator", "CoverageOptions"} <= set(hf_capsule_mt.__all__)


def test_half_weights_are_computed_in_float32_on_a_cpu(word_for_word, tmp_path):
    AutoModelForSeq2SeqLM.from_pretrained(word_for_word).half().save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(word_for_word).save_pretrained(tmp_path)
    translator = Translator.from_pretrained(tmp_path, device="cpu", int8=True)
    assert translator.model.dtype == torch.float32
    assert translator("balu bamo", num_beams=2).text == "ULAB OMAB"
    assert Translator.from_pretrained(tmp_path, device="cpu", dtype=torch.float16).model.dtype == torch.float16

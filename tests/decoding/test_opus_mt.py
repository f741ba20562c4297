"""Models of OPUS-MT's form in the light translator, against transformers' own."""

import json
import random

import pytest
import torch
from transformers import AutoTokenizer, MarianMTModel

import hf_capsule_mt
from capsule_mt import CoverageOptions, Translator
from capsule_mt.catalog.pairs import LanguagePair
from capsule_mt.commands import convert, translate
from capsule_mt.files.line_failures import FAILED_LINES_STATUS
from capsule_mt.models.languages import target_code_of
from capsule_mt.models.marian_tokenizer import MarianTokenizer
from capsule_mt.serve.batching import MOST_REPEATED, Batcher
from hf_capsule_mt.data import sentence_pairs
from tests.fixtures.opus_mt import save_opus_mt

LANGUAGES = ("deu", "eng", "cmn_Hans", "pt_br")
LIMITS = {"num_beams": 1, "max_new_tokens": 12}
ODD_TEXTS = [
    "",
    " ",
    "  two  spaces ",
    "ﬁ ² ½ é e\u0301 Ĳ",
    "日本語 😀",
    "a</s> b<pad><unk> ▁",
    "a\nb\tc\u00a0d",
    "ß ß",
    "<s>",
    ">>x<< no",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opus")
    return {
        "opus-mt-en-de": save_opus_mt(folder / "opus-mt-en-de"),
        "opus-mt-en-gmw": save_opus_mt(folder / "opus-mt-en-gmw", ("deu", "nld")),
    }


def texts(count):
    generator = random.Random(3)
    characters = [
        chr(code) for code in (*range(32, 600), *range(0x300, 0x330), *range(0x2000, 0x2070), 0x3000, 0xFB01)
    ]
    odd = ("".join(generator.choices(characters, k=generator.randint(1, 9))) for _ in range(count))
    pairs = zip(sentence_pairs(), range(count), strict=False)
    return [*ODD_TEXTS, *odd, *(text for pair, _ in pairs for text in pair)]


@pytest.mark.parametrize("name", ["opus-mt-en-de", "opus-mt-en-gmw"])
def test_the_tokenizer_is_that_of_transformers(folders, name):
    light, heavy = MarianTokenizer(folders[name]), AutoTokenizer.from_pretrained(folders[name])
    assert type(heavy).__name__ == "MarianTokenizer"
    assert light.unknown_id == heavy.unk_token_id
    assert light.special_ids == set(heavy.all_special_ids) - {heavy.unk_token_id}
    assert list(light.language_tokens) == heavy.supported_language_codes
    prefixes = ["", ">>deu<< ", ">>nld<<", ">>xyz<< "]
    for index, text in enumerate(texts(1000)):
        text = prefixes[index % 4] + text
        encoded = light.encode(text)
        assert encoded.ids == heavy(text)["input_ids"]
        assert all(span is None or 0 <= span[0] < span[1] <= len(text) for span in encoded.offsets)
        targets = light.encode_target(text)
        assert targets == heavy(text_target=text)["input_ids"]
        assert light.decode(targets) == heavy.decode(targets, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["opus-mt-en-de", "opus-mt-en-gmw"])
def test_translations_are_those_of_generate(folders, name):
    """With the number of beams that the checkpoint sets, and no padding in a batch."""
    light, model = Translator.from_pretrained(folders[name]), MarianMTModel.from_pretrained(folders[name]).eval()
    tokenizer = AutoTokenizer.from_pretrained(folders[name])
    prefix = ">>nld<< " if light.loaded.tokenizer.language_tokens else ""
    for pair, _ in zip(sentence_pairs(), range(6), strict=False):
        text = prefix + pair[0]
        generated = model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=30)[0]
        translation = light(text, max_new_tokens=30, split_sentences=False, copy=False)
        assert translation.segments[0].target_ids == tuple(generated.tolist())
        assert translation.text == tokenizer.decode(generated, skip_special_tokens=True)
    if prefix:
        assert (
            light("A fish.", tgt_lang="nld").segments[0].source_ids[0]
            == light.loaded.tokenizer.encode(">>nld<<").ids[0]
        )


def test_vocabularies_of_their_own(folders, tmp_path):
    """`separate_vocabs`, as later models have it: the target language has ids of its own."""
    for name in ("source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folders["opus-mt-en-de"] / name).read_bytes())
    tokens = list(json.loads((tmp_path / "vocab.json").read_text()))
    target = [*tokens[:2], *reversed(tokens[2:-1]), "<pad>"]
    (tmp_path / "target_vocab.json").write_text(json.dumps({token: index for index, token in enumerate(target)}))
    (tmp_path / "tokenizer_config.json").write_text('{"separate_vocabs": true, "tokenizer_class": "MarianTokenizer"}')
    (tmp_path / "config.json").write_text('{"model_type": "marian"}')
    light, heavy = MarianTokenizer(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    for text in ("Der alte Mann.", "鱼 </s>"):
        assert light.encode(text).ids == heavy(text)["input_ids"]
        assert light.encode_target(text) == heavy(text_target=text)["input_ids"]
    assert light.decode(light.encode_target("Der alte Mann.")) == "Der alte Mann."


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A model from English to several languages."""
    torch.manual_seed(1)
    folder = save_opus_mt(tmp_path_factory.mktemp("many") / "opus-mt-en-mul", LANGUAGES)
    model = MarianMTModel.from_pretrained(folder)
    ids = [model.config.pad_token_id - 1 - index for index in range(len(LANGUAGES))]
    with torch.no_grad():  # a token changes every translation, and no translation has one
        model.get_input_embeddings().weight[ids] *= 8
        model.final_logits_bias[:, ids] = -1000
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sentences():
    return [english for (english, _), _ in zip(sentence_pairs(), range(40), strict=False)]


@pytest.fixture(scope="module")
def generated(many, sentences):
    """Return what `MarianMTModel` generates for a token, with no padding in a batch."""
    model, tokenizer = MarianMTModel.from_pretrained(many).eval(), AutoTokenizer.from_pretrained(many)

    def generated(token):
        outputs = [
            model.generate(**tokenizer(f"{token} {text}", return_tensors="pt"), max_length=None, **LIMITS)[0]
            for text in sentences
        ]
        return tokenizer.batch_decode(outputs, skip_special_tokens=True)

    return {language: generated(f">>{language}<<") for language in ("eng", "cmn_Hans")}


@pytest.mark.parametrize("translator_class", [Translator, hf_capsule_mt.Translator])
def test_the_token_of_a_language_chooses_it(many, sentences, generated, translator_class):
    translator = translator_class.from_pretrained(many)
    assert sum(map(str.__eq__, generated["eng"], generated["cmn_Hans"])) < 30

    def texts(sources, **options):
        return [translation.text for translation in translator(sources, **LIMITS, **options)]

    for language, spellings in (("eng", ("en", "eng", ">>eng<<")), ("cmn_Hans", ("cmn_Hans", "cmn-hans", "cmn"))):
        typed = [f">>{language}<< {text}" for text in sentences]
        # with `copy`, the doubled words of a random model start a second search
        translations = {True: texts(typed), False: generated[language]}
        assert not any(">>" in text for text in translations[True])
        for copy, expected in translations.items():
            assert texts(typed, copy=copy) == expected
            assert texts(typed, copy=copy, tgt_lang="de") == expected
            for spelling in spellings:
                assert texts(sentences, copy=copy, tgt_lang=spelling) == expected
            translator.languages = (None, spellings[0])
            assert texts(sentences, copy=copy) == expected
            translator.languages = (None, None)


@pytest.mark.parametrize("translator_class", [Translator, hf_capsule_mt.Translator])
def test_a_language_that_the_model_lacks_is_refused(many, folders, translator_class):
    translator, listed = translator_class.from_pretrained(many), "deu, eng, cmn_Hans, pt_br"
    for call in (translator, lambda text, **options: translator.score([text], ["Ein Fisch."], **options)):
        with pytest.raises(ValueError, match=rf"^`tgt_lang` must be one of {listed}; got 'nl'$"):
            call("A fish.", tgt_lang="nl")
        with pytest.raises(ValueError, match=rf"^`tgt_lang` must be one of {listed}; it is missing"):
            call("A fish.")
        with pytest.raises(ValueError, match=r"^the model lacks the token >>nld<<, .* >>deu<<, >>eng<<, >>cmn_Hans<<"):
            call(">>nld<< A fish.", tgt_lang="en")
    with pytest.raises(ValueError, match=rf"^`tgt_lang` must be one of {listed}; got 'nl'$"):
        translator_class.from_pretrained(many, tgt_lang="nl")
    assert translator("").text == ""
    single = translator_class.from_pretrained(folders["opus-mt-en-de"])
    with pytest.raises(ValueError, match=r"`tgt_lang` must be .*, got 'fr': .*opus-mt-en-de translates eng?-deu?"):
        single("A fish.", tgt_lang="fr")


def test_a_reverse_model_of_several_languages_gets_the_language_of_the_sources(many, folders):
    pair, options = (["A fish."], ["Ein Fisch."]), {"coverage": CoverageOptions(method="verified")}
    reverse = Translator.from_pretrained(many)
    translator = Translator(Translator.from_pretrained(many, tgt_lang="de").loaded, reverse=reverse)
    translator.set_calibration({"attention": {"head": [0, 0]}})
    assert translator.score(*pair, src_lang="en", tgt_lang="de", **options)[0].coverage is not None
    with pytest.raises(ValueError, match=r"`reverse`: .*`tgt_lang` must be one of deu, .*; it is missing"):
        translator.score(*pair, tgt_lang="de", **options)
    with pytest.raises(ValueError, match=r"`reverse`: .*`tgt_lang` must be one of deu, .*; got 'nl'"):
        translator.score(*pair, src_lang="nl", tgt_lang="de", **options)


def test_languages_of_opus_mt_by_other_names():
    tokens = [f">>{code}<<" for code in ("fr", "fr_CA", "pt_br", "pt_BR", "lav", "zho", "zho_Hant", "srp_Latn")]
    for language, code in (
        *(("fr", "fr"), ("fra", "fr"), ("fr-CA", "fr_CA"), ("pt-BR", "pt_BR"), ("lv", "lav"), ("zh", "zho")),
        *(("zh-TW", "zho_Hant"), ("sr", "srp_Latn"), (">>fr_CA<<", "fr_CA")),
    ):
        assert target_code_of(language, tokens) == code
    with pytest.raises(ValueError, match="`tgt_lang` must be one of pt_br, pt_BR; got 'pt'"):
        target_code_of("pt", tokens)


def test_the_commands(many, sentences, generated, call):
    lines = "".join(f"{text}\n" for text in sentences[:5])
    typed = "".join(f">>eng<< {text}\n" for text in sentences[:5])
    arguments = (many, "--num-beams", "1", "--max-new-tokens", "12")
    for text, options in ((lines, ("--tgt-lang", "en")), (typed, ())):
        code, printed, _ = call(translate, *arguments, *options, text=text)
        assert (code, printed.splitlines()) == (0, generated["eng"][:5])
    code, printed, complaints = call(translate, *arguments, text=typed + ">>nl<< A fish.\n")  # costs only its line
    assert (code, printed.splitlines()[:5]) == (FAILED_LINES_STATUS, generated["eng"][:5])
    assert "line 6: LineError: the model lacks the token >>nl<<" in complaints
    with pytest.raises(ValueError, match=r"`tgt_lang` must be one of deu, eng, .*; got 'nl'"):
        call(translate, *arguments, "--tgt-lang", "nl", text=lines)
    with pytest.raises(ValueError, match=r"`tgt_lang` must be one of deu, eng, .*; it is missing"):
        call(translate, *arguments, text=lines)
    with pytest.raises(
        ValueError, match="has tokens of languages, such as >>deu<<; only models of one pair run in the"
    ):
        call(convert, many, many.parent / "web", "--to", "web", "--languages", "en-de")


def test_the_server(many, sentences):
    pytest.importorskip("fastapi")
    from capsule_mt.serve.answers import RequestLimits
    from tests.light.serve.test_app import Client

    translator, targets = Translator.from_pretrained(many), {"en": "eng", "cmn_Hans": "cmn_Hans"}
    batchers = {LanguagePair("de", target): Batcher(translator) for target in targets}
    client = Client(batchers, RequestLimits(), None)
    try:
        for target, language in targets.items():
            expected = translator(sentences[:5], tgt_lang=language, num_beams=1, most_repeated=MOST_REPEATED)
            answer = client.translate(q=sentences[:5], source="de", target=target, num_beams=1).json()
            assert answer["translatedText"] == [translation.text for translation in expected]
        for token in (">>nld<<", ">>nl<<"):
            answer = client.translate(q=f"{token} A fish.", source="de", target="en")
            assert answer.status_code == 400, answer.text
            assert f"the model lacks the token {token}" in answer.json()["error"]
    finally:
        client.readers.close()
        for batcher in batchers.values():
            batcher.close()

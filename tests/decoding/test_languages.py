"""Models of many languages: texts equal to transformers' tokenizers and `generate()`; how languages are named."""

import gc
import json
import re
import shutil
import unicodedata
import weakref
from itertools import permutations
from types import SimpleNamespace

import pytest
import sentencepiece
import torch
from transformers import AutoModelForSeq2SeqLM, M2M100Tokenizer, MBart50Tokenizer, MBartTokenizer, NllbTokenizer

import hf_capsule_mt
from capsule_mt import CoverageOptions, Translator
from capsule_mt.commands import convert, doctor, score, serve, translate
from capsule_mt.commands.loading import load_translator
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.checkpoint_tokenizer import FileTokenizer
from capsule_mt.models.fairseq_tokenizer import LANGUAGES, nllb_tokenizer, pieces_tokenizer
from capsule_mt.models.languages import code_of
from capsule_mt.models.scripts import SCRIPT_NAMES, names_of
from capsule_mt.models.sentencepiece import read_sentencepiece
from capsule_mt.models.weights import CheckpointError
from capsule_mt.serve import running
from capsule_mt.serve.batching import RequestSettings
from capsule_mt.text.vocabulary import vocabulary_of
from capsule_mt.translate.options import TranslationOptions
from capsule_mt.translate.translator_model import MAX_PAIRS
from hf_capsule_mt.commands import shortlist
from hf_capsule_mt.decoding.transformers_model import TransformersModel
from tests.conftest import GOLDEN
from tests.decoding.models import build_bart, strictly
from tests.light.models.files import edit_json

SENTENCES = {
    "de": "Der alte Mann kauft einen roten Hut und geht über die Straße.",
    "en": "The old man buys a red hat, and 12 children cross the street.",
    "fr": "Le vieil homme achète un chapeau rouge à l'école.",
    "es": "El niño pequeño come una manzana; ¿dónde está el perro?",
    "ru": "Старый человек покупает красную шляпу и идёт домой.",
    "zh": "老人买了一顶红帽子。",
    "ar": "يشتري الرجل العجوز قبعة حمراء.",
    "hi": "बूढ़ा आदमी एक लाल टोपी खरीदता है।",
    "vi": "Ông già mua một chiếc mũ đỏ.",
    "ja": "老人は赤い帽子を買います。",
}
CODES = {
    "nllb": dict(zip(SENTENCES, ["deu_Latn", "eng_Latn", "fra_Latn", "spa_Latn", "rus_Cyrl", "zho_Hans", "arb_Arab",
                                 "hin_Deva", "vie_Latn", "jpn_Jpan"], strict=True)),
    "m2m100": {code: code for code in SENTENCES},
    "mbart50": dict(zip(SENTENCES, ["de_DE", "en_XX", "fr_XX", "es_XX", "ru_RU", "zh_CN", "ar_AR", "hi_IN", "vi_VN",
                                    "ja_XX"], strict=True)),
}  # fmt: skip
TOKENIZERS = {"nllb": NllbTokenizer, "m2m100": M2M100Tokenizer, "mbart50": MBart50Tokenizer}
SHORT = {"max_new_tokens": 12, "num_beams": 2, "no_repeat_ngram_size": 2}


def train_pieces(folder, *sentences, **settings):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter((sentences or tuple(SENTENCES.values())) * 3),
        model_prefix=str(folder / "pieces"),
        vocab_size=260,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    shutil.move(folder / "pieces.model", folder / "sentencepiece.bpe.model")


def tokenizer_of(name, folder):
    """Return transformers' tokenizer of the pieces in a folder; its own reader of such files needs protobuf."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    pieces = [(processor.id_to_piece(index), processor.get_score(index)) for index in range(len(processor))]
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *(piece for piece, _ in pieces[3:])]
    ids = {token: index for index, token in enumerate(tokens)}
    if name == "m2m100":
        (folder / "vocab.json").write_text(json.dumps(ids))
        return M2M100Tokenizer(folder / "vocab.json", folder / "sentencepiece.bpe.model")
    charsmap = read_sentencepiece(folder / "sentencepiece.bpe.model").charsmap
    if name == "mbart50":
        return MBart50Tokenizer(vocab=pieces, _spm_precompiled_charsmap=charsmap)
    merges = [
        (piece[:middle], piece[middle:])
        for piece, _ in sorted(pieces[3:], key=lambda item: -item[1])
        for middle in range(1, len(piece))
        if piece[:middle] in ids and piece[middle:] in ids
    ]
    return NllbTokenizer(vocab=ids, merges=merges, _spm_precompiled_charsmap=charsmap)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A tiny random model of each kind, with a tokenizer of pieces that the sentencepiece library has learnt."""
    paths = {}
    for name, tokenizer_class in TOKENIZERS.items():
        folder = paths[name] = tmp_path_factory.mktemp(name)
        train_pieces(folder, model_type="bpe" if name == "nllb" else "unigram")
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": tokenizer_class.__name__}))
        tokenizer = tokenizer_of(name, folder)
        if name == "nllb":
            tokenizer.save_pretrained(folder)
        torch.manual_seed(len(name))
        first_language = tokenizer.convert_tokens_to_ids(
            {"m2m100": "__af__", "mbart50": "ar_AR"}.get(name, "ace_Arab")
        )
        size = first_language + {"nllb": 203, "m2m100": 100, "mbart50": 53}[name]
        made_up = {"nllb": 2, "m2m100": 8, "mbart50": 0}[name]
        family = "mbart" if name == "mbart50" else "m2m_100"
        model = build_bart(family, vocab_size=size + made_up, eos_token_id=2, max_position_embeddings=200)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.copy_(0.2 * torch.randn_like(parameter))
            model.get_input_embeddings().weight[first_language:] *= 0.01  # too improbable to be written
        model.generation_config.max_length = None
        model.generation_config.suppress_tokens = [0, 1, 3]
        model.save_pretrained(folder)
        paths[name] = folder, tokenizer, model.eval()
    return paths


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_equal_those_of_transformers_in_both_directions(name, folders):
    folder, tokenizer, model = folders[name]
    translator, codes, translations = Translator.from_pretrained(folder), CODES[name], set()
    for language, text in SENTENCES.items():
        target_language = "fr" if language == "en" else "en"
        for source, target, sentence in (
            (language, target_language, text),
            (target_language, language, SENTENCES[target_language]),
        ):
            tokenizer.src_lang = codes[source]
            batch = tokenizer(sentence, return_tensors="pt")
            token = f"__{target}__" if name == "m2m100" else codes[target]
            output = model.generate(**batch, **SHORT, forced_bos_token_id=tokenizer.convert_tokens_to_ids(token))
            # version 5 of transformers prints M2M100's languages, which are special tokens
            (expected,) = tokenizer.batch_decode(output[:, 2:], skip_special_tokens=True)
            settings = {**SHORT, "copy": False, "split_sentences": False}
            translation = translator(sentence, src_lang=codes[source], tgt_lang=target, **settings)
            assert list(translation.segments[0].source_ids) == batch["input_ids"][0].tolist()
            assert translation.text == expected.strip(), (source, target)
            translations.add(expected)
    assert len(translations) > 5


def test_a_server_of_many_pairs_loads_the_model_once(folders, monkeypatch):
    """The answers of the server are those of a translator of the pair, of given translations, too."""
    folder, *_ = folders["nllb"]
    loaded, served = [], {}

    def load(path, arguments, loaded_folders):
        loaded.append(path)
        return Translator.from_pretrained(path)

    monkeypatch.setattr(serve, "load_translator", load)
    monkeypatch.setattr(running, "run_server", lambda translators, *_: served.update(translators) is None)
    monkeypatch.setattr("sys.argv", ["serve", f"de,en,zh={folder}", "--port", "0"])
    serve.main()
    assert loaded == [str(folder)]
    assert set(served) == set(permutations(("de", "en", "zh"), 2))
    batchers = running.batchers_of(served)
    expected = Translator.from_pretrained(folder)
    settings = RequestSettings(search=(("max_new_tokens", 8),))
    try:
        for pair, batcher in batchers.items():
            languages = {"src_lang": pair.source, "tgt_lang": pair.target}
            text = SENTENCES[pair.source]
            (translations,) = batcher.submit([text], settings._replace(languages=pair)).results
            translation = translations.result(60)[0]
            assert translation.text == expected(text, max_new_tokens=8, **languages).text
            (checked,) = batcher.submit_checks([text], [translation.text], languages=pair).results
            assert checked.result(60).coverage == expected.cover([text], [translation.text], **languages)[0]
    finally:
        for batcher in set(batchers.values()):
            assert batcher.close()


@pytest.mark.parametrize(
    ("checkpoint", "message"),
    [("de,tlh=MODEL", "MODEL: de-tlh: `tgt_lang` must be one of the model's languages, such as"),
     ("MODEL", "MODEL: its languages are not known; name them, as in en-de=MODEL, or en,de,fr=MODEL for a model of"),
     ("en,de=PAIR", "PAIR: translates one language pair, but is named for en-de and de-en")],
)  # fmt: skip
def test_pairs_that_a_server_cannot_serve(checkpoint, message, folders, monkeypatch):
    names = {"MODEL": str(folders["nllb"][0]), "PAIR": str(GOLDEN / "capsule_marian")}
    for name, path in names.items():
        checkpoint, message = checkpoint.replace(name, path), message.replace(name, path)
    monkeypatch.setattr("sys.argv", ["serve", checkpoint, "--port", "0"])
    with pytest.raises(ValueError, match=re.escape(message)):
        serve.main()


def test_languages_of_the_translator_and_of_a_call(folders):
    folder, *_ = folders["nllb"]
    text, settings = SENTENCES["de"], SHORT
    translator = Translator.from_pretrained(folder, src_lang="de", tgt_lang="fra_Latn")
    to_french = translator(text, **settings)
    assert to_french == Translator.from_pretrained(folder)(text, src_lang="deu_Latn", tgt_lang="fr", **settings)
    to_chinese = translator(text, tgt_lang="zh", **settings)
    first_tokens = [translation.segments[0].target_ids[1] for translation in (to_french, to_chinese)]
    codes = translator.loaded.tokenizer.language_codes
    assert first_tokens == [codes["fra_Latn"], codes["zho_Hans"]]
    (scored,) = translator.score([text], [to_french.text])
    assert scored.segments[0].target_ids[1] == codes["fra_Latn"]


@pytest.mark.parametrize("translator_class", [Translator, hf_capsule_mt.Translator])
def test_a_call_may_name_the_language_that_the_translator_lacks(translator_class, folders):
    folder, *_ = folders["nllb"]
    text, settings = SENTENCES["de"], SHORT
    expected = translator_class.from_pretrained(folder)(text, src_lang="de", tgt_lang="fr", **settings)
    from_german = translator_class.from_pretrained(folder, src_lang="de")
    assert from_german(text, tgt_lang="fr", **settings) == expected
    (scored,) = from_german.score([text], [expected.text], tgt_lang="fr")
    assert scored.segments[0].source_ids == expected.segments[0].source_ids
    into_french = translator_class.from_pretrained(folder, tgt_lang="fr")
    assert into_french(text, src_lang="deu_Latn", **settings) == expected
    with pytest.raises(ValueError, match=r"`tgt_lang` "):
        from_german(text)
    with pytest.raises(ValueError, match=r"`src_lang` must be one of the model's languages, such as .*'Klingon'"):
        translator_class.from_pretrained(folder, src_lang="Klingon")
    with pytest.raises(TypeError, match=r"`tgt_lang` must be the code of a language, such as 'de', got 5"):
        translator_class.from_pretrained(folder, src_lang="de", tgt_lang=5)


def test_the_tokenizer_of_a_pair_is_kept_while_its_translator_exists(folders):
    translator = Translator.from_pretrained(folders["m2m100"][0])

    def tokenizer_of(translator, source, target):
        return translator.plan(TranslationOptions(src_lang=source, tgt_lang=target)).tokenizer

    tokenizer = tokenizer_of(translator, "de", "en")
    vocabulary = vocabulary_of(tokenizer)
    assert tokenizer_of(translator, "de", "en") is tokenizer
    assert tokenizer_of(translator, "en", "de") is not tokenizer
    for source, target in list(permutations(SENTENCES, 2))[: MAX_PAIRS + 1]:
        tokenizer_of(translator, source, target)
    assert len(translator.translator_model.pair_tokenizers) <= MAX_PAIRS
    assert vocabulary.covers("a")  # a call may still use it
    all_languages = weakref.ref(translator.loaded.tokenizer)
    gc.disable()
    try:
        del translator, tokenizer
        assert all_languages() is None
    finally:
        gc.enable()


def test_the_first_token_of_a_checkpoint_names_the_target(folders, tmp_path):
    folder, *_ = folders["mbart50"]
    shutil.copytree(folder, tmp_path / "model")
    generation = tmp_path / "model" / "generation_config.json"
    with pytest.raises(ValueError, match="`tgt_lang` must be one of the model's languages"):
        Translator.from_pretrained(folder)("Ja.")
    codes = Translator.from_pretrained(folder).loaded.tokenizer.language_codes
    edit_json(generation, forced_bos_token_id=codes["ro_RO"])
    translator = Translator.from_pretrained(tmp_path / "model")
    assert translator(SENTENCES["en"], **SHORT).segments[0].target_ids[1] == codes["ro_RO"]
    generation.unlink()
    edit_json(tmp_path / "model" / "config.json", forced_bos_token_id=codes["ro_RO"])
    translator = Translator.from_pretrained(tmp_path / "model")
    assert translator(SENTENCES["en"], **SHORT).segments[0].target_ids[1] == codes["ro_RO"]
    assert translator.plan(TranslationOptions()).languages == ("en_XX", "ro_RO")
    german = translator(SENTENCES["en"], tgt_lang="de", **SHORT)
    assert german.segments[0].target_ids[1:3].count(codes["de_DE"]) >= 1
    assert german.segments[0].target_ids[1] == codes["de_DE"]


def test_a_decoder_that_starts_with_its_language(folders, tmp_path):
    """As mBART's does: no further token names the language of the translation."""
    folder, tokenizer, model = folders["mbart50"]
    shutil.copytree(folder, tmp_path / "model")
    romanian = tokenizer.convert_tokens_to_ids("ro_RO")
    for file in ("config.json", "generation_config.json"):
        edit_json(tmp_path / "model" / file, decoder_start_token_id=romanian)
    tokenizer.src_lang = "en_XX"
    batch = tokenizer(SENTENCES["en"], return_tensors="pt")
    expected = model.generate(**batch, **SHORT, decoder_start_token_id=romanian)[0].tolist()
    settings = {**SHORT, "copy": False, "split_sentences": False}
    translator = Translator.from_pretrained(tmp_path / "model", src_lang="en")
    heavy_folder = shutil.copytree(tmp_path / "model", tmp_path / "heavy")
    tokenizer.save_pretrained(heavy_folder)
    heavy = hf_capsule_mt.Translator.from_pretrained(heavy_folder, device="cpu", src_lang="en", tgt_lang="ro")
    for translate_text, languages in ((translator, {}), (translator, {"tgt_lang": "ro"}), (heavy, {})):
        translation = translate_text(SENTENCES["en"], **languages, **settings)
        assert list(translation.segments[0].target_ids) == expected
    (scored,) = translator.score([SENTENCES["en"]], ["Da."])
    assert romanian not in scored.segments[0].target_ids[1:]
    assert translator.target_language == "ro_RO"  # files get it, and so do the rules for typography and checks
    assert translator.plan(TranslationOptions()).languages == ("en", "ro_RO")
    with pytest.raises(ValueError, match=r"`tgt_lang` must be ro_RO, the language of the checkpoint's .*, got 'fr'"):
        translator(SENTENCES["en"], tgt_lang="fr")
    listed = Translator.from_pretrained(tmp_path / "model", src_lang="en", shortlist=True)
    assert listed(SENTENCES["en"], **settings).segments[0].target_ids[0] == romanian


@pytest.mark.parametrize("format_name", ["mbart50", "mbart"])
def test_a_score_does_not_count_the_language_that_a_decoder_starts_with(format_name, folders, tmp_path):
    """`labels` have the language first (mBART-50), or after the end (mBART); `generate` never predicts it."""
    folder, tokenizer, model = folders["mbart50"]
    heavy_folder = shutil.copytree(folder, tmp_path / "model")
    if format_name == "mbart":
        processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
        pieces = [(processor.id_to_piece(index), processor.get_score(index)) for index in range(len(processor))]
        charsmap = read_sentencepiece(folder / "sentencepiece.bpe.model").charsmap
        tokenizer = MBartTokenizer(vocab=pieces, _spm_precompiled_charsmap=charsmap)
    romanian = tokenizer.convert_tokens_to_ids("ro_RO")
    for file in ("config.json", "generation_config.json"):
        edit_json(heavy_folder / file, decoder_start_token_id=romanian)
    tokenizer.src_lang = "en_XX"
    tokenizer.save_pretrained(heavy_folder)
    text, translation = SENTENCES["en"], "Da, bine."
    target = [*tokenizer(text_target=translation, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
    decoder_ids = torch.tensor([[romanian, *target[:-1]]])
    with torch.no_grad():
        logits = model(**tokenizer(text, return_tensors="pt"), decoder_input_ids=decoder_ids).logits
        loss = torch.nn.functional.cross_entropy(logits[0], torch.tensor(target)).item()
    translator = hf_capsule_mt.Translator.from_pretrained(heavy_folder, device="cpu", src_lang="en", tgt_lang="ro")
    (scored,) = translator.score([text], [translation])
    assert list(scored.segments[0].target_ids) == [romanian, *target]
    assert scored.score == pytest.approx(-loss, abs=1e-5)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_scores_are_the_losses_of_transformers(name, folders, tmp_path):
    folder, tokenizer, model = folders[name]
    tokenizer.src_lang, tokenizer.tgt_lang = CODES[name]["en"], CODES[name]["fr"]
    labels = tokenizer(text_target=SENTENCES["fr"], return_tensors="pt")["input_ids"]
    with torch.no_grad():
        loss = model(**tokenizer(SENTENCES["en"], return_tensors="pt"), labels=labels).loss.item()
    heavy_folder = shutil.copytree(folder, tmp_path / "model")
    tokenizer.save_pretrained(heavy_folder)
    light = Translator.from_pretrained(folder)
    for translator in (light, hf_capsule_mt.Translator.from_pretrained(heavy_folder, device="cpu")):
        (scored,) = translator.score([SENTENCES["en"]], [SENTENCES["fr"]], src_lang="en", tgt_lang="fr")
        assert scored.score == pytest.approx(-loss, abs=1e-5)


def test_a_decoder_without_a_start_token_of_its_own(folders, tmp_path):
    """As transformers' MBartConfig makes one: it starts with `bos_token_id`."""
    folder, tokenizer, _ = folders["mbart50"]
    shutil.copytree(folder, tmp_path / "model")
    for file in ("config.json", "generation_config.json"):
        edit_json(tmp_path / "model" / file, decoder_start_token_id=None, bos_token_id=0)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "model").eval()
    tokenizer.src_lang = "en_XX"
    options = {**SHORT, "forced_bos_token_id": tokenizer.convert_tokens_to_ids("ro_RO")}
    batch = tokenizer(SENTENCES["en"], return_tensors="pt")
    expected = model.generate(**batch, **options)[0].tolist()
    assert expected[0] == 0
    settings = {**SHORT, "copy": False, "split_sentences": False}
    assert strictly(model, int8=False).generate(**batch, **options)[0].tolist() == expected
    for translator in (Translator.from_pretrained(tmp_path / "model"), hf_capsule_mt.Translator(model, tokenizer)):
        translation = translator(SENTENCES["en"], src_lang="en", tgt_lang="ro", **settings)
        assert list(translation.segments[0].target_ids) == expected


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_shortlist_by_script_is_generate_with_the_other_tokens_suppressed(name, folders):
    folder, tokenizer, model = folders[name]
    translator, codes = Translator.from_pretrained(folder, shortlist=True), CODES[name]
    texts = tokenizer.convert_ids_to_tokens(range(model.config.vocab_size))
    greedy = {**SHORT, "num_beams": 1}  # with beams, scores are among the shortlist's tokens
    special = {*tokenizer.all_special_ids, *translator.loaded.tokenizer.language_codes.values()}
    for target, letters in (("ru", "CYRILLIC"), ("hi", "DEVANAGARI"), ("en", "LATIN")):
        token = f"__{codes[target]}__" if name == "m2m100" else codes[target]
        forced = tokenizer.convert_tokens_to_ids(token)
        allowed = {tokenizer.eos_token_id, tokenizer.unk_token_id, forced}
        for index, text in enumerate(texts):
            names = {unicodedata.name(letter).split()[0] for letter in text or "" if letter.isalpha()}
            if text and index not in special and (names <= {letters} or len(text.strip("▁")) == 1):
                allowed.add(index)
        suppressed = [*range(model.config.vocab_size)]
        suppressed = [index for index in suppressed if index not in allowed] + [tokenizer.unk_token_id]
        tokenizer.src_lang = codes["de"]
        batch = tokenizer(SENTENCES["de"], return_tensors="pt")
        options = {**greedy, "forced_bos_token_id": forced, "suppress_tokens": suppressed}
        expected = model.generate(**batch, **options)[0, 1:].tolist()
        settings = {**greedy, "copy": False, "split_sentences": False}
        translation = translator(SENTENCES["de"], src_lang="de", tgt_lang=codes[target], **settings)
        assert list(translation.segments[0].target_ids[1:]) == expected
        assert len({*expected} & allowed) > 3


def test_commands_take_languages(folders, call, tmp_path):
    folder, *_ = folders["nllb"]
    (tmp_path / "text.de").write_text(SENTENCES["de"] + "\n")
    arguments = ("--input", tmp_path / "text.de", "--output", tmp_path / "text.fr", "--max-new-tokens", "8")
    languages = ("--src-lang", "de", "--tgt-lang", "fra_Latn")
    for flags, settings in (((), {}), (("--int8", "--shortlist"), {"int8": True, "shortlist": True})):
        code, *_ = call(translate, folder, *arguments, *languages, *flags, "--restart")
        assert code == 0
        translator = Translator.from_pretrained(folder, src_lang="deu_Latn", tgt_lang="fr", **settings)
        translation = translator(SENTENCES["de"], max_new_tokens=8).text
        assert (tmp_path / "text.fr").read_text() == translation + "\n"
    pair = ("--sources", tmp_path / "text.de", "--translations", tmp_path / "text.fr")
    code, printed, _ = call(score, folder, *pair, *languages)
    (scored,) = Translator.from_pretrained(folder).score(
        [SENTENCES["de"]], [translation], src_lang="de", tgt_lang="fr"
    )
    assert float(printed.splitlines()[-1].split("\t")[1]) == pytest.approx(scored.score, abs=1e-4)
    with pytest.raises(
        ValueError, match=r"`tgt_lang` must be one of the model's languages, such as .*; got 'fra_Ltn'"
    ):
        call(translate, folder, *arguments, "--src-lang", "de", "--tgt-lang", "fra_Ltn", "--restart")


@pytest.mark.parametrize("name", ["nllb", "m2m100"])
def test_a_lexicon_of_the_pair(name, folders, tmp_path, call):
    folder, tokenizer, _ = folders[name]
    for language in ("de", "en"):
        (tmp_path / language).write_text(f"{SENTENCES[language]}\n" * 3)
    arguments = [folder, tmp_path / "de", tmp_path / "en", "--best", 3, "--frequent", 5, "--output", tmp_path / "list"]
    with pytest.raises(ValueError, match="a model of many languages needs `tgt_lang`"):
        call(shortlist, *arguments)
    call(shortlist, *arguments, "--src-lang", "de", "--tgt-lang", "en_XX")
    translator = Translator.from_pretrained(folder, shortlist=tmp_path / "list", src_lang="de", tgt_lang="en")
    segment = translator(SENTENCES["de"], max_new_tokens=12).segments[0]
    english = translator.loaded.tokenizer.language_codes[CODES[name]["en"]]
    listed = translator.loaded.shortlist.of_source(segment.source_ids, tokenizer.eos_token_id, english)
    assert len(listed) < 100
    assert segment.target_ids[1] == english
    assert {*segment.target_ids[1:]} <= {*listed}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_conversions(name, folders, call, refusal_of, tmp_path):
    folder, *_ = folders[name]
    translator = Translator.from_pretrained(folder, int8=True, src_lang="de", tgt_lang="en")
    call(convert, folder, tmp_path / "int8", "--to", "int8")
    for settings in (SHORT, {**SHORT, "num_beams": 1}):
        converted = Translator.from_pretrained(tmp_path / "int8", int8=True, src_lang="de", tgt_lang="en")
        assert converted(SENTENCES["de"], **settings) == translator(SENTENCES["de"], **settings)
    (tmp_path / "text.de").write_text(f"{SENTENCES['de']}\n")
    arguments = folder, tmp_path / "small", "--to", "small", "--text", tmp_path / "text.de"
    with pytest.raises(ValueError, match="`tgt_lang` must be one of the model's languages"):
        call(convert, *arguments)
    call(convert, *arguments, "--src-lang", "de", "--tgt-lang", "en")
    small = Translator.from_pretrained(tmp_path / "small", int8=True)
    first_token = small(SENTENCES["en"], src_lang="en", tgt_lang="fr", **SHORT).segments[0].target_ids[1]
    assert first_token == small.loaded.tokenizer.language_codes[CODES[name]["fr"]]
    message = refusal_of(convert, folder, tmp_path / "other", "--to", "int8", "--src-lang", "de")
    assert "--src-lang and --tgt-lang go with --to small, not with --to int8" in message
    with pytest.raises(UnsupportedModelError, match="translates many languages; only models of one pair run in"):
        call(convert, folder, tmp_path / "web", "--to", "web")  # the option `--languages` would not help


@pytest.mark.parametrize("name", TOKENIZERS)
def test_coverage_alignment_and_terms_of_a_pair(name, folders):
    folder, *_ = folders[name]
    translator = Translator.from_pretrained(folder, src_lang="de", tgt_lang="en", glossary={"Hut": "hat"})
    translator.set_calibration({"attention": {"head": [1, 2]}})
    translation = translator(SENTENCES["de"], alignment=True, coverage=CoverageOptions(method="attention"), **SHORT)
    assert "hat" in translation.text.lower()
    english = translator.loaded.tokenizer.language_codes[CODES[name]["en"]]
    assert translation.segments[0].target_ids[1] == english
    assert translation.segments[0].target_ids.count(english) == 1
    assert [word.text for word in translation.coverage.words][:2] == ["Der", "alte"]
    assert translation.alignment is not None


@pytest.mark.parametrize("name", TOKENIZERS)
def test_a_reverse_model_reads_the_languages_of_the_call(name, folders):
    """In the other direction, whatever languages either model was loaded with."""
    folder, *_ = folders[name]
    text, translation, calls = SENTENCES["de"], "Le vieil homme _achète.", {"src_lang": "de", "tgt_lang": "fr"}
    calibration = {"attention": {"head": [0, 0]}}
    results = []
    for languages, reverse_languages, call in (
        (("de", "fr"), ("fr", "de"), {}),
        ((None, None), (None, None), calls),
        (("en", "es"), ("es", "en"), calls),
    ):
        source, target = languages
        translator = Translator.from_pretrained(folder, src_lang=source, tgt_lang=target)
        translator.reverse = Translator.from_pretrained(
            folder, src_lang=reverse_languages[0], tgt_lang=reverse_languages[1]
        )
        for model in (translator, translator.reverse):
            model.set_calibration(calibration)
        coverage = CoverageOptions(method="verified", support=True)
        (scored,) = translator.score([text], [translation], coverage=coverage, **call)
        results.append((scored, translator(text, coverage=coverage, **SHORT, **call)))
    assert results[1] == results[0]
    assert results[2] == results[0]


def test_a_reverse_model_without_the_languages_of_the_call(folders, tmp_path):
    translator = Translator.from_pretrained(folders["nllb"][0], tgt_lang="war_Latn")
    translator.reverse = Translator.from_pretrained(folders["mbart50"][0])
    translator.reverse.set_calibration({"attention": {"head": [0, 0]}})
    with pytest.raises(ValueError, match=r"`reverse`: .*`src_lang` must be one of .*; got 'war_Latn'"):
        translator("Hut", src_lang="de", coverage=CoverageOptions(method="deletion", support=True))
    with pytest.raises(ValueError, match=r"`reverse`: .*`src_lang` must be one of .*; got 'war_Latn'"):
        translator.cover(["Hut"], ["kalo"], src_lang="de", coverage=CoverageOptions(support=True))
    shutil.copytree(GOLDEN / "capsule_marian", tmp_path / "en-de")
    translator.reverse = tmp_path / "en-de"
    translator.reverse.set_calibration({"attention": {"head": [0, 0]}})
    message = "`reverse` must translate fr-de, since the call is for de-fr; got "
    coverage = CoverageOptions(method="deletion", support=True)
    with pytest.raises(ValueError, match=message + r".*, which translates en-de"):
        translator.cover(["Hut"], ["chapeau"], src_lang="de", tgt_lang="fr", coverage=coverage)


def test_languages_of_a_reverse_model_are_more_precise_than_those_of_a_folder(folders, tmp_path):
    """The folder tells "zh"; the reverse model was loaded for traditional Chinese."""
    translator = Translator.from_pretrained(shutil.copytree(GOLDEN / "capsule_marian", tmp_path / "en-zh"))
    translator.set_calibration({"attention": {"head": [0, 0]}})
    reverse = Translator.from_pretrained(folders["nllb"][0], src_lang="zho_Hant", tgt_lang="en")
    translator.reverse, asked, force = reverse, [], reverse.force
    reverse.force = lambda *texts, **options: asked.append(options["src_lang"]) or force(*texts, **options)
    for languages, expected in (({}, "zho_Hant"), ({"tgt_lang": "zh-hans"}, "zh-hans")):
        translator.cover(["The hat."], ["帽子"], coverage=CoverageOptions(method="verified"), **languages)
        assert asked.pop() == expected


@pytest.mark.parametrize(
    ("language", "expected"),
    [("de", "deu_Latn"), ("deu_Latn", "deu_Latn"), ("de_DE", "deu_Latn"), ("__de__", "deu_Latn"), ("zh", "zho_Hans"),
     ("zho_Hant", "zho_Hant"), ("zh-hant", "zho_Hant"), ("zh_TW", "zho_Hant"),
     ("zh-MO", "zho_Hant"), ("no", "nob_Latn"), ("fa", "pes_Arab"), ("yue", "yue_Hant")],
)  # fmt: skip
def test_languages_by_other_names(language, expected):
    codes = dict.fromkeys(("deu_Latn", "zho_Hans", "zho_Hant", "nob_Latn", "nno_Latn", "pes_Arab", "yue_Hant"), 0)
    assert code_of("src_lang", language, codes) == expected


@pytest.mark.parametrize(
    ("language", "message"),
    [("deu_Ltn", "one of the model's languages, such as deu_Latn; got 'deu_Ltn'"),
     ("srp_Latn", "one of the model's languages, such as srp_Cyrl"),
     ("zh_ID", "must be one of zho_Hans, zho_Hant; got 'zh_ID'"),
     (None, "such as deu_Latn, srp_Cyrl, zho_Hans, zho_Hant; it is missing (`--tgt-lang deu_Latn`)"),
     ("German", "one of the model's languages, such as deu_Latn; got 'German'"),
     ("Serbain", "one of the model's languages, such as srp_Cyrl; got 'Serbain'"),
     ("Klingon", "got 'Klingon'")],
)  # fmt: skip
def test_languages_that_a_model_does_not_have(language, message):
    codes = dict.fromkeys(("deu_Latn", "srp_Cyrl", "zho_Hans", "zho_Hant"), 0)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        code_of("tgt_lang", language, codes)
    assert str(error.value).startswith("`tgt_lang` must be ")


def test_transformers_reads_the_languages_of_a_tokenizer():
    def translator_model(**languages):
        model = TransformersModel(
            SimpleNamespace(name_or_path="model"), NllbTokenizer(**languages), None, "translation"
        )
        model.target_tokens = ()  # which only OPUS-MT has
        return model

    named, nameless = translator_model(src_lang="deu_Latn", tgt_lang="fra_Latn"), translator_model()
    for options, expected in (({}, ("deu_Latn", "fra_Latn")), ({"tgt_lang": "en"}, ("deu_Latn", "eng_Latn"))):
        tokenizer = named.tokenizer_of(TranslationOptions(**options))
        tokenizer.encode("Hut")
        assert (tokenizer.src_lang, tokenizer.tgt_lang) == expected
    for options, flag in (({}, "--src-lang ace_Arab"), ({"src_lang": "de"}, "--tgt-lang ace_Arab")):
        with pytest.raises(ValueError, match=rf"must be one of the model's languages, .*; it is missing \(`{flag}`\)"):
            nameless.tokenizer_of(TranslationOptions(**options)).encode("Hut")


@pytest.mark.parametrize("language", [5, ["de"], b"de"])
def test_languages_of_a_wrong_type(language, folders):
    translator = Translator.from_pretrained(folders["nllb"][0], src_lang="de", tgt_lang="en")
    message = f"`tgt_lang` must be the code of a language, such as 'de', got {language!r}"
    with pytest.raises(TypeError, match=re.escape(message)):
        translator("Hut", tgt_lang=language)


def test_lists_of_languages_are_those_of_transformers():
    from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES as M2M
    from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART50
    from transformers.models.nllb.tokenization_nllb import FAIRSEQ_LANGUAGE_CODES as NLLB

    assert {name: codes.split() for name, codes in LANGUAGES.items()} == {**M2M, "mbart50": MBART50}
    nllb = dict.fromkeys(NLLB, 0)
    # every language of M2M100 and mBART-50 that NLLB-200 has, by its code there
    lacking = {"br", "fy"}
    for code in {*M2M["m2m100"], *MBART50} - lacking:
        assert code_of("src_lang", code, nllb) in nllb, code
        # M2M100 and mBART-50 write a language in the scripts of NLLB-200, and Serbian, say, in a further one
        assert names_of(code_of("src_lang", code, nllb)) <= names_of(code), code
    assert {code.partition("_")[2].lower() for code in NLLB} <= {*SCRIPT_NAMES}
    for code in lacking:
        with pytest.raises(ValueError, match="one of the model's languages"):
            code_of("src_lang", code, nllb)


@pytest.mark.parametrize("settings", [{}, {"legacy_behaviour": True, "clean_up_tokenization_spaces": True}])
def test_the_pieces_of_nllb_are_read_as_its_tokenizer_json(settings, folders, tmp_path):
    shutil.copytree(folders["nllb"][0], tmp_path / "nllb")
    edit_json(tmp_path / "nllb" / "tokenizer_config.json", **settings)
    pieces, expected = nllb_tokenizer(str(tmp_path / "nllb")), FileTokenizer(tmp_path / "nllb")
    for name in ("vocabulary_sizes", "language_codes", "special_ids", "unknown_id", "end_id", "target_texts"):
        assert getattr(pieces, name) == getattr(expected, name), name
    for name in ("source_language", "ends_with_language", "cleans_up", "byte_ids", "target_byte_ids"):
        assert getattr(pieces, name) == getattr(expected, name), name
    library = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "nllb" / "sentencepiece.bpe.model"))
    for language, text in SENTENCES.items():
        for variant in (text, text.upper(), f"{text} \u263a {text}"):
            encoded = pieces.for_pair(language, "en").encode(variant)
            assert encoded.ids == expected.for_pair(language, "en").encode(variant).ids
            assert pieces.decode(encoded.ids) == expected.decode(encoded.ids).strip()
        # `tokenizers` does not compose a letter with two marks, as in Vietnamese; the library does
        decomposed = unicodedata.normalize("NFD", text)
        library_ids = [index + 1 if index else 3 for index in library.encode(decomposed)]
        assert pieces.encode_text(decomposed).ids == library_ids


def test_letters_that_the_pieces_lack_are_not_a_special_token(tmp_path):
    train_pieces(tmp_path, "Hut")
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "MBart50Tokenizer"}')
    tokenizer_of("m2m100", shutil.copytree(tmp_path, tmp_path / "m2m100"))
    for folder in (tmp_path, tmp_path / "m2m100"):
        tokenizer = pieces_tokenizer(str(folder))
        assert tokenizer.encode_text("Hut <s>").ids[-1] == tokenizer.unknown_id


@pytest.mark.parametrize("change", ["a language of its own", "another order", "no tokens", "another class"])
def test_a_tokenizer_json_that_says_more_than_the_pieces_is_read(change, folders, tmp_path):
    folder = tmp_path / "nllb"
    shutil.copytree(folders["nllb"][0], folder)
    content = json.loads((folder / "tokenizer.json").read_text())
    tokens = content["added_tokens"]
    if change == "a language of its own":
        tokens.append({**tokens[-1], "id": tokens[-1]["id"] + 2, "content": "tyv_Cyrl"})
    elif change == "another order":
        tokens[4]["content"], tokens[5]["content"] = tokens[5]["content"], tokens[4]["content"]
        tokens[4]["id"], tokens[5]["id"] = tokens[5]["id"], tokens[4]["id"]
    elif change == "no tokens":
        content["added_tokens"] = []
    else:
        edit_json(folder / "tokenizer_config.json", tokenizer_class="XGLMTokenizer")
    (folder / "tokenizer.json").write_text(json.dumps(content))
    assert nllb_tokenizer(str(folder)) is None


def test_doctor_ends_with_a_model_that_never_ends_a_sentence(folders, call, monkeypatch, tmp_path):
    folder = shutil.copytree(folders["nllb"][0], tmp_path / "model")
    edit_json(folder / "generation_config.json", suppress_tokens=[0, 1, 2, 3])
    sizes = []

    def load(model, arguments):
        translator = load_translator(model, arguments)
        translate_pieces = translator.translate_pieces

        def recorded(pieces, plan):
            results = translate_pieces(pieces, plan)
            sizes.append((len(pieces), *{len(hypotheses[0].ids) for hypotheses in results}))
            return results

        translator.translate_pieces = recorded
        return translator

    monkeypatch.setattr(doctor, "load_translator", load)
    _, printed, _ = call(doctor, "--compare", folder, "--src-lang", "en", "--tgt-lang", "deu_Latn")
    assert printed == "40 of 40 translations have the tokens of transformers\n"
    assert sizes == [(doctor.BATCH_SIZE, doctor.MAX_NEW_TOKENS)] * 8


def test_tokenizers_that_do_not_fit(folders, tmp_path):
    folder, *_ = folders["mbart50"]
    shutil.copytree(folder, tmp_path / "other")
    (tmp_path / "other" / "tokenizer_config.json").write_text('{"tokenizer_class": "XGLMTokenizer"}')
    with pytest.raises(UnsupportedModelError, match="not for `tokenizer_class` 'XGLMTokenizer'"):
        Translator.from_pretrained(tmp_path / "other")
    shutil.copytree(folder, tmp_path / "ordered")
    train_pieces(tmp_path / "ordered", bos_id=-1)
    with pytest.raises(CheckpointError, match=r'bpe\.model: its first pieces must be "<unk>", "<s>" and "</s>"'):
        Translator.from_pretrained(tmp_path / "ordered")
    shutil.copytree(folders["m2m100"][0], tmp_path / "gaps")
    vocabulary = json.loads((tmp_path / "gaps" / "vocab.json").read_text())
    (tmp_path / "gaps" / "vocab.json").write_text(json.dumps({**vocabulary, "<s>": 999}))
    with pytest.raises(CheckpointError, match=r"vocab\.json: the ids of tokens must be 0 to"):
        Translator.from_pretrained(tmp_path / "gaps")


@pytest.mark.parametrize("name", TOKENIZERS)
def test_doctor_compares_tokens_with_those_of_transformers(
    name, folders, call, monkeypatch, capfdbinary, caplog, tmp_path
):
    folder, tokenizer, _ = folders[name]
    folder = shutil.copytree(folder, tmp_path / "model")
    if name == "mbart50":  # without protobuf, transformers does not read its sentencepiece.bpe.model
        tokenizer.save_pretrained(folder)
    generation = folder / "generation_config.json"
    generation.write_text(json.dumps(json.loads(generation.read_text()) | {"max_new_tokens": 20}))
    monkeypatch.setattr(doctor, "SENTENCES", doctor.SENTENCES[:6])  # of twenty
    arguments = "--compare", folder, "--src-lang", "en", "--tgt-lang", "deu_Latn"
    load = doctor.load_translator
    _, printed, _ = call(doctor, *arguments)
    assert printed == "12 of 12 translations have the tokens of transformers\n"
    assert len([line for line in caplog.messages if "reached a limit" in line]) < 2

    def other_weights(model, arguments):
        translator = load(model, arguments)
        if arguments["backend"] == "transformers":
            with torch.no_grad():
                translator.model.get_input_embeddings().weight[5:9] *= -1
        return translator

    monkeypatch.setattr(doctor, "load_translator", other_weights)
    with pytest.raises(SystemExit, match="1"):
        call(doctor, *arguments)
    printed = capfdbinary.readouterr().out.decode()
    assert " beams: " in printed
    assert "12 of 12" not in printed

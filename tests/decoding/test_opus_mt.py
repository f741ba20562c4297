"""Models of OPUS-MT's form in the light translator, against transformers' own."""

import json
import random

import pytest
from transformers import AutoTokenizer, MarianMTModel

from capsule_mt import Translator
from capsule_mt.models.marian_tokenizer import MarianTokenizer
from hf_capsule_mt.data import sentence_pairs
from tests.fixtures.opus_mt import save_opus_mt

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

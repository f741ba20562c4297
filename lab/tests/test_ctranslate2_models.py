"""A model of CTranslate2 translates as the model that it was made of, which stays as it was."""

import copy

import pytest
import torch
from transformers import MarianMTModel

from lab.ctranslate2_models import convert_to_ctranslate2
from tests.decoding.models import build
from tests.fixtures.tiny import save_tiny_marian, tiny_model, tiny_tokenizer


def test_ctranslate2_translates_the_same(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed")
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer).eval()
    translator = ctranslate2.Translator(str(convert_to_ctranslate2(model, tokenizer, tmp_path / "ct2")), "cpu")
    for text in ("The old man buys a red hat.", "A woman sleeps."):
        ids = tokenizer(text)["input_ids"]
        settings = {"num_beams": 3, "max_new_tokens": 8, "bad_words_ids": [[tokenizer.pad_token_id]]}
        expected = model.generate(torch.tensor([ids]), **settings, length_penalty=0.0, early_stopping="never")[0, 1:]
        (result,) = translator.translate_batch(
            [tokenizer.convert_ids_to_tokens(ids)], beam_size=3, max_decoding_length=8, length_penalty=0, patience=4
        )
        tokens = [token for token in result.hypotheses[0] if token != tokenizer.eos_token]
        expected_tokens = tokenizer.convert_ids_to_tokens(expected)
        expected_tokens = [token for token in expected_tokens if token != tokenizer.eos_token]
        assert tokens == expected_tokens
    stock = MarianMTModel.from_pretrained(save_tiny_marian(tmp_path / "stock"))
    weights = copy.deepcopy(stock.state_dict())
    convert_to_ctranslate2(stock, tokenizer, tmp_path / "stock ct2")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in stock.state_dict().items())
    for name in ("rnmt", "capsules"):
        with pytest.raises(ValueError, match="only a CapsuleMarianMTModel"):
            convert_to_ctranslate2(build(name), tokenizer, tmp_path)

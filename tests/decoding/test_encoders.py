"""`Encoder` against transformers: BERT and XLM-R of random shapes, their tokenizers, and what is refused."""

import json
import random

import pytest
import sentencepiece
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.nn.functional import cosine_similarity
from transformers import BertConfig, BertForMaskedLM, BertModel, XLMRobertaConfig, XLMRobertaModel

from capsule_mt import Encoder, Translator, UnsupportedModelError
from capsule_mt.conversions.to_int8 import write_int8
from capsule_mt.models.weights import CheckpointError
from tests.decoding.models import build

WORDS = ("the", "key", "is", "here", "##s", "##ing", "un", "##like", "ä", ",", ".", "2", "##0")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEXTS = ["The keys, unliking 20.", "here", "", "Is the key here? ä", "the " * 20]
SHAPES = [
    {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 37},
    {
        "hidden_size": 40,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "intermediate_size": 80,
        "hidden_act": "relu",
    },
    {
        "hidden_size": 36,
        "num_hidden_layers": 5,
        "num_attention_heads": 3,
        "intermediate_size": 5,
        "type_vocab_size": 1,
    },
]
SENTENCES = [
    "Where is the key of the old house?",
    "Der Schlüssel liegt hier, nicht dort.",
    "Não sei onde está a chave de 1998.",
    "the house is old and the key is new",
]


def write_wordpiece(folder):
    tokenizer = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate((*SPECIAL, *WORDS))}, unk_token="[UNK]")
    )
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))


def write_pieces(folder):
    """Train the pieces of a small XLM-R; return how many tokens there are."""
    file = folder / "sentences.txt"
    file.write_text("\n".join(SENTENCES * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(file), model_prefix=str(folder / "sentencepiece.bpe"), vocab_size=45, minloglevel=2
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizer"}))
    return 47


def sharpened(model, seed):
    """The model with large random weights, so that every part of it matters."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(("LayerNorm.weight" in name) + 0.3 * torch.randn_like(parameter))
            else:
                parameter.copy_(1.5 * torch.randn_like(parameter) * parameter.shape[1] ** -0.5)
    return model.eval()


def bert(folder, seed, **fields):
    config = BertConfig(vocab_size=len(SPECIAL) + len(WORDS), max_position_embeddings=24, **fields)
    model = sharpened(BertModel(config), seed)
    model.save_pretrained(folder)
    write_wordpiece(folder)
    return model


def states_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), output_hidden_states=True).hidden_states


def as_tensor(states):
    return torch.frombuffer(bytearray(memoryview(states.buffer).cast("B")), dtype=torch.float32).view(states.shape)


@pytest.mark.parametrize("seed", range(len(SHAPES)))
def test_bert_has_the_hidden_states_of_transformers(seed, tmp_path):
    model = bert(tmp_path, seed, **SHAPES[seed])
    layers = [0, SHAPES[seed]["num_hidden_layers"]]
    encoder = Encoder.from_pretrained(tmp_path, layers=layers)
    reference = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text, hidden in zip(TEXTS, encoder.hidden_states(TEXTS), strict=True):
        assert hidden.ids == reference.encode(text).ids
        assert [span and text[slice(*span)] for span in hidden.offsets][:1] == [None]
        expected = states_of(model, hidden.ids)
        for layer in layers:
            torch.testing.assert_close(as_tensor(hidden.states[layer]), expected[layer][0], rtol=0, atol=1e-5)


def test_a_vector_is_the_mean_that_sentence_transformers_has(tmp_path):
    """That of `sentence_transformers.models.Pooling`: the masked sum over the number of tokens, in a padded batch."""
    model = bert(tmp_path, 0, **SHAPES[0])
    encoder = Encoder.from_pretrained(tmp_path)
    ids = [hidden.ids for hidden in encoder.hidden_states(TEXTS)]
    longest = max(map(len, ids))
    mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in ids])
    with torch.no_grad():
        states = model(torch.tensor([row + [0] * (longest - len(row)) for row in ids]), mask).last_hidden_state
    weights = mask.unsqueeze(-1).expand(states.size()).float()
    expected = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    torch.testing.assert_close(torch.tensor([list(row) for row in encoder.encode(TEXTS)]), expected, rtol=0, atol=1e-5)


def test_in_int8_vectors_point_the_same_way_and_a_file_of_codes_gives_the_same(tmp_path):
    folder = tmp_path / "exact"
    bert(folder, 0, **SHAPES[0])
    write_int8(folder, tmp_path / "int8")
    exact, rounded = (Encoder.from_pretrained(folder, int8=int8).encode(TEXTS) for int8 in (False, True))
    assert Encoder.from_pretrained(tmp_path / "int8", int8=True).encode(TEXTS) == rounded
    similarities = cosine_similarity(torch.tensor([*map(list, exact)]), torch.tensor([*map(list, rounded)]))
    assert similarities.min() > 0.99
    assert exact != rounded


def test_xlm_r_has_the_pieces_of_sentencepiece_and_the_hidden_states_of_transformers(tmp_path):
    size = write_pieces(tmp_path)
    config = XLMRobertaConfig(
        vocab_size=size + 3, max_position_embeddings=40, pad_token_id=1, type_vocab_size=1, **SHAPES[0]
    )
    model = sharpened(XLMRobertaModel(config), 3)
    model.save_pretrained(tmp_path)
    processor = sentencepiece.SentencePieceProcessor(str(tmp_path / "sentencepiece.bpe.model"))
    encoder = Encoder.from_pretrained(tmp_path, layers=[1, 3])
    generator = random.Random(1)
    texts = [*SENTENCES, "", "漢字 key", *(" ".join(generator.sample(SENTENCES[0].split(), 3)) for _ in range(9))]
    for text, hidden in zip(texts, encoder.hidden_states(texts), strict=True):
        pieces = [piece + 1 if piece else 3 for piece in processor.encode(text)]  # as XLMRobertaTokenizer numbers them
        assert hidden.ids == [0, *pieces, 2]
        expected = states_of(model, hidden.ids)
        for layer in (1, 3):
            torch.testing.assert_close(as_tensor(hidden.states[layer]), expected[layer][0], rtol=0, atol=1e-5)


def test_the_weights_of_a_model_with_a_head(tmp_path):
    model = sharpened(BertForMaskedLM(BertConfig(vocab_size=18, max_position_embeddings=24, **SHAPES[0])), 4)
    model.save_pretrained(tmp_path)
    write_wordpiece(tmp_path)
    hidden = Encoder.from_pretrained(tmp_path).hidden_states(TEXTS[:1])[0]
    expected = states_of(model, hidden.ids)[-1][0]
    torch.testing.assert_close(as_tensor(hidden.states[3]), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"model_type": "gpt2"}, UnsupportedModelError, "'gpt2' is not an encoder .*, only bert, xlm-roberta"),
        (
            {"position_embedding_type": "relative_key"},
            UnsupportedModelError,
            "`position_embedding_type` 'relative_key'",
        ),
        ({"is_decoder": True}, UnsupportedModelError, "`is_decoder` true is not supported"),
        ({"hidden_act": "gelu_new"}, UnsupportedModelError, "`hidden_act` 'gelu_new'"),
        ({"num_attention_heads": 5}, CheckpointError, r"`num_attention_heads` \(5\) must divide `hidden_size` \(24\)"),
        ({"intermediate_size": 38}, CheckpointError, r"intermediate.dense.weight` is \[37, 24\], .* \[38, 24\]"),
        ({"num_hidden_layers": 2}, CheckpointError, "has `encoder.layer.2.*, which the configuration does not"),
        ({"num_hidden_layers": 4}, CheckpointError, "lacks `encoder.layer.3"),
        ({"vocab_size": 17}, CheckpointError, r"word_embeddings.weight` is \[18, 24\], but .* \[17, 24\]"),
        (
            {"model_type": "xlm-roberta", "pad_token_id": 23},
            UnsupportedModelError,
            r"`max_position_embeddings` \(24\)",
        ),
    ],
)
def test_what_the_engine_does_not_run_is_refused_by_name(fields, error, message, tmp_path):
    bert(tmp_path, 0, **SHAPES[0])
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | fields))
    with pytest.raises(error, match=message):
        Encoder.from_pretrained(tmp_path)


def test_an_encoder_does_not_translate_and_a_translator_does_not_encode(tmp_path):
    bert(tmp_path / "bert", 0, **SHAPES[0])
    with pytest.raises(UnsupportedModelError, match="'bert' encodes text and does not translate"):
        Translator.from_pretrained(tmp_path / "bert")
    build("stock").save_pretrained(tmp_path / "marian")
    with pytest.raises(UnsupportedModelError, match="'marian' is not an encoder"):
        Encoder.from_pretrained(tmp_path / "marian")


def test_arguments_are_checked(tmp_path):
    bert(tmp_path, 0, **SHAPES[0])
    for layers in ([], [4], [-1], [2, 1], [1, 1], ["1"]):
        with pytest.raises(ValueError, match="`layers` must be ascending numbers from 0, the embeddings, to 3"):
            Encoder.from_pretrained(tmp_path, layers=layers)
    encoder = Encoder.from_pretrained(tmp_path, layers=[1])
    assert not {"encoder.layer.1", "encoder.layer.2"} & set(encoder.hidden_states(["key"])[0].states)
    with pytest.raises(TypeError, match="`texts` must be a sequence of texts"):
        encoder.hidden_states("key")
    with pytest.raises(ValueError, match="`texts`: number 1 has 32 tokens, and the model reads at most 24"):
        encoder.hidden_states(["key", "the " * 30])


def test_a_model_that_pools_otherwise_gives_no_mean(tmp_path):
    bert(tmp_path, 0, **SHAPES[0])
    (tmp_path / "1_Pooling").mkdir()
    pooling = tmp_path / "1_Pooling" / "config.json"
    pooling.write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    with pytest.raises(UnsupportedModelError, match="does not represent a text by the mean"):
        Encoder.from_pretrained(tmp_path).encode(TEXTS)
    pooling.write_text('{"pooling_mode_mean_tokens": true}')
    assert len(Encoder.from_pretrained(tmp_path).encode(TEXTS)) == len(TEXTS)
    pooling.write_text('{"pooling_mode_mean_tokens": "yes"}')
    with pytest.raises(CheckpointError, match="`pooling_mode_mean_tokens` must be true or false, got 'yes'"):
        Encoder.from_pretrained(tmp_path)

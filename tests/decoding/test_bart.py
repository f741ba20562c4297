"""Relatives of BART in the engine against transformers' `generate()` in float32, and what their writer refuses."""

import random

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM

from capsule_mt.engine.decoder import EngineDecoder
from capsule_mt.engine.engine import Engine
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.engine.search import Readings, SearchOptions
from capsule_mt.models.loading import weights_in
from capsule_mt.models.registry import write_program
from capsule_mt.models.weights import CheckpointError, read_json
from hf_capsule_mt import to_fast
from hf_capsule_mt.decoding.generate import GenerateDecoder
from tests.decoding.models import BART_FAMILIES, SIZES, VOCABULARY, build, build_bart, strictly

PAD, END, FORCED, MAX_TOKENS = 1, 2, 90, 24


def sizes(width, layers, heads, inner, **settings):
    pairs = {"layers": layers, "attention_heads": heads, "ffn_dim": inner}
    by_side = {
        f"{side}_{size}": values[index]
        for size, values in pairs.items()
        for index, side in enumerate(("encoder", "decoder"))
    }
    return {"d_model": width, "vocab_size": 97, "eos_token_id": END, **by_side, **settings}


SHAPES = [
    sizes(32, (2, 2), (4, 4), (64, 64)),
    sizes(48, (3, 1), (2, 6), (77, 53), activation_function="relu"),
    sizes(20, (1, 4), (5, 1), (5, 131), activation_function="swish"),
    sizes(64, (2, 3), (8, 16), (129, 128), scale_embedding=False),
    sizes(36, (4, 4), (3, 3), (60, 60), tie_word_embeddings=False),
]
SEARCHES = [
    {},
    {"num_beams": 4, "num_return_sequences": 2},
    {"forced_bos_token_id": FORCED},
    {"num_beams": 3, "forced_bos_token_id": FORCED, "length_penalty": 1.4, "min_new_tokens": 3},
    {"num_beams": 2, "forced_bos_token_id": 0, "forced_eos_token_id": END, "no_repeat_ngram_size": 2},
]


def tiny(model_type, index):
    """A model of the shape of this index with sharp random weights, whose translations end at many lengths."""
    torch.manual_seed(index)
    model = build_bart(model_type, **SHAPES[index])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not parameter.requires_grad:
                continue  # sinusoids
            if parameter.dim() == 1:
                parameter.copy_(("norm" in name and name.endswith("weight")) + 0.2 * torch.randn_like(parameter))
            else:
                std = (
                    0.5 if "embed" in name or "shared" in name else 2.0
                )  # so that a token is not its own best successor
                parameter.copy_(std * torch.randn_like(parameter) * parameter.shape[1] ** -0.5)
        model.get_output_embeddings().weight[END] *= 3
    settings = model.generation_config
    settings.max_length, settings.max_new_tokens, settings.suppress_tokens = None, MAX_TOKENS, [PAD]
    settings.forced_bos_token_id = settings.forced_eos_token_id = None
    return model.eval()


def sources_of(index):
    generator = random.Random(index)
    lengths = [generator.randrange(1, 20) for _ in range(8)]
    return [[*(generator.randrange(4, 97) for _ in range(length)), END] for length in lengths]


def padded(sources):
    longest = max(map(len, sources))
    input_ids = torch.tensor([source + [PAD] * (longest - len(source)) for source in sources])
    return {"input_ids": input_ids, "attention_mask": input_ids.ne(PAD).long()}


@pytest.mark.parametrize("model_type", BART_FAMILIES)
def test_tokens_equal_those_of_generate(model_type):
    """240 translations a family, 1,200 in all."""
    count, lengths = 0, set()
    for index in range(len(SHAPES)):
        model = tiny(model_type, index)
        fast, batch = strictly(model, int8=False), padded(sources_of(index))
        for search in SEARCHES:
            expected = model.generate(**batch, **search)
            assert torch.equal(fast.generate(**batch, **search), expected), (index, search)
            count += len(expected)
            lengths |= {int(row.ne(PAD).sum()) for row in expected}
    assert count == 240
    assert len(lengths) > 4


@pytest.mark.parametrize(
    ("max_length", "length"), [(None, 21), (20, 20), *(pytest.param(n, n, marks=pytest.mark.slow) for n in (142, 200))]
)
@pytest.mark.parametrize("model_type", BART_FAMILIES)
def test_the_length_of_generation_config(model_type, max_length, length, tmp_path):
    model = build_bart(model_type, **sizes(32, (1, 1), (4, 4), (32, 32)), max_position_embeddings=256)
    model.generation_config.max_length, model.generation_config.suppress_tokens = max_length, [END]
    model.save_pretrained(tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    expected = model.generate(**padded(sources_of(0)))
    assert expected.shape[1] == length
    assert torch.equal(strictly(model, int8=False).generate(**padded(sources_of(0))), expected)


@pytest.mark.parametrize("model_type", BART_FAMILIES)
def test_a_checkpoint_and_a_batch_of_one_give_the_same_tokens(model_type, tmp_path):
    model, sources = tiny(model_type, 0), sources_of(0)
    model.save_pretrained(tmp_path)
    program, _ = write_program(read_json(tmp_path / "config.json"), weights_in(str(tmp_path)))
    decoder = EngineDecoder(Engine(program, int8=False), start=END, end=END, pad=PAD)
    expected = model.generate(**padded(sources), num_beams=3, forced_bos_token_id=FORCED)[:, 1:].tolist()
    for source, tokens in zip(sources, expected, strict=True):
        options = SearchOptions([MAX_TOKENS], num_beams=3, suppress_tokens=[PAD])
        options = options._replace(transformers_only={"forced_bos_token_id": FORCED})
        ((hypothesis, *_),) = decoder.translate([source], options)
        assert hypothesis.ids == tokens[: len(hypothesis.ids)]
        assert set(tokens[len(hypothesis.ids) :]) <= {PAD}


@pytest.mark.parametrize("model_type", BART_FAMILIES)
def test_forced_passes_and_heads_are_those_of_transformers(model_type):
    model, sources = tiny(model_type, 1), sources_of(1)
    model.set_attn_implementation("eager")
    heavy, light = GenerateDecoder(model), strictly(model, int8=False)
    targets = [[FORCED, *source[::-1][1:], END] for source in sources]
    for readings in (Readings(), Readings(head=(0, 3))):
        expected = heavy.force(sources, targets, readings)
        forced = light.decoder_for(readings).force(sources, targets, readings)
        for result, reference in zip(forced, expected, strict=True):
            assert result.log_probs == pytest.approx(reference.log_probs, abs=2e-4)
            for step, reference_step in zip(result.attention or [], reference.attention or [], strict=True):
                assert step == pytest.approx(reference_step, abs=1e-4)


@pytest.mark.parametrize("model_type", BART_FAMILIES)
def test_int8_folders_translate_as_the_model_that_wrote_them(model_type, tmp_path):
    model, sources = tiny(model_type, 0), sources_of(0)
    fast = to_fast(model)
    fast.save(tmp_path)
    program, parts = write_program(read_json(tmp_path / "config.json"), weights_in(str(tmp_path)))
    assert len(parts.rounded) == 2 * 6 + 2 * 10 + 1  # all matrices, the table of words, too
    assert not any(name in parts.rounded for name in parts.used if "embed_positions" in name)
    decoder = EngineDecoder(Engine(program, int8=True), start=END, end=END, pad=PAD)
    options = SearchOptions([MAX_TOKENS] * len(sources), num_beams=3, suppress_tokens=[PAD])
    hypotheses = [ranked[0].ids for ranked in decoder.translate(sources, options)]
    expected = fast.generate(**padded(sources), num_beams=3)[:, 1:].tolist()
    assert hypotheses == [row[: len(ids)] for row, ids in zip(expected, hypotheses, strict=True)]


@pytest.mark.parametrize("model_type", ["m2m_100", "bart"])
def test_a_head_that_is_stored_beside_the_table_it_is_tied_to(model_type, tmp_path):
    """transformers does not tie it if its numbers differ."""
    model = build_bart(model_type, **SIZES)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.save_pretrained(tmp_path)
    config = read_json(tmp_path / "config.json")
    (tmp_path / "model.safetensors").unlink()
    torch.save(state, tmp_path / "pytorch_model.bin")
    write_program(config, weights_in(str(tmp_path)))
    state["lm_head.weight"][3, 5] += 1
    torch.save(state, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"`lm_head\.weight` differs from `model\.shared\.weight`, but the"):
        write_program(config, weights_in(str(tmp_path)))
    write_program({**config, "tie_word_embeddings": False}, weights_in(str(tmp_path)))
    model.lm_head.weight = torch.nn.Parameter(state["lm_head.weight"])
    with pytest.raises(UnsupportedModelError, match="differs from"):
        strictly(model)


def test_a_first_token_outside_of_the_vocabulary():
    with pytest.raises(ValueError, match=f"`forced_bos_token_id`: {VOCABULARY}, outside the vocabulary of 211"):
        strictly(build("m2m_100")).generate(torch.tensor([[5, 2]]), forced_bos_token_id=VOCABULARY)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"model_type": "nllb-moe"},
            UnsupportedModelError,
            "a model of type 'nllb-moe' is not supported by the engine",
        ),
        ({"model_type": "t5"}, UnsupportedModelError, "a model of type 't5' is not supported by the engine"),
        *(
            ({name: None}, CheckpointError, f"lacks `{name}`")
            for name in ("vocab_size", "d_model", "max_position_embeddings", "activation_function", "scale_embedding")
        ),
        *(
            ({f"{side}_{size}": None}, CheckpointError, f"lacks `{side}_{size}`")
            for side in ("encoder", "decoder")
            for size in ("layers", "attention_heads", "ffn_dim")
        ),
        (
            {"decoder_attention_heads": 3},
            UnsupportedModelError,
            "`decoder_attention_heads` 3 is not supported by the engine",
        ),
        (
            {"activation_function": "mish"},
            UnsupportedModelError,
            "`activation_function` 'mish' is not supported by the engine",
        ),
        (
            {"decoder_start_token_id": 1},
            UnsupportedModelError,
            "`decoder_start_token_id` must not be the padding token, 1",
        ),
        ({"decoder_layers": 3}, CheckpointError, r"lacks `model\.decoder\.layers\.2\."),
    ],
)
def test_what_the_writer_refuses(fields, error, message, tmp_path):
    build_bart("m2m_100", **SIZES).save_pretrained(tmp_path)
    config = read_json(tmp_path / "config.json") | fields
    with pytest.raises(error, match=message):
        write_program(config, weights_in(str(tmp_path)))

"""`.npz` of Marian's: every weight by Marian's name, and back bit for bit; what the format cannot store is refused."""

import math

import pytest
import torch

from capsule_mt.conversions.to_huggingface import write_huggingface
from capsule_mt.conversions.to_marian import write_marian
from capsule_mt.engine.library import widened
from capsule_mt.engine.program import UnsupportedModelError
from capsule_mt.models.loading import load_model
from capsule_mt.models.marian_files import open_marian, options_of
from capsule_mt.models.marian_weights import PADDING_BIAS, MarianWeights
from hf_capsule_mt import CapsuleMarianMTModel
from tests.decoding.models import PAD, batch, build
from tests.fixtures import marian_models
from tests.fixtures.marian_models import PRINTED_STEP, marian_folder, oracle_of
from tests.light.models.files import edit_json

WIDTH, TARGETS = 40, 150
MIXES = {
    "ssru": {"decoder_self": "ssru"},
    "attention": {"activation_function": "silu"},
    "an output of its own": {"decoder_self": "ssru", "tie_word_embeddings": False},
    "two vocabularies": {"decoder_self": "ssru", "share_encoder_decoder_embeddings": False},
    "two vocabularies, an output of its own": {
        "share_encoder_decoder_embeddings": False,
        "tie_word_embeddings": False,
    },
}


@torch.no_grad()
def student(mix):
    """A model that starts with zeros, as Marian does; a smaller second vocabulary is filled with zeros."""
    config = build("ssru").config
    model = CapsuleMarianMTModel(type(config).from_dict(config.to_dict() | {"decoder_self": "attention"} | MIXES[mix]))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.normal_(std=0.3)
    targets = PAD if model.config.share_encoder_decoder_embeddings else TARGETS
    model.model.encoder.embed_tokens.weight[PAD:] = 0
    model.model.decoder.embed_tokens.weight[targets:] = 0
    model.lm_head.weight[targets:] = 0
    model.final_logits_bias.normal_()[:, targets:] = PADDING_BIAS
    return model.eval()


@pytest.mark.parametrize("mix", MIXES)
def test_there_and_back(mix, tmp_path):
    model = student(mix)
    model.save_pretrained(tmp_path)
    write_marian(tmp_path, tmp_path / "model.npz")
    stored, config, state = open_marian(tmp_path / "model.npz"), model.config.to_dict(), model.state_dict()
    config["share_encoder_decoder_embeddings"] = options_of(stored)["tied-embeddings-all"]
    back = MarianWeights(stored, config)
    for name in back:
        assert tuple(state[name].shape) == back.shape(name), name
        assert state[name].numpy().tobytes() == bytes(widened(back.read(name)).buffer), name
    other_names = {"model.shared.weight", "lm_head.weight"}
    assert all("embed" in name or name in other_names for name in set(state) - set(back))


@torch.no_grad()
@pytest.mark.parametrize("name", ["default", "ssru", "two-spm", "untied", "mozilla-spm-ssru"])
def test_a_converted_model_scores_as_marian_does(name, tmp_path):
    write_huggingface(marian_folder(name, tmp_path / "marian"), tmp_path / "hub")
    model = CapsuleMarianMTModel.from_pretrained(tmp_path / "hub").eval()
    tokenizer = load_model(tmp_path / "hub").tokenizer
    pairs = zip(marian_models.SOURCES, marian_models.TARGETS, strict=True)
    for (source, target), scores in zip(pairs, oracle_of(name)["scores"], strict=True):
        labels = torch.tensor([tokenizer.encode_target(target)])
        logits = model(torch.tensor([tokenizer.encode(source).ids]), labels=labels).logits  # [1, T, V]
        log_probs = logits.log_softmax(-1).gather(-1, labels[..., None])[0, :, 0]
        assert log_probs.tolist() == pytest.approx(scores, abs=2 * PRINTED_STEP)
        # and so it does when training starts
        training_logits = model.train()(torch.tensor([tokenizer.encode(source).ids]), labels=labels).logits
        assert torch.equal(training_logits, logits)
        model.eval()


def test_training_keeps_the_start_at_zero(tmp_path):
    """The padding's logit is so low that its embedding, which is tied to it, gets no gradient to speak of."""
    model, source = student("ssru").train(), batch()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(5):
        model(**source, labels=source["input_ids"].masked_fill(source["input_ids"] == PAD, -100)).loss.backward()
        optimizer.step()
    model.save_pretrained(tmp_path)
    write_marian(tmp_path, tmp_path / "model.npz")
    assert options_of(open_marian(tmp_path / "model.npz"))["dim-vocabs"] == [PAD, PAD]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"layer_aggregation": "linear"},
            r"`layer_aggregation` 'linear' cannot be stored in Marian's format: only 'none'",
        ),
        ({"decoder_self": "aan"}, r"`decoder_self` 'aan' .* only 'attention' or 'ssru'"),
        ({"marian_positions": False}, r"`marian_positions` False .* positions of its own"),
        ({"layer_norm_eps": 1e-5}, r"`layer_norm_eps` 1e-05 .* only 1e-06, which Marian adds to a variance"),
        ({"activation_function": "gelu"}, r"`activation_function` 'gelu' .* only relu, swish, silu"),
        ({"decoder_attention_heads": 2}, r"`decoder_attention_heads` 2 .* only 4, as `encoder_attention_heads`"),
        ({"model_type": "capsnmt"}, r"`model_type` 'capsnmt' .* only 'marian' and 'capsule_marian'"),
        ({"decoder_start_token_id": 5}, r"`decoder_start_token_id` 5 .* embedding of zeros; token 209 has numbers up"),
    ],
)
def test_what_the_format_of_marian_cannot_store(fields, message, tmp_path):
    student("ssru").save_pretrained(tmp_path)
    edit_json(tmp_path / "config.json", **fields)
    with pytest.raises(UnsupportedModelError, match=message):
        write_marian(tmp_path, tmp_path / "model.npz")
    assert not list(tmp_path.glob("*.npz*"))


def test_a_start_that_was_trained_is_refused(tmp_path):
    model = student("ssru")
    model.model.shared.weight.data[PAD, 3] = math.pi
    model.save_pretrained(tmp_path)
    with pytest.raises(
        UnsupportedModelError, match=rf"`decoder_start_token_id` {PAD} .* token {PAD} has .* up to 3\.14"
    ):
        write_marian(tmp_path, tmp_path / "model.npz")

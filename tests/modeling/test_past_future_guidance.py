"""PAST and FUTURE in both families, properties 39 to 42, 45 and 46, and coverage of translations by forced passes."""

import pytest
import torch
from torch import nn

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.modeling.past_future_guidance import build_guidance
from hf_capsule_mt.routing import guided_routing
from tests.mixes import GUIDED
from tests.modeling import test_capsule_rnmt
from tests.modeling.model_checks import EOS, PAD, TOLERANCE, randomize
from tests.modeling.test_capsule_marian import SIZES, SPECIAL

METHODS = ["guided", "classifier", "attention"]
FAMILIES = pytest.mark.parametrize("family", ["marian", "rnmt"])


def make(family="marian", **settings):
    if family == "rnmt":
        return test_capsule_rnmt.TestCapsuleRNMT().model(GUIDED | settings)
    settings = {**SIZES, **SPECIAL, **GUIDED, "tie_word_embeddings": False, **settings}
    return randomize(CapsuleMarianMTModel(CapsuleMarianConfig(**settings))).eval()


@pytest.fixture
def batch():
    input_ids = torch.randint(4, 31, (3, 7))
    mask = (torch.arange(7) < torch.tensor([7, 4, 5])[:, None]).long()
    labels = torch.randint(4, 31, (3, 6))
    labels[1, 4:] = labels[2, 2:] = -100
    return {"input_ids": input_ids.masked_fill(mask == 0, 1), "attention_mask": mask, "labels": labels}


@FAMILIES
@pytest.mark.parametrize("method", METHODS)
def test_losses_leave_the_logits_alone(batch, family, method, tmp_path):  # property 41
    model = make(family, guided_routing=method)
    expected = model(**batch)
    names = set(model.state_dict())
    model.drop_guided_losses()
    output = model(**batch)
    assert torch.equal(output.logits, expected.logits)
    assert output.bow_loss is None
    assert output.bca_loss is None
    torch.testing.assert_close(output.loss, expected.nll_loss)
    assert {name.split(".")[0] for name in names - set(model.state_dict())} == {"guided_losses"}
    model.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    torch.testing.assert_close(loaded.eval()(**batch).logits, expected.logits, **TOLERANCE)


@FAMILIES
@pytest.mark.parametrize("method", METHODS)
def test_parts_of_the_loss(batch, family, method):  # property 45
    model = make(family, guided_routing=method, guided_bow_weight=0.5, guided_bca_weight=2.0)
    output = model(**batch)
    torch.testing.assert_close(output.loss, output.nll_loss + output.bow_loss + output.bca_loss)
    assert min(output.nll_loss, output.bow_loss, output.bca_loss) > 0
    unweighted = make(family, guided_routing=method)
    unweighted.load_state_dict(model.state_dict())
    torch.testing.assert_close(output.bow_loss, unweighted(**batch).bow_loss / 2)
    torch.testing.assert_close(output.bca_loss, 2 * unweighted(**batch).bca_loss)
    plain = make(family, guided_routing=method, guided_bow_weight=0.0, guided_bca_weight=0.0)
    plain.load_state_dict(model.state_dict(), strict=False)
    without_losses = plain(**batch)
    assert without_losses.bow_loss is None
    assert without_losses.bca_loss is None
    assert torch.equal(without_losses.logits, output.logits)
    torch.testing.assert_close(without_losses.loss, output.nll_loss)


def test_redundant_capsules_compete_but_are_not_read():  # property 42
    config = CapsuleMarianConfig(**SIZES, **SPECIAL, **GUIDED)
    guidance = randomize(build_guidance(config, 16)).double()
    state = torch.randn(2, 3, 16, dtype=torch.float64)
    source = torch.randn(2, 5, 16, dtype=torch.float64)
    guidance(state, source, None).state.sum().backward()
    gradients = guidance.votes.weight.grad.unflatten(0, (-1, 6)).abs().amax(dim=(1, 2))
    assert len(gradients) == 2 * 2 + 3
    assert (gradients[4:] > 0).all()
    # with the assignment held fixed, nothing of a redundant capsule is left
    guidance.zero_grad()
    nn.init.zeros_(guidance.score.weight)
    guidance(state, source, None).state.sum().backward()
    gradients = guidance.votes.weight.grad.unflatten(0, (-1, 6)).abs().amax(dim=(1, 2))
    assert (gradients[4:] == 0).all()
    assert (gradients[:4] > 0).all()


@torch.no_grad()
@pytest.mark.parametrize("score", ["printed", "released"])
def test_guided_routing_uses_the_configured_score(score):
    config = CapsuleMarianConfig(**SIZES, **SPECIAL, **GUIDED | {"guided_score": score})
    guidance = randomize(build_guidance(config, 16), std=0.5).double()
    state, source = (torch.randn(1, length, 16, dtype=torch.float64) for length in (3, 5))
    routed = guided_routing(
        guidance.votes(source).unflatten(-1, (7, 6)),
        state,
        query_weight=guidance.query_projection.weight,
        vote_weight=guidance.vote_projection.weight,
        capsule_weight=guidance.capsule_projection.weight,
        score_weight=guidance.score.weight[0],
        num_iterations=3,
        score=score,
    )
    torch.testing.assert_close(guidance(state, source, None).capsules, routed.capsules[..., :4, :])


@torch.no_grad()
@pytest.mark.parametrize("method", ["classifier", "attention"])
def test_the_baselines_equal_loops(method):
    config = CapsuleMarianConfig(**SIZES, **SPECIAL, **GUIDED | {"guided_routing": method})
    guidance = randomize(build_guidance(config, 16), std=0.5).double()
    state, source = (torch.randn(1, length, 16, dtype=torch.float64) for length in (3, 5))
    keep = [0, 2, 3]
    mask = torch.tensor([[word in keep for word in range(5)]])
    queries, keys = guidance.query_projection(state[0]).split(6, -1), guidance.keys(source[0]).split(6, -1)
    values = guidance.values(source[0]).unflatten(-1, (2, 2, 6))  # [S, PAST or FUTURE, n, D]
    for step, capsules in enumerate(guidance(state, source, mask).capsules[0].unflatten(1, (2, 2))):
        scores = torch.tensor(
            [
                [weight @ (queries[-1 if x else 0][step] + keys[-1 if x else 0][word]).tanh() for word in keep]
                for x, weight in enumerate(guidance.score.weight)
            ],
            dtype=torch.float64,
        )
        shares = scores.softmax(dim=1 if method == "attention" else 0)  # over words, or over PAST, FUTURE and neither
        for x in (0, 1):
            expected = sum(shares[x, index] * values[word, x] for index, word in enumerate(keep))
            torch.testing.assert_close(capsules[x], expected)


@FAMILIES
@pytest.mark.parametrize("method", METHODS)
def test_without_effect_it_is_the_plain_model(batch, family, method):  # property 46
    model = make(family, guided_routing=method)
    model.model.decoder.guidance.start_without_effect()
    plain = make(family, guided_routing="none")
    plain.load_state_dict(model.state_dict(), strict=False)
    tolerance = {"atol": 0, "rtol": 0} if family == "marian" else TOLERANCE
    torch.testing.assert_close(model(**batch).logits, plain(**batch).logits, **tolerance)


@FAMILIES
@pytest.mark.parametrize("method", ["none", *METHODS])
def test_a_cache_of_other_sentences_is_not_used(batch, family, method):
    """The tensors of a sentence follow the rows of a cache that are selected, repeated or put in another order."""
    model = make(family, guided_routing=method)
    encoded = model.get_encoder()(batch["input_ids"], attention_mask=batch["attention_mask"])
    inputs = {"encoder_outputs": encoded, "attention_mask": batch["attention_mask"]}
    tokens = torch.randint(4, 31, (3, 2))
    expected = model(**inputs, decoder_input_ids=tokens, use_cache=False).logits
    order = torch.tensor([2, 0, 0])
    for move in ("reorder_cache", "batch_select_indices"):
        cache = model(**inputs, decoder_input_ids=tokens[:, :1], use_cache=True).cache
        getattr(cache, move)(order)
        encoded_in_order = type(encoded)(last_hidden_state=encoded.last_hidden_state[order])
        logits = model(
            encoder_outputs=encoded_in_order,
            attention_mask=batch["attention_mask"][order],
            decoder_input_ids=tokens[order, 1:],
            cache=cache,
        ).logits
        torch.testing.assert_close(logits, expected[order, 1:], **TOLERANCE)


@pytest.fixture
def source():
    input_ids = torch.randint(4, 31, (3, 7))
    mask = (torch.arange(7) < torch.tensor([7, 4, 5])[:, None]).long()
    input_ids[torch.arange(3), mask.sum(dim=1) - 1] = EOS
    return input_ids.masked_fill(mask == 0, PAD), mask


@pytest.fixture
def labels():
    labels = torch.randint(4, 31, (3, 6))
    labels[0, 5] = labels[1, 4] = labels[2, 2] = EOS
    labels[1, 5:] = labels[2, 3:] = -100
    return labels


def fields(coverage):
    return vars(coverage).items()


@pytest.mark.parametrize(("family", "method"), [("marian", "guided"), ("marian", "classifier"), ("rnmt", "guided")])
def test_equals_the_loops(source, labels, family, method):
    model = make(family, guided_routing=method)
    coverage = model.score_coverage(*source, labels=labels)
    for row, (length, target_length) in enumerate(((7, 5), (4, 4), (5, 2))):
        words = [word for word in labels[row].tolist() if word not in (-100, EOS)]
        assert len(words) == target_length
        target_count = int((labels[row] >= 0).sum())  # with the end token, where there is one
        with torch.no_grad():
            output = model(
                source[0][row : row + 1, :length],
                decoder_input_ids=torch.tensor([[3, *words]]),
                output_routing_weights=True,
            )
        weights = output.routing_weights["decoder.guidance"][-1][0]  # [T + 1, S, M]
        group = 2 if method == "guided" else 1
        future = weights[..., group : 2 * group].sum(dim=-1)
        probabilities = output.logits[0].softmax(dim=-1)
        for word in range(length):
            fall = agreed = 0.0
            for step, read in enumerate(words):
                difference = max(0.0, float(future[step, word] - future[step + 1, word]))
                runner_up = max(float(p) for index, p in enumerate(probabilities[step]) if index != read)
                fall += difference
                agreed += (
                    difference * float(probabilities[step, read]) / (float(probabilities[step, read]) + runner_up)
                )
            expected = agreed / fall if fall > 1e-3 else 1.0
            expected *= min(1.0, 2.5 * (1 - float(future[-1, word])))
            assert coverage.covered[row, word].item() == pytest.approx(expected, abs=1e-4)
            assert coverage.past[row, word].item() == pytest.approx(float(weights[-1, word, :group].sum()), abs=1e-5)
        assert coverage.words[row].tolist() == [True] * (length - 1) + [False] * (8 - length)
        mean = coverage.covered[row, : length - 1].mean()
        torch.testing.assert_close(coverage.score[row], mean)
        balance = (weights[-1, : length - 1, :group] - weights[-1, : length - 1, group : 2 * group]).sum(dim=-1).mean()
        torch.testing.assert_close(coverage.balance[row], balance, **TOLERANCE)
        log_probs = probabilities.log()
        mean = torch.stack([log_probs[step, token] for step, token in enumerate([*words, EOS])][:target_count]).mean()
        torch.testing.assert_close(coverage.log_prob[row], mean, **TOLERANCE)
    total = coverage.past + coverage.future + coverage.redundant
    torch.testing.assert_close(total, source[1].float())
    assert torch.equal(coverage.untranslated, coverage.words & (coverage.covered < 0.8))
    strict = model.score_coverage(*source, labels=labels, threshold=1.1)
    assert torch.equal(strict.untranslated, coverage.words)


@FAMILIES
def test_padding_and_end_tokens_change_nothing(source, labels, family):
    model = make(family)
    expected = model.score_coverage(*source, labels=labels)
    without_end = labels.masked_fill(labels == EOS, -100)
    padded = torch.nn.functional.pad(labels.masked_fill(labels == -100, PAD), (0, 2), value=PAD)
    for variant in (without_end, padded):
        for (name, value), (_, padded_value) in zip(
            fields(expected), fields(model.score_coverage(*source, labels=variant)), strict=True
        ):
            if name != "log_prob" or variant is padded:  # which counts the end token
                torch.testing.assert_close(value, padded_value, **TOLERANCE, msg=name)
    longer = [torch.nn.functional.pad(source[0], (0, 3), value=PAD), torch.nn.functional.pad(source[1], (0, 3))]
    for arguments in (longer, longer[:1]):
        coverage = model.score_coverage(*arguments, labels=labels)
        torch.testing.assert_close(coverage.score, expected.score, **TOLERANCE)
        assert (coverage.covered[:, 7:] == 0).all()
        assert not coverage.words[:, 7:].any()


def test_an_empty_translation_and_an_empty_source():
    model = make()
    coverage = model.score_coverage(torch.tensor([[5, 6, EOS], [EOS, PAD, PAD]]), labels=torch.tensor([[EOS], [7]]))
    torch.testing.assert_close(coverage.covered[0], (2.5 * (1 - coverage.future[0])).clamp(max=1))
    assert coverage.score[1] == coverage.balance[1] == 1
    assert not coverage.untranslated[1].any()


def test_training_goes_on_as_it_was(source, labels):
    model = make(dropout=0.5).train()
    first, second = (model.score_coverage(*source, labels=labels).score for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert not first.requires_grad


@FAMILIES
@pytest.mark.parametrize("method", ["none", "attention"])
def test_needs_past_and_future(source, labels, family, method):
    with pytest.raises(ValueError, match=f'need `guided_routing` "guided" or "classifier", got "{method}"'):
        make(family, guided_routing=method).score_coverage(*source, labels=labels)
    for wrong in (labels[0], labels[:, :0]):
        with pytest.raises(ValueError, match=r"`labels` must be \[batch, target\], an end token at least, got shape"):
            make().score_coverage(*source, labels=wrong)
    with pytest.raises(ValueError, match="`labels` are 2 translations, but `input_ids` 3 sources"):
        make().score_coverage(*source, labels=labels[:2])
    with pytest.raises(IndexError, match=r"`labels` must be token ids from 0 to \d+, or -100 .*, got \[99999, "):
        make().score_coverage(*source, labels=labels.new_full(labels.shape, 99999))

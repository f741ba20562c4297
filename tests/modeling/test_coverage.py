"""Coverage of given translations: what the parts mean, and what must not change them."""

import pytest
import torch

from hf_capsule_mt.modeling.coverage import past_future_curves
from tests.modeling.model_checks import EOS, PAD, TOLERANCE
from tests.modeling.test_past_future_guidance import make


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


def test_curves():
    weights = torch.rand(2, 3, 4, 7).softmax(dim=-1)
    curves = past_future_curves(weights, 2)
    torch.testing.assert_close(curves.past[1, 2], weights[1, :, 2, :2].sum(dim=-1))
    torch.testing.assert_close(curves.future[1, 2], weights[1, :, 2, 2:4].sum(dim=-1))
    torch.testing.assert_close(sum(curves), torch.ones(2, 4, 3))
    assert (past_future_curves(weights[..., :4], 2).redundant == 0).all()
    for num_capsules in (0, 4):
        with pytest.raises(ValueError, match=rf"`num_capsules` \({num_capsules}\) .* \[2, 3, 4, 7\]"):
            past_future_curves(weights, num_capsules)


@pytest.mark.parametrize("method", ["guided", "classifier"])
def test_equals_the_loops(source, labels, method):
    model = make(guided_routing=method)
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
                another = max(float(p) for index, p in enumerate(probabilities[step]) if index != read)
                fall += difference
                agreed += difference * float(probabilities[step, read]) / (float(probabilities[step, read]) + another)
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


def test_padding_and_end_tokens_change_nothing(source, labels):
    model = make()
    expected = model.score_coverage(*source, labels=labels)
    without_end = labels.masked_fill(labels == EOS, -100)
    padded = torch.nn.functional.pad(labels.masked_fill(labels == -100, PAD), (0, 2), value=PAD)
    for variant in (without_end, padded):
        for (name, value), (_, other) in zip(
            fields(expected), fields(model.score_coverage(*source, labels=variant)), strict=True
        ):
            if name != "log_prob" or variant is padded:  # which counts the end token
                torch.testing.assert_close(value, other, **TOLERANCE, msg=name)
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


@pytest.mark.parametrize("method", ["none", "attention"])
def test_needs_past_and_future(source, labels, method):
    with pytest.raises(ValueError, match=f'need `guided_routing` "guided" or "classifier", got "{method}"'):
        make(guided_routing=method).score_coverage(*source, labels=labels)
    for wrong in (labels[0], labels[:, :0]):
        with pytest.raises(ValueError, match=r"`labels` must be \[batch, target\], an end token at least, got shape"):
            make().score_coverage(*source, labels=wrong)
    with pytest.raises(ValueError, match="`labels` are 2 translations, but `input_ids` 3 sources"):
        make().score_coverage(*source, labels=labels[:2])

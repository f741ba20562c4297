"""Looking at PAST and FUTURE: rates and curves come from the right steps, and the picture is a picture."""

import pytest
import torch

from hf_capsule_mt.analysis.past_future import forced_curves, overlap_rate, overlap_rates
from hf_capsule_mt.analysis.pictures import draw_past_future
from tests.modeling.test_past_future_guidance import make


@pytest.fixture
def batch():
    labels = torch.randint(4, 31, (2, 5))
    labels[1, 3:] = -100
    return torch.randint(4, 31, (2, 6)), torch.tensor([[1] * 6, [1] * 4 + [0] * 2]), labels


def test_overlap_rates(batch):
    model = make()
    with torch.no_grad():
        output = model.model(
            batch[0],
            attention_mask=batch[1],
            decoder_input_ids=model.prepare_decoder_input_ids_from_labels(batch[2]),
            output_guided_capsules=True,
        )
    losses, rates = model.guided_losses, overlap_rates(model, *batch)
    for sentence, words in enumerate((batch[2][0].tolist(), batch[2][1, :3].tolist())):
        past, future = (
            output.guided_capsules[sentence, : len(words), group].sum(dim=1)
            @ matrix.weight.t()
            @ model.lm_head.weight.t()
            for group, matrix in (([0, 1], losses.past_words), ([2, 3], losses.future_words))
        )
        assert rates[sentence] == overlap_rate(past, future, words, excluded=[1, 3])
    model.drop_guided_losses()
    with pytest.raises(ValueError, match="needs a model with `guided_routing` and a `guided_bow_weight` above 0"):
        overlap_rates(model, *batch)


@pytest.mark.parametrize("method", ["guided", "classifier"])
def test_curves_and_picture(batch, method, tmp_path):
    curves = forced_curves(make(guided_routing=method), *batch)
    assert curves.past.shape == (2, 6, 5)
    torch.testing.assert_close(sum(curves), batch[1].float().unsqueeze(-1).expand(2, 6, 5))
    words = list("abcdef"), list("vwxyz")
    path = draw_past_future(curves.past[0], curves.future[0], *words, tmp_path / "picture.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"must be \[6, 4\] for these words, got \[6, 5\]"):
        draw_past_future(curves.past[0], curves.future[0], words[0], words[1][:4], tmp_path / "picture.png")

"""The router of the seams: what it registers, what it passes on, and what its graph looks like."""

import pytest
import torch

from hf_capsule_mt import CapsuleMarianConfig, CapsuleMarianMTModel
from hf_capsule_mt.modeling.layer_aggregation import build_layer_aggregation
from hf_capsule_mt.modeling.router import ROUTING_METHODS, Router, RoutingMethod
from hf_capsule_mt.routing import dynamic_routing, em_routing
from tests.modeling.test_capsule_marian import SIZES, SPECIAL

VOTES = torch.randn(2, 5, 4, 3)


def router(method, **settings):
    module = Router()
    module.add_routing(CapsuleMarianConfig(**settings), method, num_capsules=4, num_iterations=2)
    return module


def test_learned_parameters_keep_their_names_in_checkpoints():
    config = CapsuleMarianConfig(**SIZES, **SPECIAL, layer_aggregation="em_routing", head_aggregation="em_routing")
    betas = {name for name in CapsuleMarianMTModel(config).state_dict() if "beta" in name}
    seams = ["encoder.layer_aggregation", "decoder.layer_aggregation"]
    seams += [f"encoder.layers.{layer}.self_attn.out_proj" for layer in range(3)]
    assert betas == {f"model.{seam}.{beta}" for seam in seams for beta in ("beta_a", "beta_u")}


@pytest.mark.parametrize("normalize", [True, False])
def test_settings_come_from_the_configuration(normalize):
    dynamic = router("dynamic_routing", layer_aggregation_normalize_total_input=normalize)
    expected = dynamic_routing(VOTES, num_iterations=2, normalize_total_input=normalize)
    torch.testing.assert_close(dynamic.route(VOTES).capsules, expected.capsules)
    em = router("em_routing", em_lambda_final=2.0, em_min_variance=0.1)
    torch.nn.init.normal_(em.beta_a)
    torch.nn.init.normal_(em.beta_u)
    activation = torch.rand(2, 5)
    expected = em_routing(
        VOTES,
        num_iterations=2,
        input_activation=activation,
        beta_a=em.beta_a,
        beta_u=em.beta_u,
        lambda_final=2.0,
        min_variance=0.1,
    )
    torch.testing.assert_close(em.route(VOTES, input_activation=activation).capsules, expected.capsules)


def test_a_new_method_needs_one_entry(monkeypatch):
    def scaled(votes, *, scale, **settings):
        return dynamic_routing(votes * scale.unsqueeze(-1), **settings)

    monkeypatch.setitem(ROUTING_METHODS, "scaled", RoutingMethod(scaled, parameters=("scale",)))
    module = router("scaled")
    torch.nn.init.constant_(module.scale, 2.0)
    expected = dynamic_routing(2 * VOTES, num_iterations=2)
    torch.testing.assert_close(module.route(VOTES).capsules, expected.capsules)
    module.reset_parameters()
    assert (module.scale == 0).all()


@pytest.mark.parametrize("activation", ["vector", "scalar", "none"])
def test_a_graph_squeezes_only_dimensions_of_one(activation):
    """Torch ignores a squeeze of a wider dimension; ONNX runtimes refuse to load it."""
    config = CapsuleMarianConfig(**SIZES, **SPECIAL, layer_aggregation="em_routing", em_input_activation=activation)
    module = build_layer_aggregation(config, 3, enabled=True)
    exported = torch.export.export(module, ([torch.randn(2, 5, 16) for _ in range(3)],))
    for node in exported.graph.nodes:
        if "squeeze.dim" in str(node.target) and "unsqueeze" not in str(node.target):
            squeezed, dimension = node.args
            assert squeezed.meta["val"].shape[dimension] == 1

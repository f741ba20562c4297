"""The router of the seams: what it passes on."""

import pytest
import torch

from hf_capsule_mt import CapsuleMarianConfig
from hf_capsule_mt.modeling.router import Router
from hf_capsule_mt.routing import dynamic_routing, em_routing

VOTES = torch.randn(2, 5, 4, 3)


def router(method, **settings):
    module = Router()
    module.add_routing(CapsuleMarianConfig(**settings), method, num_capsules=4, num_iterations=2)
    return module


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

"""The squashing nonlinearity of Sabour et al. 2017 (equation 5 of Dou et al. 2019)."""

import torch

from hf_capsule_mt.routing.common import sum_width

SQUASH_EPSILON = 1e-9


def squash(capsules: torch.Tensor) -> torch.Tensor:
    """Shrink each capsule [..., D] to a length of at most one, keeping its direction.

    squash(s) = |s|^2 / (1 + |s|^2) * s / |s|, written as s * sqrt(|s|^2 + 1e-9) / (1 + |s|^2), whose gradient is
    finite at s = 0; that of the usual form is NaN.

    Relations: for D = 1 it is s|s| / (1 + s^2). A long capsule becomes almost a unit vector; a short one of length l,
    down to 1e-4, becomes almost l^2 long.
    """
    # in float32 at least: the squared norm of a half-precision capsule of length 300 is already infinite
    values = capsules.to(torch.promote_types(capsules.dtype, torch.float32))
    squared_norm = sum_width(values.square(), keepdim=True)  # [..., 1]
    # the factor first: its operations and their derivatives are on one number for each capsule
    return (values * ((squared_norm + SQUASH_EPSILON).sqrt() / (1 + squared_norm))).to(capsules.dtype)

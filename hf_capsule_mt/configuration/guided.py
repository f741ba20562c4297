"""The fields of guided dynamic routing (Zheng et al. 2019), the same for every family that has it."""

from typing import Literal

from hf_capsule_mt.configuration.common import (
    MAX_CAPSULES,
    MAX_ITERATIONS,
    MAX_UNITS,
    CapsulePreTrainedConfig,
    check_not_negative,
    check_range,
)

GuidedRoutingMethod = Literal["none", "guided", "classifier", "attention"]


class GuidedConfig(CapsulePreTrainedConfig):
    r"""
    Base of the configurations of models that assign source words to PAST (translated) and FUTURE (untranslated).

    Args:
        guided_routing (`str`, defaults to `"none"`):
            How PAST and FUTURE are computed from the source words at each step and added to the decoder's top state;
            `"none"` for a plain decoder. `"guided"` is guided dynamic routing;
            `"classifier"` (one softmax over PAST, FUTURE and neither for each word) and `"attention"` (two attention
            modules) are the paper's baselines.
        guided_num_capsules (`int`, defaults to 2):
            Capsules of each of PAST and FUTURE.
        guided_num_redundant_capsules (`int`, defaults to 8):
            Capsules for words that belong to neither group; they compete for words and are then discarded. 0 for none.
            `"guided"` only.
        guided_capsule_dim (`int`, defaults to 256):
            Width of a capsule.
        guided_num_iterations (`int`, defaults to 3):
            Routing iterations. `"guided"` only.
        guided_score (`str`, defaults to `"printed"`):
            The agreement of a word with a capsule: s = w . tanh(...), as the paper prints it (`"printed"`), or
            tanh(s) / sqrt(`guided_capsule_dim`), as its authors' code computes it (`"released"`). `"guided"` only.
        guided_ffn_dim (`int`, defaults to 512):
            Width of the hidden layer that joins capsules and decoder state.
        guided_bow_weight (`float`, defaults to 1.0):
            Weight of the bag-of-words loss; 0 for none, and no parameters for it.
        guided_bca_weight (`float`, defaults to 1.0):
            Weight of the loss of bilingual content agreement; 0 for none, and no parameters for it.
        guided_bow_bags (`str`, defaults to `"inclusive"`):
            Whether the word that a step predicts is in both its PAST and its FUTURE bag (`"inclusive"`, as printed) or
            in neither (`"exclusive"`).
    """

    guided_routing: GuidedRoutingMethod = "none"
    guided_num_capsules: int = 2
    guided_num_redundant_capsules: int = 8
    guided_capsule_dim: int = 256
    guided_num_iterations: int = 3
    guided_score: Literal["printed", "released"] = "printed"
    guided_ffn_dim: int = 512
    guided_bow_weight: float | int = 1.0
    guided_bca_weight: float | int = 1.0
    guided_bow_bags: Literal["inclusive", "exclusive"] = "inclusive"

    @property
    def has_guided_losses(self) -> bool:
        """Whether training adds a loss that teaches PAST and FUTURE."""
        return self.guided_routing != "none" and (self.guided_bow_weight > 0 or self.guided_bca_weight > 0)

    def validate_guided_routing(self) -> None:
        check_range(self, 1, MAX_CAPSULES, "guided_num_capsules")
        check_range(self, 0, MAX_CAPSULES, "guided_num_redundant_capsules")
        check_range(self, 1, MAX_UNITS, "guided_capsule_dim", "guided_ffn_dim")
        check_range(self, 1, MAX_ITERATIONS, "guided_num_iterations")
        check_not_negative(self, "guided_bow_weight", "guided_bca_weight")

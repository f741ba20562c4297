"""How large the code of an export is, for each mix of settings: python -m tests.hub.code_sizes."""

from hf_capsule_mt.hub.exporting import code_of
from tests.mixes import FAMILIES, MIXES
from tests.modeling import test_capsnmt, test_capsule_marian, test_capsule_rnmt

CHECKS = {
    "capsule_marian": test_capsule_marian.TestCapsuleMarian,
    "capsnmt": test_capsnmt.TestCapsNMT,
    "capsule_rnmt": test_capsule_rnmt.TestCapsuleRNMT,
}


def tiny_model_of(name):
    family = FAMILIES[name]
    return CHECKS[family]().model(MIXES[family][name])


def main():
    for name in FAMILIES:
        code = code_of(tiny_model_of(name))
        print(f"{name:<24} {len(code.encode()):>8,} bytes {len(code.splitlines()):>6,} lines")


if __name__ == "__main__":
    main()

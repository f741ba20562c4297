"""Calibrations of coverage that come with the package: curves that were measured here, for the models of others.

A calibration is for one file of weights, by its SHA-256: another version of a model does not take it.
"""

import os

FOLDER = os.path.join(os.path.dirname(__file__), "calibrations")
CALIBRATION_FILE = "coverage_calibration.json"  # of `capsule-mt calibrate`, beside a model that has no config.json
# by the size and the SHA-256 of the weights: only a file of one of these sizes is read for its digest
SHIPPED = {  # students of Firefox Translations, versions 1693087644 and 1693087646
    (17140836, "d968735704c75e33c2e183b9241f14c0b2a560d01d88a2728e5c0119a4d7fb22"): "firefox-en-pt.json",
    (17140836, "6c3b7af01772022a19712410c63342ba581468c2f1aac34d7488409c4043e697"): "firefox-pt-en.json",
}


def calibration_file(weights: str) -> str:
    """Return where the calibration of a model of Marian's is: beside its weights, or else in this package."""
    beside = os.path.join(os.path.dirname(weights), CALIBRATION_FILE)
    size = os.path.getsize(weights)
    if not os.path.exists(beside) and any(size == known for known, _ in SHIPPED):
        from capsule_mt.text.digests import file_digest  # late: few models are of these sizes

        shipped = SHIPPED.get((size, file_digest(weights)))
        return beside if shipped is None else os.path.join(FOLDER, shipped)
    return beside

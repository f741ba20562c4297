"""Calibrations of coverage that come with the package: curves that were measured here, for the models of others.

A calibration is for one file of weights, by its SHA-256: another version of a model does not take it.
"""

import os

FOLDER = os.path.join(os.path.dirname(__file__), "calibrations")
CALIBRATION_FILE = "coverage_calibration.json"  # of `capsule-mt calibrate`, beside a model that has no config.json
# by the size and the SHA-256 of the weights: only a file of one of these sizes is read for its digest
SHIPPED: dict[tuple[int, str], str] = {}


def calibration_file(weights: str) -> str:
    """Return where the calibration of a model of Marian's is: beside its weights, or else in this package."""
    beside = os.path.join(os.path.dirname(weights), CALIBRATION_FILE)
    size = os.path.getsize(weights)
    if not os.path.exists(beside) and any(size == known for known, _ in SHIPPED):
        from capsule_mt.text.digests import file_digest  # late: few models are of these sizes

        shipped = SHIPPED.get((size, file_digest(weights)))
        return beside if shipped is None else os.path.join(FOLDER, shipped)
    return beside

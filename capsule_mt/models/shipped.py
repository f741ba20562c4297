"""Calibrations of coverage that ship with the package, for public models that have none beside them.

A calibration belongs to one file of weights, identified by its size and the CRC-32 of its last MiB: other
versions of the model do not get it.
"""

import os
import zlib

from capsule_mt.models.opening import open_file

FOLDER = os.path.join(os.path.dirname(__file__), "calibrations")
# of `capsule-mt calibrate` beside a model that has no config.json, and of an export, whose config.json is short
CALIBRATION_FILE = "coverage.json"
OLD_CALIBRATION_FILE = "coverage_calibration.json"  # of versions up to 0.4
END = 1 << 20  # bytes
SHIPPED = {  # students of Firefox Translations, versions 1693087644 and 1693087646
    (17140836, 0x549B6095): "firefox-en-pt.json",
    (17140836, 0x5D964AC2): "firefox-pt-en.json",
}


def calibration_beside(folder: str) -> str:
    """Return the path that a folder's calibration has, or would have."""
    old = os.path.join(folder, OLD_CALIBRATION_FILE)
    current = os.path.join(folder, CALIBRATION_FILE)
    return old if os.path.lexists(old) and not os.path.lexists(current) else current


def calibration_file(weights: str) -> str:
    """Return the path of a Marian model's calibration: in this package if only there, else beside the weights."""
    beside = calibration_beside(os.path.dirname(weights))
    size = os.path.getsize(weights)
    if not os.path.lexists(beside) and any(size == shipped_size for shipped_size, _ in SHIPPED):
        with open_file(weights) as stream:
            stream.seek(max(0, size - END))
            shipped = SHIPPED.get((size, zlib.crc32(stream.read())))
        return beside if shipped is None else os.path.join(FOLDER, shipped)
    return beside

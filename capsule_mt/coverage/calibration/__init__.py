"""Fit the coverage of a model on translations with words dropped. Needs numpy: the extra `calibrate`."""

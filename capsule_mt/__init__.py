"""Translate on a CPU, and see what was left out: the light distribution. It imports neither torch nor transformers."""

__version__ = "0.3.0.dev0"

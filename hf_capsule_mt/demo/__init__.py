"""The web page that translates a sentence and shows its coverage and routings; needs the extra `demo`."""

from hf_capsule_mt.demo.page import build_page, serve

__all__ = ["build_page", "serve"]

"""The page on which to type a sentence and see what the capsules make of it; needs the extra `demo`."""

from hf_capsule_mt.demo.page import build_page, serve

__all__ = ["build_page", "serve"]

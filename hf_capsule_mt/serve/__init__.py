"""The translation server: an HTTP API of LibreTranslate's shape; needs the extra `serve`."""

from hf_capsule_mt.serve.app import Limits, build_app
from hf_capsule_mt.serve.batching import Batcher
from hf_capsule_mt.serve.languages import LanguagePair, language_pairs, path_of
from hf_capsule_mt.serve.running import bind, run_server

__all__ = ["Batcher", "LanguagePair", "Limits", "bind", "build_app", "language_pairs", "path_of", "run_server"]

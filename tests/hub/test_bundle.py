"""The bundler: modules become one file."""

import runpy
import sys
import textwrap

import pytest
from transformers.dynamic_module_utils import get_imports, get_relative_imports
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

import hf_capsule_mt  # registers the models
from hf_capsule_mt.hub import bundle as bundler
from hf_capsule_mt.hub.bundle import bundle


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Makes a small package of given files, and the bundler take it for its own."""
    name = f"package_{tmp_path.name.replace('-', '_')}"
    monkeypatch.setattr(bundler, "PACKAGE", name)
    monkeypatch.syspath_prepend(tmp_path)

    def make(**files):
        (tmp_path / name / "room").mkdir(parents=True, exist_ok=True)
        defaults = {"__init__": "", "room/__init__": ""}
        for file, source in {**defaults, **files}.items():
            path = tmp_path / name / f"{file.replace('__', '/') if not file.endswith('__init__') else file}.py"
            path.write_text(textwrap.dedent(source).replace("PACKAGE", name))
        return name

    return make


def test_modules_become_one(package):
    name = package(
        room__low='''
            """The docstring goes."""
            import math
            from torch import nn

            # a comment stays
            HALF = math.pi / 2
            ''',
        room__high='''
            """This one too."""
            import math
            import os.path
            from PACKAGE.room.low import HALF

            def twice() -> float:
                """A docstring inside stays."""
                return 2 * HALF
            ''',
    )
    text = bundle([f"{name}.room.high"], "The header.")
    assert text.startswith('"""The header."""')
    assert text.index("HALF = math.pi") < text.index("def twice")
    for part in ("# a comment stays", "A docstring inside stays", "import math\n", "import os.path\n", "import nn"):
        assert text.count(part) == 1
    for part in ("goes", "too.", "from package"):
        assert part not in text
    space = {}
    exec(text, space)
    assert space["twice"]() == pytest.approx(3.14159, abs=1e-4)


def test_all_models_together(tmp_path):
    # the core stays free of names that two modules define, whichever models a checkpoint needs
    models = {model.__module__ for model in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING.values()}
    ours = sorted(module for module in models if module.startswith(hf_capsule_mt.__name__ + "."))
    assert ours
    file = tmp_path / "all_models.py"
    file.write_text(bundle([*ours, "hf_capsule_mt.hub.plain_pipeline"], "All."), encoding="utf-8")
    assert set(get_imports(file)) <= {"torch", "transformers", "huggingface_hub"} | sys.stdlib_module_names
    assert get_relative_imports(file) == []
    runpy.run_path(str(file))

"""Every snippet of the README runs, in the order of the README, against a local hub."""

import os
import re
import subprocess
import sys
from pathlib import Path

import capsule_mt
from hf_capsule_mt.training import recipe_names
from tests.fixtures.local_hub import LocalHub
from tests.fixtures.tiny import save_tiny_checkpoint, save_tiny_marian

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def test_every_snippet_runs(tmp_path):
    snippets = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(snippets) >= 6
    save_tiny_checkpoint(tmp_path / "outputs" / "demo", layer_aggregation="em_routing")
    save_tiny_checkpoint(tmp_path / "outputs" / "gdr", layer_aggregation="em_routing", guided_routing="guided")
    hub = LocalHub().start()
    try:
        hub.add_folder("Helsinki-NLP/opus-mt-en-de", save_tiny_marian(tmp_path / "marian"))
        program = tmp_path / "readme.py"
        program.write_text("\n".join(snippets), encoding="utf-8")
        environment = {**os.environ, **hub.environment(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        pushed = hub.repositories["tester/capsule-marian-en-de"].files
        assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(pushed)
    finally:
        hub.stop()


def test_the_commands_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for verb in set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE)):
        assert f"\n{verb}:" in makefile, verb
    for script in set(re.findall(r"scripts/\w+\.py", TEXT)):
        assert (ROOT / script).exists(), script
    for command in set(re.findall(r"capsule-mt ([a-z]+)", TEXT)):
        assert command in capsule_mt.NAMES, command
    for module in set(re.findall(r"python -m (lab\.\w+)", TEXT)):
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), module


def test_links_lead_somewhere():
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            path = page.parent / target if target else page
            assert path.exists(), f"{page.name}: {target}"
            if anchor:
                titles = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
                slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                assert anchor in slugs, f"{page.name}: {target}#{anchor}"


def test_recipes_exist():
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"capsule-mt (?:train|recipes|distill) (\w+/\w+)", text):
            assert name in recipe_names(), f"{page.name}: {name}"


def test_continuous_integration_runs_what_the_readme_says():
    commands = set(re.findall(r"^make \S+$", (ROOT / ".ci/run").read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert commands == {"make check", "make test"}
    assert all(command in README for command in commands)

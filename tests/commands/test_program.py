"""The program `capsule-mt`: its commands and recipes, how it starts a command, and what it says of a missing extra."""

import argparse
import dataclasses
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import capsule_mt
import hf_capsule_mt.commands
from capsule_mt.commands.translate import OTHER_PROGRAMS_ADVICE
from hf_capsule_mt import extras, quickstart
from hf_capsule_mt.commands import quickstart as quickstart_command
from hf_capsule_mt.commands import recipes
from hf_capsule_mt.commands.arguments import checkpoint, why_offline
from hf_capsule_mt.training import load_recipe
from hf_capsule_mt.training.run_identity import check_same_recipe
from tests.commands import test_kills as heavy_kills
from tests.fixtures.kills import KILLS
from tests.fixtures.tiny import save_tiny_checkpoint
from tests.light import test_kills as light_kills

ROOT = Path(__file__).resolve().parents[2]
# commands whose kills other tests count: downloads, requests to a hub, training, which two models of `quickstart` are
KILLED_ELSEWHERE = {
    "models": "tests/light/catalog/test_kills.py",
    "push": "tests/hub/test_push.py",
    "distill": "tests/training/test_distillation.py",
    "train": "tests/training/test_trainer.py",
    "quickstart": "tests/training/test_trainer.py",
}
WITHOUT_OUTPUT = {"serve", "doctor", "completion", "recipes"}
PACKAGES = dict.fromkeys(capsule_mt.commands.COMMANDS, capsule_mt.commands) | {
    name: hf_capsule_mt.commands for group in hf_capsule_mt.commands.COMMANDS.values() for name in group
}
SHARED = {"__init__", "arguments", "console", "files", "loading", "reports"}
HEAVY = ("torch", "transformers", "numpy", "datasets", "sacrebleu", "tqdm", "yaml", "huggingface_hub", "tokenizers")


@pytest.fixture
def program(monkeypatch, capsys):
    """Run `capsule-mt` with some words; return the exit code, what it printed and its complaints."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["/usr/bin/capsule-mt", *words])
        try:
            code = capsule_mt.commands.main()
        except SystemExit as stopped:
            code = stopped.code
        printed = capsys.readouterr()
        if isinstance(code, str):  # the interpreter prints it and exits with 1
            return 1, printed.out, printed.err + code
        return code or 0, printed.out, printed.err

    return run


def test_every_command_is_listed_once():
    for package in (capsule_mt.commands, hf_capsule_mt.commands):
        files = {path.stem for path in Path(package.__file__).parent.glob("*.py")} - SHARED
        # capsule_mt's `convert` calls that of hf_capsule_mt, which is not listed itself
        unlisted = {"convert"} if package is hf_capsule_mt.commands else set()
        assert files == {name for name, package_of in PACKAGES.items() if package_of is package} | unlisted
    assert len(PACKAGES) == len(capsule_mt.commands.COMMANDS) + sum(map(len, hf_capsule_mt.commands.COMMANDS.values()))


def test_the_program_knows_the_commands_of_hf_capsule_mt():
    names = [name for commands in hf_capsule_mt.commands.COMMANDS.values() for name in commands]
    assert list(capsule_mt.commands.HF_COMMANDS) == names


def test_without_hf_capsule_mt_its_commands_say_how_to_install_it(program, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())
    install = "hf-capsule-mt, which is not installed; in a clone, `pip install ./capsule_mt .` adds hf-capsule-mt\n"
    for name in capsule_mt.commands.HF_COMMANDS:
        refusal = f"capsule-mt: {name!r} is a command of {install}"
        assert program(name) == (2, "", refusal)
        assert program("help", name) == (2, "", refusal)
    assert program("trian")[2].endswith("did you mean `capsule-mt train`?\n")
    for option in (["--to", "marianmt"], ["--to=marianmt", "--help"], ["--from", "marian"]):
        code, _, complaint = program("convert", str(tmp_path), str(tmp_path / "out"), *option)
        direction = " ".join(option).replace("=", " ").removesuffix(" --help")
        assert (code, complaint.startswith(f"capsule-mt convert: error: {direction} needs {install}")) == (2, True)
    assert "invalid choice: 'nothing'" in program("convert", "a", "b", "--to", "nothing")[2]


def python(code):
    """Run code in a process of its own, which must succeed; return what it printed."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_help_imports_nothing_heavy():
    """Neither the program nor a command may import `HEAVY` modules for its help."""
    code = f"""
import sys
from capsule_mt.commands import main
for module in {HEAVY}:
    sys.modules[module] = None
assert main() == 0
for name in {tuple(PACKAGES)}:
    sys.argv = ["capsule-mt", name, "--help"]
    try:
        main()
    except SystemExit as stopped:
        assert stopped.code == 0, (name, stopped.code)
"""
    assert python(code).count("usage: capsule-mt") == 1 + len(PACKAGES)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_help_whose_reader_has_gone_ends_without_a_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "capsule_mt", "--help"],
        cwd=ROOT,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


REGISTERED = """
from transformers import AutoConfig, AutoModelForSeq2SeqLM
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING as models
for name in ("capsule_marian", "capsule_rnmt", "capsnmt"):
    models[type(AutoConfig.for_model(name))]
"""


TASK = """
from transformers.pipelines import PIPELINE_REGISTRY
print("translation" in PIPELINE_REGISTRY.get_supported_tasks())
"""
WITHOUT_EXTRAS = """
import sys
from capsule_mt.commands import main
for module in ("datasets", "sacrebleu", "uvicorn"):
    sys.modules[module] = None  # an import of it fails
for line in ("train embedded/plain", "evaluate --hypotheses a --references a", "serve a"):
    sys.argv = ["capsule-mt", *line.split()]
    try:
        main()
    except SystemExit as stopped:
        print(stopped.code)
"""


@pytest.fixture(scope="module")
def lines_of_a_process():
    """What a process prints that imports the package, and then runs commands without the modules of extras."""
    return python(f"import hf_capsule_mt\n{REGISTERED}{TASK}{WITHOUT_EXTRAS}").splitlines()


def test_importing_the_package_registers_its_models(lines_of_a_process):
    assert lines_of_a_process[0] == "True"


def test_a_missing_extra_is_one_sentence(lines_of_a_process):
    assert lines_of_a_process[1:] == [
        "capsule-mt train: datasets is not installed; it comes with the extra `train`: "
        'pip install ./capsule_mt ".[train]" in a clone',
        "capsule-mt evaluate: sacrebleu is not installed; it comes with the extra `eval`: "
        'pip install ./capsule_mt ".[eval]" in a clone',
        'capsule-mt serve: uvicorn is not installed: pip install "./capsule_mt[serve]" in a clone',
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "from hf_capsule_mt.loading import load_checkpoint",
        "assert all(getattr(hf_capsule_mt, name) for name in hf_capsule_mt.__all__)",
    ],
)
def test_in_the_program_the_first_use_registers_the_models(statement):
    """The program imports the package only to list commands, without transformers."""
    start = "import capsule_mt.commands, sys\ncapsule_mt.commands.is_program = True\nimport hf_capsule_mt\n"
    python(f"{start}assert 'transformers' not in sys.modules\n{statement}\n{REGISTERED}")


@pytest.mark.parametrize(
    ("typed", "suggestion"), [("trian", "train"), ("tranlate", "translate"), ("recipe", "recipes")]
)
def test_a_mistyped_command(program, typed, suggestion):
    assert program(typed) == (
        2,
        "",
        f"capsule-mt: no command is called {typed!r}; did you mean `capsule-mt {suggestion}`?\n",
    )
    assert "`capsule-mt --help` lists them" in program("xyzzy")[2]


MISTYPED = {
    "translate model film.srt --ouput out.srt": "`--output`",
    "translate model film.srt --output out.srt --covrage=report.tsv": "`--coverage`",
    "translate model film.srt --ouput out.srt --covrage report.tsv": "`--output`, `--coverage`",
    "score model --sorces test.en": "`--sources`",
    "translate model --input a.txt --num-beam 2": "`--num-beams`",  # the start of an option is not that option
    "models search en --hlep": "`--help`",
    "evaluate --hypotheses a --references b --sources c --souces d": "`--sources`",
}


@pytest.mark.parametrize("line", MISTYPED)
def test_a_mistyped_option(program, line):
    code, _, complaint = program(*line.split())
    assert code == 2
    assert f"; did you mean {MISTYPED[line]}?\n" in complaint
    assert "did you mean" not in program("models", "search", "en", "--xyzzy", "outputs")[2]


EXAMPLES = {
    "score model test.en test.de": "`capsule-mt score MODEL --sources test.en --translations test.de --output ",
    "evaluate test.hyp test.de": "`capsule-mt evaluate --hypotheses test.hyp --references test.de`\n",
    "convert one other": "`capsule-mt convert CHECKPOINT OUT --to int8`\n",
    "shortlist": "`capsule-mt shortlist outputs/demo train.en train.de`\n",
}


@pytest.mark.parametrize("line", EXAMPLES)
def test_files_without_their_options_get_an_example(program, line):
    code, _, complaint = program(*line.split())
    assert code == 2
    assert f"; for example: {EXAMPLES[line]}" in complaint
    assert "for example" not in program("recipes", "embedded", "em_routing")[2]


def test_a_missing_shell_is_named_with_its_choices(program):
    assert "the following arguments are required: {bash,zsh,fish}" in program("completion")[2]


def test_a_teacher_that_is_no_name_is_not_looked_for(program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, complaint = program("distill", "embedded/plain", "out", "--teacher", "nofolder")
    assert code == 2
    assert "argument --teacher: nofolder: no such folder, and not a name on the hub (owner/name)\n" in complaint


@pytest.mark.parametrize("option", OTHER_PROGRAMS_ADVICE)
def test_an_option_of_another_program_gets_advice(program, option):
    complaint = program("translate", "en-pt", "a.txt", option, "3")[2]
    assert f"unrecognized arguments: {option} 3; {OTHER_PROGRAMS_ADVICE[option]}\n" in complaint


@pytest.mark.parametrize("option", ["--mini-batch", "--max_batch_size"])  # of Marian and of CTranslate2
def test_a_batch_size_of_another_program_gets_advice(program, option):
    complaint = program("translate", "en-pt", "a.txt", option, "16")[2]
    assert f"unrecognized arguments: {option} 16; write `--batch-tokens N`, a number of tokens\n" in complaint


# ---- commands
def test_doctor(program, monkeypatch):
    monkeypatch.setattr(extras, "missing_modules", lambda name: ["sacrebleu"] * (name == "eval"))
    code, printed, _ = program("doctor")
    assert code == 0
    for word in ("hf-capsule-mt", "torch", "transformers", "sentencepiece", "processor", "features"):
        assert f"\n{word} " in printed
    assert re.search(r"\nextra eval +BLEU, .*: no sacrebleu; pip install \./capsule_mt .* in a clone\n", printed)


def test_quickstart_refuses_the_folder_of_another_run(tmp_path, monkeypatch):
    first_recipe = quickstart.recipe_for("em_routing", tmp_path / "demo", 1)
    check_same_recipe(first_recipe, tmp_path / "demo", write=True)
    result = {"recipe": {"training": first_recipe.training}}
    (tmp_path / "demo" / "train_result.json").write_text(json.dumps(result))
    assert quickstart.train(first_recipe) == result
    monkeypatch.setattr(quickstart, "run_recipe", lambda recipe: {"longer": recipe.training["num_train_epochs"]})
    longer = dataclasses.replace(first_recipe, training=first_recipe.training | {"num_train_epochs": 9})
    assert quickstart.train(longer) == {"longer": 9}
    with pytest.raises(ValueError, match=r"demo holds a run of another recipe \(.*seed: 1 then, 2 now"):
        quickstart.train(quickstart.recipe_for("em_routing", tmp_path / "demo", 2))
    monkeypatch.setattr("sys.argv", ["capsule-mt quickstart", "--recipe", "plain"])
    with pytest.raises(SystemExit):
        quickstart_command.parse_arguments()


def test_quickstart_looks_at_the_recipe_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr(quickstart, "train", lambda recipe: pytest.fail("it trained"))
    with pytest.raises(ValueError, match="no recipe is called 'embedded/plainx'"):
        quickstart.quickstart("plainx", tmp_path / "demo", [1])


@pytest.fixture
def print_recipe(monkeypatch, capsys):
    def run(*words):
        monkeypatch.setattr("sys.argv", ["capsule-mt recipes", *words])
        recipes.main()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", ["embedded/em_routing", "capsnmt/base_kd_wmt14_en_fr", "baseline/base_nist_zh_en"])
def test_a_printed_recipe_is_the_recipe(print_recipe, tmp_path, name):
    file = tmp_path / "copy.yaml"
    file.write_text(print_recipe(name), encoding="utf-8")
    assert dataclasses.asdict(load_recipe(file)) == dataclasses.asdict(load_recipe(name))
    assert print_recipe(str(file)) == print_recipe(name)


def test_both_distributions_convert(program, tmp_path):
    folder = save_tiny_checkpoint(tmp_path / "tiny")
    code, _, complaint = program("convert", str(folder), str(tmp_path / "a"), "--to", "marian")
    assert (code, "cannot be stored in Marian's format" in complaint) == (1, True)
    code, _, complaint = program("convert", str(folder), str(tmp_path / "b"), "--to=nothing")
    assert code == 2
    assert all(f"'{target}'" in complaint for target in ("marian", "huggingface", "marianmt", "int8"))


def test_every_command_that_writes_is_killed():
    killed = {arguments.split()[0] for arguments in (*light_kills.COMMANDS.values(), *heavy_kills.COMMANDS.values())}
    assert killed | set(KILLED_ELSEWHERE) | WITHOUT_OUTPUT == set(PACKAGES)
    assert all("kill" in (ROOT / file).read_text("utf-8") for file in KILLED_ELSEWHERE.values())
    assert {*light_kills.COMMANDS, *heavy_kills.COMMANDS, "a download"} == set(KILLS)
    assert sum(KILLS.values()) >= 200


NO_HUB = "http://127.0.0.1:9"  # the port of `discard`: nobody listens


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "CAPSULE_MT_OFFLINE or HF_HUB_OFFLINE forbids downloading it"),
        ({"CAPSULE_MT_OFFLINE": "1"}, "CAPSULE_MT_OFFLINE or HF_HUB_OFFLINE forbids downloading it"),
        ({"HF_ENDPOINT": NO_HUB}, rf"{NO_HUB} cannot be reached \(.*refused\)"),
        ({"HF_ENDPOINT": "hub.example"}, r"HF_ENDPOINT 'hub\.example' is no address that can be asked \(.*\)"),
        ({"HF_ENDPOINT": "http://hub.example:x"}, r"HF_ENDPOINT .* is no address that can be asked \(.*\)"),
    ],
)
def test_a_name_that_nothing_can_be_loaded_for_is_refused_at_once(variables, reason, monkeypatch):
    for name, value in {"HF_HUB_OFFLINE": "0", "CAPSULE_MT_OFFLINE": "0", "no_proxy": "*", **variables}.items():
        monkeypatch.setenv(name, value)
    why_offline.cache_clear()
    for _ in range(2):  # the first call sets HF_HUB_OFFLINE
        with pytest.raises(
            argparse.ArgumentTypeError, match=f"^me/none: no such folder, and not in the .*; {reason}$"
        ):
            checkpoint("me/none")
    why_offline.cache_clear()


@pytest.mark.parametrize("variables", [{"HF_HUB_OFFLINE": "1"}, {"CAPSULE_MT_OFFLINE": "1"}, {"HF_ENDPOINT": NO_HUB}])
def test_a_cached_model_of_the_hub_loads_at_once_without_a_network(variables, tmp_path):
    """huggingface_hub tries each of a dozen files for half a minute, unless it knows that it is offline."""
    cached = tmp_path / "hub" / "models--me--tiny"
    save_tiny_checkpoint(cached / "snapshots" / ("a" * 40))
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    environment = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path), "HF_ENDPOINT": NO_HUB, **variables}
    command = [sys.executable, "-m", "capsule_mt", "convert", "me/tiny", tmp_path / "out", "--to", "marianmt"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert run.returncode == 0, run.stderr
    assert "Retrying" not in run.stderr
    assert "me/tiny: no such folder, read from the cache of the hub\n" in run.stderr
    assert (tmp_path / "out" / "config.json").is_file()

"""Every test is offline, seeded, and on one thread for each of the two processes that run them."""

import atexit
import gc
import io
import itertools
import logging
import os
import shutil
import stat
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest

try:
    import torch
except ImportError:  # tests/light runs without it
    pass
else:
    torch.set_num_threads(1)
GOLDEN = Path(__file__).parent / "golden"
# Tests of more than two seconds beside shorter ones of the same thing: they are of the slow suite.
LONG_TESTS = (
    "lab/tests/test_student_engines.py::test_bergamot_takes_turns",
    "tests/adapters/test_adapters.py::test_compiles_to_one_graph[marian]",
    "tests/decoding/test_bart.py::test_tokens_equal_those_of_generate[blenderbot]",
    "tests/decoding/test_bart.py::test_tokens_equal_those_of_generate[pegasus]",
    "tests/decoding/test_pickled.py::test_damaged_pickles_load_or_are_one_error",
    "tests/hub/test_firefox.py::test_every_kind_of_student_is_the_original[no bias]",
    "tests/hub/test_firefox.py::test_every_kind_of_student_is_the_original[sources tied]",
    "tests/hub/test_seams.py::test_an_export_computes_the_same_without_the_packages[quick]",
    "tests/light/formats/test_hostile.py::test_every_pattern_takes_linear_time[formulas.md]",
    "tests/light/formats/test_hostile.py::test_every_pattern_takes_linear_time[lines.html]",
    "tests/light/serve/test_connections.py::test_a_head_has_some_time_to_arrive",
    "tests/light/serve/test_connections.py::test_what_follows_a_request_that_is_too_long_is_read_within_limits",
    "tests/light/serve/test_process.py::test_a_half_sent_request_does_not_keep_the_server_from_stopping",
    "tests/light/serve/test_uploads.py::test_a_client_has_one_process_and_the_others_go_on",
    "tests/light/serve/test_uploads.py::test_a_large_request_holds_the_loop_for_a_moment",
    "tests/light/text/test_segments.py::test_a_word_of_megabytes_is_copied_and_recorded[<!--]",
    "tests/light/text/test_segments.py::test_a_word_of_megabytes_is_copied_and_recorded[@]",
    "tests/light/text/test_segments.py::test_a_word_of_megabytes_is_copied_and_recorded[a]",
    "tests/light/text/test_segments.py::test_a_word_of_megabytes_is_copied_and_recorded[x_]",
    "tests/modeling/test_capsnmt.py::TestCapsNMT::test_compiles_without_a_graph_break[capsules]",
    "tests/modeling/test_capsnmt.py::TestCapsNMT::test_compiles_without_a_graph_break[hybrid]",
    "tests/modeling/test_capsule_marian.py::TestCapsuleMarian::test_compiles_without_a_graph_break[ssru_combined]",
    "tests/modeling/test_capsule_marian.py::TestCapsuleMarian::test_every_output_of_compiled_decoding[ssru_combined]",
    "tests/training/test_distillation.py::test_with_any_number_of_processes",
    "tests/training/test_run.py::test_a_finished_run_of_part_of_an_epoch_takes_no_further_step",
    "tests/training/test_run.py::test_a_resumed_run_says_from_which_step",
    "tests/training/test_run.py::test_data_that_changed_since_the_run_began_are_named",
    "tests/training/test_trainer.py::test_a_signal_adds_no_evaluation[4]",
    "tests/training/test_trainer.py::test_killed_and_resumed_is_uninterrupted_to_the_bit[saving]",
)
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]  # of a browser


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tiny", action="store_true", help="run tests/gpu on the CPU, as far as it can")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid in LONG_TESTS:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Keep the garbage collector off the modules of tests, torch and transformers, which live as long as the process.

    A pass over them takes a third of a second. Imports cause a dozen, accelerate one after each training, pytest five.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.unfreeze)  # some libraries call what lives at the end of the process a leak


@pytest.fixture(autouse=True)
def _seeded() -> None:
    if "torch" not in globals():
        return
    if torch.cuda.is_available():
        torch.manual_seed(0)
    else:  # a thousandth of the time: `torch.manual_seed` formats the stack for each kind of accelerator
        torch.default_generator.manual_seed(0)


class DeprecationLog(logging.Handler):
    """Collect what transformers logs about deprecated names, and who used them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message, stack = record.getMessage(), "".join(traceback.format_stack(limit=20)[:-5])
        theirs = "/candidate_generator.py" in stack  # assisted decoding of transformers 5.24 calls `generate()` so
        if not theirs and ("deprecated" in message or "will be removed" in message):
            self.messages.append(f"{message}\n{stack}")


@pytest.fixture(autouse=True)
def _nothing_deprecated() -> Iterator[None]:
    """Fail where transformers logs a deprecation: `logger.warning_once` raises no warning that pytest could see."""
    logger, handler = logging.getLogger("transformers"), DeprecationLog()
    if "transformers" in sys.modules:
        logging.Logger.warning_once.cache_clear()  # type: ignore[attr-defined]
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)
    assert not handler.messages, "transformers logged a deprecation: " + "\n".join(handler.messages)


@pytest.fixture
def call(monkeypatch, capfdbinary):
    """Call the `main` of a command; return the exit code, what it printed and its complaints."""

    def call(command, *arguments, text=""):
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text.encode())))
        monkeypatch.setattr("sys.argv", ["capsule-mt", *map(str, arguments)])
        code = command.main()
        printed, complaints = capfdbinary.readouterr()
        return code, printed.decode(), complaints.decode()

    return call


@pytest.fixture
def refusal_of(call, capfdbinary):
    """Call the `main` of a command that refuses its arguments; return what it printed."""

    def refusal_of(command, *arguments):
        with pytest.raises(SystemExit) as stopped:
            call(command, *arguments)
        assert stopped.value.code == 2
        return capfdbinary.readouterr().err.decode()

    return refusal_of


def device_like(name: str, folder: Path) -> Path:
    """Return a device like `/dev/null` or `/dev/full` for tests to write to.

    It is one of its own where root may make it: broken code would replace that of the machine by a file.
    """
    copy = folder / name
    try:
        os.mknod(copy, 0o666 | stat.S_IFCHR, os.stat(f"/dev/{name}").st_rdev)
        os.close(os.open(copy, os.O_WRONLY))
    except OSError:
        return Path("/dev") / name
    return copy


@pytest.fixture(scope="session")
def word_for_word(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the golden checkpoint of `tests/fixtures/word_for_word.py`."""
    folder = tmp_path_factory.mktemp("golden") / "word_for_word"
    return Path(shutil.copytree(GOLDEN / "word_for_word", folder))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A class of model checks runs each of its tests on every mix of settings: see `ModelChecks.parameters`."""
    if "mix" in metafunc.fixturenames and metafunc.cls is not None:
        metafunc.parametrize("mix", metafunc.cls.parameters())


@pytest.fixture
def pictures():
    """Skip a test that draws where matplotlib is missing."""
    pytest.importorskip("matplotlib", reason="pictures need matplotlib").use("agg")


@pytest.fixture
def text_folder(monkeypatch, tmp_path):
    """Work in a folder with text: train.en/de, test.en/de, and two systems' translations of the latter."""
    from hf_capsule_mt.data import sentence_pairs

    pairs = list(itertools.islice(sentence_pairs(), 340))
    for name, part in (("train", pairs[:300]), ("test", pairs[300:])):
        for side, language in enumerate(("en", "de")):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{pair[side]}\n" for pair in part))
    targets = [german for _, german in pairs[300:]]
    worse = [" ".join(line.split()[: -(n % 3) or None]) for n, line in enumerate(targets)]
    (tmp_path / "good.hyp").write_text("".join(f"{line}\n" for line in targets))
    (tmp_path / "worse.hyp").write_text("".join(f"{line}\n" for line in worse))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def chromium():
    """The path of a browser for playwright, whose module is `playwright.sync_api`."""
    pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    return path or pytest.skip("no chromium here; CHROMIUM names one")


@pytest.fixture
def own_cache_of_datasets(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def screenshots(tmp_path):
    folder = Path(os.environ.get("PAGE_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def browser(chromium):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def firefox():
    """Firefox as the system has it, by WebDriver BiDi; FIREFOX names one."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("FIREFOX") or shutil.which("firefox") or shutil.which("firefox-esr")
    with playwright.sync_playwright() as driver:
        browser = driver.firefox.launch(
            channel="moz-firefox", executable_path=path or pytest.skip("no firefox here; FIREFOX names one")
        )
        try:
            browser.new_page().close()
        except playwright.Error as error:
            browser.close()
            pytest.skip(f"playwright needs a newer Firefox than {browser.version}, or Firefox an older one: {error}")
        yield browser
        browser.close()

"""The server as a process on the loopback interface: its end, and its command."""

import asyncio
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

import httpx
import uvicorn

import capsule_mt.commands
from capsule_mt import Translator
from capsule_mt.commands import serve as serve_command
from capsule_mt.commands.serve import LIBRETRANSLATE_ADVICE, ModelList, command_parser
from capsule_mt.models import probe, probing
from capsule_mt.serve.batching import Batcher, RequestSettings
from capsule_mt.serve.files import Readers
from capsule_mt.serve.running import Server, bind
from tests.hostile.builders import write_hostile
from tests.light.models.answers import lack_engine
from tests.light.models.files import edit_json
from tests.light.serve.fakes import until
from tests.light.serve.processes import GOLDEN, ROOT, body_of, open_request, read_answer


async def answers(address):
    """Wait until a server has answered."""
    async with httpx.AsyncClient(timeout=60) as client:
        assert (await client.get(f"{address}/health")).status_code == 200


async def accepts_no_more(address):
    """Wait until a server is stopping."""
    for _ in range(600):
        try:
            _, writer = await asyncio.open_connection(*address.removeprefix("http://").split(":"))
        except ConnectionRefusedError:
            return
        writer.close()
        await asyncio.sleep(0.1)
    pytest.fail("the server goes on after a signal")


# ---- the end
def test_a_half_sent_request_does_not_keep_the_server_from_stopping(serve_fake):
    server, address = serve_fake(read_seconds=2)

    async def send_half():
        reader, _ = await open_request(address, b'{"q": ', 1000)
        await answers(address)  # then it has also accepted what was there before
        server.send_signal(signal.SIGTERM)
        return await read_answer(reader)

    head, answer = asyncio.run(send_half())
    assert head.startswith("HTTP/1.1 408 ")
    assert answer == {"error": "the request did not arrive within 2 s"}
    assert server.wait(60) == 0
    assert server.stdout.read() == "all answered\n"


@pytest.mark.parametrize(("text", "seconds"), [("a", 30), ("slow", 0)], ids=["goes_on", "can_be_stopped"])
def test_a_request_that_outlasts_the_stop_seconds_gets_an_error(serve_fake, text, seconds):
    server, address = serve_fake(seconds=seconds, stop_seconds=1)

    async def ask():
        reader, _ = await open_request(address, body := body_of(text), len(body))
        await answers(address)
        server.send_signal(signal.SIGINT)
        return await read_answer(reader)

    head, answer = asyncio.run(ask())
    assert head.startswith("HTTP/1.1 503 ")
    assert answer == {"error": "the server is stopping"}
    assert server.stdout.readline() == "not all answered\n"


def test_a_request_that_was_given_up_was_not_answered_in_time_even_if_its_thread_has_ended():
    server = Server(uvicorn.Config(None), {}, Readers(), stop_seconds=0)
    server.server_state.tasks.add("a request")
    server.abandon()
    assert not server.close()


def test_the_second_signal_ends_it_at_once(serve_fake, tmp_path):
    server, address = serve_fake(seconds=30, stop_seconds=60)

    async def ask():
        connection = await open_request(address, body := body_of("a"), len(body))
        await answers(address)
        server.send_signal(signal.SIGTERM)
        await accepts_no_more(address)  # else it may see the two signals as one
        assert server.poll() is None
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
        connection[1].close()
        return code

    assert asyncio.run(ask()) == 128 + signal.SIGTERM
    assert (tmp_path / "stderr").read_text() == ""


def test_a_hangup_without_a_list_of_models_is_reported(serve_fake, tmp_path):
    server, address = serve_fake()
    for count in (1, 2):
        server.send_signal(signal.SIGHUP)
        until(
            lambda count=count: (tmp_path / "stderr").read_text().count("SIGHUP: there is nothing to reload") == count
        )
    asyncio.run(answers(address))
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def test_it_stops_when_its_terminal_is_closed(serve_fake, tmp_path):
    keyboard, terminal = os.openpty()
    server, address = serve_fake(terminal=terminal)
    os.close(terminal)
    server.send_signal(signal.SIGHUP)
    until(lambda: "SIGHUP: there is nothing to reload" in (tmp_path / "stderr").read_text())
    asyncio.run(answers(address))
    os.close(keyboard)
    assert server.wait(60) == 0
    assert server.stdout.read() == "all answered\n"


# ---- the command
@pytest.fixture
def refusal_of_serve(monkeypatch, capsys):
    """Run `capsule-mt serve`, which refuses its arguments, in this process; return the exit code and its complaint."""

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["capsule-mt", "serve", *arguments])
        with pytest.raises(SystemExit) as stopped:
            capsule_mt.commands.main()
        printed, code = capsys.readouterr(), stopped.value.code
        assert printed.out == ""
        if isinstance(code, str):  # the interpreter prints it and exits with 1
            return 1, f"{printed.err}{code}\n"
        return code, printed.err

    return run


def test_a_check_translates_by_each_model_and_ends(refusal_of_serve, tmp_path):
    command = [sys.executable, "-m", "capsule_mt", "serve", "--check", "--port", "0", f"en-de={GOLDEN}"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (process.returncode, process.stderr) == (0, "")
    assert re.fullmatch(
        r"en-de: translates, in [\d.]+ s of processor time\nlanguages are (not )?detected\n", process.stdout
    )
    broken = shutil.copytree(GOLDEN, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{", encoding="utf-8")
    code, complaint = refusal_of_serve("--check", "--port", "0", f"en-de={broken}")
    assert code == 1
    assert f"error: {broken}" in complaint
    pair = shutil.copytree(GOLDEN, tmp_path / "en-de")
    code, complaint = refusal_of_serve("--check", "--port", "0", f"en-fr={pair}")
    assert code == 1
    assert f"error: {pair}: en-fr: `tgt_lang` must be de or left out, got 'fr': {pair} translates" in complaint


def test_two_uncalibrated_models_of_opposite_directions_mark_words(tmp_path):
    names = [f"en-de={GOLDEN}", f"de-en={shutil.copytree(GOLDEN, tmp_path / 'reverse')}"]
    models = ModelList(command_parser().parse_args(names))
    translators, _ = models.load()
    assert all(translator.has_reverse for translator in translators.values())
    for pair, translator in translators.items():
        batcher = Batcher(translator)
        order = batcher.submit(["The man sleeps."], RequestSettings(coverage=True, languages=pair))
        coverage = order.results[0].result(60)[0].coverage
        batcher.close()
        assert coverage.method == "deletion"
        assert not coverage.target_words


def test_models_of_opposite_directions_verify_each_other_whatever_their_folders_are_called(tmp_path):
    """Their calibrations name the reverse models that they were fitted with, by other names."""
    names = []
    for pair, folder in (("en-de", tmp_path / "one"), ("de-en", tmp_path / "two")):
        shutil.copytree(GOLDEN, folder)
        calibration = {"attention": {"head": [0, 0]}, "verified": {"reverse": "trained-elsewhere"}}
        edit_json(folder / "config.json", coverage_calibration=calibration)
        names.append(f"{pair}={folder}")
    translators, _ = ModelList(command_parser().parse_args(names)).load()
    english, german = translators.values()
    assert (english.reverse, german.reverse) == (german, english)
    assert english.verifies_marks
    assert german.verifies_marks


def test_an_option_of_libretranslate_gets_advice(capsys):
    page = (ROOT / "docs/coming-from.md").read_text(encoding="utf-8")
    for option, advice in LIBRETRANSLATE_ADVICE.items():
        assert option in page
        with pytest.raises(SystemExit, match=r"^2$"):
            command_parser().parse_args(["en-pt", option, "3"])
        assert f"unrecognized arguments: {option} 3; {advice}\n" in capsys.readouterr().err


def test_a_taken_port_is_one_sentence(refusal_of_serve):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, complaint = refusal_of_serve(f"en-de={GOLDEN}", "--port", str(port))
    assert code == 1
    assert f"error: `--host 127.0.0.1 --port {port}` cannot be listened on" in complaint
    assert complaint.endswith("; choose another --port\n")
    assert "Traceback" not in complaint


def test_an_address_that_cannot_be_bound_gets_advice(monkeypatch):
    class Refusing(socket.socket):
        def bind(self, address):
            raise PermissionError(errno.EACCES, "Permission denied")

    with pytest.raises(OSError, match=r"--port 0` cannot be listened on: .*; choose a --host that is an address of"):
        bind("192.0.2.1", 0)  # reserved for documentation
    monkeypatch.setattr(socket, "socket", Refusing)
    with pytest.raises(OSError, match=r"--port 80` cannot be .* Permission denied; choose a --port from 1024 on"):
        bind("127.0.0.1", 80)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "No such file or directory"), (b"\xff", "'utf-8' codec can't")]
)
def test_keys_that_cannot_be_read_are_named(content, reason, refusal_of_serve, tmp_path):
    keys = tmp_path / "keys"
    if content is not None:
        keys.write_bytes(content)
    code, complaint = refusal_of_serve(f"en-de={GOLDEN}", "--port", "0", "--api-keys", str(keys))
    assert code == 1
    assert f"error: `--api-keys {keys}` cannot be read: {reason}" in complaint
    assert complaint.endswith("; name a file with one key a line\n")


def test_an_empty_name_of_the_file_of_keys_is_an_error(refusal_of_serve):
    """A shell gives it for an unset variable; the server must not run without keys then."""
    code, complaint = refusal_of_serve(f"en-de={GOLDEN}", "--port", "0", "--check", "--api-keys", "")
    assert code == 1
    assert "error: `--api-keys ` cannot be read: " in complaint


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows does not have SIGHUP")
def test_the_list_of_models_is_read_again(start, tmp_path):
    models = tmp_path / "models"
    models.write_text(f"en-de={GOLDEN}  # the first\n")
    server, address = start(
        "-m", "capsule_mt", "serve", "--models", str(models), "--port", "0", "--request-seconds", "1"
    )

    def after_hangup(content):
        models.write_text(content)
        server.send_signal(signal.SIGHUP)

    def translates(source, target):
        answer = httpx.post(f"{address}/translate", json={"q": "He sleeps.", "source": source, "target": target})
        return answer.json().get("translatedText")

    assert (translates("en", "de"), translates("en", "pt")) == ("Er schläft.", None)
    copy = shutil.copytree(GOLDEN, tmp_path / "copy")
    after_hangup(f"en-de={GOLDEN}\nen-pt={copy}\n")
    assert server.stdout.readline() == "en-de, en-pt from now on\n"
    assert translates("en", "de") == translates("en", "pt") == "Er schläft."
    assert [language["code"] for language in httpx.get(f"{address}/languages").json()] == ["de", "en", "pt"]
    (copy / "tokenizer.json").write_text("{")
    after_hangup(f"en-pt={copy}\n")
    until(lambda: f"the models stay as they were: {models}:1: {copy}" in (tmp_path / "stderr").read_text())
    assert translates("en", "pt") == "Er schläft."
    after_hangup(f"en-pt={GOLDEN}\n")
    assert server.stdout.readline() == "en-pt from now on\n"
    assert (translates("en", "de"), translates("en", "pt")) == (None, "Er schläft.")
    server.send_signal(signal.SIGTERM)
    assert server.wait(timeout=60) == 0


def test_sigterm_while_models_are_loaded_stops_the_server(monkeypatch, capfd):
    """The first process of a container, which `capsule-mt serve` is in ours, ignores signals without a handler."""
    earlier = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    monkeypatch.setattr(serve_command, "load_translator", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr("sys.argv", ["serve", f"en-de={GOLDEN}", "--port", "0"])
    try:
        with pytest.raises(SystemExit) as stopped:
            serve_command.main()
        assert stopped.value.code == 0
        assert capfd.readouterr().err == "stopped by SIGTERM before the models were loaded\n"
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, earlier)


def test_a_server_needs_a_model(refusal_of_serve, tmp_path):
    code, complaint = refusal_of_serve("--port", "0")
    assert (code, complaint.count("name a CHECKPOINT, or a file of them by --models")) == (2, 1)
    models = tmp_path / "models"
    _, complaint = refusal_of_serve("--port", "0", "--models", str(models))
    assert f"`--models {models}` cannot be read as UTF-8 text: [Errno 2] No such file" in complaint
    models.write_text("# none\n\n")
    _, complaint = refusal_of_serve("--port", "0", "--models", str(models))
    assert f"{models}: does not name a model; each line names one, such as en-pt" in complaint


# ---- hostile models
def children_of(process):
    """Return the processes that a process has started."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == process.pid:
                pids.append(int(path.parent.name))
    return pids


def command_of(pid):
    """Return the arguments of a process, or nothing if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def stopped_child_of(server, is_forked=False):
    """Stop the process that reads a model, as if it took forever, and return it.

    is_forked: a server with one thread forks itself. Any other starts a program, for which it waits in a system call:
        there, the process is stopped once it runs that program.
    """
    own_command = b"" if is_forked else command_of(server.pid)
    until(lambda: any(command_of(child) not in (b"", own_command) for child in children_of(server)))
    (child,) = children_of(server)
    os.kill(child, signal.SIGSTOP)
    return child


@pytest.fixture
def serve_list(start, tmp_path):
    """Serve a list of models; return the server, its address, and a function that reloads another list."""
    models = tmp_path / "models"
    models.write_text(f"en-de={GOLDEN}\n")
    server, address = start("-m", "capsule_mt", "serve", "--models", str(models), "--port", "0")

    def reload(content):
        models.write_text(content)
        server.send_signal(signal.SIGHUP)

    return server, address, reload


def translation_at(address):
    fields = {"q": "He sleeps.", "source": "en", "target": "de"}
    return httpx.post(f"{address}/translate", json=fields, timeout=60).json()["translatedText"]


HOSTILE = {
    "deep": lambda folder: write_hostile("pickle", "deep keys", 1_000_000, folder),
    "shared": lambda folder: write_hostile("pickle", "shared", 129, folder),
    "marks": lambda folder: write_hostile("pickle", "closed marks", 300_000, folder),
    "pipe": lambda folder: os.mkfifo(shutil.copytree(GOLDEN, folder) / "train_result.json"),
    "brackets": lambda folder: write_hostile("configuration", "brackets", 1_000_000, folder),
}


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows does not have SIGHUP")
def test_a_hostile_model_neither_ends_nor_blocks_the_server(serve_list, tmp_path):
    server, address, reload = serve_list
    for count, (name, write) in enumerate(HOSTILE.items(), start=1):
        write(tmp_path / name)
        reload(f"en-de={GOLDEN}\nen-pt={tmp_path / name}\n" if count % 2 else f"{tmp_path / name}\n")
        until(lambda count=count: (tmp_path / "stderr").read_text().count("the models stay as they were: ") == count)
        lines = (tmp_path / "stderr").read_text().splitlines()
        assert str(tmp_path / name) in lines[-1]
        assert len(lines) == count
        assert translation_at(address) == "Er schläft."
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def test_a_reload_that_fails_half_way_does_not_spoil_the_next(tmp_path):
    """The first of the new models had been loaded when the second one failed."""
    new, bad = (shutil.copytree(GOLDEN, tmp_path / name) for name in ("new", "bad"))
    (bad / "config.json").write_text("{")
    file = tmp_path / "models"
    models = ModelList(command_parser().parse_args(["--models", str(file)]))
    file.write_text(f"en-de={GOLDEN}\n")
    models.load()
    file.write_text(f"en-de={GOLDEN}\nen-pt={new}\nen-fr={bad}\n")
    with pytest.raises(ValueError, match="is not JSON"):
        models.load()
    file.write_text(f"en-de={GOLDEN}\nen-pt={new}\n")
    assert [str(pair) for pair in models.load()[0]] == ["en-de", "en-pt"]


@pytest.fixture
def listed(tmp_path):
    """Return a function that loads models, and then others as a reload does."""
    file = tmp_path / "models"
    models = ModelList(command_parser().parse_args(["--models", str(file)]))

    def load(*lines):
        file.write_text("\n".join(lines))
        return models.load()[0]

    return load


def test_a_reload_that_fails_changes_nothing(listed, tmp_path):
    one, two, bad = (shutil.copytree(GOLDEN, tmp_path / name) for name in ("one", "two", "bad"))
    edit_json(bad / "config.json", model_type="bert", vocab_size="none")
    (bad / "tokenizer.json").write_text("{")
    before = listed(f"en-de={one}", f"de-en={two}")
    english, german = before.values()
    os.utime(two / "config.json", ns=(1, 1))  # so that it is loaded again
    with pytest.raises(ValueError, match="bad"):
        listed(f"en-de={one}", f"de-en={two}", f"en-fr={bad}")
    assert (english.reverse, german.reverse) == (german, english)
    with pytest.raises(ValueError, match="is named for en-de and en-pt"):  # it is known when all models are loaded
        listed(f"en-de={one}", f"de-en={two}", f"en-pt={one}")
    assert (english.reverse, german.reverse) == (german, english)
    same, changed = listed(f"en-de={one}", f"de-en={two}").values()
    assert same is english
    assert changed is not german
    assert english.reverse is changed


def test_a_model_that_is_gone_does_not_stay_as_a_reverse(listed, tmp_path):
    one, two = (shutil.copytree(GOLDEN, tmp_path / name) for name in ("one", "two"))
    english, _ = listed(f"en-de={one}", f"de-en={two}").values()
    assert english.has_reverse
    assert list(listed(f"en-de={one}").values()) == [english]
    assert not english.has_reverse


def test_a_reload_refuses_what_only_transformers_reads(listed, tmp_path, monkeypatch):
    """Transformers would read it in the server's process, without limits."""
    read, load_translator = [], serve_command.load_translator

    def load(path, arguments, loaded):
        try:
            return load_translator(path, {**arguments, "backend": "native"}, loaded)
        except ValueError:
            if arguments.get("backend") == "native":
                raise
            read.append(path)
            return Translator.from_pretrained(GOLDEN)

    monkeypatch.setattr(serve_command, "load_translator", load)
    other, second = (shutil.copytree(GOLDEN, tmp_path / name) for name in ("other", "second"))
    for folder in (other, second):
        edit_json(folder / "config.json", model_type="prophetnet")
    before = listed(f"en-de={other}")
    assert read == [str(other)]  # as the user of the command wants it
    message = r"models:2: .*second.*prophetnet.*: only transformers may read it, at the start: restart the server$"
    for line in (f"en-pt={second}", f"{second}-en-pt"):
        second = second.rename(line) if not line.startswith("en-pt=") else second
        with pytest.raises(ValueError, match=message):
            listed(f"en-de={other}", line)
    assert listed(f"en-de={other}", f"de-en={GOLDEN}")[("en", "de")] is before["en", "de"]  # it has not changed
    os.utime(other / "config.json", ns=(1, 1))
    with pytest.raises(ValueError, match="only transformers may read it"):
        listed(f"en-de={other}")
    assert read == [str(other)]


def test_a_reload_keeps_what_transformers_has_read_by_name(listed, monkeypatch):
    translator = Translator.from_pretrained(GOLDEN)
    monkeypatch.setattr(serve_command, "load_translator", lambda *arguments: translator)
    listed("en-de=of/hub")
    monkeypatch.delattr(serve_command, "load_translator")
    assert list(listed("en-de=of/hub").values()) == [translator]


def test_a_server_without_the_engine_leaves_its_models_to_transformers(listed, tmp_path, monkeypatch):
    monkeypatch.setattr(probe.ProbeProcess, "answer", staticmethod(lack_engine))
    monkeypatch.setattr(probing, "_loaded", set())
    translator = Translator.from_pretrained(GOLDEN)
    monkeypatch.setattr(serve_command, "load_translator", lambda path, arguments, loaded: translator)
    folder = shutil.copytree(GOLDEN, tmp_path / "opus-mt-en-de")
    assert list(listed(str(folder)).values()) == [translator]
    with pytest.raises(ValueError, match="no engine for this machine: only transformers may read it"):
        listed(str(folder), str(shutil.copytree(GOLDEN, tmp_path / "opus-mt-en-pt")))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not list processes")
def test_it_serves_and_stops_while_a_model_is_loaded_in_another_process(serve_list, tmp_path):
    server, address, reload = serve_list
    write_hostile("vocabulary", "tokens", 2_000_000, tmp_path / "slow")
    reload(f"en-de={GOLDEN}\nen-pt={tmp_path / 'slow'}\n")
    child = stopped_child_of(server)
    assert translation_at(address) == "Er schläft."
    assert children_of(server) == [child]
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0
    until(lambda: not Path(f"/proc/{child}").exists())
    assert "the models stay as they were" not in (tmp_path / "stderr").read_text()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not list processes")
def test_sigterm_while_the_first_model_is_read_ends_its_process(tmp_path):
    write_hostile("vocabulary", "tokens", 2_000_000, tmp_path / "en-pt")
    command = [sys.executable, "-m", "capsule_mt", "serve", "--port", "0", str(tmp_path / "en-pt")]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    child = stopped_child_of(server, is_forked=True)
    server.send_signal(signal.SIGTERM)
    _, complaint = server.communicate(timeout=60)
    assert (server.returncode, complaint) == (0, "stopped by SIGTERM before the models were loaded\n")
    until(lambda: not Path(f"/proc/{child}").exists())


def test_a_hostile_model_at_the_start_is_one_error(refusal_of_serve, tmp_path):
    write_hostile("pickle", "deep keys", 1_000_000, tmp_path / "en-pt")
    code, complaint = refusal_of_serve(str(tmp_path / "en-pt"), "--port", "0")
    assert code == 1
    assert f"error: {tmp_path / 'en-pt' / 'pytorch_model.bin'}: is damaged, or not a state dict" in complaint

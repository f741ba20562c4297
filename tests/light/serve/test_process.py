"""The server as a process on the loopback interface: its end, and its command. lab.strangers puts it under load."""

import asyncio
import errno
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

import pytest

pytest.importorskip("uvicorn")

import httpx

import capsule_mt.commands
from capsule_mt.commands import serve as serve_command
from capsule_mt.commands.serve import LIBRETRANSLATE_ADVICE, ModelList, command_parser
from capsule_mt.serve.batching import Batcher, RequestSettings
from capsule_mt.serve.running import bind
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


def test_a_request_that_outlasts_the_stop_seconds_gets_an_error(serve_fake):
    server, address = serve_fake(seconds=30, stop_seconds=1)

    async def ask():
        reader, _ = await open_request(address, body := body_of("a"), len(body))
        await answers(address)
        server.send_signal(signal.SIGINT)
        return await read_answer(reader)

    head, answer = asyncio.run(ask())
    assert head.startswith("HTTP/1.1 503 ")
    assert answer == {"error": "the server is stopping"}
    assert server.stdout.readline() == "not all answered\n"


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

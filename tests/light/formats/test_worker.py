"""Files that are read in a process of their own: the same result, and its limits of time, memory and size."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from capsule_mt.files.sandbox.worker import ReadingStoppedError
from capsule_mt.formats.reading import PLAIN, Source, parse
from capsule_mt.formats.registry import format_of
from capsule_mt.formats.units import FormatError, Translated
from capsule_mt.formats.worker import Worker
from tests.light.formats.files import FILES, content_of, docx
from tests.light.serve.fakes import until

GOOD = Source(b"A **b**", "markdown", "a.md")
SLOW = Source(b"<a b=" * 100_000, "html", "a.html")  # `html.parser` takes quadratic time


@pytest.fixture
def worker():
    worker = Worker()
    yield worker
    worker.stop()


def works(worker):
    return worker.read(GOOD, 100).units[0].text == "A <g1>b</g1>"


@pytest.mark.parametrize("name", [name for name in FILES if not name.startswith("table.")])
def test_it_reads_and_writes_as_this_process_does(worker, name):
    source = Source(content_of(name), format_of(name), name, None, "de")
    file = parse(source.content, source.format, name=name, language="de")
    texts = worker.read(source, 10_000)
    assert texts.units == list(file.units)
    assert texts.keep == tuple(file.keep)
    assert texts.characters == sum(len(unit.text) for unit in file.units)
    upper = [Translated(unit.text.upper(), needs_review=True) for unit in file.units]
    untranslated = [Translated(None) for _ in file.units]
    written = worker.write(source, [upper, untranslated])
    for content, translations in zip(written, (upper, untranslated), strict=True):
        again = parse(source.content, source.format, name=name, language="de")
        assert content == again.write(translations)


def test_a_text_without_a_format_is_one_unit(worker):
    source = Source("a;b\n".encode("utf-8-sig"), PLAIN, "a.txt")
    assert [unit.text for unit in worker.read(source, 10).units] == ["a;b\n"]
    assert worker.write(source, [[Translated("B")], [Translated(None)]]) == [b"B", b"a;b\n"]


def test_what_is_wrong_with_a_file_is_its_error(worker):
    with pytest.raises(FormatError, match=r"^a\.md, line 1: not UTF-8"):
        worker.read(GOOD._replace(content=b"\xff"), 100)
    with pytest.raises(FormatError, match=r"^a\.md: not markdown that can be read and written"):
        worker.write(GOOD, [[]])  # a translation too few
    assert works(worker)


def test_a_text_with_too_many_characters_is_not_sent(worker):
    assert worker.read(GOOD, 11).units == []
    assert worker.read(GOOD, 11).characters == 12


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not limit the time of a process")
def test_processor_time_is_limited(monkeypatch):
    monkeypatch.setattr("capsule_mt.files.sandbox.worker.WAIT", 1000)  # not by the clock, on a busy machine
    worker, start_times = Worker(seconds=0.5), os.times()
    with pytest.raises(FormatError, match=r"^a\.html: takes longer than 0\.5 s to read or write$"):
        worker.read(SLOW, 100)
    after = os.times()  # with those of processes that have ended
    seconds = after.children_user + after.children_system - start_times.children_user - start_times.children_system
    assert 0.4 < seconds < 3
    worker.seconds = 30
    assert works(worker)
    worker.stop()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_good_file_is_read_however_long_other_processes_take_the_processor(worker):
    worker.seconds = 1.0
    assert works(worker)
    worker._process.send_signal(signal.SIGSTOP)
    threading.Timer(1.5, worker._process.send_signal, [signal.SIGCONT]).start()
    assert works(worker)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_process_that_never_gets_the_processor_is_killed(worker):
    assert works(worker)  # before the short time: on a busy machine a process may need longer to start
    worker.seconds = 0.2
    worker._process.send_signal(signal.SIGSTOP)
    with pytest.raises(FormatError, match=r"^a\.md: takes longer than 0\.2 s to read or write$"):
        worker.read(GOOD, 100)
    worker.seconds = 5.0
    assert works(worker)


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the system does not limit memory")
def test_memory_is_limited():
    worker = Worker(seconds=60, memory=100 << 20)
    bomb = Source(docx("<w:p/>" * 2_000_000), "docx", "a.docx")
    assert len(bomb.content) < 100_000
    with pytest.raises(FormatError, match=r"^a\.docx: takes more than 100 MB of memory to read or write"):
        worker.read(bomb, 100)
    assert works(worker)
    worker.stop()


@pytest.mark.skipif(not os.path.exists("/proc/self/oom_score_adj"), reason="the system does not have this file")
def test_linux_ends_the_process_first_if_memory_is_scarce(worker):
    assert works(worker)
    with open(f"/proc/{worker._process.pid}/oom_score_adj") as adjustment:
        assert adjustment.read() == "1000\n"


def test_a_process_that_took_much_memory_does_not_keep_it(worker):
    assert works(worker)
    process = worker._process
    worker.read(Source(b"a" * 60_000_000, PLAIN, "a.txt"), 100)
    assert worker._process is None
    assert process.returncode is not None
    assert works(worker)


def while_reading(worker, action):
    """Act in a thread once the worker reads a file."""

    def act():
        until(worker._lock.locked)
        time.sleep(0.3)
        action()

    threading.Thread(target=act).start()


def test_a_process_that_ends_is_replaced(worker):
    assert works(worker)
    while_reading(worker, lambda: os.kill(worker._process.pid, signal.SIGKILL))
    with pytest.raises(FormatError, match=r"^a\.html: the process that read it ended with code -9$"):
        worker.read(SLOW, 100)
    assert works(worker)
    worker._process.kill()
    worker._process.wait()
    assert works(worker)


def test_a_process_is_stopped_when_nobody_waits(worker):
    assert works(worker)
    while_reading(worker, worker.stop)
    with pytest.raises(ReadingStoppedError):
        worker.read(SLOW, 100)
    with pytest.raises(ReadingStoppedError):
        worker.read(GOOD, 100)
    worker.resume()
    assert works(worker)


def test_a_stop_while_the_process_starts_is_not_lost(worker, monkeypatch):
    def start_and_stop(*arguments, **options):
        process = start(*arguments, **options)
        worker.stop()
        return process

    start = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start_and_stop)
    with pytest.raises(ReadingStoppedError):
        worker.read(SLOW, 100)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_signal_to_all_processes_of_a_service_does_not_end_it(worker):
    assert works(worker)
    process = worker._process
    for name in (signal.SIGTERM, signal.SIGINT):
        process.send_signal(name)
    assert works(worker)
    assert worker._process is process


@pytest.mark.skipif(sys.platform == "win32", reason="the system does not limit the time of a process")
def test_it_does_not_outlive_its_server():
    code = (
        "from tests.light.formats.test_worker import GOOD, SLOW, Worker, os, threading\n"
        "worker = Worker(seconds=2)\nworker._kill_late = lambda process: None\nworker.read(GOOD, 100)\n"
        "threading.Timer(0.5, lambda: (print(worker._process.pid, flush=True), os._exit(0))).start()\n"
        "worker.read(SLOW, 100)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    pid = int(process.stdout)
    for _ in range(1800):  # two seconds of the processor may last minutes
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        time.sleep(0.1)
    else:
        os.kill(pid, signal.SIGKILL)
        pytest.fail("the process goes on without its server")


def run_alone(code):
    """Run code in a process with a single thread, which may fork; return what it prints."""
    start = "import subprocess\nfrom tests.light.formats.test_worker import *\nsubprocess.Popen = None\n"
    command = [sys.executable, "-c", start + textwrap.dedent(code)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show all threads of a process")
def test_a_process_with_one_thread_forks():
    printed = run_alone("""
        import fcntl
        print("printed once", end="")  # the copy must not write it, too
        lock = open(os.__file__)  # a copy that held it would hold it after this process
        fcntl.flock(lock, fcntl.LOCK_EX)
        worker = Worker(forks=True)
        assert works(worker)
        process = worker._process
        assert worker.write(GOOD, [[Translated("B <g1>c</g1>")]]) == [b"B **c**"]
        assert worker._process is process
        assert sorted(os.listdir(f"/proc/{process.pid}/fd")) == ["0", "1", "2"]
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(process.pid, number)
        assert works(worker)
        worker.close()
        assert process.returncode == -signal.SIGKILL
    """)
    assert printed == "printed once"


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show all threads of a process")
def test_the_limits_hold_in_a_fork():
    run_alone("""
        worker = Worker(seconds=0.5, forks=True)
        with pytest.raises(FormatError, match=r"^a\\.html: takes longer than 0\\.5 s to read or write$"):
            worker.read(SLOW, 100)
        ballast = bytearray(300 << 20)
        worker = Worker(seconds=60, memory=100 << 20, forks=True)
        assert works(worker)
        process = worker._process
        assert works(worker)
        assert worker._process is process  # the parent's memory does not count
        bomb = Source(docx("<w:p/>" * 2_000_000), "docx", "a.docx")
        with pytest.raises(FormatError, match=r"^a\\.docx: takes more than 100 MB of memory to read or write"):
            worker.read(bomb, 100)
        assert worker._process is None
        assert works(worker)
        while_reading(worker, lambda: os.kill(worker._process.pid, signal.SIGKILL))
        with pytest.raises(FormatError, match=r"^a\\.html: the process that read it ended with code -9$"):
            worker.read(SLOW, 100)
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show all threads of a process")
def test_a_signal_at_the_fork_leaves_no_process():
    """Its handler raises an error, as that of a server does while the first model is read."""
    run_alone("""
        fork, forks = os.fork, []

        def fork_with_a_signal():
            forks.append(fork())
            if forks[-1]:
                os.kill(os.getpid(), signal.SIGTERM)
            return forks[-1]

        def stop(number, frame):
            raise SystemExit(f"signal {number}")

        os.fork = fork_with_a_signal
        signal.signal(signal.SIGTERM, stop)
        with pytest.raises(SystemExit, match="^signal 15$"), Worker(forks=True) as worker:
            works(worker)
        with pytest.raises(ProcessLookupError):
            os.kill(forks[0], 0)
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show all threads of a process")
def test_a_signal_at_the_start_of_the_timer_leaves_no_thread():
    """Python would wait for it at its end."""
    run_alone("""
        timers, start = [], threading.Timer.start

        def start_with_a_signal(timer):
            timers.append(timer)
            start(timer)
            os.kill(os.getpid(), signal.SIGTERM)

        def stop(number, frame):
            raise SystemExit(f"signal {number}")

        threading.Timer.start = start_with_a_signal
        signal.signal(signal.SIGTERM, stop)
        with pytest.raises(SystemExit, match="^signal 15$"), Worker(forks=True) as worker:
            works(worker)
        timers[0].join(timeout=10)
        assert not timers[0].is_alive()
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show all threads of a process")
def test_garbage_of_the_parent_closes_no_file_of_a_fork():
    """The numbers of its files are those of files that the parent had open."""
    run_alone("""
        import gc
        from capsule_mt.files.sandbox.worker import Sandbox

        class Garbage:
            def __init__(self):
                self.descriptor, self.itself = os.open(os.devnull, os.O_RDONLY), self

            def __del__(self):
                os.close(self.descriptor)

        def answer(job, contents, limits):
            with open(os.__file__) as file:
                gc.collect()
                return {"first": file.read(1)}, []

        gc.disable()
        for _ in range(20):
            Garbage()
        sandbox = Sandbox(forks=True)
        sandbox.answer = answer
        assert sandbox._send("a")[0]["first"] == "r"
        sandbox.close()
    """)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not show all threads of a process")
def test_a_process_with_threads_does_not_fork(monkeypatch):
    monkeypatch.setattr("capsule_mt.files.sandbox.worker.Forked", None)
    release = threading.Event()
    thread = threading.Thread(target=release.wait)
    thread.start()
    with Worker(forks=True) as worker:
        assert works(worker)
    release.set()
    thread.join()

"""What a person at a terminal may expect of a long computation: a sign of life, and that Ctrl-C ends it."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace as Record

import pytest

from dmodels.cli import interrupts


class Terminal(io.StringIO):
    """A screen, or a file that is none; `seen` is set once something was written."""

    def __init__(self, tty):
        super().__init__()
        self.tty, self.seen = tty, threading.Event()

    def isatty(self):
        return self.tty

    def write(self, text):
        self.seen.set()
        return super().write(text)


@pytest.fixture
def screen(monkeypatch):
    def made(tty=True, quiet_s=0.01):
        monkeypatch.setattr(interrupts, "QUIET_S", quiet_s)
        monkeypatch.setattr(sys, "stderr", Terminal(tty))
        return sys.stderr

    return made


def test_what_takes_long_says_so_until_the_answer_comes_and_leaves_no_trace(screen):
    seen = screen()
    with interrupts.sign_of_life() as quiet:
        assert seen.seen.wait(60.0)
        quiet()
        told = seen.getvalue()
        first, *_, last = told.split("\r")
        passed = re.fullmatch(r"dmodels: working, (\d+) s \(Ctrl-C stops\)", first)
        assert int(passed[1]) < 60 and last == "\x1b[K"  # the line is empty again
    assert seen.getvalue() == told and "dmodels-progress" not in {thread.name for thread in threading.enumerate()}


def test_nothing_is_said_of_what_is_quick_or_of_what_nobody_looks_at(screen, monkeypatch):
    quick = screen(quiet_s=3600.0)
    with interrupts.sign_of_life():
        pass
    filed = screen(tty=False)
    with interrupts.sign_of_life() as quiet:
        quiet()
        assert "dmodels-progress" not in {thread.name for thread in threading.enumerate()}
    assert quick.getvalue() == filed.getvalue() == ""
    monkeypatch.setattr(sys, "stderr", None)  # of a service that has none
    with interrupts.sign_of_life() as quiet:
        quiet()


CHILD = """
import os, signal, time
from dmodels.cli import interrupts
interrupts.GRACE_S = 0.05
signal.signal(signal.SIGINT, lambda *_: None)  # a compiled loop comes to no instruction of Python
signal.signal(signal.SIGUSR1, lambda *_: None)
interrupts.end_on_interrupt(130)
os.kill(os.getpid(), signal.SIGUSR1)
time.sleep(0.15)
print("still there", flush=True)
{}
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
print("never ended", flush=True)
"""


@pytest.mark.parametrize(("before", "said"), [("", "dmodels: interrupted\n"), ("interrupts.SAID.set()", "")])
def test_an_interrupt_ends_what_does_not_end_by_itself(before, said):
    """And no other signal does; where the command has said that it was interrupted it is not said again."""
    done = subprocess.run([sys.executable, "-c", CHILD.format(before)], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (130, "still there\n", said)


def test_nobody_waits_long_for_a_sign_of_life_or_for_the_end():
    """A wait of a second is noticed, and after some more of silence people wonder."""
    assert 0.5 <= interrupts.QUIET_S <= 2.0 and 0.5 <= interrupts.GRACE_S <= 2.0


class Ended(BaseException):
    """In place of the end of the process."""


@pytest.mark.parametrize("said", [False, True])
def test_a_watcher_waits_for_an_interrupt_alone_and_gives_the_rest_its_time(said, monkeypatch):
    """Then what was half written goes, one line is said unless the command has said it, and the process ends."""
    done, made = [], {}

    def ends(code):
        done.append(code)
        raise Ended

    def thread(**how):
        made.update(how)
        return Record(start=lambda: done.append("started"))

    heard = [bytes([signal.SIGUSR1]), bytes([signal.SIGTERM]), bytes([signal.SIGINT])]
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(interrupts, "SAID", Record(is_set=lambda: said))
    monkeypatch.setattr(interrupts, "drop_drafts", lambda: done.append("dropped"))
    monkeypatch.setattr(interrupts, "time", Record(sleep=lambda seconds: done.append(seconds)))
    woken = lambda fd, warn_on_full_buffer: done.append((fd, warn_on_full_buffer))
    monkeypatch.setattr(interrupts, "signal", Record(set_wakeup_fd=woken, SIGINT=signal.SIGINT))
    same = threading.current_thread()
    monkeypatch.setattr(
        interrupts, "threading", Record(Thread=thread, current_thread=lambda: same, main_thread=lambda: same)
    )
    blocks = lambda fd, blocking: done.append((fd, blocking))
    read = lambda fd, count: done.append((fd, count)) or heard.pop(0)
    files = Record(pipe=lambda: ("r", "w"), set_blocking=blocks, read=read, _exit=ends)
    files.write = lambda fd, text: done.append((fd, text))
    monkeypatch.setattr(interrupts, "os", files)
    interrupts.end_on_interrupt(130)
    assert done == [("w", False), ("w", False), "started"]
    assert (made["name"], made["daemon"]) == ("dmodels-interrupts", True)
    done.clear()
    with pytest.raises(Ended):
        made["target"]()
    line = [] if said else [(2, b"dmodels: interrupted\n")]
    assert done == [*[("r", 1)] * 3, interrupts.GRACE_S, "dropped", *line, 130] and not heard
    done.clear()
    heard.append(b"")  # the pipe was closed: nobody will write to it
    with pytest.raises(Ended):
        made["target"]()


def test_only_the_main_thread_can_be_woken_by_a_signal(monkeypatch):
    monkeypatch.setattr(interrupts, "os", None)
    monkeypatch.setattr(sys, "unraisablehook", hook := sys.unraisablehook)
    elsewhere = threading.Thread(target=interrupts.end_on_interrupt, args=(130,))
    elsewhere.start()
    elsewhere.join()
    assert sys.unraisablehook is hook


def test_an_interrupt_where_nothing_can_be_raised_is_not_told_of_and_other_faults_are(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    monkeypatch.setattr(sys, "__unraisablehook__", told.append)
    monkeypatch.setattr(interrupts.threading, "Thread", lambda **how: Record(start=lambda: None))
    monkeypatch.setattr(interrupts, "signal", Record(set_wakeup_fd=lambda *_, **__: None))
    made, pipe = [], os.pipe
    monkeypatch.setattr(os, "pipe", lambda: made.append(pipe()) or made[0])
    interrupts.end_on_interrupt(130)
    hook = sys.unraisablehook
    monkeypatch.undo()
    for fd in made[0]:
        os.close(fd)
    monkeypatch.setattr(sys, "__unraisablehook__", told.append)
    hook(Record(exc_value=KeyboardInterrupt()))
    hook(other := Record(exc_value=ValueError()))
    assert told == [other]


@pytest.mark.parametrize(("waits", "seconds"), [((False, False, True), (1, 3)), ((True,), ())])
def test_signs_of_life_come_every_second_with_the_seconds_that_have_passed(waits, seconds, monkeypatch):
    """Twice nothing ends; then the line is cleared, and where nothing was said it is left as it is."""
    asked, ticking, clock, left = [], {}, iter([100.0, 101.2, 102.7]), iter(waits)
    done = Record(wait=lambda seconds: asked.append(seconds) or next(left), set=lambda: asked.append("set"))
    started = Record(start=lambda: asked.append("start"), join=lambda: asked.append("join"))
    monkeypatch.setattr(sys, "stderr", screen := Terminal(True))
    monkeypatch.setattr(interrupts, "time", Record(monotonic=lambda: next(clock)))
    thread = lambda **how: ticking.update(how) or started
    monkeypatch.setattr(interrupts, "threading", Record(Event=lambda: done, Thread=thread))
    with interrupts.sign_of_life():
        ticking["target"]()
    said = "".join(f"dmodels: working, {passed} s (Ctrl-C stops)\r" for passed in seconds)
    assert screen.getvalue() == said + "\x1b[K" * bool(said)
    assert asked == ["start", *[interrupts.QUIET_S] * len(waits), "set", "join"]
    assert (ticking["name"], ticking["daemon"]) == ("dmodels-progress", True)


def test_a_sign_comes_every_second_and_an_interrupt_has_a_second_and_a_half():
    assert (interrupts.QUIET_S, interrupts.GRACE_S) == (1.0, 1.5)

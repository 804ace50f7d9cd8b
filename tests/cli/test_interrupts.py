"""What a person at a terminal may expect of a long computation: a sign of life, and that Ctrl-C ends it."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import threading

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

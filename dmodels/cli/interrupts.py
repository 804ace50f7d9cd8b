"""What a person at a terminal may expect of a long computation: a sign of life, and that Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dmodels.core.files import drop_drafts

#: Seconds that the main thread has to unwind after an interrupt; seconds between signs of life, and before the first.
GRACE_S, QUIET_S = 1.5, 1.0
#: Set by the main thread when it has said that it was interrupted; what it then unwinds may take longer than its time.
SAID = threading.Event()


def end_on_interrupt(code: int) -> None:
    """From now on an interrupt ends the process with `code`, at the latest after `GRACE_S`.

    Python notes a signal at once but acts on it between two of its own instructions: a compiled loop would finish
    first, and so would the threads that help it. The loops leave the interpreter lock, so another thread can act.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait() -> None:
        while (noted := os.read(reader, 1)) and noted[0] != signal.SIGINT:
            pass
        time.sleep(GRACE_S)
        drop_drafts()
        if not SAID.is_set():
            os.write(2, b"dmodels: interrupted\n")
        os._exit(code)

    def untold(fault: sys.UnraisableHookArgs) -> None:  # an interrupt that came where nothing can be raised
        if not isinstance(fault.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(fault)

    sys.unraisablehook = untold
    threading.Thread(target=wait, name="dmodels-interrupts", daemon=True).start()


def leave_to_the_server() -> None:
    """A server closes its connections after an interrupt, in its own time."""
    signal.set_wakeup_fd(-1)


@contextmanager
def sign_of_life() -> Iterator[Callable[[], None]]:
    """On a terminal, what takes longer than `QUIET_S` says so every second, until it calls what it gets."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda: None
        return
    done = threading.Event()
    began = time.monotonic()

    def tick() -> None:
        told = False
        while not done.wait(QUIET_S):  # the cursor stays in front, so that what is printed next takes the line
            passed = f"dmodels: working, {time.monotonic() - began:.0f} s (Ctrl-C stops)\r"
            print(passed, end="", file=sys.stderr, flush=True)
            told = True
        if told:
            print("\x1b[K", end="", file=sys.stderr, flush=True)

    ticking = threading.Thread(target=tick, name="dmodels-progress", daemon=True)
    ticking.start()

    def stop() -> None:
        done.set()
        ticking.join()

    try:
        yield stop
    finally:
        stop()

"""The order in which XLA carries out the parts of a program on a CPU.

By default parts that do not wait for each other run at the same time, on threads. In jaxlib 0.10.2 on two busy cores
the end of a loop within a loop is now and then lost that way, and the program waits for ever: batches of equilibria in
several blocks did within 400 calls, in five runs of five; one part after the other they did not in 1,600. It also costs
nothing: a part is a whole batch, and what a thread would take over is less than handing it over. It is no cure where
calls of LAPACK need not wait for each other: each shares its batch out over XLA's threads and blocks the one that it
runs on, so that as many calls as there are threads wait for ever. A program for batches lets each wait for the last.
"""

from __future__ import annotations

import os

FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"


def in_order(version: tuple[int, ...]) -> None:
    """One part after the other in this process, from XLA's first program on; what XLA_FLAGS says of it stands.

    version   of JAX. XLA ends a process whose flags it does not know, so only those that are supported are told.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if FLAG not in flags and version < (0, 13):
        os.environ["XLA_FLAGS"] = f"{flags} {FLAG}=false".strip()

"""The `dmodels` command. Each sub-command is parse -> one library call -> render, in a file of its own.

A command's module is imported when the command is called, so `dmodels --help` stays fast. Exit codes: `app.run`.
"""

from __future__ import annotations

import atexit
import gc
import sys

#: Command -> one line of help. The command's function is `command` in `dmodels.cli.<name>`, words joined by `_`.
COMMANDS: dict[str, str] = {
    "init": "a scenario file to begin with, every option explained",
    "plan": "what to deploy for a model, a traffic trace and SLOs: GPUs, cost, limits, alternatives",
    "report": "the same from a scenario file: one HTML page with pictures, risks and what the numbers rest on",
    "explore": "a scenario file with sliders: a local page on which the plan follows load, SLO, GPU and prices",
    "size": "what fits on one instance: memory by component, sequences at once, what binds",
    "step": "one instance: its most tokens a second, and where the milliseconds of a step go",
    "catalog": "GPUs, models and fabrics, with source and date",
    "simulate": "a fleet request by request: TTFT, TPOT, waiting, with confidence intervals; traces replayed",
    "transfer": "KV transfer: its share of TTFT, which policy and which fabric upgrade pay, stale telemetry",
    "pools": "one pool or several: what each threshold on total tokens saves, by the paper and exactly",
    "split": "GPUs for prefill and for decode: the selfish split, the best one, whole workers, planners",
    "place": "KV blocks in HBM, DRAM, SSD: hit rate and latency by size, what to buy, what sharing is worth",
    "sweep": "a design space over named axes: sized pools, to a file and a figure",
    "poa": "the anarchy paper's index over a router's log, its regime, and what drives it",
    "route": "routing as a game: price of anarchy, certified, and what simple policies cost",
    "predict": "TTFT and TPOT of serving rows, with 80 % and 95 % intervals",
    "fit": "refit the efficiencies on measured rows, with the error before and after",
    "fit operators": "refit the laws of kernels on measured kernel times, with the error on what was held out",
    "watch": "engines' telemetry: the demand and the workload in it, and the model beside what was measured",
    "formats": "files of other tools: what is read (benchmarks, deployments), what is written, and by which options",
    "claims": "what the papers claim and how it stands: verdict, counterexample, and the check run",
    "completion": "completion of commands and options for bash, zsh or fish",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the console script exits with the returned code."""
    from .app import INTERRUPTED, run

    if argv is None:
        from .interrupts import end_on_interrupt

        end_on_interrupt(INTERRUPTED)
        # Imports make hundreds of thousands of objects that all stay: to search them for garbage, again and again and
        # once more at the end, would take a fifth of a short command's time.
        gc.set_threshold(500_000)
        atexit.register(gc.disable)
    return run(sys.argv[1:] if argv is None else argv)

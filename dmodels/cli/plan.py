"""A capacity plan: what to deploy, how many GPUs, at what cost, what limits it, and how sure the answer is.

Without options it plans a bundled workload (conversations, at their own rate) for Llama 3.1 70B.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from dmodels.core.errors import InputError
from dmodels.core.files import write_text

from . import render
from .options import Json, ShowPython, quantity
from .plan_inputs import PlanInputs, precision


def command(
    model: Annotated[
        str, typer.Option(help="catalogue name, Hugging Face id, or a local config.json")
    ] = "llama-3.1-70b",
    gpu: Annotated[str, typer.Option(help="GPU types to choose from, like h100_sxm,h200_sxm")] = "h100_sxm,h200_sxm",
    trace: Annotated[str | None, typer.Option(help="traffic: a trace (Azure, Mooncake, BurstGPT or plain)")] = None,
    workload: Annotated[str, typer.Option(help="traffic: a bundled workload, if no trace is given")] = "azure-conv",
    isl: Annotated[float | None, typer.Option(help="traffic: fixed input tokens (with --osl)")] = None,
    osl: Annotated[float | None, typer.Option(help="traffic: fixed output tokens (with --isl)")] = None,
    rate: Annotated[str | None, typer.Option(help='arrivals, like "200 req/s"; default: the traffic\'s own')] = None,
    ttft: Annotated[str, typer.Option("--ttft", "--ttft-p99", help="bound on time to first token")] = "2 s",
    tpot: Annotated[str, typer.Option("--tpot", "--tpot-p99", help="bound on time per output token")] = "80 ms",
    e2e: Annotated[str | None, typer.Option("--e2e", "--e2e-p99", help="bound on the whole request")] = None,
    percentile: Annotated[float, typer.Option(help="share of requests that must meet each bound")] = 0.99,
    tp: Annotated[str, typer.Option(help="tensor-parallel degrees to try")] = "1,2,4,8",
    pp: Annotated[str, typer.Option(help="pipeline-parallel degrees to try; beyond 1 nothing is measured")] = "1",
    weights: Annotated[
        str, typer.Option(help="weight precisions to try: as-published, bf16, fp8, fp4")
    ] = "as-published",
    kv: Annotated[str, typer.Option(help="KV precisions to try: as-published, bf16, fp8")] = "as-published",
    thresholds: Annotated[str | None, typer.Option(help="two-pool thresholds to try, in total tokens")] = None,
    split: Annotated[bool, typer.Option(help="also try prefill/decode splits")] = True,
    prefix_hits: Annotated[bool, typer.Option(help="take prefix-cache hits of the trace off the prompts")] = False,
    repair: Annotated[bool, typer.Option(help="mend the trace: sort it, drop unreadable and empty requests")] = False,
    max_gpus: Annotated[float, typer.Option(help="GPUs that there are, per pool")] = float("inf"),
    max_num_seqs: Annotated[float, typer.Option(help="the engine's limit on requests in a batch")] = 256,
    max_num_batched_tokens: Annotated[float, typer.Option(help="the engine's limit on tokens in a step")] = 8192,
    backend: Annotated[str, typer.Option(help="engine whose measured speeds apply: vllm, sglang, trtllm")] = "vllm",
    gpu_file: Annotated[str | None, typer.Option(help="your own GPUs or prices (CSV or TOML)")] = None,
    sensitivity: Annotated[bool, typer.Option(help="also vary one input at a time")] = True,
    verify: Annotated[bool, typer.Option(help="also simulate the best of each kind, request by request")] = False,
    out: Annotated[Path | None, typer.Option(help="write the report, one HTML page, to this file")] = None,
    json: Json = False,
    show_python: ShowPython = False,
) -> int:
    degrees = {"tp": _degrees("tp", tp), "pp": _degrees("pp", pp)}
    limits = None if thresholds is None else tuple(_number("thresholds", x) for x in thresholds.split(","))
    names = [name.strip() for name in gpu.split(",") if name.strip()]
    precisions = {"weights": _precisions(weights), "kv": _precisions(kv)}
    latest = float("inf") if e2e is None else quantity("e2e", e2e, "s")
    bounds = (quantity("ttft", ttft, "s"), quantity("tpot", tpot, "s"), latest)
    rate_rps = None if rate is None else quantity("rate", rate, "req/s")
    for name, value in (
        ("max-num-seqs", max_num_seqs),
        ("max-num-batched-tokens", max_num_batched_tokens),
        ("max-gpus", max_gpus),
    ):
        if not value >= 1:
            raise InputError(f"--{name} {value:g}: accepted are numbers from 1")
    if (isl is None) != (osl is None):
        raise InputError("--isl and --osl: give both or neither")
    options = {
        **degrees,
        **precisions,
        "thresholds_tokens": limits,
        "split": split,
        "backend": backend,
        "max_gpus": max_gpus,
    }
    inputs = PlanInputs(
        model,
        tuple(names),
        trace,
        workload,
        isl,
        osl,
        rate_rps,
        *bounds,
        percentile,
        prefix_hits,
        repair,
        gpu_file,
        {},
        max_num_seqs,
        max_num_batched_tokens,
        options,
    )
    again = "dmodels plan " + shlex.join(sys.argv[2:]) if sys.argv[1:2] == ["plan"] else "dmodels plan"
    return run(inputs, again, "plan", sensitivity, verify, out, json, show_python)


def run(
    inputs: PlanInputs,
    again: str,
    name: str,
    sensitivity: bool,
    verify: bool,
    out: Path | None,
    json: bool,
    show_python: bool,
) -> int:
    """Answer, and show it as asked; `again` is the command line `name` that does the same."""
    if show_python:
        print(inputs.python())
        return 0

    from dmodels.report import plan_tables
    from dmodels.studies.plan import plan
    from dmodels.studies.plan import sensitivity as vary

    asked, notices = inputs.question()
    for notice in notices:
        print(f"dmodels: {notice}", file=sys.stderr)
    answer = plan(asked)
    changes = vary(answer) if sensitivity and answer.best is not None else []
    if json:
        print(render.as_json(name, plan_tables.inputs(answer), plan_tables.result(answer, changes)))
    else:
        _print(answer, changes)
    if verify and answer.best is not None:
        _verify(answer)
    if out is not None:
        from dmodels.report.plan_page import plan_page

        write_text(out, plan_page(answer, changes, again))
        print(f"report: {out}", file=sys.stderr)
    return 0 if answer.best is not None else 1


def _print(answer, changes) -> None:
    from dmodels.report import plan_tables
    from dmodels.report.plan_notes import notes
    from dmodels.studies.plan import command as command_of

    for sentence in plan_tables.sentences(answer) + notes(answer):
        print(sentence)
    print()
    if answer.best is not None:
        render.print_table(*plan_tables.pools_table(answer))
        render.print_table(*plan_tables.alternatives_table(answer))
        if changes:
            render.print_table(*plan_tables.sensitivity_table(answer, changes))
        for pool in answer.best.pools:
            print(f"# {pool.stage.name}: {pool.instances} x")
            print(command_of(pool, answer.question))
        print(f"# rate headroom {plan_tables.headroom(answer)}; {answer.points_count:,} points evaluated")
    if answer.rejections:
        title, head, rows = plan_tables.rejections_table(answer.rejections)
        render.print_table(title, head, rows[:8])


def _verify(answer) -> None:
    """Closed form beside simulation, on stderr with `--json` so that stdout stays one document."""
    import jax

    from dmodels.studies.plan.verification import verify

    for checked in verify(answer, jax.random.key(0)):
        rows = [
            [
                r.metric,
                r.predicted,
                r.measured.value,
                f"{r.measured.low:.4g} to {r.measured.high:.4g}",
                f"{r.error_frac:+.1%}",
            ]
            for r in checked.rows
        ]
        head = ["metric", "closed form", "simulated", "95 % interval", "error"]
        render.print_table(f"{checked.scheme}, {checked.pool.stage.name}: one instance, simulated", head, rows)


def _number(field: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{field} {text.strip()!r}: accepted are numbers separated by commas") from None


def _degrees(field: str, text: str) -> tuple[int, ...]:
    numbers = [_number(field, part) for part in text.split(",")]
    if not all(n >= 1 and n == int(n) for n in numbers):
        raise InputError(f"--{field} {text!r}: accepted are whole numbers from 1, separated by commas")
    return tuple(int(n) for n in numbers)


def _precisions(text: str) -> tuple[str, ...]:
    return tuple(map(precision, text.split(",")))

"""`dmodels simulate --model ... | --plan FILE | --replay LOG`: servers under their engine's own scheduler."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from dmodels.core.errors import InputError
from dmodels.core.files import write_text
from dmodels.report.text import cell, table

from . import render
from .calls import Code, call
from .command import Form
from .plan_inputs import traffic_call
from .schema import Degree, FileName, Positive, Table, WorkloadTable, flag


class ServerTable(Table):
    """A model on GPUs under an engine, instead of a number of slots and an iteration law."""

    model: str | None = flag(None, "catalogue name, Hugging Face id, or path of a config.json: simulate its server")
    gpu: str | None = flag(None, "with --model: GPU, like h100_sxm (`dmodels catalog gpus` lists them)")
    tp: Degree = flag(1, "with --model: tensor parallelism")
    dp: Degree = flag(1, "with --model: attention data parallelism")
    ep: Degree = flag(1, "with --model: expert parallelism, over the tp * dp GPUs")
    backend: str = flag("vllm", "with --model: the engine whose scheduler and speeds apply: vllm, sglang, trtllm")
    max_num_seqs: Degree | None = flag(None, "with --model: most requests in a batch [default: the log's, or 256]")
    max_num_batched_tokens: Degree | None = flag(
        None, "with --model: most tokens in a step [default: the log's, or 8192]"
    )
    weight_dtype: str | None = flag(None, "with --model: bf16, fp8, fp4, int4, ...; default: as published")
    kv_dtype: str | None = flag(None, "with --model: bf16, fp8 or fp4; default: as published")
    utilization_frac: Annotated[float, Field(gt=0, le=1)] = flag(
        0.9, "with --model: share of GPU memory the engine may use", "--utilization"
    )
    isl: Positive | None = flag(None, "with --model: fixed input tokens (with --osl and --rate)")
    osl: Positive | None = flag(None, "with --model: fixed output tokens (with --isl and --rate)")
    gpu_file: FileName | None = flag(None, "your own GPUs and prices: CSV, TOML, JSON or YAML")
    calibration: FileName | None = flag(None, "a calibration written by `dmodels fit --out`")
    plan: FileName | None = flag(None, "the fleet of a saved answer of `dmodels plan --json`, on its own traffic")
    replay: str | None = flag(None, "log of a real server's requests (a file, or a folder): simulated beside measured")

    @model_validator(mode="after")
    def _whole(self) -> ServerTable:
        if self.plan is not None and (self.model or self.gpu):
            raise ValueError("plan: a saved plan has a model and GPUs; accepted is --plan or --model with --gpu")
        if self.plan is not None and self.replay is not None:
            raise ValueError("replay: a log is compared with one server (--model, --gpu), not with a plan")
        if (self.model is None and not (self.replay and self.gpu)) != (self.gpu is None):
            raise ValueError("model: give both --model and --gpu (with --replay the log may name the model)")
        if self.replay is not None and self.gpu is None:
            raise ValueError("replay: the GPU that served the log is missing (--gpu)")
        if (self.isl is None) != (self.osl is None):
            raise ValueError("isl: give both --isl and --osl")
        if self.gpu is None and self.plan is None and self != type(self).model_construct():
            raise ValueError("model: an option of a server is given without one (--model with --gpu, or --plan)")
        return self

    @property
    def asked_for(self) -> bool:
        """Whether a server is simulated."""
        return self.gpu is not None or self.plan is not None

    def server(self, instances: int, known: dict[str, Any]) -> Code:
        """The server, as a library call; `known` is how the log's engine was started."""
        model = self.model or str(known.get("model", ""))
        if not model:
            raise InputError("model: neither --model nor the log's meta.json names one")
        seqs = self.max_num_seqs or known.get("max_num_seqs")
        tokens = self.max_num_batched_tokens or known.get("max_num_batched_tokens")
        return call(
            "dmodels.studies.servers:server",
            model,
            self.gpu,
            call(
                "dmodels:Parallel", tp=max(self.tp, int(known.get("tensor_parallel_size") or 1)), dp=self.dp, ep=self.ep
            ),
            backend=self.backend,
            release=str(known["release"]) if self.backend == "vllm" and known.get("release") else None,
            weight_dtype=self.weight_dtype,
            kv_dtype=self.kv_dtype,
            utilization=None if self.utilization_frac == 0.9 else self.utilization_frac,
            max_num_seqs=seqs and int(seqs),
            max_num_batched_tokens=tokens and int(tokens),
            instances=instances if instances > 1 else None,
            gpu_file=self.gpu_file,
            effects=self.calibration and call("dmodels.fit.calibration:read", self.calibration),
            label="server",
        )


def answer(asked: Any, form: Form, out: Path | None) -> int:
    """What servers make of traffic, or a log beside its simulation."""
    own: ServerTable = asked.server
    if own.replay is not None:
        log = call("dmodels.formats.telemetry.request_log:read_requests", own.replay, label="log")
        server = own.server(1, dict(log.run().engine))
        return form.give(
            call("dmodels.studies.servers:compare", server, log),
            lambda found: _inputs(asked, [server.run()]),
            lambda found: found.to_dict(),
            lambda found: _show_compared(server.run(), found),
            write=lambda found: _write(out, _compared_rows(found)),
        )
    pools, traffic, rate = _planned(asked) if own.plan is not None else _alone(asked)
    made = call(
        "dmodels.studies.servers:play",
        pools,
        traffic,
        rate_rps=rate,
        count=asked.requests_count,
        seed=asked.seed or None,
        percentile=asked.percentile,
        stationary=asked.steady or None,
    )
    servers: Any = lambda: [
        one
        for pool in (pools.run() if isinstance(pools, Code) else [p.run() for p in pools])
        for one in pool.server.parts
    ]
    return form.give(
        made,
        lambda found: _inputs(asked, servers()) | {"rate_rps": found.rate_rps},
        lambda found: (
            dict(zip(found.labels, found.pools, strict=True))
            | {"cut_requests_count": found.cut_count, "restarts_count": found.restarts_count}
        ),
        lambda found: _show_played(servers(), found),
        feasible=lambda found: not _overloaded(found),
        write=lambda found: _write(out, _played_rows(found)),
    )


def _alone(asked: Any) -> tuple[Any, Code, float | None]:
    """(pools, traffic, rate) of a server that is described by flags."""
    own = asked.server
    pool = call("dmodels.studies.servers:PoolOf", "all", own.server(asked.instances, {}))
    if asked.trace:
        return [pool], call("dmodels:read_trace", asked.trace), asked.rate_rps
    fixed = {"input_tokens": own.isl, "output_tokens": own.osl} if own.isl else {"name": asked.traffic}
    return [pool], traffic_call(WorkloadTable(**fixed), asked.drawn_rps)[0], None


def _planned(asked: Any) -> tuple[Code, Code, float | None]:
    """The same of a saved plan: its own traffic, at another rate where one is given."""
    saved = call("dmodels.studies.servers:read_plan", asked.server.plan, label="saved")
    said = saved.run()["inputs"]["asked"]
    kept = {k: v for k, v in said["workload"].items() if k in WorkloadTable.model_fields and v is not None}
    rate = asked.rate_rps or said["traffic"]["rate"]
    pools = call("dmodels.studies.servers:of_plan", saved)
    workload = WorkloadTable.model_validate(kept)
    if workload.trace is not None:
        return pools, call("dmodels:read_trace", workload.trace), rate
    return pools, traffic_call(workload, rate)[0], None


def _overloaded(found: Any) -> bool:
    from dmodels.core.flags import Flag

    return any(e.flags & Flag.OVERLOAD for pool in found.pools for e in pool.values())


def _inputs(asked: Any, servers: list[Any]) -> dict[str, Any]:
    """What was asked, and what follows from it."""
    told = [
        {
            "name": one.name,
            "instances": one.instances,
            "scheduler": one.policy.name,
            "slots_count": one.policy.slots,
            "step_tokens": one.policy.step_tokens,
            "kv_tokens": one.policy.kv_blocks * one.policy.block_tokens,
        }
        for one in servers
    ]
    kept = {"server", "trace", "workload", "rate_rps", "requests_count", "percentile", "steady", "seed"}
    found: dict[str, Any] = asked.model_dump(include=kept)
    return found | {"servers": told}


def _show_played(servers: list[Any], found: Any) -> None:
    from dmodels.core.flags import Flag

    rows = [(label, name, e) for label, pool in zip(found.labels, found.pools, strict=True) for name, e in pool.items()]
    columns = {
        "pool": lambda row: row[0],
        "metric": lambda row: row[1],
        "value": lambda row: row[2].value,
        "95% low": lambda row: row[2].low,
        "95% high": lambda row: row[2].high,
        "note": lambda row: "waits keep growing" if row[2].flags & Flag.OVERLOAD else "",
    }
    size = " + ".join(f"{one.instances} x {one.name}" for one in servers)
    render.show([table(f"{found.source} at {cell(found.rate_rps)} req/s on {size}", rows, columns)])
    for one in servers:
        p = one.policy
        room = p.kv_blocks * p.block_tokens
        print(f"{p.name}: up to {p.slots} requests and {p.step_tokens:,} tokens in a step, room for {room:,} tokens")
    print(f"{found.requests_count:,} requests, {found.cut_count:,} left out as warm-up and end; ", end="")
    print(f"{found.restarts_count:,} times a request gave way and was computed again")


def _show_compared(server: Any, found: Any) -> None:
    columns = {
        "metric": lambda m: m.name,
        "simulated": lambda m: m.simulated_s,
        "measured": lambda m: m.measured_s,
        "error": lambda m: f"{m.error_frac:+.1%}",
    }
    render.show([table(f"{found.requests_count:,} requests on {server.name}", found.metrics, columns)])
    for told, law in (("would explain the log", found.measured_law), ("is the calibrated one", found.simulated_law)):
        step = f"{1e3 * law.base_s:.3g} ms + {1e6 * law.per_request_s:.3g} us a request that decodes"
        step += f" + {1e6 * law.per_prompt_token_s:.3g} us a prompt token"
        print(f"a step of {step} {told} ({law.apart_frac:.1%} of the duration between their tokens)")
    print(f"the calibrated steps, {found.slower:.3g} times as long, come closest to the log")


def _compared_rows(found: Any) -> list[dict[str, Any]]:
    rows = []
    for i, name in enumerate(found.log.ids):
        row = {"request_id": name, **_lengths(found.log.input_tokens, found.measured, i)}
        for metric in ("ttft_s", "tpot_s", "e2e_s"):
            row[f"simulated_{metric}"] = getattr(found.simulated, metric)[i]
            row[f"measured_{metric}"] = getattr(found.measured, metric)[i]
        rows.append(row)
    return rows


def _played_rows(found: Any) -> list[dict[str, Any]]:
    rows = []
    for label, (prompts, served) in zip(found.labels, found.served, strict=True):
        for i in range(served.arrival_s.size):
            row = {"pool": label, **_lengths(prompts, served, i)}
            row |= {metric: getattr(served, metric)[i] for metric in ("ttft_s", "tpot_s", "e2e_s", "wait_s")}
            rows.append(row | {"restarts": int(served.restarts[i])})
    return rows


def _lengths(input_tokens: Any, served: Any, i: int) -> dict[str, Any]:
    return {
        "arrival_s": served.arrival_s[i],
        "input_tokens": int(input_tokens[i]),
        "output_tokens": int(served.output_tokens[i]),
    }


def _write(out: Path | None, rows: list[dict[str, Any]]) -> None:
    """One CSV row of each request; what a request does not have is empty."""
    if out is None or not rows:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: ("" if v != v else f"{v:.6g}") if isinstance(v, float) else v for k, v in row.items()})
    write_text(out, text.getvalue())

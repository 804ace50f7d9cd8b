"""Why a layout is not an answer: what binds, what is there, what is needed, and the smallest change that would do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from dmodels.core.answers import Answer
from dmodels.core.flags import Flag
from dmodels.core.units import GIB, counted
from dmodels.models.instance import Operating
from dmodels.models.memory import room_and_need_bytes

from .designs import Layout
from .evaluate import MOST, sweep_instances
from .limits import Part
from .questions import Question
from .sizing import Priced, cheapest

#: "Without load": so few requests a second that none meets another.
_IDLE_RPS = 1e-9


#: What binds where only limits do.
GPU_BUDGET, MONEY = "GPU budget", "money"


@dataclass(frozen=True)
class Rejection(Answer):
    """One layout that cannot serve all requests from one pool, however many instances there are.

    Where nothing but the number of GPUs is missing, `layout` is the fleet that takes the fewest, in words.
    """

    layout: Layout | str
    binding: str
    have: str
    need: str
    fix: str
    excess: float  # need over have; the least excess is the nearest miss

    @property
    def is_limit(self) -> bool:
        """Whether more GPUs or money would do."""
        return self.binding in (GPU_BUDGET, MONEY)


def rejections(priced: Priced) -> list[Rejection]:
    """Every layout whose one-pool cell has no feasible size, nearest misses first, those short of memory last."""
    out = np.flatnonzero(~np.isfinite(priced.costs_usd_per_hour[:, 0]))
    if not out.size:
        return []
    cells = jax.tree.map(lambda leaf: leaf[out * len(priced.stages)], priced.cells)
    idle = sweep_instances(cells, np.ones((len(out), 1)), _IDLE_RPS, priced.question.engine)
    idle = [Operating(*(leaf[i, 0] for leaf in idle)) for i in range(len(out))]
    found = [_beyond_context(priced, row) or _why(priced, row, at) for row, at in zip(out, idle, strict=True)]
    # more memory leads to another layout of this list, so it is the smallest fix only where all of them lack it
    found = sorted(found, key=lambda r: (r.binding.startswith("memory"), r.excess))
    return [*_too_few_gpus(priced), *found]


def _why(priced: Priced, row: int, idle: Operating) -> Rejection:
    return (
        _short_of_memory(priced, row, idle)
        or _slow_without_load(priced, row, idle)
        or _short(priced, priced.layouts[row], [(row, 0)])
    )


def _beyond_context(priced: Priced, row: int) -> Rejection | None:
    if not priced.admitted.none:
        return None
    limit, w = priced.admitted.limit_tokens, priced.question.workload
    shortest = float(np.min(w.input_tokens[np.asarray(w.weight_frac) > 0]))
    return Rejection(
        priced.layouts[row],
        binding="the model's context",
        have=f"{limit:,.0f} tokens",
        need=f"over {shortest:,.0f} tokens",
        fix="a model with a longer context",
        excess=shortest / limit,
    )


def _short_of_memory(priced: Priced, row: int, idle: Operating) -> Rejection | None:
    layout, at = priced.layouts[row], priced.cell(row, 0)
    budget, longest = (float(x[at, 0]) / GIB for x in (priced.cells.budget_bytes, priced.cells.longest_bytes))
    if budget <= 0:
        asked = priced.question
        place = (asked.gpus[layout.gpu], layout.as_parallel, budget * GIB, asked.engine.max_num_batched_tokens)
        room, need = (x / GIB for x in room_and_need_bytes(*place, asked.memory))
        return Rejection(
            layout,
            binding="memory for weights",
            have=f"{room:.1f} GiB per GPU",
            need=f"{need:.1f} GiB per GPU",
            fix=f"{_more_gpus(priced, row)}, or narrower weights",
            excess=need / room,
        )
    if not int(idle.flags) & Flag.NO_FIT:
        return None
    tokens = float(priced.cells.requests.longest_tokens[at, 0])
    return Rejection(
        layout,
        binding="memory for KV",
        have=f"{budget:.1f} GiB per GPU after weights",
        need=f"{longest:.1f} GiB for a request of {tokens:,.0f} tokens",
        fix=f"{_more_gpus(priced, row)}, or FP8 KV",
        excess=max(longest / budget, 1.0),
    )


#: What a step without an end lacks.
_NO_LINK = "fewer GPUs per instance, or links between them"
#: A time without load leaves no room for any: an SLO so many times as long does.
LOADED = 1.01


def _slow_without_load(priced: Priced, row: int, idle: Operating) -> Rejection | None:
    slo = priced.question.slo
    times = (("TTFT", idle.ttft_s, slo.ttft_s), ("TPOT", idle.tpot_s, slo.tpot_s), ("E2E", idle.e2e_s, slo.e2e_s))
    return too_late(priced.layouts[row], "without load", [(name, float(x), float(most)) for name, x, most in times])


def too_late(layout: Layout | str, when: str, times: Iterable[tuple[str, float, float]]) -> Rejection | None:
    """What breaks of (metric, seconds, bound), and the bounds that would not; None: nothing does."""
    late = sorted(((value / bound, name, value, bound) for name, value, bound in times if value > bound), reverse=True)
    if not late:
        return None
    excess, name, value, bound = late[0]
    shown = ([f"{float(f'{1e3 * x:.{digits}g}'):,.12g}" for x in (value, bound)] for digits in (4, 6, 12))
    have, need = next(pair for pair in shown if pair[0] != pair[1])  # a near miss is not shown as none
    ends = [f"a {name} SLO of {_rounded_up_ms(LOADED * x):,g} ms" for _, name, x, _ in late if math.isfinite(x)]
    return Rejection(
        layout,
        binding=f"{name} {when}",
        have=f"{have} ms",
        need=f"at most {need} ms",
        fix=f"{' and '.join(ends)}, or more GPUs per instance" if math.isfinite(excess) else _NO_LINK,
        excess=excess,
    )


def _short(priced: Priced, layout: Layout | str, places: Sequence[tuple[int, int]]) -> Rejection:
    """A fleet that would do, of the pools at (row, stage), and that cannot be bought."""
    if not np.isfinite([priced.instances[place] for place in places]).all():
        return Rejection(layout, "rate", f"{MOST:,} instances", "more", "a lower rate", np.inf)
    parts = [(priced.layouts[r].gpu, int(priced.instances[r, s]), priced.layouts[r].gpus) for r, s in places]
    return beyond_limits(priced.question, layout, parts)


def beyond_limits(asked: Question, layout: Layout | str, parts: Sequence[Part]) -> Rejection:
    """A fleet that would do and that cannot be bought: what is missing."""
    limits = asked.limits
    bought = limits.bought(parts)
    total = sum(bought.values())
    there = [("GPU", limits.max_gpus, total)]
    there += [(f"{gpu} GPU", limits.inventory.get(gpu, np.inf), count) for gpu, count in bought.items()]
    short = [(need / max(have, 1.0), name, have, need) for name, have, need in there if need > have]
    cost = sum(count * float(asked.gpus[gpu].price_usd_per_hour) for gpu, count in bought.items())
    most = limits.max_usd_per_hour
    fixes = [counted(math.ceil(need - have), f"more {name}") for _, name, have, need in short]
    cents = limits.missing_cents(cost)
    fixes += [f"${cents / 100.0:,.2f}/h more"] if cents else []
    fix = " and ".join(fixes)
    if short:
        excess, name, have, need = max(short)
        return Rejection(layout, GPU_BUDGET, counted(int(have), name), counted(int(need), name), fix, excess)
    return Rejection(layout, MONEY, f"${most:,.2f}/h", f"${cost:,.2f}/h", fix, cost / most)


def _too_few_gpus(priced: Priced) -> list[Rejection]:
    """Where what there is carries no scheme, but more would: the fleet of the fewest GPUs, over all schemes."""
    asked = priced.question
    if not asked.limits.any or cheapest(priced, priced.costs_usd_per_hour):
        return []
    alike = {name: gpu.replace(price_usd_per_hour=1.0) for name, gpu in asked.gpus.items()}
    unlimited = replace(priced, question=replace(asked.unlimited, gpus=alike))
    ranked = cheapest(unlimited, unlimited.costs_usd_per_hour)  # the fewest GPUs in place of the least cost
    if not ranked:
        return []
    scheme, rows, _ = ranked[0]
    places = list(zip(rows, scheme.stages, strict=True))
    pools = [f"{priced.instances[place]:.0f} x {priced.layouts[place[0]]}" for place in places]
    return [_short(priced, f"{scheme.name} ({' + '.join(pools)})", places)] if len(pools) > 1 else []


def _more_gpus(priced: Priced, row: int) -> str:
    """The fewest GPUs an instance of the same GPU type and precision must have to hold model and longest request."""
    layout, k = priced.layouts[row], len(priced.stages)
    fits = [
        x.gpus
        for i, x in enumerate(priced.layouts)
        if (x.gpu, x.weights, x.kv) == (layout.gpu, layout.weights, layout.kv)
        and float(priced.cells.budget_bytes[i * k, 0]) >= float(priced.cells.longest_bytes[i * k, 0])
    ]
    return f"{min(fits)} GPUs per instance" if fits else "pipeline stages (--pp) or a GPU with more memory"


def _rounded_up_ms(seconds: float) -> float:
    """Milliseconds, rounded up to two significant digits, so that the fix does suffice."""
    ms = 1e3 * seconds
    unit = 10.0 ** (np.floor(np.log10(ms)) - 1)
    return float(np.ceil(ms / unit) * unit)

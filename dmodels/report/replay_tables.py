"""The words and tables of a plan's replays, for terminal, page and JSON alike."""

from __future__ import annotations

import math

from dmodels.core.units import counted
from dmodels.studies.plan import Plan, Promise, Replayed, Stretch, Verified

from .text import Table, cell, ms, share


def tables(answer: Plan, checks: Verified | None) -> list[Table]:
    """One of each replay: those that were asked for, or the one that sized the recommended fleet."""
    if checks is not None:
        return [table(one) for one in checks.replays]
    return [table(answer.best.replayed)] if answer.best is not None and answer.best.replayed is not None else []


def table(found: Replayed) -> Table:
    """Each SLO of each pool."""
    p = f"P{100 * found.percentile:g}"
    window = "minute" if found.window_s == 60.0 else f"{found.window_s:.3g} s"
    head = ["pool", "SLO", f"{p} [ms]", "95 % interval", "bound [ms]", "kept", f"worst {window} [ms]", "begins [s]"]
    head += ["closed form [ms]", "its error", "verdict"]
    rows = [[one.pool, one.metric, *_row(one)] for one in found.promises]
    *others, last = found.instances
    instances = " + ".join([*(f"{n:,}" for n in others), counted(last, "instance")])
    size = f"{counted(found.gpus, 'GPU')}, {instances}, {found.policy} routing"
    traffic = f"{found.requests_count:,} requests in {cell(found.period_s)} s"
    return f"Replay of {found.name} ({size}): {found.source}, {traffic}", head, rows


def _row(one: Promise) -> list[object]:
    known = math.isfinite(one.low_s)
    bounded = math.isfinite(one.bound_s)
    verdict = ("holds" if one.holds else "missed") + ("" if one.sure or not known else ", not surely")
    return [
        ms(one.measured_s),
        f"{ms(one.low_s)} to {ms(one.high_s)}" if known else "too few requests",
        ms(one.bound_s) if bounded else "-",
        f"{one.kept_frac:.2%}" if bounded else "-",
        ms(one.worst_s),
        float(f"{one.worst_start_s:.4g}"),
        ms(one.predicted_s) if math.isfinite(one.predicted_s) else "-",
        f"{one.error_frac:+z.0%}" if math.isfinite(one.error_frac) else "-",
        verdict if bounded else "no bound",
    ]


def notes(answer: Plan) -> list[str]:
    """How replays sized the fleet, and where the closed forms are off."""
    said: list[str] = []
    best = answer.best
    if best is None:
        return said
    found, how = best.replayed, answer.ensured
    if found is not None and how is not None:
        same = "" if how.same_formula_gpus == how.formula_gpus else f" ({how.same_formula_gpus:,} of these pools)"
        rest = "; what is beyond is for other days" if how.gpus > how.smallest_gpus else ""
        said.append(
            f"Replay: {counted(how.formula_gpus, 'GPU')} by the formula{same}, {how.gpus:,} by the replay of "
            f"{found.source}, where the SLOs take {how.smallest_gpus:,} at least{_in_hand(answer)}{rest}. It holds on "
            f"{found.held_count} of {found.days_count} other days (halves and quarters at the planned rate, and "
            f"resamples).{_next(answer)}"
        )
    if answer.outside:
        judge = "the replay decides" if found is not None else "--verify replays the fleet"
        said.append(f"The closed forms are off here: {'; '.join(answer.outside)}; {judge}.")
    return said


def _next(answer: Plan) -> str:
    """What another stretch of such traffic takes, which no trace tells of itself."""
    asked, how = answer.question, answer.ensured
    if asked.trace is None or how is None:
        return ""
    if asked.size_for == Stretch.NEXT:
        return " It is sized for another stretch of such traffic, as long and at the same mean rate."
    return (
        f" For another stretch of such traffic, as long and at the same mean rate, {counted(how.next_gpus, 'GPU')} "
        "(--size-for next)."
    )


def _in_hand(answer: Plan) -> str:
    words = answer.question.margins.words
    return f" with {words}" if words else ""


def verdict(checks: Verified) -> str:
    """Pass or fail, in a sentence."""
    first = checks.replays[0]
    said = f"Verified: every SLO holds in the replay of {first.source}." if first.holds else missed(first)
    if checks.smallest is None or checks.smallest_gpus is None:
        return f"{said} No number of instances of these pools holds."
    one, gpus = len(checks.smallest) == 1, counted(checks.smallest_gpus, "GPU")
    pools = counted(checks.smallest[0], "instance") if one else f"{' + '.join(map(str, checks.smallest))} instances"
    return f"{said} The smallest fleet of these pools that holds has {gpus} ({pools})."


def missed(found: Replayed) -> str:
    """The SLOs that a replay broke."""
    broken = [
        f"{one.metric}{'' if one.pool == 'all' else ' of ' + one.pool} ({ms(one.measured_s)} ms against "
        f"{ms(one.bound_s)}, kept by {share(one.kept_frac)})"
        for one in found.promises
        if not one.holds
    ]
    growing = " Overloaded: waits keep growing." if found.overloaded else ""
    return f"MISSED in the replay of {found.source}: {' and '.join(broken)}.{growing}"

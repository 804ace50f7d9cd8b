"""The page of `dmodels explore`: sliders on one side, the plan with its pictures on the other.

The controls are a plain form, so that the page works without scripts and its address holds every setting; the script
only asks again as soon as a slider moves.
"""

from __future__ import annotations

import math
from html import escape
from typing import NamedTuple

from dmodels.core.precision import Precision
from dmodels.studies.explore import Dials, at_rest
from dmodels.studies.plan import Plan, Question
from dmodels.studies.plan.questions import CACHES
from dmodels.studies.plan.risks import loads

from . import html, plan_page, plan_tables, plan_words
from .plan_notes import notes
from .text import ms


class Turned(NamedTuple):
    """A number of `Dials` that has a slider."""

    name: str  # in the address
    label: str
    unit: str
    factor: float = 1.0  # from base units to that unit
    reach: float = 0.0  # the slider goes from the value at rest divided by this to it times this
    to: float = 0.0  # ... or, without a reach, from 0 to this
    step: str = "any"


#: Field of `Dials` -> its slider.
FIELDS = {
    "rate_rps": Turned("rate", "load", "req/s", reach=16.0),
    "isl_tokens": Turned("isl", "mean input", "tokens", reach=8.0),
    "osl_tokens": Turned("osl", "mean output", "tokens", reach=8.0),
    "cached_frac": Turned("cached", "input in a prefix cache", "%", 100.0, to=95.0),
    "ttft_s": Turned("ttft", "TTFT SLO", "ms", 1e3, reach=8.0),
    "tpot_s": Turned("tpot", "TPOT SLO", "ms", 1e3, reach=8.0),
    "headroom_frac": Turned("headroom", "headroom for growth", "%", 100.0, to=100.0),
    "spare_count": Turned("spare", "spare instances", "per pool", to=4.0, step="1"),
    "max_gpus": Turned("gpus", "at most", "GPUs", reach=4.0),
}
#: How far the slider of a price goes.
PRICE_REACH = 4.0
#: Field of `Dials` that is chosen from a list -> its label.
CHOICES = {"gpu": "GPU type", "weights": "weights", "kv": "KV cache"}


_AT_ONCE = (
    "By the closed forms, which answer at once, for Poisson arrivals and random routing; dmodels plan sizes a fleet by "
    "replays where these take fewer GPUs, or more."
)


def explore_page(asked: Question, dials: Dials, start: Plan, shown: Plan | None, status: str) -> str:
    """The whole page, with the answer `shown` (None: there is none) under the line `status`."""
    head = f'<style>{html.shipped("explore.css")}</style>\n<script src="/explore.js" defer></script>\n'
    bad = ' class="bad"'
    body = (
        '<div class="explore">\n<form method="get" action="/" aria-label="Settings">\n'
        f"{_controls(asked, dials, start)}\n"
        '<button type="submit">Plan</button>\n<p class="links"><a href="/">Reset</a> '
        '<a href="/report" data-with-settings>Report</a> '
        '<a href="/answer.json" data-with-settings download="plan.json">JSON</a></p>\n</form>\n'
        f'<div>\n<p id="status" role="status"{bad * (shown is None)}>{escape(status)}</p>\n'
        f'<div id="answer">\n{"" if shown is None else answer_fragment(shown, start)}\n</div>\n'
        f'<div id="pictures">\n{"" if shown is None else pictures_fragment(shown)}\n</div>\n</div>\n</div>'
    )
    return html.page(f"Explore: {asked.model_name}, {asked.workload_name}", [body], head)


def answer_fragment(answer: Plan, start: Plan) -> str:
    """The answer in words and tables, and how it differs from where the dials started."""
    parts = [html.card(*plan_words.card(answer)[1:]), html.paragraph(difference(answer, start), "difference")]
    parts.append(html.paragraph(" ".join(plan_words.in_three_sentences(answer)), "answer"))
    parts += [html.paragraph(note) for note in (*notes(answer), _AT_ONCE)]
    if answer.best is not None:
        parts += [html.table(*plan_tables.pools_table(answer)), html.table(*plan_tables.alternatives_table(answer))]
    else:
        parts.append(html.table(*plan_tables.rejections_table(answer.rejections)))
    return "\n".join(parts)


def pictures_fragment(answer: Plan) -> str:
    """The answer's pictures."""
    drawn = plan_page.fleet_drawings(answer)
    if answer.best is None:
        return plan_page.pictures(drawn, quick=True)
    sure = plan_page.pictures(plan_page.answer_drawings(answer), first=100)  # not quick: long names need the room
    return sure + plan_page.pictures([*drawn, *map(plan_page.latency_drawing, loads(answer))], quick=True)


def difference(answer: Plan, start: Plan) -> str:
    """How an answer differs from the one that the dials started with, in a sentence."""
    now, then = answer.best, start.best
    if now is None or then is None:
        both = now is None and then is None
        return (
            "Nothing serves this, as at the start."
            if both
            else ("At the start there was a fleet." if now is None else "At the start nothing served this.")
        )
    gpus, usd = now.bought_gpus - then.bought_gpus, now.usd_per_hour - then.usd_per_hour
    slower = [
        f"{name} {'-' if change < 0 else '+'}{ms(abs(change))} ms"
        for name, change in (("TTFT", now.ttft_s - then.ttft_s), ("TPOT", now.tpot_s - then.tpot_s))
        if abs(change) >= 5e-5
    ]
    if not (gpus or usd or slower):
        return "As at the start."
    sign = "-" if usd < 0 else "+"
    cost = f"{sign}${abs(usd):,.2f}/h ({usd / then.usd_per_hour:+.0%})"
    return f"Against the start: {', '.join([f'{gpus:+d} GPUs', cost, *slower])}."


def _controls(asked: Question, dials: Dials, start: Plan) -> str:
    rest = at_rest(asked)
    made = []
    for field, dial in FIELDS.items():
        middle = dial.factor * getattr(rest, field)
        if field == "max_gpus" and start.best is not None:
            middle = min(middle, float(start.best.bought_gpus))
        if middle < float("inf"):
            made.append(_slider(dial, dial.factor * getattr(dials, field), middle))
    made += [_choice(field, label, _options(asked, field), getattr(dials, field)) for field, label in CHOICES.items()]
    for gpu, price in rest.price_usd_per_hour.items():
        dial = Turned(f"price_{gpu}", f"price of {gpu}", "USD/h", reach=PRICE_REACH)
        made.append(_slider(dial, dials.price_usd_per_hour.get(gpu, price), price))
    return "\n".join(made)


def _slider(dial: Turned, value: float, middle: float) -> str:
    """A number to type, and a slider over it (over its logarithm where it has a reach); the script keeps both in step.

    A number without a bound is an empty field, and the slider at its right end.
    """
    words, name = escape(f"{dial.label} [{dial.unit}]", quote=True), escape(dial.name, quote=True)
    low, high = (middle / dial.reach, middle * dial.reach) if dial.reach else (0.0, dial.to)
    at = math.log(value / low) / math.log(high / low) if dial.reach else value / high
    typed = f"{value:.5g}" if math.isfinite(value) else ""
    open_ended = dial.name == "gpus"
    return (
        f'<div class="dial"><label for="{name}">{words}</label>'
        f'<input type="number" id="{name}" name="{name}" value="{typed}" min="0" step="{dial.step}"'
        f"{' placeholder=any' if open_ended else ' required'}>"
        f'<input type="range" data-for="{name}" min="0" max="1000" data-low="{low:.6g}" data-high="{high:.6g}"'
        f"{' data-open' if open_ended else ''}{' data-whole' if dial.step == '1' or open_ended else ''} "
        f'value="{1000.0 * min(max(at, 0.0), 1.0):.0f}" aria-label="{words}, slider"></div>'
    )


def _options(asked: Question, field: str) -> dict[str, str]:
    """What can be chosen -> how it is called; "" is what was asked."""
    if field == "gpu":
        several = len(asked.gpus) > 1
        return {"": "any of them" if several else next(iter(asked.gpus))} | {
            name: f"only {name}" for name in asked.gpus if several
        }
    chosen = [str(value) for value in getattr(asked, field)]
    known = CACHES if field == "kv" else Precision
    return {"": " or ".join(chosen)} | {str(p): str(p) for p in known if [str(p)] != chosen}


def _choice(name: str, label: str, options: dict[str, str], now: str) -> str:
    listed = "".join(
        f'<option value="{escape(value, quote=True)}"{" selected" * (value == now)}>{escape(words)}</option>'
        for value, words in options.items()
    )
    return f'<div><label for="{name}">{escape(label)}</label><select id="{name}" name="{name}">{listed}</select></div>'

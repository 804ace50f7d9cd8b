"""The page of `dmodels explore`: sliders on one side, the plan with its pictures on the other.

The controls are a plain form, so that the page works without scripts and its address holds every setting; the script
only asks again as soon as a slider moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from dmodels.studies.explore import REACH, Dials, at_rest
from dmodels.studies.plan import Plan, Question
from dmodels.studies.plan.risks import loads

from . import html, plan_page, plan_tables
from .plan_notes import notes

_STYLE = """
body { max-width: 96rem; }
.explore { display: grid; grid-template-columns: minmax(15rem, 19rem) minmax(0, 1fr); gap: 2rem; align-items: start; }
form { position: sticky; top: 1rem; display: grid; gap: .7rem; background: var(--panel); padding: 1rem;
  border-radius: 6px; }
.dial { display: grid; grid-template-columns: minmax(0, 1fr) 6.5rem; gap: 0 .5rem; align-items: center; }
.dial label { font-size: .9rem; } .dial input[type=range] { grid-column: 1 / -1; width: 100%; margin: .2rem 0 0; }
.dial input[type=number], select, button { font: inherit; font-size: .9rem; color: var(--ink);
  background: var(--paper); border: 1px solid var(--soft); border-radius: 4px; padding: .15rem .4rem; width: 100%; }
input, select, button { accent-color: var(--mark); } :focus-visible { outline: 2px solid var(--mark); }
#status { color: var(--soft); font-size: .9rem; min-height: 1.5em; margin: 0 0 .5rem; }
#status.bad { color: var(--ink); border-left: 4px solid #d1242f; padding-left: .7rem; }
#answer table { font-size: .82rem; } #answer th, #answer td { padding: .25rem .4rem; }
#answer.old { opacity: .55; } .scripted button { display: none; }
@media (max-width: 60rem) { .explore { grid-template-columns: minmax(0, 1fr); } form { position: static; } }
"""

#: Field of `Dials` -> (name in the address, label, unit, factor from base units to that unit).
FIELDS = {
    "rate_rps": ("rate", "load", "req/s", 1.0),
    "isl_tokens": ("isl", "mean input", "tokens", 1.0),
    "osl_tokens": ("osl", "mean output", "tokens", 1.0),
    "ttft_s": ("ttft", "TTFT SLO", "ms", 1e3),
    "tpot_s": ("tpot", "TPOT SLO", "ms", 1e3),
}


@dataclass(frozen=True)
class Control:
    """One slider with its number."""

    name: str
    label: str
    unit: str
    value: float
    low: float
    high: float


def explore_page(asked: Question, dials: Dials, result: str, status: str) -> str:
    """The whole page; `result` is the fragment of `answer_fragment` ("": there is none), `status` the line above it."""
    head = f'<style>{_STYLE}</style>\n<script src="/explore.js" defer></script>\n'
    bad = ' class="bad"'
    body = (
        f'<div class="explore">\n<form method="get" action="/" aria-label="Settings">\n{_controls(asked, dials)}\n'
        '<button type="submit">Plan</button>\n</form>\n'
        f'<div>\n<p id="status" role="status"{"" if result else bad}>{escape(status)}</p>\n'
        f'<div id="answer">\n{result}\n</div>\n</div>\n</div>'
    )
    return html.page(f"Explore: {asked.model_name}, {asked.workload_name}", [body], head)


def answer_fragment(answer: Plan) -> str:
    """The answer as part of a page: sentences, pictures, pools, alternatives or what binds."""
    parts = [html.paragraph(" ".join(plan_tables.in_three_sentences(answer)), "answer")]
    parts += [html.paragraph(note) for note in notes(answer)]
    drawn = plan_page.fleet_drawings(answer)
    if answer.best is not None:
        parts.append(html.table(*plan_tables.pools_table(answer)))
        drawn += [plan_page.latency_drawing(load) for load in loads(answer)]
        parts.append(plan_page.pictures(drawn, quick=True))
        parts.append(html.table(*plan_tables.alternatives_table(answer)))
    else:
        parts += [html.table(*plan_tables.rejections_table(answer.rejections)), plan_page.pictures(drawn, quick=True)]
    return "\n".join(parts)


@cache
def script() -> str:
    """The page's script."""
    return files("dmodels.report").joinpath("explore.js").read_text(encoding="utf-8")


def _controls(asked: Question, dials: Dials) -> str:
    rest = at_rest(asked)
    found = []
    for field, (name, label, unit, factor) in FIELDS.items():
        middle, value = factor * getattr(rest, field), factor * getattr(dials, field)
        if middle < float("inf"):
            found.append(Control(name, label, unit, value, middle / REACH[field], middle * REACH[field]))
    made = [_slider(control) for control in found]
    made.append(_choice(asked, dials))
    for gpu, price in rest.price_usd_per_hour.items():
        now = dials.price_usd_per_hour.get(gpu, price)
        reach = REACH["price"]
        made.append(_slider(Control(f"price_{gpu}", f"price of {gpu}", "USD/h", now, price / reach, price * reach)))
    return "\n".join(made)


def _slider(c: Control) -> str:
    """A number to type, and a slider over its logarithm; the script keeps both together."""
    words = escape(f"{c.label} [{c.unit}]", quote=True)
    return (
        f'<div class="dial"><label for="{c.name}">{words}</label>'
        f'<input type="number" id="{c.name}" name="{c.name}" value="{c.value:.5g}" min="0" step="any" required>'
        f'<input type="range" data-for="{c.name}" min="0" max="1000" data-low="{c.low:.6g}" data-high="{c.high:.6g}" '
        f'value="{_place(c):.0f}" aria-label="{words}, slider"></div>'
    )


def _place(c: Control) -> float:
    from math import log

    return 1000.0 * min(max(log(c.value / c.low) / log(c.high / c.low), 0.0), 1.0)


def _choice(asked: Question, dials: Dials) -> str:
    names = {"": "any of them" if len(asked.gpus) > 1 else next(iter(asked.gpus))}
    names |= {name: f"only {name}" for name in asked.gpus} if len(asked.gpus) > 1 else {}
    options = "".join(
        f'<option value="{escape(value, quote=True)}"{" selected" * (value == dials.gpu)}>{escape(words)}</option>'
        for value, words in names.items()
    )
    return f'<div><label for="gpu">GPU type</label><select id="gpu" name="gpu">{options}</select></div>'

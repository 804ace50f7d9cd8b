"""What each number of a plan rests on: exact, measured, calibrated, approximate or assumed, with its error; and the
entries of the ledger of claims that the plan's formulas come from."""

from __future__ import annotations

from dmodels import catalog
from dmodels.core.errors import InputError
from dmodels.studies.plan import Plan

from .text import Table

#: Claims behind what every plan uses, and behind each kind of deployment and each risk.
_ALWAYS = ("NK-E1", "TB-5", "TB-4")
_BY_KIND = {
    "one pool": ("POA-4.2", "POA-G"),
    "two pools": ("TB-1", "TB-2", "NEW-17", "TB-FF", "TB-E9"),
    "prefill/decode split": ("POA-1c", "POA-R1", "NK-P1b"),
}
_RISKS = ("POA-4.3", "NK-P2d", "NEW-8")


def rests_on(answer: Plan) -> Table:
    """Every number, its standing, where it comes from, and its error."""
    rows = [
        ["weights, KV per token, blocks", "exact", "the model's config.json", "none"],
        ["activations, runtime", "assumed", "a model of one step; the driver's context", "factor 2 on 1 to 3 GiB"],
        [
            "sequences in memory",
            "approximate",
            "P99 of occupancy, normal law with skewness",
            "Bernstein's guaranteed count is lower: see `dmodels size`",
        ],
        ["step times", *_steps(answer)],
        [
            "waits and percentiles",
            "approximate",
            "Poisson arrivals per instance; occupancy of a birth-death chain; exponential tails",
            _waits(answer),
        ],
        ["lengths and their joint distribution", *_traffic(answer)],
        *([f"price of {name}", "list price", *_price(answer, name)] for name in answer.question.gpus),
    ]
    return "What the numbers rest on", ["number", "standing", "from", "error"], rows


def claims_table(answer: Plan) -> Table:
    """The ledger's entries that this plan uses, with their verdicts."""
    kinds = {d.kind for d in answer.kinds}
    names = [*_ALWAYS, *(name for kind, own in _BY_KIND.items() if kind in kinds for name in own), *_RISKS]
    rows = []
    for name in names:
        entry = catalog.claim(name)
        rows.append(
            [name, entry["verdict"].lower(), f"{entry['source']}, {entry['where']}", entry["says"], entry["means"]]
        )
    head = ["claim", "verdict", "source", "what it says", "what it means for a plan"]
    return "Claims of the papers that the formulas rest on (`dmodels claims ID` runs the check)", head, rows


def _steps(answer: Plan) -> list[str]:
    if answer.best is None:
        found = {c.provenance: c for c in answer.priced.calibration.confidences.values()}
    else:
        found = {pool.confidence.provenance: pool.confidence for pool in answer.best.pools}
    standing = "calibrated" if all(name.startswith("calibrated") for name in found) else "assumed"
    spans = "; ".join(
        f"80 %: TPOT x {c.tpot[0]:.2f} to {c.tpot[1]:.2f}, TTFT x {c.ttft[0]:.2f} to {c.ttft[1]:.2f}"
        for c in dict.fromkeys(found.values())
    )
    return [standing, "; ".join(sorted(found)), spans]


def _waits(answer: Plan) -> str:
    pools = [x for x in answer.best.pools if x.extrapolated] if answer.best else []
    beyond = [f"{' and '.join(x.extrapolated)} of {x.stage.name} (load {x.load_frac:.2f})" for x in pools]
    within = "each P99 within 10 % of the simulation at its load"
    return f"not vouched for: {', '.join(beyond)}; `--verify` simulates them" if beyond else within


def _traffic(answer: Plan) -> list[str]:
    name = answer.question.workload_name
    if name in catalog.workload_names():
        return ["measured", f"{name}: {catalog.workload_source(name)}", "as long as the traffic stays like it"]
    if name.startswith("ISL "):
        return ["assumed", f"{name}, every request alike", "real lengths vary: a trace says how much"]
    return ["measured", name, "as long as the traffic stays like it"]


def _price(answer: Plan, name: str) -> list[str]:
    asked = float(answer.question.gpus[name].price_usd_per_hour)
    try:
        facts = catalog.gpu_facts(name)
    except InputError:  # a GPU of the user's own file
        return [f"{asked:g} USD/h, the file given", "the cost scales with it"]
    if asked != facts["price_usd_per_hour"]:
        return [f"{asked:g} USD/h, given for this plan", "the cost scales with it"]
    return [f"{asked:g} USD/h, {facts['price_source']}, {facts['date']}", "the cost scales with it"]

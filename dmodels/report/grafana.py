"""A Grafana dashboard of plan against reality: each panel has what Prometheus measures and what the model expects."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from dmodels.formats.telemetry.names import COUNTERS, GAUGES, HISTOGRAMS, REPORTERS
from dmodels.studies.watch import Watched

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard(found: Watched) -> str:
    """The JSON that Grafana imports. Panels ask by the names of whoever reported what was seen; what those do not have
    (Dynamo's frontend no KV cache) by those of the engine behind it.
    """
    fleet = found.fleet
    reporters = [found.telemetry.reporter, *([fleet.engine] if fleet else []), *REPORTERS]
    document = {
        "title": f"dmodels: {fleet.name if fleet else 'telemetry'}, plan against reality",
        "uid": None,
        "schemaVersion": 39,
        "editable": True,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "1m",
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus"}]},
        "panels": [_panel(i, *panel) for i, panel in enumerate(_panels(found, reporters))],
    }
    return json.dumps(document, indent=1) + "\n"


def _panels(
    found: Watched, reporters: Sequence[str]
) -> list[tuple[str, str, list[tuple[str, str]], list[tuple[str, float]]]]:
    """(title, unit, what is measured by its expression, what the model expects) of each panel."""
    expected = {one.name: one.predicted for one in found.compared}
    fleet = found.fleet
    ttft, itl = (_named(HISTOGRAMS[what], reporters) for what in ("ttft", "itl"))
    done = _named(HISTOGRAMS["e2e"], reporters)
    running, waiting, kv = (_named(GAUGES[what], reporters) for what in ("running", "waiting", "kv_frac"))
    hits, queries = (f"{_named(COUNTERS[f'prefix_{what}'], reporters)}_total" for what in ("hits", "queries"))
    window = "[$__rate_interval]"
    return [
        (
            "Requests a second",
            "reqps",
            [("completed", f"sum(rate({done}_count{window}))")],
            [
                ("planned", found.telemetry.rate_rps),
                ("most within the SLOs", fleet.serves_rps if fleet else math.nan),
            ],
        ),
        (
            "Time to first token",
            "s",
            [("mean", _average(ttft)), ("P99", _quantile(ttft))],
            [
                ("model, mean", expected.get("TTFT, mean [s]", math.nan)),
                ("model, P99", expected.get("TTFT, P99 [s]", math.nan)),
            ],
        ),
        (
            "Time between tokens",
            "s",
            [("mean", _average(itl)), ("P99", _quantile(itl))],
            [("model, mean", expected.get("time between tokens, mean [s]", math.nan))],
        ),
        (
            "Requests in flight",
            "short",
            [("running", f"sum({running})"), ("waiting", f"sum({waiting})")],
            [("model", expected.get("requests in flight", math.nan))],
        ),
        ("KV cache in use", "percentunit", [("fullest replica", f"max({kv})")], []),
        (
            "Prefix-cache hits",
            "percentunit",
            [("hits", f"sum(rate({hits}{window})) / sum(rate({queries}{window}))")],
            [("planned", found.telemetry.prefix_hit_frac)],
        ),
    ]


def _panel(
    i: int, title: str, unit: str, measured: Sequence[tuple[str, str]], model: Sequence[tuple[str, float]]
) -> dict[str, Any]:
    lines = [*measured, *((name, f"vector({value:.6g})") for name, value in model if math.isfinite(value))]
    targets = [
        {"refId": chr(ord("A") + k), "expr": expr, "legendFormat": name, "datasource": _SOURCE}
        for k, (name, expr) in enumerate(lines)
    ]
    return {
        "id": i + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (i % 2), "y": 8 * (i // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def _named(names: Sequence[str], reporters: Sequence[str]) -> str:
    return next(name for one in reporters for name in names if name.startswith(one))


def _average(name: str) -> str:
    return f"sum(rate({name}_sum[$__rate_interval])) / sum(rate({name}_count[$__rate_interval]))"


def _quantile(name: str) -> str:
    return f"histogram_quantile(0.99, sum by (le) (rate({name}_bucket[$__rate_interval])))"

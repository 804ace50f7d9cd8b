"""A plan as plain data, units in the keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmodels.studies.plan import Change, Deployment, Plan, Suggestion, Tail, command

from .plan_notes import advice, notes
from .plan_words import sentences
from .text import milliseconds


def inputs(answer: Plan) -> dict[str, Any]:
    """Everything that was asked, units in the keys."""
    asked, slo, w = answer.question, answer.question.slo, answer.question.workload
    return {
        "model": asked.model_name,
        "gpus": list(asked.gpus),
        "workload": asked.workload_name,
        "rate_rps": asked.rate_rps,
        "mean_input_tokens": float(w.mean_input_tokens),
        "mean_output_tokens": float(w.mean_output_tokens),
        "prefix_hit_frac": float(w.prefix_hit_frac),
        "slo_ttft_ms": milliseconds(slo.ttft_s),
        "slo_tpot_ms": milliseconds(slo.tpot_s),
        "slo_e2e_ms": milliseconds(slo.e2e_s),
        "slo_percentile": float(slo.percentile),
        "tp": list(asked.tp),
        "pp": list(asked.pp),
        "wide_ep": list(asked.wide_ep),
        "weights": list(asked.weights),
        "kv": list(asked.kv),
        "backend": asked.backend,
        "max_gpus": asked.max_gpus,
        "inventory": dict(asked.inventory),
        "node_gpus": asked.node_gpus,
        "max_usd_per_hour": asked.max_usd_per_hour,
        "headroom_frac": asked.margins.headroom_frac,
        "spare_count": asked.margins.spare_count,
        "confidence": asked.margins.confidence,
        "max_num_seqs_count": float(asked.engine.max_num_seqs_count),
        "max_num_batched_tokens": float(asked.engine.max_num_batched_tokens),
        "max_context_tokens": float(asked.model.max_context_tokens),
        "price_usd_per_hour": {name: float(gpu.price_usd_per_hour) for name, gpu in asked.gpus.items()},
    }


def result(
    answer: Plan, changes: list[Change], suggested: Sequence[Suggestion] = (), tail: Sequence[Tail] = ()
) -> dict[str, Any]:
    """The answer as plain data, units in the keys."""
    return {
        "feasible": answer.best is not None,
        "summary": sentences(answer),
        "notes": notes(answer) + advice(suggested, tail),
        "refused_frac": answer.priced.admitted.refused_frac,
        "cut_off_frac": answer.priced.admitted.cut_frac,
        "recommended": answer.best and _plain(answer, answer.best),
        "cheapest": answer.cheapest and _plain(answer, answer.cheapest),
        "alternatives": [_plain(answer, d) for d in answer.kinds],
        "by_gpu": [_plain(answer, d) for d in answer.by_gpu],
        "two_pools_usd_per_hour_by_threshold_tokens": dict(answer.by_threshold),
        "rejections": [
            {"layout": str(r.layout), "binding": r.binding, "have": r.have, "need": r.need, "fix": r.fix}
            for r in answer.rejections
        ],
        "sensitivity": [vars(c) for c in changes],
        "suggestions": [x.to_dict() for x in suggested],
        "longest_requests": [x.to_dict() for x in tail],
        "ensured": answer.ensured and answer.ensured.to_dict(),
        "outside_of_checked": list(answer.outside),
        "rate_headroom_frac": answer.headroom_frac,
        "survives_loss_of_an_instance": answer.survives_loss,
        "keeps_slos_probability": answer.sure_frac,
        "points_count": answer.points_count,
    }


def _plain(answer: Plan, d: Deployment) -> dict[str, Any]:
    pools = [
        {
            "name": x.stage.name,
            "role": x.stage.role,
            "layout": x.layout.parallel,
            "gpu": x.layout.gpu,
            "weights": x.layout.weights,
            "kv": x.layout.kv,
            "pool_instances": x.instances,
            "gpus_per_instance": x.layout.gpus,
            "pool_gpus": x.gpus,
            "usd_per_hour": x.usd_per_hour,
            "request_share_frac": x.request_share_frac,
            "max_model_len_tokens": x.max_model_len_tokens,
            "ttft_ms": milliseconds(d.seen(x, "TTFT")),
            "tpot_ms": milliseconds(d.seen(x, "TPOT")),
            "e2e_ms": milliseconds(d.seen(x, "E2E")),
            "decode_count": x.decode_count,
            "ttft_interval80_ms": [milliseconds(d.seen(x, "TTFT") * f) for f in x.confidence.ttft],
            "tpot_interval80_ms": [milliseconds(d.seen(x, "TPOT") * f) for f in x.confidence.tpot],
            "latency_provenance": x.confidence.provenance,
            "load_frac": x.load_frac,
            "extrapolated": list(x.extrapolated),
            "slots_count": x.slots_count,
            "binding": x.binding,
            "command": command(x, answer.question),
        }
        for x in d.pools
    ]
    return {
        "kind": d.kind,
        "name": d.name,
        "fleet_gpus": d.gpus,
        "bought_gpus": d.bought_gpus,
        "gpus_low": d.gpus_low,
        "gpus_high": d.gpus_high,
        "usd_per_hour": d.usd_per_hour,
        "usd_per_year": d.usd_per_year,
        "ttft_ms": milliseconds(d.ttft_s),
        "tpot_ms": milliseconds(d.tpot_s),
        "e2e_ms": milliseconds(d.e2e_s),
        "router": d.router,
        "replay": d.replayed and d.replayed.to_dict(),
        "pools": pools,
    }

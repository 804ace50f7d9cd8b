"""The auditors of the other commands: each figure of a document from its other figures, by arithmetic of their own."""

from __future__ import annotations

import csv
import math
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.audit.cards import gpu_card, model_card, model_card_of
from tests.audit.findings import Findings, numbers
from tests.audit.plans import HOURS_A_YEAR, audit_plan
from tests.audit.shown import audit_words

Document = dict[str, Any]


def audit(document: Document) -> None:
    """Hold a command's document against itself; what has no auditor passes."""
    known = AUDITORS.get(document["command"])
    if known is not None:
        findings = Findings()
        known(document["inputs"], document["result"], findings)
        findings.end()
    elif document["command"] in ("plan", "report"):
        audit_plan(document)
        audit_words(document)


def size(inputs: Any, result: Any, findings: Findings) -> None:
    """Memory adds up, and as many sequences fit as go into what is left."""
    part = result["per_gpu"]
    kinds = ("embedding", "attention", "dense", "expert", "prepared")
    findings.same("weights", part["weight_bytes"], sum(part[f"{kind}_weight_bytes"] for kind in kinds), rel=1e-6)
    fixed = part["weight_bytes"] + part["activation_bytes"] + part["runtime_bytes"]
    findings.same("room for the cache", part["kv_budget_bytes"], result["have_bytes"] - fixed, rel=1e-6)
    findings.same("what one sequence needs", result["need_bytes"], fixed + part["kv_sequence_bytes"], rel=1e-6)
    findings.same("GPUs", result["instance_gpus"], inputs["tp"] * inputs["pp"] * inputs["dp"])
    findings.same("fits", result["fits"], not result["fixes"])
    card, gpu = model_card(inputs["model"]), gpu_card(inputs["gpu"])
    if gpu and not inputs["gpu_file"] and inputs["backend"] == "vllm":
        most = inputs["utilization_frac"] * gpu["memory_bytes"]
        findings.hold(0.97 * most <= result["have_bytes"] <= most, f"{result['have_bytes']} of {most} bytes")
    if card and inputs["weight_dtype"] == inputs["kv_dtype"] == "as published":
        whole = part["weight_bytes"] * result["instance_gpus"]
        findings.hold(
            whole >= card["weight_bytes"], f"weights of {whole:.4g} bytes, by the card {card['weight_bytes']}"
        )
        findings.hold(
            part["kv_bytes_per_token"] * inputs["tp"] * inputs["pp"] >= 0.999 * card["kv_bytes_per_token"],
            f"{part['kv_bytes_per_token']} bytes a token and GPU, by the card {card['kv_bytes_per_token']} in all",
        )
    if (mixed := result["mixed_lengths"]) and mixed["slots_count"]:
        held = mixed["slots_count"] / inputs["dp"] * mixed["mean_bytes"]
        findings.ordered("bytes of the mixed sequences, and the room", held, part["kv_budget_bytes"], rel=1e-9)
        surely, likely = mixed["certain_count"], mixed["slots_count"]
        findings.hold(surely < likely or likely <= 3, f"{surely} sequences are certain, {likely} are likely")
    if result["fits"] and not result["mixed_lengths"]:
        each = math.floor(part["kv_budget_bytes"] / part["kv_sequence_bytes"])
        findings.same("sequences", result["sequences_per_instance_count"], each * inputs["dp"])
        free = part["kv_budget_bytes"] - each * part["kv_sequence_bytes"]
        findings.same("what stays free", part["kv_free_bytes"], free, rel=1e-6, most=1.0)


def pools(inputs: Any, result: Any, findings: Findings) -> None:
    """Savings are those of the instances shown; a higher threshold sends more requests to the short pool."""
    single, rows = result["single"], result["thresholds"]
    slot_s = lambda slots: inputs["base_s"] / slots + inputs["per_sequence_s"]  # of an instance, for a request's step
    alone_s = slot_s(single["slots_count"])
    for row in rows:
        name = f"threshold {row['threshold_tokens']}"
        whole = row["short_instances"] + row["long_instances"]
        findings.same(f"instances at {name}", row["fleet_instances"], whole)
        saved = 1 - whole / single["fleet_instances"]
        findings.same(f"saved at {name}", row["with_headroom_and_ceilings_frac"], saved, rel=1e-6)
        loads = {pool: row[f"{pool}_instances"] / inputs["headroom"][pool] for pool in ("short", "long")}
        alone = single["fleet_instances"] / inputs["headroom"]["single"]
        own = 1 - sum(loads.values()) / alone  # but for whole instances
        findings.same(f"Eq. (8) at {name}", row["paper_eq8_frac"], own, rel=0.0, most=2.5 / alone)
        short = row["work_frac"] * slot_s(row["slots_count"]) / alone_s  # what the short pool needs of the single one
        needed = short + 1 - row["work_frac"]
        findings.same(f"exactly saved at {name}", row["exact_frac"], 1 - needed, rel=1e-6, most=1e-9)
        findings.same(f"Eq. (7) at {name}", row["paper_eq7_frac"], row["request_frac"] - short, rel=1e-6, most=1e-9)
        findings.hold(row["paged_frac"] <= 1e-9, f"{name}: a split saves {row['paged_frac']} where pages are given out")
        findings.hold(row["slots_count"] >= single["slots_count"], f"{name}: fewer slots for shorter requests")
        if not inputs["compress"]:
            findings.same(f"compressed at {name}", row["compressed_frac"], 0)
            findings.same(f"instances then at {name}", row["compressed_instances"], row["fleet_instances"])
        else:
            longer = 1 - row["request_frac"]
            findings.ordered(f"compressed at {name}, of those beyond it", 0, row["compressed_frac"], longer)
    for field in ("request_frac", "work_frac"):
        findings.ordered(field, *(row[field] for row in sorted(rows, key=lambda row: row["threshold_tokens"])))
    for best in result["best"]:
        name = f"{best['pools_count']} pools"
        costs = zip(best["work_frac"], best["slots_count"], strict=True)
        needed = sum(work * slot_s(slots) for work, slots in costs) / alone_s
        findings.same(f"work of {name}", sum(best["work_frac"]), 1, rel=1e-6)
        findings.same(f"exactly saved by {name}", best["exact_frac"], 1 - needed, rel=1e-6, most=1e-9)
        findings.same(f"contexts of {name}", len(best["threshold_tokens"]), best["pools_count"])
        findings.ordered(f"contexts of {name}", *best["threshold_tokens"], single["context_tokens"])
    most, found = result["best"][0]["exact_frac"], max(row["exact_frac"] for row in rows)
    findings.hold(found <= most + 1e-9, f"a threshold saves {found}, the best one {most}")
    if inputs["price_usd_per_hour"] is not None:
        each = inputs["gpus_per_instance"] * inputs["price_usd_per_hour"] * HOURS_A_YEAR
        for fleet in (single, *rows):
            findings.same("dollars a year", fleet["fleet_usd_per_year"], fleet["fleet_instances"] * each)


def split(inputs: Any, result: Any, findings: Findings) -> None:
    """All GPUs are spent, violations add up, and no split is better than the best."""
    count = inputs["gpu"]["count"]
    best, selfish, whole = result["optimum"], result["equilibrium"], result["whole_workers"]
    for what, one in (("optimum", best), ("equilibrium", selfish)):
        findings.same(f"GPUs of the {what}", one["prefill_gpus"] + one["decode_gpus"], count)
    for one in (best, selfish, whole):
        if one is not None and one["cost"] is not None:
            violations = one["ttft_violation_frac"] + one["itl_violation_frac"]
            findings.same("cost", one["cost"], violations, rel=1e-6, most=1e-15)
            findings.hold(one["cost"] >= best["cost"] * (1 - 1e-6), f"{one} is better than the optimum {best}")
    if whole is not None and whole["prefill_instances"] is not None:
        for stage in ("prefill", "decode"):
            gpus = whole[f"{stage}_instances"] * inputs["parallel"][f"{stage}_tp"]
            findings.same(f"GPUs of {stage} workers", whole[f"{stage}_gpus"], gpus)
        findings.hold(whole["prefill_gpus"] + whole["decode_gpus"] <= count, "more workers than GPUs")
        if whole["cost"] is not None:
            gap = whole["cost"] - best["cost"]
            findings.same("integrality gap", result["integrality_gap"], gap, rel=1e-3, most=1e-14)
    _equilibria(result, count, findings)
    if best["cost"] > 1e-12:
        findings.same("loss", result["loss_frac"], selfish["cost"] / best["cost"] - 1, rel=1e-3, most=1e-9)
    for name, score in result["planners"].items():
        findings.hold(0 <= score["violation_frac"] <= 1, f"{name}: {score}")
        findings.hold(score["moves_count"] == int(score["moves_count"]) >= 0, f"{name}: {score}")


def _equilibria(result: Any, count: float, findings: Findings) -> None:
    """The one that is reported is among those listed, which all divide the GPUs and which the notes count and list."""
    every, own = result["equilibria_prefill_gpus"], result["equilibrium"]["prefill_gpus"]
    findings.ordered("prefill GPUs of equilibria", 0, *every, count)
    if own is not None:
        near = min((abs(one - own) for one in every), default=math.inf)
        findings.hold(near <= 1e-6 * count, f"the equilibrium at {own} is none of {every}")
    several = next((note for note in result["notes"] if "equilibria were found, at " in note), None)
    findings.same("whether several are told of", several is not None, len(every) > 1)
    if several:
        told = re.search(r"and (\d+) equilibria were found, at (.*) prefill GPUs", several)
        findings.same("how many are told of", int(told[1]), len(every))
        findings.same("those told of", numbers(told[2]), [float(f"{one:.4g}") for one in every])


def transfer(inputs: Any, result: Any, findings: Findings) -> None:
    """Bytes over links are seconds, seconds are shares, and savings are those of the times shown."""
    card = model_card(inputs["model"]["name"])
    if card and not inputs["model"].get("kv_dtype"):
        findings.same("KV bytes per token", result["kv_bytes_per_token"], card["kv_bytes_per_token"])
    for row in result["share"]:
        name = f"{row['context_tokens']} tokens over tier {row['tier']}"
        prompt = inputs["prefill"]["base"] + row["context_tokens"] * inputs["prefill"]["per_token"]
        findings.same(f"prefill of {name}", row["prefill_s"], prompt, rel=1e-6)
        if row["transfer_s"] is None:  # a dead tier
            continue
        shared = row["transfer_s"] / row["ttft_s"]
        findings.same(f"share of {name}", row["share_frac"], shared, rel=1e-6)
        findings.hold(row["ttft_s"] >= row["prefill_s"] + row["transfer_s"], f"TTFT of {name} is less than its parts")
        findings.hold(row["pipelined_ttft_s"] <= row["ttft_s"] * (1 + 1e-9), f"pipelining delays {name}")
        if not inputs["telemetry"]["background"]:
            size = row["context_tokens"] * result["kv_bytes_per_token"]
            rate = result["tier_bytes_per_s"][row["tier"]]
            alone = size / rate if rate else math.inf
            most = max(1e-3, 0.01 * alone)  # latencies
            findings.same(f"seconds of {name}", row["transfer_s"], alone, most=most)
    for rows, base in ((result["policies"], "ttft_vs_first_frac"), (result["upgrades"], "ttft_saved_frac")):
        for row in rows:
            quantiles = [row[f"ttft_p{p}_s"] for p in (50, 95, 99)]
            findings.ordered(f"percentiles of {row['policy']}", *quantiles)
            findings.hold(row["ttft_mean_s"] <= row["ttft_p99_s"], f"mean above P99: {row}")
            tiers = [value for name, value in row.items() if name.startswith("tier_")]
            findings.same(f"tiers of {row['policy']}", sum(tiers), 1.0, rel=1e-6)
            findings.hold(row["slo_frac"] <= row["served_frac"] <= 1, f"more keep the SLO than are served: {row}")
            saved = 1 - row["ttft_mean_s"] / rows[0]["ttft_mean_s"]
            findings.same(f"saved by {row['policy']}", row[base], saved, rel=1e-6, most=0.02)  # the mean over runs
    for row in result["staleness"]:
        fast, slow = (result["tier_bytes_per_s"][row[tier]] for tier in ("fast_tier", "slow_tier"))
        if slow and not inputs["telemetry"]["background"]:
            tolerance = (fast / slow - 1) / (fast / slow + 1)
            findings.same("how wrong a reading may be", row["bandwidth_tolerance"], tolerance, rel=1e-6)
            sent = result["median_input_tokens"] * result["kv_bytes_per_token"]  # the wrong tier costs the difference
            regret = abs((1 - row["far_hit_frac"]) * sent / slow - sent / fast)
            findings.same("what a wrong choice costs", row["regret_at_twice_s"], regret, rel=1e-6)


def place(inputs: Any, result: Any, findings: Findings) -> None:
    """Bytes are blocks, dollars are bytes, curves rise, and no cache hits more than an unlimited one."""
    for tier in result["tiers"]:
        blocks = math.floor(tier["size_gib"] * 1024 / tier["block_mib"] + 1e-9)
        findings.same(f"blocks of {tier['tier']}", tier["blocks_count"], blocks)
    ceiling = result["use"]["ceiling_frac"]
    served = sum(tier["served_frac"] for tier in result["tiers"])
    findings.hold(served <= ceiling + 1e-9, f"tiers serve {served}, an unlimited cache {ceiling}")
    prices = {tier["tier"]: tier["usd_per_gib"] for tier in result["tiers"]}
    for purchase in result["purchases"]:
        added = purchase["added_gib"]
        if all(prices.get(name) is not None for name in added):
            usd = sum(size * prices[name] for name, size in added.items())
            findings.same(f"dollars of {purchase['name']}", purchase["usd"], usd, rel=1e-6)
        if purchase["payback_h"] is not None and purchase["saved_usd_per_hour"]:
            hours = purchase["usd"] / purchase["saved_usd_per_hour"]
            findings.same(f"payback of {purchase['name']}", purchase["payback_h"], hours, rel=1e-6)
        target = inputs["target"]["hit_rate"]
        findings.hold(target is None or purchase["hit_frac"] >= target - 1e-9, f"{purchase} misses {target}")
        findings.hold(purchase["hit_frac"] <= ceiling + 1e-9, f"{purchase['name']} hits more than there is")
    known = [p["usd"] for p in result["purchases"] if p["usd"] is not None]
    if result.get("cheapest") and known:
        findings.same("the cheapest purchase", result["cheapest"]["usd"], min(known))
    _reads(inputs, result, findings)
    curves = result["curves"]
    for name in ("lru_frac", "belady_frac", "usable_frac"):
        findings.ordered(name, *curves[name], rel=1e-9)
        findings.hold(max(curves[name]) <= ceiling + 1e-9, f"{name} passes {ceiling}")
    pairs = zip(curves["lru_frac"], curves["belady_frac"], strict=True)
    findings.hold(all(a <= b + 1e-9 for a, b in pairs), "LRU beats Belady")
    for row in result["pooled"] or []:
        fractions = {"pooling": ("selfish", "isolated"), "coordination": ("coordinated", "selfish")}
        for name, (after, before) in fractions.items():
            if row[f"{before}_s"]:
                gain = max(1 - row[f"{after}_s"] / row[f"{before}_s"], 0.0 if name == "pooling" else -math.inf)
                findings.same(f"{name} of {row['name']}", row[f"{name}_frac"], gain, rel=1e-6, most=1e-9)
        findings.ordered(f"costs of {row['name']}", row["bound_s"], row["coordinated_s"], row["selfish_s"], rel=1e-6)


def _reads(inputs: Any, result: Any, findings: Findings) -> None:
    """What reading a block takes: its bytes at the tier's rate, and the tier's latency; of HBM all GPUs at once. What
    a threshold of the first tier saves, and what a tier brings as it grows."""
    card, gpu = model_card(inputs["model"]["name"]), gpu_card(inputs["gpu"]["name"])
    for row in result["tiers"] if card else []:
        own = inputs["tiers"][row["tier"].lower()]
        block, late = 512 * card["kv_bytes_per_token"], own.get("latency", 0.0)
        if row["tier"] == "HBM":  # GPUs beyond the heads hold copies
            block *= max(inputs["parallel"]["tp"] / card["kv_heads"], 1.0)
        findings.same(f"a block in {row['tier']}", row["block_mib"] * 2**20, block, rel=1e-6)
        findings.same(f"the price of {row['tier']}", row["usd_per_gib"], own["price"])
        if row["size_gib"] is not None:
            findings.same(f"the size of {row['tier']}", row["size_gib"] * 2**30, own["size"], rel=1e-6)
        if row["tier"] != "HBM":
            findings.same(f"reading from {row['tier']}", row["read_s"], late + block / own["bandwidth"], rel=1e-6)
        elif gpu and not inputs["gpu"].get("file"):
            alone = block / (inputs["parallel"]["tp"] * gpu["hbm_bytes_per_s"])
            findings.same("reading from HBM", row["read_s"], alone, rel=0.03)
    p = result["promotion"]
    cost, first = p["access_s"], p["access_s"][0]
    gain = lambda value: 1 - value / first if first else 0.0
    findings.same("KVBM's threshold", p["threshold"][1], 2)
    findings.same("what the best threshold saves", p["gain_frac"], gain(min(cost)), rel=1e-6, most=1e-12)
    findings.same("the best threshold's latency", cost[p["threshold"].index(p["best"])], min(cost), rel=1e-9)
    findings.same("what KVBM's saves", p["kvbm_gain_frac"], gain(cost[1]), rel=1e-6, most=1e-12)
    findings.ordered("what thresholds save, and the most", p["gain_frac"], p["bound_gain_frac"] + 1e-9)
    findings.same("latency as it is", result["access_s"], first, rel=0.25)
    for one in result["vary"]:
        findings.ordered(f"hits as {one['tier']} grows", *one["hit_frac"], rel=1e-9)
        size = next(row["size_gib"] for row in result["tiers"] if row["tier"] == one["tier"]) * 2**30
        ends = [max(k for k, x in enumerate(one["bytes_"]) if x <= size), len(one["bytes_"]) - 1]
        ends[1] = min([k for k, x in enumerate(one["bytes_"]) if x >= size], default=ends[1])
        around = [one["first_token_s"][k] for k in ends]
        low, high = 0.98 * min(around), 1.02 * max(around)
        within = low <= result["first_token_s"] <= high or size > max(one["bytes_"])
        findings.hold(within, f"first token {result['first_token_s']} as {one['tier']} is, around it {around}")
    if shared := result["sharing"]:
        pool, *_, turn = shared["layouts"]
        findings.same("dollars of requests in turn", turn["saved_usd_per_hour"], 0, most=1e-9)
        if pool["equal_blocks"] and turn["equal_blocks"] is not None:
            factor = turn["equal_blocks"] / pool["equal_blocks"]
            findings.same("memory for the pool's hits", shared["memory_factor"], factor, rel=1e-6)
        for layout, curve in zip(shared["layouts"], shared["hit_frac"], strict=True):
            findings.ordered(f"hits of {layout['name']} by size", *curve, rel=1e-9)
            findings.hold(layout["hit_frac"] <= layout["ceiling_frac"] + 1e-9, f"more hits than there are: {layout}")


def route(inputs: Any, result: Any, findings: Findings) -> None:
    """Ratios are those of the costs shown, and nothing is cheaper than the optimum."""
    if result["optimum_s"] is None:  # overloaded
        return
    findings.ordered("price of anarchy", result["lower"], result["upper"])
    if result["exact"] and result["worst_s"]:
        ratio = result["worst_s"] / result["optimum_s"]
        findings.ordered("price of anarchy in its bounds", result["lower"], ratio, result["upper"], rel=1e-6)
    if result["best_s"] is not None and result["worst_s"] is not None:
        findings.ordered("optimum and equilibria", result["optimum_s"], result["best_s"], result["worst_s"], rel=1e-6)
    for name, cost in result["policies"].items():
        ratio = cost["mean_s"] * inputs["requests"] / result["optimum_s"]
        findings.same(f"ratio of {name}", cost["ratio"], ratio, rel=1e-6)
        findings.ordered(f"mean and worst of {name}", cost["mean_s"], cost["worst_s"])
        findings.hold(cost["ratio"] >= 1 - 1e-9 or not result["certified"], f"{name} beats the optimum: {cost}")


def watch(inputs: Any, result: Any, findings: Findings) -> None:
    """What the model expects is what its pools do, whose means lie below their percentiles; Little's law."""
    fleet, seen = result["fleet"], result["telemetry"]
    if fleet is None:
        return
    running_now(fleet, findings)
    told = {one["name"]: one for one in result["compared"]}
    for name, one in told.items():
        if one["measured"] is not None and one["predicted"]:
            findings.same(f"ratio of {name}", one["ratio"], one["measured"] / one["predicted"])
    by_name = {pool["name"]: pool for pool in fleet["pools"]}
    split = set(by_name) == {"prefill", "decode"}
    decoders = [by_name["decode"]] if split else fleet["pools"]
    held = sum(pool["instances"] * pool["decode_count"] for pool in decoders)
    findings.same("in flight by the model", told["requests in flight"]["predicted"], held)
    first = [pool["ttft_mean_s"] * (1 if split else pool["share_frac"]) for pool in fleet["pools"]]
    findings.same("mean TTFT by the model", told["TTFT, mean [s]"]["predicted"], sum(first))
    between = told["time between tokens, mean [s]"]["predicted"]
    findings.hold(
        min(p["tpot_mean_s"] for p in decoders) * (1 - 1e-9) <= between, f"{between} s between tokens: none is so fast"
    )
    findings.hold(
        between <= max(p["tpot_mean_s"] for p in decoders) * (1 + 1e-9), f"{between} s between tokens: none is so slow"
    )
    if seen["output_tokens"] and seen["output_tokens"]["mean"]:
        rate = fleet["rate_rps"] * seen["output_tokens"]["mean"]
        findings.same("in flight by Little's law", held, rate * between, rel=0.2)


def running_now(fleet: Any, findings: Findings) -> None:
    """A fleet that runs: no mean above its percentile, and no more is served than the first pool to fail allows."""
    for pool in fleet["pools"]:
        for metric in ("ttft", "tpot"):
            mean, late = pool[f"{metric}_mean_s"], pool[f"{metric}_s"]
            if mean is not None and late is not None:
                findings.hold(
                    mean <= late * (1 + 1e-9),
                    f"{metric} of {pool['name']}: {mean} s in the mean, {late} s at its percentile",
                )
    whole = [pool["serves_rps"] / pool["share_frac"] for pool in fleet["pools"] if pool["share_frac"]]
    findings.hold(fleet["serves_rps"] <= min(whole) * (1 + 1e-2), f"the fleet serves more than one pool's {min(whole)}")
    if {pool["name"] for pool in fleet["pools"]} != {"prefill", "decode"}:  # these share what a request may take
        findings.same("what the fleet serves", fleet["serves_rps"], min(whole), rel=1e-6)


def step(inputs: Any, result: Any, findings: Findings) -> None:
    """Operators add up to the step, and tokens are those of the requests that decode."""
    seconds = sum(operator["seconds"] for operator in result["operators"])
    findings.same("the step", result["step_s"], seconds, rel=1e-6)
    for operator in result["operators"]:
        share = operator["seconds"] / seconds
        findings.same(f"share of {operator['name']}", operator["share_frac"], share, rel=1e-6)
        findings.hold(0 <= operator["roofline_frac"] <= 1 + 1e-6, f"faster than the machine: {operator}")
        if operator["binds"] in ("memory", "arithmetic") and (gpu := gpu_card(inputs["gpu"])):
            moving, least = operator["bytes"] / gpu["hbm_bytes_per_s"], operator["roofline_frac"] * operator["seconds"]
            bound = moving >= 0.97 * least if operator["binds"] == "memory" else moving <= 0.9995 * least
            findings.hold(bound, f"{operator['name']}: {operator['binds']} binds, memory takes {moving} of {least} s")
    if result["fits"] and result["mixed_frac"] < 1:  # as many prompts begin in a step as answers end
        ends = result["decode_count"] / inputs["output_tokens"]
        findings.same("prompt tokens of a step", result["prompt_tokens"], ends * inputs["input_tokens"], rel=0.01)
    rate = result["decode_count"] / result["step_s"]
    if not result["fits"]:
        findings.same("tokens a second of what does not fit", result["tokens_per_s"], 0)
    elif inputs["concurrency"] is None:
        findings.hold(result["decode_count"] <= result["concurrency"] * (1 + 1e-6), "more decode than are in flight")
        findings.same("tokens a second", result["tokens_per_s"], rate, rel=0.15)
    else:  # the most tokens a second are those of another load
        findings.hold(result["decode_count"] <= inputs["concurrency"] * (1 + 1e-6), "more decode than are in flight")
        findings.ordered("tokens a second, and the most", rate, result["tokens_per_s"], rel=0.01)
    low, high = result["tpot_80"]
    findings.ordered("interval of TPOT", low, 1.0, high)


def simulate(inputs: Any, result: Any, findings: Findings) -> None:
    """Intervals hold their values, whole requests last longer than their beginnings, and slots are all there are."""
    for name, pool in result.items():
        if not isinstance(pool, dict) or "ttft_mean_s" not in pool:
            continue
        for metric, one in pool.items():
            if isinstance(one, dict) and one["low"] is not None:
                findings.ordered(f"{metric} of {name}", one["low"], one["value"], one["high"])
        value = {metric: one["value"] for metric, one in pool.items() if isinstance(one, dict)}
        findings.ordered(f"means of {name}", value["wait_mean_s"], value["ttft_mean_s"], value["e2e_mean_s"])
        tags = [m.removeprefix("ttft_") for m in value if m.startswith("ttft_p")]
        for tag in tags:
            findings.ordered(f"{tag} of {name}", value[f"wait_{tag}"], value[f"ttft_{tag}"], value[f"e2e_{tag}"])
    slots = {f"pool {k}": pool["slots_count"] for k, pool in enumerate(inputs.get("pools") or [])}
    if len(slots) == 1 and "all" in result and "in_flight_count" in result["all"]:
        held, most = result["all"]["in_flight_count"]["value"], next(iter(slots.values()))
        findings.hold(held <= most * 1.02, f"{held} in flight in {most} slots")
        served = result["all"]["served_rps"]["low"]
        findings.hold(served <= inputs["rate_rps"] * 1.1, f"at least {served} of {inputs['rate_rps']} req/s served")


def sweep(inputs: Any, result: Any, findings: Findings) -> None:
    """Points are the axes' product, GPUs are instances x layout, dollars are GPUs, and what is shown is feasible."""
    axes, base, rows = inputs["axes"], inputs["base"], [*result["best"], *result["pareto"]]
    findings.same("points", result["points_count"], math.prod(map(len, axes.values())))
    findings.hold(result["feasible_count"] <= result["points_count"], "more points keep the SLOs than there are")
    findings.hold(len(result["pareto"]) <= result["feasible_count"], "a front of more points than are feasible")
    prices: dict[Any, list[float]] = defaultdict(list)
    for row in rows:
        told = str({name: row[name] for name in axes})
        for name, values in axes.items():
            near = min(values, key=lambda x, at=row[name]: abs(x - at) if isinstance(x, int | float) else x != at)
            findings.same(f"{name} of {told}", row[name], near)
        each = math.prod(row.get(name, base.get(name, 1)) for name in ("tp", "pp", "dp"))
        findings.same(f"GPUs of {told}", row["gpus"], row["instances"] * each)
        if "price_usd_per_hour" not in axes:
            prices[row.get("gpu", base.get("gpu"))].append(row["cost_usd_per_hour"] / row["gpus"])
        for metric in ("ttft", "tpot", "e2e"):
            bound = row.get(f"{metric}_slo_s", base.get(f"{metric}_slo_s"))
            if bound is not None and row.get(f"{metric}_s") is not None:
                findings.hold(row[f"{metric}_s"] <= bound * (1 + 1e-6), f"{metric} of {told} misses {bound} s")
        _swept(base | row, told, findings)
    for gpu, each in prices.items():
        findings.same(f"dollars of a {gpu}", max(each), min(each), rel=1e-6)
    front = [(row["ttft_s"], row["cost_usd_per_mtoken"]) for row in result["pareto"] if "cost_usd_per_mtoken" in row]
    for x, y in front if result["best"] and _ranked_by_cost(result["best"]) else []:
        beaten = any(a < x * (1 - 1e-9) and b < y * (1 - 1e-9) for a, b in front)
        findings.hold(not beaten, f"a point of the front, {x} s and {y} $, is beaten")


def _swept(row: dict[str, Any], told: str, findings: Findings) -> None:
    """One feasible point: all that arrives is served, at the price of the GPUs, by requests in flight (Little)."""
    tokens = row["output_tokens_per_s"]
    if row.get("output_tokens") is not None and row.get("rate_rps") is not None:
        findings.same(f"tokens a second of {told}", tokens, row["rate_rps"] * row["output_tokens"], rel=1e-6)
    dollars = row["cost_usd_per_hour"] / 3600 / tokens * 1e6
    findings.same(f"dollars a million tokens of {told}", row["cost_usd_per_mtoken"], dollars, rel=1e-6)
    findings.same(f"tokens a second and GPU of {told}", row["gpu_tokens_per_s"], tokens / row["gpus"], rel=1e-6)
    if row.get("price_usd_per_hour") is not None:
        dollars = row["gpus"] * row["price_usd_per_hour"]
        findings.same(f"dollars of {told}", row["cost_usd_per_hour"], dollars, rel=1e-6)
    elif prices := gpu_card(row["gpu"]):
        low, high = prices["usd_low"], prices["usd_high"]
        each = row["cost_usd_per_hour"] / row["gpus"]
        findings.hold(low <= each <= high, f"{told}: a {row['gpu']} for {each} $/h, published are {low} to {high}")
    held = tokens / row["instances"] / row["user_tokens_per_s"]
    # Little's law; the first token of an answer, one of 28 where answers are short, is not decoded
    findings.ordered(f"requests that decode in {told}", 0.88 * held, row["decode_count"], 1.02 * held)
    findings.ordered(f"requests that decode, and slots of {told}", row["decode_count"], row["slots_count"])
    findings.ordered(f"tokens a second of a late user and of all, {told}", 1 / row["tpot_s"], row["user_tokens_per_s"])
    findings.hold(row["e2e_s"] >= row["ttft_s"], f"{told} ends before its first token")


def _ranked_by_cost(rows: list[dict[str, float]]) -> bool:
    costs = [row["cost_usd_per_mtoken"] for row in rows]
    return costs == sorted(costs)


def predict(inputs: Any, result: Any, findings: Findings) -> None:
    """Every row of the file is predicted or refused, intervals are nested, no step is shorter than reading the active
    weights once, and of rows that differ in their clients alone, more clients are no faster."""
    predicted = {row["id"]: row for row in result["predictions"]}
    for name, row in predicted.items():
        for metric in ("ttft", "tpot"):
            ends = ("lo95_ms", "lo80_ms", "ms", "hi80_ms", "hi95_ms")
            findings.ordered(f"intervals of {metric} of {name}", 0.0, *(row[f"{metric}_{end}"] for end in ends))
    rows = table(Path(inputs["rows"]))
    if rows is None:  # a load generator's report
        return
    told = sorted([*predicted, *(row["id"] for row in result["rejected"])])
    findings.same("rows predicted or refused", told, sorted(row["id"] for row in rows))
    alike: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = defaultdict(list)
    for row in rows:
        found, card, gpu = predicted.get(row["id"]), model_card_of(row["model_path"]), gpu_card(row["system"])
        if found is None or row["mode"] != "agg" or row.get("silicon_data_source"):  # known runs may draft tokens
            continue
        if card and gpu:
            gpus = math.prod(float(row[name] or 1) for name in ("tp_size", "pp_size", "attention_dp_size"))
            share = min(BITS.get(row.get(f"{name}_quant_mode"), 4) for name in ("gemm", "moe")) / card["weight_bits"]
            least = 1e3 * min(share, 1.0) * card["read_bytes"] / (gpus * gpu["hbm_bytes_per_s"])
            findings.ordered(f"reading the weights in a step of {row['id']} [ms]", least, found["tpot_ms"])
        same = tuple(sorted((k, v) for k, v in row.items() if k not in ("id", "batch_size", "") and "silicon" not in k))
        alike[same].append((float(row["batch_size"]), found["tpot_ms"]))
    for loads in alike.values():
        findings.ordered("TPOT by clients", *(tpot for _, tpot in sorted(loads)), rel=1e-6)


#: Bits of a number; of any other format, 4.
BITS = {"": 16, "none": 16, "bf16": 16, "bfloat16": 16, "fp16": 16, "float16": 16, "fp8": 8, "fp8_block": 8}


def table(path: Path) -> list[dict[str, str]] | None:
    """The rows of a benchmark's table, cut off and overlong ones too; None for another file."""
    with path.open(newline="", encoding="utf-8", errors="replace") as lines:
        rows = list(csv.DictReader(lines, restval="", restkey="")) if path.suffix == ".csv" else []
    return rows if rows and "model_path" in rows[0] else None


AUDITORS: dict[str, Callable[[Any, Any, Findings], None]] = {
    one.__name__: one for one in (size, pools, split, transfer, place, route, step, sweep, predict, simulate, watch)
}

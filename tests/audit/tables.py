"""The auditor of what the other commands show: every cell of a table, and every number in a sentence, against the JSON
document of the same answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from tests.audit.findings import Findings, last_digit, number, numbers
from tests.audit.shown import terminal_tables

#: Of a table: head of a column -> key of the document's row, or what it is of that row.
Columns = dict[str, str | Callable[[Any], Any]]
#: (unit at the end of a head, of a key): by how much the number shown is larger.
SCALES = {
    ("ms", "_s"): 1e3,
    ("s", "_s"): 1,
    ("%", "_frac"): 100,
    ("[GB]", "bytes"): 1e-9,
    ("GB", "bytes"): 1e-9,
    ("TFLOP", "flop"): 1e-12,
}


def cells(title: str, text: str, rows: list[Any], columns: Columns, findings: Findings) -> None:
    """The table whose title holds `title` has a line for each of `rows`, which says what its columns should."""
    whole, lines = next(((head, found) for head, found in terminal_tables(text).items() if title in head), ("", None))
    findings.read[whole] |= columns.keys()
    if lines is None or len(lines) != len(rows):
        findings.hold(not rows, f"{title}: {0 if lines is None else len(lines)} lines for {len(rows)} rows")
        return
    for line, row in zip(lines, rows, strict=True):
        for head, key in columns.items():
            value = key(row) if callable(key) else scaled(head, key, row)
            cell(f"{title}, {head} of {line}", line.get(head, "no such column"), value, findings)


def scaled(head: str, key: str, row: Any) -> Any:
    """The value under `key` in the unit of `head`."""
    value = row[key]
    if not isinstance(value, int | float):
        return value
    unit = re.sub(r"[\[\]]", "", head).split()[-1]
    return value * next((k for (shown, kept), k in SCALES.items() if unit == shown and key.endswith(kept)), 1)


def cell(what: str, shown: str, value: Any, findings: Findings) -> None:
    """A cell is the value: to its last digit, and to four digits."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        said = {None: ("-", "inf", "nan", "")}.get(value, (str(value),))
        findings.hold(shown in said or _folded(shown) in map(_folded, said), f"{what}: {shown!r} for {value!r}")
    elif re.fullmatch(r"[-+$]?[\d,]*\.?\d+(e[-+]?\d+)?[%]?", shown):
        most = 0.0051 if "USD/h" in what else last_digit(shown) if "e" not in shown else 0.0  # to the cent
        findings.same(what, number(shown), value, rel=6e-4, most=most)
    else:
        findings.hold(shown in ("-", "inf") and not math.isfinite(value), f"{what}: {shown!r} for {value!r}")


def _folded(text: str) -> str:
    return "".join(text.split())


def said(pattern: str, text: str, values: list[Any], findings: Findings) -> None:
    """A sentence is there, and its numbers are `values`."""
    found = re.search(pattern, " ".join(text.split()))
    if found is None:
        findings.hold(False, f"nothing like {pattern!r} is said")
        return
    for shown, value in zip(found.groups(), values, strict=True):
        cell(pattern, shown.rstrip(".,"), value, findings)


NUMBER = r"([\d,.e+-]+%?)"


def size(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    part, gib = result["per_gpu"], 2**30
    kinds = {
        "embedding and head": "embedding_weight_bytes",
        "attention": "attention_weight_bytes",
        "dense FFNs, shared experts, routers": "dense_weight_bytes",
        "routed experts": "expert_weight_bytes",
        "padding and absorbed projections": "prepared_weight_bytes",
        "activations and sampler": "activation_bytes",
        "driver and communicators": "runtime_bytes",
        "left for the KV cache": "kv_budget_bytes",
    }
    there = [(name, part[key] / gib) for name, key in kinds.items() if part[key]]
    known = {"activations and sampler": "the engine's start-up run, within 20 %"}
    known |= {"driver and communicators": "median of engine logs, within 1 GiB"}
    known |= {"left for the KV cache": "the rest of the usable memory"}
    known |= {"padding and absorbed projections": "as its kernels store them"}
    sure = lambda row: known.get(row[0], "exact")
    title = f"{inputs['model']} on {result['instance_gpus']} x {inputs['gpu']} ({inputs['parallel']})"
    cells(title, text, there, {"": lambda row: row[0], "GiB": lambda row: row[1], "how sure": sure}, findings)
    if not result["fits"]:
        told = [result["have_bytes"] / gib, result["need_bytes"] / gib, inputs["context_tokens"]]
        said(rf"have {NUMBER} GiB.*need {NUMBER} GiB with one sequence of {NUMBER} tokens", text, told, findings)
        for fix in result["fixes"]:
            said(rf"fits with {re.escape(fix['change'])}: {NUMBER} at once", text, [fix["slots_count"]], findings)
        return
    told = [result["sequences_per_instance_count"], inputs["context_tokens"], result["instance_gpus"]]
    said(rf"{NUMBER} sequences of {NUMBER} tokens at once per instance of {NUMBER} GPUs?", text, told, findings)
    each = [part["kv_sequence_bytes"] / 2**20, part["kv_bytes_per_token"]]
    said(rf"each {NUMBER} MiB per GPU; {NUMBER} bytes per token and GPU", text, each, findings)
    longest = [result["longest_context_tokens"]]
    said(rf"what limits: {re.escape(result['binds'])}; a single sequence could have {NUMBER}", text, longest, findings)
    if (mixed := result["mixed_lengths"]) is not None:
        told = [mixed["slots_count"], mixed["probability"]]
        said(rf"{NUMBER} running sequences of {inputs['workload']} fit with {NUMBER} probab", text, told, findings)
        told = [mixed["mean_bytes"] / 2**20, mixed["certain_count"]]
        said(rf"{NUMBER} MiB per GPU each on average; .*\({NUMBER} by Bernstein", text, told, findings)


def pools(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    single, named = result["single"], inputs["trace"] or inputs["workload"]
    gpus = single["fleet_instances"] * inputs["gpus_per_instance"]
    told = [inputs["rate_rps"], single["context_tokens"], single["slots_count"], single["fleet_instances"], gpus]
    title = rf"at {NUMBER} req/s. One pool of {NUMBER} tokens: {NUMBER} slots, {NUMBER} instances? = {NUMBER} GPUs?"
    said(f"{re.escape(str(named))} {title}", text, told, findings)
    if inputs["price_usd_per_hour"] is not None:
        said(rf"GPUs?, {NUMBER} \$/year", text, [single["fleet_usd_per_year"]], findings)
    heads = ["threshold", "slots", "requests", "work", "short", "long", "instances", "saved: Eq. 7", "exact"]
    keys = ["threshold_tokens", "slots_count", "request_frac", "work_frac", "short_instances", "long_instances"]
    keys += ["fleet_instances", "paper_eq7_frac", "exact_frac"]
    columns: Columns = dict(zip(heads, keys, strict=True))
    columns |= {"with headroom": "with_headroom_and_ceilings_frac", "if paged": "paged_frac"}
    columns |= {"$/year": "fleet_usd_per_year"} if inputs["price_usd_per_hour"] is not None else {}
    if inputs["compress"]:
        columns |= {"compressed": "compressed_frac", "instances then": "compressed_instances"}
    cells(str(named), text, result["thresholds"], columns, findings)
    dollars = any("$/year" in row for rows in terminal_tables(text).values() for row in rows)
    findings.same("a column of dollars", dollars, inputs["price_usd_per_hour"] is not None)
    title, lines = next(item for item in terminal_tables(text).items() if item[0].startswith("Best thresholds"))
    findings.read[title] |= {"pools", "contexts", "slots", "work", "saved: exact"}
    for line, best in zip(lines, result["best"], strict=True):
        lists = {"contexts": "threshold_tokens", "slots": "slots_count"}
        for head, key in lists.items():
            findings.same(f"{head} of {line}", numbers(line[head]), [float(round(x)) for x in best[key]])
        for shown, share in zip(line["work"].split(" / "), best["work_frac"], strict=True):
            cell(f"work of {line}", shown, share, findings)
        cell(f"pools of {line}", line["pools"], best["pools_count"], findings)
        cell(f"saved of {line}", line["saved: exact"], best["exact_frac"], findings)
    _reasons(inputs, result, text, findings)


def _reasons(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """Why the best threshold is the best, and how far from it as good as that, in sentences."""
    single, one = result["single"], lambda value: float(f"{value:.3f}")
    rows = sorted(result["thresholds"], key=lambda r: (r["with_headroom_and_ceilings_frac"], r["exact_frac"]))
    top, step = rows[-1], lambda slots: inputs["base_s"] + slots * inputs["per_sequence_s"]
    each = [step(fleet["slots_count"]) / fleet["slots_count"] for fleet in (top, single)]
    told = [round(top["threshold_tokens"]), one(top["request_frac"]), one(top["work_frac"]), top["slots_count"]]
    words = rf"Of these thresholds {NUMBER} is best: below it are {NUMBER} of the requests and {NUMBER} of the work, "
    words += rf"and work in {NUMBER} slots costs {NUMBER} less than in {NUMBER}\."
    said(words, text, [*told, one(1 - each[0] / each[1]), single["slots_count"]], findings)
    said(rf"Eq. \(7\) of the paper says {NUMBER}: it counts", text, [one(top["paper_eq7_frac"])], findings)
    if result["best"][0]["exact_frac"] > 0:
        ends = [round(x) for x in (*result["forgiving_tokens"], result["best"][0]["threshold_tokens"][0])]
        words = rf"Any threshold from {NUMBER} to {NUMBER} keeps 80 % of what the best one, {NUMBER}, saves"
        said(words, text, ends, findings)
        findings.ordered("thresholds that do, and the best", ends[0], ends[2], ends[1])
    none = top["with_headroom_and_ceilings_frac"] <= 0
    findings.same("whether one pool is kept", "No threshold here saves an instance; keep one pool." in text, none)
    factors = inputs["headroom"]
    unequal = 1 - factors["long"] / factors["single"]
    if abs(unequal) > 1e-12:
        told = [factors["single"], factors["long"], one(unequal)]
        words = rf"Headroom of {NUMBER} for one pool against {NUMBER} for the long one alone makes {NUMBER}, whatever"
        said(words, text, told, findings)


def split(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    rows = [("equilibrium", result["equilibrium"]), ("optimum", result["optimum"])]
    whole = result["whole_workers"]
    if not whole["flags"]:
        rows.append((f"whole workers: {whole['prefill_instances']} + {whole['decode_instances']}", whole))
    heads = {"prefill [GPU]": "prefill_gpus", "decode [GPU]": "decode_gpus"}
    heads |= {"TTFT misses": "ttft_violation_frac", "ITL misses": "itl_violation_frac"}
    columns: Columns = {"split": lambda row: row[0]}
    late = lambda value, key: "under 0.001%" if key.endswith("_frac") and 0 < value < 1e-5 else value
    columns |= {head: lambda row, key=key: late(row[1][key], key) for head, key in heads.items()}
    cells("Prefill/decode split", text, rows, columns, findings)
    names = {"late requests": "violation_frac", "workers moved": "moves_count", "worst wait [s]": "worst_wait_s"}
    columns = {"planner": lambda row: row[0]}
    names["recovery [s]"] = "recovery_s"
    columns |= {head: lambda row, key=key: late(row[1][key], key) for head, key in names.items()}
    cells("Planners on a", text, list(result["planners"].items()), columns, findings)
    if result["loss_frac"] is not None:
        said(rf"The equilibrium costs {NUMBER} more violations than", text, [result["loss_frac"]], findings)
    if slope := result["optimum_slope_gpus_per_rps"]:
        said(r"moves the optimum by ([-+][\d.e+-]+) prefill GPUs", text, [f"{slope:+.3g}"], findings)


def transfer(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    share: Columns = {"context": "context_tokens", "tier": "tier", "prefill s": "prefill_s", "transfer s": "transfer_s"}
    share |= {"share %": "share_frac", "layer by layer %": "pipelined_share_frac"}
    cells("Share of TTFT", text, result["share"], share, findings)
    means: Columns = {"served %": "served_frac", "TTFT s": "ttft_mean_s", "transfer s": "transfer_mean_s"}
    policy: Columns = {
        "policy": "policy",
        **means,
        "SLO %": "slo_frac",
        "TTFT +- s": "ttft_se_s",
        "P99 s": "ttft_p99_s",
    }
    policy |= {"TBT ms": "tbt_mean_s", "tier 2 %": "tier_2_frac", "tier 3 %": "tier_3_frac"}
    cells(
        "Policies on the same",
        text,
        result["policies"],
        policy | {"saved %": "ttft_vs_first_frac", "saved +- %": "ttft_vs_first_se_frac"},
        findings,
    )
    upgrade: Columns = {"change": "upgrade", **means, "TTFT saved %": "ttft_saved_frac"}
    cells("Which upgrade pays", text, result["upgrades"], upgrade, findings)
    stale: Columns = {
        "tiers": lambda row: f"{row['fast_tier']} or {row['slow_tier']}",
        "hit on the slower": "far_hit_frac",
        "order of bandwidths": "bandwidth_tolerance",
        "order of costs": "cost_tolerance",
        "regret at twice s": "regret_at_twice_s",
        "refresh s": "refresh_s",
    }
    cells("How stale telemetry", text, result["staleness"], stale, findings)
    for problem in result["problems"]:
        findings.hold(f"problem: {problem}" in text, f"not said: {problem}")
    least = min(row["served_frac"] for row in result["policies"])
    if least < 1:
        said(rf"as few as {NUMBER} % of the requests are served", text, [float(f"{100 * least:.3g}")], findings)


def place(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    tiers: Columns = {"tier": "tier", "size [GiB]": "size_gib", "blocks": "blocks_count", "serves": "served_frac"}
    tiers |= {"read a block [ms]": "read_s", "price [$/GiB]": "usd_per_gib"}
    cells("Tiers as they are", text, result["tiers"], tiers, findings)
    added = lambda one: ", ".join(f"{gib:,.4g} {tier}" for tier, gib in one["added_gib"].items()) or "nothing"
    buy: Columns = {
        "buy": "name",
        "GiB": added,
        "price [$]": "usd",
        "hit rate": "hit_frac",
        "first token [ms]": "first_token_s",
    }
    buy |= {"saves [$/h]": "saved_usd_per_hour", "paid back [h]": "payback_h"}
    bought = [*([result["cheapest"]] if result["cheapest"] else []), *result["purchases"]]
    if result["purchases"]:
        cells("What to buy", text, bought, buy, findings)
    if result["sharing"]:
        layout: Columns = {"layout": "name", "hit rate": "hit_frac", "first token [ms]": "first_token_s"}
        layout |= {"ceiling": "ceiling_frac", "saves [$/h]": "saved_usd_per_hour"}
        layout |= {"blocks for the pool's hits": "equal_blocks"}
        title = f"HBM of {result['sharing']['workers']} workers"
        cells(title, text, result["sharing"]["layouts"], layout, findings)
    pool: Columns = {"requests": "name", "alone [ms]": "isolated_s", "pool, each for itself [ms]": "selfish_s"}
    pool |= {"pool, run centrally [ms]": "coordinated_s", "no less than [ms]": "bound_s"}
    pool |= {"pooling saves": "pooling_frac"}
    ends = lambda one: " to ".join(f"{one[key]:.1%}" for key in ("coordination_frac", "coordination_most_frac"))
    pool |= {"central placement saves": ends}
    cells("The pool as a game", text, result["pooled"] or [], pool, findings)
    curves, gib = result["curves"], result["tiers"][0]["block_mib"] / 1024
    sizes = sorted({*curves["replayed_blocks"][::2], curves["replayed_blocks"][-1]})
    on = lambda key, axis="blocks": lambda size: curves[key][_first(curves[axis], size)]
    cells(
        "By cache size",
        text,
        sizes,
        {
            "blocks": lambda size: size,
            "GiB": lambda size: size * gib,
            "optimum": on("belady_frac"),
            "LRU": on("usable_frac"),
            "KVBM": on("kvbm_usable_frac", "replayed_blocks"),
            "LFU": on("lfu_usable_frac", "replayed_blocks"),
            "Che, shuffled": on("shuffled_frac"),
            "recomputed [TFLOP/request]": lambda size: on("recomputed_flop")(size) / 1e12,
            "prefill [ms]": lambda size: 1e3 * on("prefill_s")(size),
        },
        findings,
    )
    _said_of_a_placement(result, text, findings)
    use = result["use"]
    limited = sum(tier["served_frac"] for tier in result["tiers"] if tier["size_gib"] is not None)
    told = [use["requests_count"], use["accesses_count"], limited, float(f"{1e3 * result['access_s']:.3g}")]
    words = rf"{NUMBER} requests, {NUMBER} block accesses: {NUMBER} hit in memory .* mean access {NUMBER} ms, "
    said(words + rf"first token {NUMBER} ms", text, [*told, 1e3 * result["first_token_s"]], findings)


def _said_of_a_placement(result: Any, text: str, findings: Findings) -> None:
    """First uses, shared memory and games, in sentences."""
    use, one = result["use"], lambda value: float(f"{value:.3f}")
    told = [one(use[key]) for key in ("once_frac", "once_blocks_frac", "ceiling_frac", "warm_frac")]
    words = rf"{NUMBER} of the block accesses \({NUMBER} of the blocks\) are to blocks used once; an unlimited cache "
    said(words + rf"hits {NUMBER}, and {NUMBER} if", text, told, findings)
    if result["sharing"]:
        layouts = {layout["name"]: one(layout["hit_frac"]) for layout in result["sharing"]["layouts"]}
        names = ("one pool", "own caches, conversations kept together", "own caches, requests in turn")
        words = rf"HBM hits {NUMBER}, caches of their own {NUMBER} with conversations kept together and {NUMBER} with "
        said(words + "requests in turn", text, [layouts[name] for name in names], findings)
    for row in result["pooled"] or []:
        told = [one(row[key]) for key in ("pooling_frac", "coordination_frac", "coordination_most_frac")]
        words = rf"As a game, {row['name']}: pooling HBM and the tiers below saves {NUMBER} of the time of reads.*?, "
        said(words + rf"central placement another {NUMBER} to {NUMBER}", text, told, findings)
    curves = result["curves"]
    pairs = zip(curves["blocks"], curves["lru_frac"], curves["shuffled_frac"], strict=True)
    off, at = max((abs(lru - shuffled), blocks) for blocks, lru, shuffled in pairs)
    if off > 0.02:
        told = [float(f"{100 * off:.1f}"), round(at)]
        said(rf"Che's approximation is off by {NUMBER} points at {NUMBER} blocks", text, told, findings)

    _leaders(result, text, findings)


def _leaders(result: Any, text: str, findings: Findings) -> None:
    """What HBM should take, and what a block costs that is never used again, in sentences."""
    p, two = result["promotion"], lambda value: float(f"{value:.4f}")
    if p["gain_frac"] > 0:
        told = [p["best"], two(p["gain_frac"])]
        said(rf"HBM as leader: threshold {NUMBER} is best and takes {NUMBER} off the", text, told, findings)
    else:
        said(r"HBM as leader: (storing everything) is best", text, ["storing everything"], findings)
    told = [two(p["kvbm_gain_frac"]), two(p["bound_gain_frac"])]
    said(rf"takes off {NUMBER}\); no leader can take off more than {NUMBER}\.", text, told, findings)
    curves = result["curves"]
    top = curves["lost_hits"].index(max(curves["lost_hits"]))
    told = [float(f"{curves['lost_hits'][top]:.2g}"), float(f"{1e3 * curves['lost_gpu_s'][top]:.3g}")]
    words = rf"costs others up to {NUMBER} hits \({NUMBER} ms of prefill\), at {NUMBER} blocks"
    said(words, text, [*told, round(curves["blocks"][top])], findings)


def _first(axis: list[float], size: float) -> int:
    return next(k for k, value in enumerate(axis) if value >= size)


def step(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    if not result["fits"]:
        findings.hold("Nothing fits" in text, "what does not fit is not said")
        return
    columns: Columns = {"operator": "name", "ms": lambda o: 1e3 * o["seconds"], "of the step": "share_frac"}
    columns |= {"GB": "bytes", "TFLOP": "flop", "binds": "binds", "rests on": "source"}
    three = lambda value: float(f"{value:.3g}")
    title = f"{inputs['model']} on {inputs['gpu']} ({inputs['parallel']}, {inputs['backend']})"
    loose = {k: v for k, v in columns.items() if not k.startswith("of the")}
    cells(title, text, result["operators"], loose, findings)
    shares: Columns = {"of the step": lambda o: three(o["share_frac"])}
    shares["of the roofline"] = lambda o: three(o["roofline_frac"]) or None
    cells(title, text, result["operators"], shares, findings)
    said(rf"a mean step takes {NUMBER} ms", text, [three(1e3 * result["step_s"])], findings)
    low, high = result["tpot_80"]
    tpot = 1e3 * result["tpot_s"]
    told = [round(result["decode_count"]), three(result["mixed_frac"]), round(result["prompt_tokens"]), three(tpot)]
    told += [three(tpot * low), three(tpot * high), three(1e3 * result["ttft_s"])]
    words = rf"{NUMBER} requests decode in it; {NUMBER} of the steps compute prompts, {NUMBER} tokens a step .* "
    words += rf"TPOT {NUMBER} ms \(80 %: {NUMBER} to {NUMBER} ms\), TTFT {NUMBER} ms"
    said(words, text, told, findings)
    told = [round(result["tokens_per_s"]), round(result["concurrency"])]
    told += [inputs["input_tokens"], inputs["output_tokens"]]
    words = rf"at most {NUMBER} output tokens a second, with {NUMBER} requests of {NUMBER} \+ {NUMBER} tokens"
    said(words, text, told, findings)


def route(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    if result["worst_s"] is None or result["optimum_s"] is None:
        findings.read.update({title: set(rows[0]) for title, rows in terminal_tables(text).items()})
        return
    each = {key: result[f"{key}_s"] / inputs["requests"] for key in ("worst", "best", "optimum")}
    rows = [("worst equilibrium", each["worst"], result["lower"], result["upper"])]
    rows += [("best equilibrium", each["best"], result["stability_lower"], result["stability_upper"])]
    rows += [("optimum", each["optimum"], 1, 1)]
    for name, policy in result["policies"].items():
        worst = policy["ratio"] * policy["worst_s"] / policy["mean_s"] if policy["mean_s"] else None
        rows.append((name, policy["mean_s"], policy["ratio"], worst))
    heads = ("", "mean cost [s]", "over optimum, from (mean)", "to (worst)")
    columns: Columns = {head: lambda row, k=k: row[k] for k, head in enumerate(heads)}
    title = f"{inputs['requests']} requests, {inputs['prefixes']} prefixes, {inputs['workers']} workers"
    cells(title, text, rows, columns, findings)


def poa(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    keys = ("end_s", "poa_hat", "ttft_p99_s", "regime", "driver", "routing", "constant", "queueing", "flags")
    heads = ("end [s]", "PoA-hat", "TTFT P99 [s]", "regime", "driver", "routing x", "constant x", "queueing x", "flags")
    title = f"{result['log']['kept']:,} requests on {len(result['log']['workers'])} workers"
    cells(title, text, result["windows"], dict(zip(heads, keys, strict=True)), findings)


#: Bit of a flag -> the word beside an interval, and what is said of it below.
NOTES = {
    2: ("overload", "waits keep growing"),
    16: ("wide", "the interval is not as narrow, or as sure, as asked"),
    256: ("few", "few values beyond the percentile"),
    32: ("none", "not a number"),
}


def simulate(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    if "metrics" in result:
        compared(inputs, result, text, findings)
        return
    pools = {name: pool for name, pool in result.items() if isinstance(pool, dict) and "ttft_mean_s" in pool}
    pools = pools or {"all": result}
    rows = [
        (name, metric, one)
        for name, pool in pools.items()
        for metric, one in pool.items()
        if isinstance(one, dict) and "low" in one
    ]
    columns: Columns = {"pool": lambda row: row[0], "metric": lambda row: row[1]}
    columns |= {"value": lambda row: row[2]["value"], "95% low": lambda row: row[2]["low"]}
    columns |= {"95% high": lambda row: row[2]["high"]}
    columns["note"] = lambda row: ", ".join(word for bit, (word, _) in NOTES.items() if row[2]["flags"] & bit)
    if "servers" in inputs:
        columns["note"] = lambda row: NOTES[2][1] if row[2]["flags"] & 2 else ""
    else:
        raised = {bit for bit in NOTES for row in rows if row[2]["flags"] & bit}
        for bit, (word, meaning) in NOTES.items():
            told = f"{word}: {meaning}" in text.splitlines()
            findings.same(f"whether {word!r} is explained", told, bit in raised)
    title = next(title for title in terminal_tables(text) if " req/s on " in title)
    if "servers" in inputs:
        for one in inputs["servers"]:
            findings.hold(f"{one['instances']} x {one['name']}" in title, f"{one['name']} is not in {title!r}")
            told = [one["slots_count"], one["step_tokens"], one["kv_tokens"]]
            words = rf"{one['scheduler']}: up to {NUMBER} requests and {NUMBER} tokens in a step, room for {NUMBER} tok"
            said(words, text, told, findings)
        told = [result["cut_requests_count"], result["restarts_count"]]
        said(rf" requests, {NUMBER} left out as warm-up and end; {NUMBER} times a request", text, told, findings)
    else:
        columns["samples"] = lambda row: row[2]["samples"]
    cells(title, text, rows, columns, findings)
    said(rf"at {NUMBER} req/s on ", title, [inputs["rate_rps"]], findings)
    if len(inputs.get("pools") or []) == 2 and not inputs["decode_instances"]:
        sizes = [pool[key] for pool in inputs["pools"] for key in ("instances", "slots_count")]
        said(rf"{NUMBER} x {NUMBER} \+ {NUMBER} x {NUMBER} slots", title, sizes, findings)


def compared(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """A log beside its simulation."""
    (one,) = inputs["servers"]
    columns: Columns = {"metric": "name", "simulated": "simulated_s", "measured": "measured_s"}
    columns["error"] = lambda metric: f"{metric['simulated_s'] / metric['measured_s'] - 1:+.1%}"
    cells(f"{result['requests_count']:,} requests on {one['name']}", text, result["metrics"], columns, findings)
    for law, words in (("measured", "would explain the log"), ("simulated", "is the calibrated one")):
        law = result[f"{law}_law"]
        told = [1e3 * law["base_s"], 1e6 * law["per_request_s"], 1e6 * law["per_prompt_token_s"]]
        told = [float(f"{value:.3g}") for value in told] + [float(f"{100 * law['apart_frac']:.1f}") / 100]
        step = rf"a step of {NUMBER} ms \+ {NUMBER} us a request that decodes \+ {NUMBER} us a prompt token {words} "
        said(step + rf"\({NUMBER} of the duration", text, told, findings)
    slower = [float(f"{result['slower']:.3g}")]
    said(rf"the calibrated steps, {NUMBER} times as long, come closest to the log", text, slower, findings)


#: Axis or output -> how a table calls it; {} is the percentile.
IN_WORDS = {
    "rate_rps": "request rate [req/s]",
    "input_tokens": "input length [token]",
    "output_tokens": "output length [token]",
    "ttft_slo_s": "TTFT{} at most [s]",
    "tpot_slo_s": "TPOT{} at most [s]",
    "e2e_slo_s": "E2E{} at most [s]",
    "price_usd_per_hour": "price of a GPU [USD/h]",
    "slowdown": "step times over predicted ones",
    "instances": "instances",
    "gpus": "GPUs",
    "cost_usd_per_hour": "cost [USD/h]",
    "cost_usd_per_mtoken": "cost of a million output tokens [USD/Mtoken]",
    "ttft_s": "TTFT{} [s]",
    "tpot_s": "TPOT{} [s]",
    "e2e_s": "E2E{} [s]",
    "output_tokens_per_s": "output [token/s]",
    "user_tokens_per_s": "output per user [token/s]",
    "gpu_tokens_per_s": "output per GPU [token/s]",
    "decode_count": "requests that decode at a time",
    "slots_count": "slots",
}


def sweep(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """The axes, what ranks, and what each point costs and does; the best first."""
    if not result["best"]:
        return
    said(rf"{NUMBER} points? on the front", text, [len(result["pareto"])], findings)
    of = "" if "percentile" in inputs["axes"] else f" P{100.0 * inputs['base'].get('percentile', 0.99):g}"
    words = {name: told.format(of) for name, told in IN_WORDS.items()}
    by = re.search(r"the best points by (.*)", text)[1].strip()
    ranked = next(name for name, told in words.items() if told.partition(" [")[0] == by)
    values = [row[ranked] for row in result["best"]]
    findings.same(f"the best by {by} first", values, sorted(values, reverse="tokens_per_s" in ranked))
    known = [*inputs["axes"], ranked, "instances", "gpus", "cost_usd_per_hour", "ttft_s", "tpot_s"]
    cells("the best points by", text, result["best"], {words.get(name, name): name for name in known}, findings)


def catalog(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """Lists; memory in GiB, rates in powers of ten, a NIC in bits."""
    of = lambda key, unit=None: lambda item: item[1][key] / unit if unit and key in item[1] else item[1].get(key, "-")
    named: Columns = {"": lambda item: item[0]}
    gpus = {"GiB": of("memory_bytes", 2**30), "HBM TB/s": of("hbm_bytes_per_s", 1e12), "W": of("tdp_w")}
    gpus |= {"BF16 TFLOP/s": of("peak_flop_per_s", 1e12), "FP8": of("peak_fp8_flop_per_s", 1e12)}
    gpus |= {"FP4": of("peak_fp4_flop_per_s", 1e12), "scale-up GB/s": of("nvlink_bytes_per_s_oneway", 1e9)}
    gpus |= {"NIC Gbit/s": of("nic_bytes_per_s_per_gpu_oneway", 1e9 / 8), "domain": of("gpus_per_node")}
    models = {"parameters, 1e9": of("params_count", 1e9), "active": of("active_params_count", 1e9)}
    models |= {"weights GiB": of("weight_bytes", 2**30), "KV bytes/token": of("kv_bytes_per_token")}
    models |= {"context": of("max_context_tokens"), "Hugging Face id": lambda item: item[1]["hf_id"]}
    fabrics = {"GB/s one way": of("bytes_per_s_oneway", 1e9), "latency us": of("latency_s", 1e-6)}
    fabrics |= {"per": of("scope"), "source": of("source")}
    traffic = {"mean input tokens": of("mean_input_tokens"), "mean output": of("mean_output_tokens")}
    traffic["source"] = of("source")
    lists: dict[str, tuple[str, str, Columns]] = {
        "gpus": ("GPUs (dense", "GPU", {**gpus, "$/h": of("price_usd_per_hour")}),
        "models": ("Models (KV", "model", models),
        "fabrics": ("Fabrics", "fabric", {**fabrics, "date": lambda item: item[1]["date"]}),
        "workloads": ("Workloads", "workload", {**traffic, "req/s": of("rate_rps")}),
    }
    for name, (title, first, columns) in lists.items():
        if name in result:
            cells(title, text, list(result[name].items()), {first: named[""], **columns}, findings)


WHEN = ("before", "after", "held_out")


def fit(inputs: Any, result: Any, text: str, findings: Findings) -> None:
    """Errors before, after and on rows that were held out; each machine's efficiencies; each sweep of loads."""
    errors = result["errors"]
    lines = [[part.strip() for part in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    for metric in ("ttft", "tpot"):  # by place: two columns are called "after"
        told = [f"{100 * errors[when][metric][share]:.1f} %" for share in ("median", "p90") for when in WHEN]
        found = next(line for line in lines if line[0] == metric)
        findings.same(f"errors of {metric}", found, [metric, str(errors["before"][metric]["count"]), *told])
    title, heads = next((head, rows[0].keys()) for head, rows in terminal_tables(text).items() if "error" in head)
    findings.read[title] |= heads
    tables = terminal_tables(text)
    machines = {f"{one['gpu']} {one['backend']} {one['precision']}": one for one in result["efficiencies"]}
    shown: set[tuple[str, str]] = set()
    for title, rows in tables.items():
        if title.startswith("Efficiencies"):
            for row in rows:
                name = row["efficiency"]
                findings.read[title] |= row.keys()
                for machine in row.keys() - {"efficiency"}:
                    shown.add((machine, name))
                    value = machines[machine][name]
                    findings.same(f"{name} of {machine}", number(row[machine]), value, rel=6e-4, most=5.1e-4)
    named = {name for one in result["efficiencies"] for name in one} - {"gpu", "backend", "precision"}
    findings.same("efficiencies shown", shown, {(machine, name) for machine in machines for name in named})
    ends: Columns = {"latency": lambda metric: metric}
    ends |= {head: lambda metric, k=k: round(result["spread80"][metric][k], 3) for k, head in enumerate(("from", "to"))}
    cells("80 % of new points", text, ["ttft", "tpot"], ends, findings)
    for sweep in result["sweeps"]:
        _sweep_of_loads(sweep, text, findings)
    heads = ("row", "latency", "measured [ms]", "against [ms]", "why")
    odd: Columns = {head: lambda one, k=k: [*one.values()][k] for k, head in enumerate(heads)}
    cells("Outliers", text, [_named(one) for one in result["outliers"][:20]], odd, findings)


def _named(one: Any) -> dict[str, Any]:
    return one if isinstance(one, dict) else dict(enumerate(one))


def _sweep_of_loads(sweep: Any, text: str, findings: Findings) -> None:
    """Every load, and below them the straight line through TPOT, the knee and what contradicts itself."""
    title, lines = next(item for item in terminal_tables(text).items() if item[0] == f"Load sweep: {sweep['name']}")
    heads = {"in flight": ("concurrency_count", 1), "req/s": ("throughput_rps", 1)}
    heads |= {"TTFT [ms]": ("ttft_s", 1e3), "TPOT [ms]": ("tpot_s", 1e3)}
    findings.read[title] |= heads.keys()
    count = len(sweep["concurrency_count"])
    for k, line in enumerate(lines[:count]):
        for head, (key, unit) in heads.items():
            most = 0.0501 if head == "in flight" else 0.0
            findings.same(f"{head} of {line}", number(line[head]), unit * sweep[key][k], rel=6e-3, most=most)
    law = lines[count]
    for head, key in (("TTFT [ms]", "step_base"), ("TPOT [ms]", "step_per_sequence")):
        told = [float(f"{1e3 * value:.3g}") for value in (sweep[f"{key}_s"], *sweep[f"{key}_interval_s"])]
        said(rf"{NUMBER} \({NUMBER} to {NUMBER}\) ms", law[head], told, findings)
    findings.hold(law["in flight"] == "TPOT" and law["TPOT [ms]"].endswith("each in flight"), f"{law}")
    rest = [line["req/s"] for line in lines[count + 1 :] if line["in flight"] == "!"]
    findings.same(f"contradictions of {title}", rest, [" ".join(said.split()) for said in sweep["contradictions"]])
    knee = [line for line in lines[count + 1 :] if line["in flight"].startswith("knee")]
    findings.same(f"a knee of {title}", bool(knee), sweep["knee_count"] is not None)
    for line in knee:
        told = [float(f"{sweep[key]:.3g}") for key in ("knee_count", "ceiling_rps")]
        told += [float(f"{value:.3g}") for value in sweep["knee_interval_count"]]
        words = " ".join(line[head] for head in ("in flight", "req/s", "TTFT [ms]"))
        said(rf"knee {NUMBER} at most {NUMBER} {NUMBER} to {NUMBER}", words, told, findings)


SHOWN: dict[str, Callable[[Any, Any, str, Findings], None]] = {
    one.__name__: one for one in (size, pools, split, transfer, place, step, sweep, route, poa, simulate, catalog, fit)
}

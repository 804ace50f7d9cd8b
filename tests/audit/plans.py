"""The auditor of plans: every figure that `dmodels plan` shows, from its other figures and from what was asked.

It takes what a user gets (the JSON document, the text, the page) and imports nothing of dmodels. Its arithmetic is
short on purpose: where it and the planner disagree, a reader can tell at sight who is right.
"""

from __future__ import annotations

import math
import re
from statistics import NormalDist
from typing import Any

from tests.audit.cards import gpu_card, model_card, vouched_loads
from tests.audit.findings import Findings, last_digit, number, numbers
from tests.audit.launch_lines import meaning

HOURS_A_YEAR = 8760
#: Figures in milliseconds are rounded to four digits.
FOUR_DIGITS = 6e-4
ROLES = {
    "one pool": [("all", "serve")],
    "two pools": [("short", "serve"), ("long", "serve")],
    "prefill/decode split": [("prefill", "prefill"), ("decode", "decode")],
}
#: Of a GPU's memory, what engines let weights and cache take: vLLM's gpu_memory_utilization; SGLang's
#: mem_fraction_static, which its chunks and graphs leave; TensorRT-LLM's fraction is of what the rest leaves.
ROOMS = {"vllm": (0.87, 0.9), "sglang": (0.6, 0.95), "trtllm": (0.97, 1.0)}
WHAT_BINDS = {"all service", "throughput", "TTFT", "TPOT", "E2E", "memory", "the margin for other days"}
#: What is kept in hand, in words -> its input, and what that is where nothing is.
IN_HAND = {
    r"a headroom of ([\d,.]+%)": ("headroom_frac", 0.0),
    r"([\d,]+) spare instances? per pool": ("spare_count", 0),
    r"a confidence of ([\d.]*\d)": ("confidence", 0.5),
}


def audit_plan(document: dict[str, Any]) -> None:
    """Hold a plan's document against itself."""
    findings, inputs, result = Findings(), document["inputs"], document["result"]
    best, kinds = result["recommended"], result["alternatives"]
    apart = [result.get(name) or {} for name in ("classes", "by_priority", "regions")]
    several = any(one.get("fits", one.get("holds")) for one in apart)
    if best is None or several:
        findings.same("feasible", result["feasible"], several)
    for shown in [*kinds, *result["by_gpu"], *([best, result["cheapest"]] if best else [])]:
        _deployment(shown, inputs, result, findings)
    if best is None:
        findings.same("alternatives of nothing", (kinds, result["by_gpu"]), ([], []))
        findings.hold(bool(result["rejections"]), "nothing is feasible, and no rejection says why")
        borne = [result[name] for name in ("rate_headroom_frac", "keeps_slos_probability")]
        findings.same("what nothing bears", [*borne, result["survives_loss_of_an_instance"]], [0.0, 0.0, False])
    else:
        for note in result["notes"]:
            in_hand(note, inputs, findings)
        _choice(best, kinds, inputs, result, findings)
        _margins(best, inputs, result, findings)
        _sensitivity(result, inputs, findings)
    if card := model_card(inputs["model"]):
        times = inputs["max_context_tokens"] / card["context_tokens"]
        findings.hold(0.99 < times < 1.26, f"the context is {times:.3g} times that of the card")
    for rejection in result["rejections"]:
        _rejection(rejection, inputs, findings)
    for binding in ("TTFT without load", "TPOT without load", "memory for weights"):
        own = [r for r in result["rejections"] if r["binding"] == binding]
        pairs = [(numbers(r["have"])[0], numbers(r["need"])[0]) for r in own]
        misses = [max(have / need, need / have) for have, need in pairs]
        findings.ordered(f"nearest first, of those short of {binding}", *misses, rel=5e-3)
    findings.hold(result["refused_frac"] + result["cut_off_frac"] <= 1 + 1e-9, "more requests fail than there are")
    findings.end()


def _rejection(rejection: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """What is there is less than what is needed, and is what the inputs and the published cards say."""
    binding, told = rejection["binding"], str(rejection)
    if binding in ("rate", "the model's context"):
        return
    have, need = numbers(rejection["have"])[0], numbers(rejection["need"])[0]
    if binding.endswith("without load") or " in the replay of " in binding:  # need: at most so much
        bound = inputs[f"slo_{binding.split()[0].lower()}_ms"]
        findings.same(f"the SLO of {told}", need, bound, rel=FOUR_DIGITS)
        findings.hold(have > need, told)
        return
    findings.hold(have < need or (have == need and binding == "memory for KV"), told)
    layout = re.match(r"(\S+) tp(\d+)pp(\d+)dp(\d+)", rejection["layout"])
    gpu, model = layout and gpu_card(layout[1]), model_card(inputs["model"])
    if gpu and binding == "memory for weights":
        least, most = ROOMS[inputs["backend"]]
        if inputs["backend"] == "sglang" and layout[4] != "1":
            least = 0.1  # its reserve grows with the ranks of attention
        memory = gpu["memory_bytes"] / 2**30
        findings.hold(least * memory - 0.06 <= have <= most * memory + 0.06, f"{told}: a GPU has {memory:.1f} GiB")
        least = model["weight_bytes"] / math.prod(map(int, layout.groups()[1:])) / 2**30 if model else 0.0
        findings.hold("w=" in rejection["layout"] or need >= least, f"{told}: weights take {least:.1f} GiB")


def _deployment(shown: dict[str, Any], inputs: dict[str, Any], result: dict[str, Any], findings: Findings) -> None:
    """One fleet: GPUs, dollars, shares, latencies, memory and launch lines."""
    pools, kind = shown["pools"], shown["kind"]
    findings.same(f"pools of {kind}", [(p["name"], p["role"]) for p in pools], ROLES[kind])
    for pool in pools:
        _pool(pool, inputs, result, findings)
    findings.same("GPUs of the fleet", shown["fleet_gpus"], sum(p["pool_gpus"] for p in pools))
    _bought(shown, inputs, findings)
    findings.same("dollars a year", shown["usd_per_year"], HOURS_A_YEAR * shown["usd_per_hour"])
    most = math.inf if shown["gpus_high"] is None else shown["gpus_high"]
    findings.ordered("GPUs with fast steps, as planned, with slow steps", shown["gpus_low"], shown["fleet_gpus"], most)
    shares = [p["request_share_frac"] for p in pools]
    if kind == "prefill/decode split":
        findings.same("shares of a split's stages", min(shares), 1.0)
    else:
        findings.same("the sum of shares", sum(shares), 1.0)
    _fleet_latency(shown, findings)
    _promises(shown, inputs, findings)
    _router(shown, findings)
    if not result["refused_frac"] and not shown["replay"]:
        _little(shown, inputs, findings)


def _pool(pool: dict[str, Any], inputs: dict[str, Any], result: dict[str, Any], findings: Findings) -> None:
    name = f"pool {pool['name']} ({pool['gpu']} {pool['layout']})"
    degrees = {key: int(value) for key, value in re.findall(r"(tp|pp|dp|ep)(\d+)", pool["layout"])}
    each = degrees["tp"] * degrees["pp"] * degrees["dp"]
    findings.same(f"GPUs of an instance of {name}", pool["gpus_per_instance"], each)
    findings.same(f"GPUs of {name}", pool["pool_gpus"], pool["pool_instances"] * each)
    price = inputs["price_usd_per_hour"][pool["gpu"]]
    findings.same(f"dollars of {name}", pool["usd_per_hour"], pool["pool_gpus"] * price)
    findings.hold(degrees["tp"] in inputs["tp"] or degrees["dp"] > 1, f"{name}: tp was not asked about")
    findings.hold(degrees["pp"] in inputs["pp"], f"{name}: pp was not asked about")
    for metric in ("ttft", "tpot"):
        low, high = pool[f"{metric}_interval80_ms"]
        findings.ordered(f"the interval of {metric} of {name}", low, pool[f"{metric}_ms"], high, rel=FOUR_DIGITS)
    if pool["latency_provenance"].startswith("calibrated"):  # on errors of each of its own
        widths = [[end / pool[f"{m}_ms"] for end in pool[f"{m}_interval80_ms"]] for m in ("ttft", "tpot")]
        apart = max(abs(a / b - 1) for a, b in zip(*widths, strict=True))
        findings.hold(apart > 2 * FOUR_DIGITS, f"{name}: TTFT and TPOT have the same interval")
    findings.hold(pool["e2e_ms"] >= pool["ttft_ms"] * (1 - FOUR_DIGITS), f"{name}: ends before its first token")
    findings.hold(0 < pool["load_frac"] <= 1 + 1e-9, f"{name}: load {pool['load_frac']}")
    for metric in ("TTFT", "TPOT", "E2E"):
        least, most = vouched_loads(f"plan_{metric.lower()}_p99", pool["slots_count"])
        doubted, load = metric in pool["extrapolated"], pool["load_frac"]
        if pool["role"] == "prefill" or load <= least:
            findings.hold(not doubted, f"{name}: {metric} is doubted at {load}, vouched for to {least}")
        elif load > most:
            findings.hold(doubted, f"{name}: {metric} is not doubted at {load}, vouched for to {most}")
    limit = inputs["max_num_seqs_count"] * degrees["dp"]
    findings.hold(pool["slots_count"] <= limit, f"{name}: {pool['slots_count']} slots, the engine takes {limit}")
    findings.hold(pool["decode_count"] <= pool["slots_count"], f"{name}: more in flight than slots")
    findings.hold(_known(pool["binding"], inputs), f"{name}: {pool['binding']} binds")
    in_hand(pool["binding"], inputs, findings)
    _line(pool, degrees, inputs, findings, name)
    _memory(pool, degrees, inputs, findings, name)


def _line(pool: dict[str, Any], degrees: dict[str, int], inputs: dict[str, Any], findings: Findings, name: str) -> None:
    """The launch line starts the pool that was planned."""
    if pool["command"].startswith("#"):  # what the engine would refuse is a remark
        return
    started = meaning(pool["command"], inputs["backend"], findings)
    findings.same(f"degrees started for {name}", started["parallel"], {k: degrees[k] for k in ("tp", "pp", "dp")})
    findings.same(f"experts spread for {name}", started["experts"], degrees["ep"] > 1)
    findings.same(f"the role started for {name}", started["role"], pool["role"])
    findings.same(f"the context started for {name}", started["context_tokens"], pool["max_model_len_tokens"])
    seqs = max(min(inputs["max_num_seqs_count"], math.floor(pool["slots_count"] / degrees["dp"])), 1)
    seqs = min(seqs, inputs["max_num_batched_tokens"])
    findings.same(f"requests at a time started for {name}", started["seqs_of_a_rank"], seqs)
    batched = inputs["max_num_batched_tokens"]
    batched -= batched % 64 if inputs["backend"] == "sglang" else 0  # whole pages
    findings.same(f"tokens of a step started for {name}", started["tokens_of_a_step"], batched)
    card = model_card(inputs["model"])
    if card and pool["weights"] == "as published":
        findings.same(f"the model started for {name}", started["model"], card["hf_id"])


def _memory(
    pool: dict[str, Any], degrees: dict[str, int], inputs: dict[str, Any], findings: Findings, name: str
) -> None:
    """By the published cards: weights and the longest context, and weights and what is in flight, fit the GPUs."""
    model, gpu = model_card(inputs["model"]), gpu_card(pool["gpu"])
    if not model or not gpu or {pool["weights"], pool["kv"]} != {"as published"}:
        return
    memory = gpu["memory_bytes"] * pool["gpus_per_instance"]
    weights, kv = model["weight_bytes"], model["kv_bytes_per_token"]
    findings.hold(weights < 0.9 * memory, f"{name}: {weights:.3g} bytes of weights in {memory:.3g}")
    if degrees["dp"] == 1:
        need = weights + pool["max_model_len_tokens"] * kv
        findings.hold(need <= 0.9 * memory, f"{name}: weights and one context take {need:.3g} of {memory:.3g} bytes")
    if degrees["dp"] == 1 and degrees["pp"] == 1 and pool["role"] != "prefill":
        least_ms = 1e3 * model["read_bytes"] / (gpu["hbm_bytes_per_s"] * degrees["tp"])
        findings.hold(pool["tpot_ms"] >= least_ms, f"{name}: TPOT below the {least_ms:.3g} ms of reading the weights")


def _fleet_latency(shown: dict[str, Any], findings: Findings) -> None:
    """The fleet's latency is its worst pool's; a request of a split passes both stages."""
    pools, in_turn = shown["pools"], shown["kind"] == "prefill/decode split"
    decoding = [p["tpot_ms"] for p in pools if p["role"] != "prefill"]
    if in_turn and shown["replay"]:
        return  # as replayed from end to end; its stages stand there by the closed forms
    combine = sum if in_turn else max
    findings.same("TTFT of the fleet", shown["ttft_ms"], combine(p["ttft_ms"] for p in pools), rel=2 * FOUR_DIGITS)
    findings.same("E2E of the fleet", shown["e2e_ms"], combine(p["e2e_ms"] for p in pools), rel=2 * FOUR_DIGITS)
    findings.same("TPOT of the fleet", shown["tpot_ms"], max(decoding), rel=FOUR_DIGITS)


def _promises(shown: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """The SLOs are kept, or a replay says that they are not."""
    if shown["replay"] and not shown["replay"]["holds"]:
        return
    for metric in ("ttft", "tpot", "e2e"):
        bound = inputs[f"slo_{metric}_ms"]
        if bound is not None:
            kept = shown[f"{metric}_ms"] <= bound * (1 + FOUR_DIGITS)
            findings.hold(kept, f"{shown['name']}: {metric} {shown[f'{metric}_ms']} ms, the SLO is {bound} ms")


def _router(shown: dict[str, Any], findings: Findings) -> None:
    """The router sends short requests to the pool that takes no longer ones."""
    policy = shown["router"]
    if shown["kind"] != "two pools":
        findings.hold("threshold_tokens" not in policy, f"{shown['name']}: a threshold without two pools")
        return
    threshold, (short, long) = policy["threshold_tokens"], shown["pools"]
    findings.same("the threshold in the name", shown["name"], f"two pools at {threshold:,.0f} tokens")
    findings.same("the context of the short pool", short["max_model_len_tokens"], int(threshold))
    findings.hold(long["max_model_len_tokens"] > threshold, "the long pool takes no longer requests than the short")


def _little(shown: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """Little's law: as many decode as arrive in the time that decoding takes; the slowest percent bounds the mean."""
    pools = [p for p in shown["pools"] if p["role"] != "prefill"]
    held = sum(p["pool_instances"] * p["decode_count"] for p in pools)
    answers = inputs["rate_rps"] * inputs["mean_output_tokens"] / 1e3
    slow, quick = max(p["tpot_ms"] for p in pools), min(p["tpot_ms"] for p in pools)
    findings.hold(
        held <= 1.05 * answers * slow, f"{held:.4g} decode, {answers * slow:.4g} if all were as slow as can be"
    )
    findings.hold(
        held >= 0.05 * answers * quick, f"{held:.4g} decode, a twentieth of the time is {0.05 * answers * quick:.4g}"
    )


def _known(binding: str, inputs: dict[str, Any]) -> bool:
    """Whether it is among what can bind, where something is kept in hand that, too."""
    if _plain(inputs):
        return set(binding.split(" and ")) <= WHAT_BINDS
    for words in IN_HAND:
        binding = re.sub(words, "in hand", binding)
    return set(re.split(r" and | or |, ", binding)) <= WHAT_BINDS | {"in hand", "nothing"}


def in_hand(text: str, inputs: dict[str, Any], findings: Findings) -> None:
    """Words about what is kept in hand tell all that was asked for, and as much of it."""
    told = {name: found[1] for words, (name, _) in IN_HAND.items() if (found := re.search(words, text))}
    asked = {name for name, none in IN_HAND.values() if inputs[name] > none}
    findings.hold(not told or told.keys() == asked, f"{text!r} tells of {sorted(told)}, asked for are {sorted(asked)}")
    for name, value in told.items():
        findings.same(f"{name} in {text!r}", number(value), inputs[name], most=last_digit(value))


def _bought(shown: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """Whole nodes, within what there is, are paid for."""
    node, used, dollars = inputs["node_gpus"], shown["fleet_gpus"], sum(p["usd_per_hour"] for p in shown["pools"])
    if node == 1:
        findings.same("GPUs bought", shown["bought_gpus"], used)
        findings.same("dollars of the fleet", shown["usd_per_hour"], dollars)
    else:
        findings.same("GPUs bought, in nodes", shown["bought_gpus"] % node, 0)
        findings.ordered("GPUs used and bought", used, shown["bought_gpus"])
        if len({p["gpu"] for p in shown["pools"]}) == 1:
            price = inputs["price_usd_per_hour"][shown["pools"][0]["gpu"]]
            findings.same("dollars of what is bought", shown["usd_per_hour"], shown["bought_gpus"] * price)
    for what, most in ((shown["bought_gpus"], "max_gpus"), (shown["usd_per_hour"], "max_usd_per_hour")):
        findings.hold(inputs[most] is None or what <= inputs[most] * (1 + 1e-9), f"{what} is more than {most}")
    for gpu, most in inputs["inventory"].items():
        taken = sum(p["pool_gpus"] for p in shown["pools"] if p["gpu"] == gpu)
        findings.hold(taken <= most, f"{taken} {gpu} of {most}")


def _plain(inputs: dict[str, Any]) -> bool:
    """Whether nothing is kept in hand, and nothing limits what is bought."""
    margins = (inputs["headroom_frac"], inputs["spare_count"], inputs["confidence"])
    limits = (inputs["max_gpus"], inputs["max_usd_per_hour"], inputs["node_gpus"], inputs["inventory"])
    return margins == (0, 0, 0.5) and limits == (None, None, 1, {})


def _choice(
    best: dict[str, Any],
    kinds: list[dict[str, Any]],
    inputs: dict[str, Any],
    result: dict[str, Any],
    findings: Findings,
) -> None:
    """The recommendation comes first; it is the cheapest, or simpler and not much dearer; none dominates it."""
    least = result["cheapest"]
    findings.same("the first alternative", kinds[0]["pools"], best["pools"])
    findings.same("dollars of the first alternative", kinds[0]["usd_per_hour"], best["usd_per_hour"])
    for group, what in ((kinds[1:], "kind"), (result["by_gpu"], "GPU type")):
        findings.ordered(f"dollars by {what}", *(d["usd_per_hour"] for d in group if d["replay"] == best["replay"]))
    for group, what in ((kinds, "kind"), (result["by_gpu"], "GPU type")):
        keys = [d["kind"] if what == "kind" else d["pools"][0]["gpu"] for d in group]
        findings.same(f"one alternative of each {what}", len(set(keys)), len(keys))
    if not best["replay"]:
        dollars = [d["usd_per_hour"] for d in (best, *kinds, *result["by_gpu"])]
        findings.ordered("the cheapest, and the others", least["usd_per_hour"], min(dollars))
    sentence = any(said.startswith("The cheapest estimate is ") for said in result["summary"])
    findings.hold(
        sentence or least["usd_per_hour"] >= best["usd_per_hour"] * (1 - 1e-9), "a cheaper fleet is not named"
    )
    sure = result["keeps_slos_probability"]
    findings.hold(0 <= sure <= 1 and (not sure or sure >= inputs["confidence"] - 0.0251), f"SLOs hold with {sure}")
    for d in result["by_gpu"]:
        findings.same("GPU types of a fleet of one", len({p["gpu"] for p in d["pools"]}), 1)
    for d in [*kinds, *result["by_gpu"]]:
        cheaper = d["usd_per_hour"] < best["usd_per_hour"] * (1 - 1e-9)
        simple = all(own <= its for own, its in zip(_hardness(d), _hardness(best), strict=True))
        findings.hold(not (cheaper and simple), f"{d['name']} dominates {best['name']}")
    if len({p["gpu"] for p in best["pools"]}) == 1 and result["by_gpu"]:
        own = [d for d in result["by_gpu"] if d["pools"][0]["gpu"] == best["pools"][0]["gpu"]]
        findings.hold(
            bool(own) and own[0]["usd_per_hour"] <= best["usd_per_hour"] * (1 + 1e-9), "not the best on its GPU"
        )
    by_threshold = {
        float(k): v for k, v in result["two_pools_usd_per_hour_by_threshold_tokens"].items() if v is not None
    }
    two = [d for d in kinds if d["kind"] == "two pools"]
    if two and not two[0]["replay"] and _plain(inputs):
        findings.same("dollars of the best threshold", min(by_threshold.values()), two[0]["usd_per_hour"])
        at = by_threshold[two[0]["router"]["threshold_tokens"]]
        findings.same("dollars at the recommended threshold", at, two[0]["usd_per_hour"])


def _hardness(shown: dict[str, Any]) -> tuple[bool, int, int, int]:
    """Whether it rests on steps that nobody measured, its pools, its GPU types, its pools beside others of one."""
    pools = shown["pools"]
    assumed = any(p["latency_provenance"].startswith("assumed") for p in pools)
    alone = sum(p["pool_instances"] == 1 for p in pools) if len(pools) > 1 else 0
    return assumed, len(pools), len({p["gpu"] for p in pools}), alone


def _margins(best: dict[str, Any], inputs: dict[str, Any], result: dict[str, Any], findings: Findings) -> None:
    """What binds, the headroom of the rate and the loss of an instance tell the same story."""
    room, step = result["rate_headroom_frac"], 0.0201
    counts = [p["pool_instances"] for p in best["pools"]]
    findings.ordered("the headroom asked for, and what there is", inputs["headroom_frac"], room + 1e-9)
    if inputs["confidence"] > 0.5 and not best["replay"]:
        _sure(best, inputs, findings)
    if not _plain(inputs):
        return
    for pool in best["pools"]:
        n = pool["pool_instances"]
        if n == 1:
            findings.same(f"what binds a pool of one, {pool['name']}", pool["binding"], "all service")
        elif not best["replay"]:  # an instance less is the same to the others as so much more traffic
            more = n / (n - 1)
            if pool["binding"] != "all service":
                findings.hold(room < more - 1 + 1e-9, f"{pool['name']} binds, but the rate may grow by {room:.0%}")
            if pool["binding"] != "all service":  # throughput binds exactly where an instance less saturates
                less = pool["load_frac"] * more
                told = f"{pool['name']}: {pool['binding']} binds, an instance less has load {less:.4f}"
                findings.hold(less > 0.999 if pool["binding"] == "throughput" else less < 1.001, told)
    if result["survives_loss_of_an_instance"]:
        findings.hold(min(counts) > 1, "a pool of one instance survives its loss")
        if not best["replay"]:
            spare = min(max(counts) / (max(counts) - 1) - 1, 1.22)
            findings.hold(room >= spare - step, f"an instance may go, but the rate may only grow by {room:.0%}")


def _sure(best: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """As slow as the intervals allow with the confidence asked for (their upper ends: nine in ten), SLOs still hold."""
    score = NormalDist().inv_cdf(inputs["confidence"]) / NormalDist().inv_cdf(0.9)
    for pool in best["pools"]:
        for metric in ("ttft", "tpot"):
            now, bound = pool[f"{metric}_ms"], inputs[f"slo_{metric}_ms"]
            if bound is not None and now and not (metric == "tpot" and pool["role"] == "prefill"):
                slow = now * (pool[f"{metric}_interval80_ms"][1] / now) ** score
                findings.ordered(f"{metric} of {pool['name']} when slow, and its SLO", slow, bound, rel=2 * FOUR_DIGITS)


def _longest(rows: list[dict[str, Any]], base: float, findings: Findings) -> None:
    """The more of the longest requests are left out, the shorter is the shortest of them, and the less do the others
    cost."""
    findings.ordered("requests left out", 0.0, *(row["share_frac"] for row in rows), 0.1)
    findings.ordered("tokens from which they are", *(row["from_tokens"] for row in reversed(rows)))
    findings.ordered("dollars without them", *(row["usd_per_hour"] or math.inf for row in reversed(rows)))
    for row in [] if math.isnan(base) else rows:
        saved = 1 - (row["usd_per_hour"] or math.inf) / base
        findings.same(f"saved without {row['share_frac']:.1%}", row["cost_frac"], saved, rel=1e-6)


def _sensitivity(result: dict[str, Any], inputs: dict[str, Any], findings: Findings) -> None:
    """Prices scale bills; more traffic and tighter SLOs cost no less."""
    base = result["cheapest"]["usd_per_hour"]
    saved = [one["saves_frac"] for one in result["suggestions"]]
    findings.same("what saves the most first", saved, sorted(saved, reverse=True))
    for one in [] if result["ensured"] else result["suggestions"]:
        findings.same(f"saved by {one['what']}", one["saves_frac"], 1 - one["usd_per_hour"] / base, rel=1e-6)
    _longest(result["longest_requests"], math.nan if result["ensured"] else base, findings)
    if result["ensured"] or not result["sensitivity"]:
        return
    for change in result["sensitivity"]:
        what, factor = change["what"], change["factor"]
        cost = math.inf if change["usd_per_hour"] is None else change["usd_per_hour"]
        told = f"{what} x {factor}: {cost} USD/h, as asked {base}"
        refused, now = change["refused_frac"], result["refused_frac"]
        if what == "input length":
            findings.ordered(f"refused at {told}", *((refused, now) if factor < 1 else (now, refused)))
        elif what != "output length":
            findings.same(f"refused at {told}", refused, now)
        if what.startswith("price of") and len(inputs["gpus"]) == 1:
            findings.same(told, cost, factor * base)
        elif what.startswith("price of"):
            findings.ordered(told, min(factor, 1) * base, cost, max(factor, 1) * base)
        elif what == "request rate":
            findings.ordered(told, *((cost, base) if factor < 1 else (base, cost)))
        elif what.endswith("SLO"):
            findings.ordered(told, *((base, cost) if factor < 1 else (cost, base)))
    asked = [(c["what"], c["factor"]) for c in result["sensitivity"]]
    findings.same("changes asked once", len(set(asked)), len(asked))

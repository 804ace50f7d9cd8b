"""The event loop of a disaggregated cluster: a decision per finished prefill, flows, landing, batches, memory.

Events: a prefill ends (decide, start the flows), a flow ends, a decode instance reaches an iteration boundary at which
its batch changes, the background moves. Between events nothing changes, so time is exact, not stepped.
"""

from __future__ import annotations

import numpy as np

from dmodels.control.netkv._kernels import ROUND_ROBIN, choose_one, tier_pace
from dmodels.core.compiled import kernel

from .cache import hit_blocks, insert, make_room, pin, unpin
from .flows import finish, mix, next_end, no_flows, refill, restate, route, settle, start
from .state import UNREACHABLE, idle_decoders, no_outcome


@kernel
def plan_next(d, j, landed_s, rules):
    """When the batch of instance j changes next, and after how many iterations."""
    n = d.running[j]
    waiting = d.queue_head[j]
    if n == 0:
        d.skip[j] = 0
        d.next_s[j] = max(landed_s[waiting], d.boundary_s[j]) if waiting >= 0 else np.inf
        return
    step = rules.base_s + rules.slope_s * n
    skip = d.ends_at[j, 0] - d.iteration[j]
    for q in range(1, n):
        skip = min(skip, d.ends_at[j, q] - d.iteration[j])
    if waiting >= 0 and n < rules.max_batch:
        wait = np.ceil((landed_s[waiting] - d.boundary_s[j]) / step - 1e-9)
        skip = min(skip, max(int(wait), 0))
    d.skip[j] = skip
    d.next_s[j] = d.boundary_s[j] + skip * step


@kernel
def run(fabric, prefill, decode, jobs, rules, tier_rate, background, readings):
    """Simulate; returns the outcome, bytes carried per link, bytes still in flight, and how many events it took."""
    count, pool = jobs.ready_s.shape[0], decode.shape[0]
    slots = rules.max_batch
    out = no_outcome(count)
    by_link = background.shape[1] != 4
    s = no_flows(count * rules.shards, fabric.link_bytes_per_s)
    steps = background.shape[0]
    _set_background(s, fabric, background[0], by_link, 0.0, False)
    d = idle_decoders(pool, slots)
    behind = np.full(count, -1, np.int64)  # queue links
    sending = np.zeros(count, np.int64)
    reserved, used, idle = np.zeros(pool), np.zeros(pool, np.int64), np.zeros(pool, np.int64)
    cached = jobs.hit_frac.shape[1] != pool
    kinds = jobs.blocks.max() + 1 if cached and jobs.blocks.shape[0] > 0 else 1
    most = max(int(rules.capacity_tokens / rules.block_tokens), 1) if cached else 1
    most = min(most, kinds)
    slot_of = np.full((pool, kinds), -1, np.int32)
    block_at, refs = np.zeros((pool, most), np.int32), np.zeros((pool, most), np.int32)
    before, after = np.zeros((pool, most), np.int32), np.zeros((pool, most), np.int32)
    ends = np.full((pool, 2), -1, np.int32)
    spare = np.zeros((pool, most), np.int32)
    for j in range(pool):
        for q in range(most):
            spare[j, q] = q
    pinned = np.zeros(count, np.int64)
    held = np.zeros(count)  # tokens that a request holds outside the cache
    tier = np.zeros((prefill.shape[0], pool), np.int64)
    for p in range(prefill.shape[0]):
        for j in range(pool):
            a, b = prefill[p], decode[j]
            tier[p, j] = int(fabric.server[a] != fabric.server[b])
            tier[p, j] += int(fabric.rack[a] != fabric.rack[b]) + int(fabric.pod[a] != fabric.pod[b])
    in_flight, pace = np.zeros((prefill.shape[0], 4)), np.zeros(4)
    hit, free, queued, batch = np.zeros(pool), np.zeros(pool), np.zeros(pool), np.zeros(pool)
    turn, i, events, now, phase = 0, 0, 0, 0.0, 0
    flow_s = np.inf
    while True:
        job_s = jobs.ready_s[i] if i < count else np.inf
        j_next = 0
        for j in range(1, pool):
            if d.next_s[j] < d.next_s[j_next]:
                j_next = j
        move_s = (phase + 1) * rules.background_step_s if phase + 1 < steps else np.inf
        if s.size[0] == 0 and i >= count:
            move_s = np.inf
        now = min(min(job_s, flow_s), min(d.next_s[j_next], move_s))
        if now == np.inf or now > rules.until_s:
            break
        events += 1
        if flow_s <= now:
            q = 0
            while q < s.size[0]:
                f = s.active[q]
                if s.ends_s[f] > now + 1e-12:
                    q += 1
                    continue
                finish(s, f)
                r = f // rules.shards
                sending[r] -= 1
                if sending[r] == 0:
                    in_flight[jobs.source[r], out.tier[r]] -= 1.0
                    _land(r, now + fabric.tier_latency_s[out.tier[r]], d, out, behind)
                    j = out.choice[r]
                    if cached:
                        pinned[r] = _cache_prompt(
                            r,
                            j,
                            jobs,
                            rules,
                            pinned[r],
                            held,
                            slot_of,
                            block_at,
                            refs,
                            before,
                            after,
                            ends,
                            idle,
                            used,
                            reserved,
                            spare,
                        )
                    plan_next(d, j, out.landed_s, rules)
            refill(s, now)
            flow_s = next_end(s)
        elif d.next_s[j_next] <= now:
            j = j_next
            d.boundary_s[j] = now
            d.iteration[j] += d.skip[j]
            q = 0
            while q < d.running[j]:
                if d.ends_at[j, q] > d.iteration[j]:
                    q += 1
                    continue
                r = d.request[j, q]
                out.finished_s[r] = now
                reserved[j] -= held[r]
                for b in range(pinned[r] - 1, -1, -1):
                    unpin(j, jobs.blocks[jobs.block_starts[r] + b], slot_of, refs, before, after, ends, idle)
                d.running[j] -= 1
                d.ends_at[j, q], d.request[j, q] = d.ends_at[j, d.running[j]], d.request[j, d.running[j]]
            fresh = d.running[j]
            while d.queue_head[j] >= 0 and d.running[j] < slots and out.landed_s[d.queue_head[j]] <= now + 1e-9:
                r = d.queue_head[j]
                d.queue_head[j] = behind[r]
                if behind[r] < 0:
                    d.queue_tail[j] = -1
                d.queued[j] -= 1
                out.joined_s[r] = now
                d.request[j, d.running[j]] = r
                d.ends_at[j, d.running[j]] = d.iteration[j] + max(int(jobs.output_tokens[r]), 1)
                d.running[j] += 1
            step = rules.base_s + rules.slope_s * d.running[j]
            for q in range(fresh, d.running[j]):
                out.first_token_s[d.request[j, q]] = now + step
                out.step_s[d.request[j, q]] = step
            plan_next(d, j, out.landed_s, rules)
        elif move_s <= now:
            phase += 1
            _set_background(s, fabric, background[phase], by_link, now, True)
            flow_s = next_end(s)
        else:
            r, p = i, jobs.source[i]
            i += 1
            first, last = jobs.block_starts[r], jobs.block_starts[r + 1]
            for j in range(pool):
                if cached:
                    held_blocks = hit_blocks(j, jobs.blocks[first:last], slot_of)
                    hit[j] = min(held_blocks * rules.block_tokens / jobs.input_tokens[r], 1.0)
                else:
                    hit[j] = jobs.hit_frac[r, j]
                free[j] = rules.capacity_tokens - reserved[j] - (used[j] - idle[j]) * rules.block_tokens
                free[j] *= rules.kv_bytes_per_token
                queued[j] = d.queued[j]
                batch[j] = d.running[j] + (d.inbound[j] if rules.sees_inbound else 0.0)
            kv = jobs.input_tokens[r] * rules.kv_bytes_per_token
            reading = readings[min(int(now / rules.refresh_s), readings.shape[0] - 1)]
            reserve = (rules.reserve_tokens + jobs.output_tokens[r]) * rules.kv_bytes_per_token
            tier_pace(rules.policy, tier_rate, reading, in_flight[p], rules.max_in_flight, pace)
            j, _ = choose_one(
                rules.policy,
                kv,
                hit,
                free,
                reserve,
                queued,
                batch,
                tier[p],
                pace,
                fabric.tier_latency_s,
                rules.to_rate,
                d.inbound,
                rules.base_s,
                rules.slope_s,
                float(rules.max_batch),
                rules.cache_weight,
                turn if rules.policy == ROUND_ROBIN else mix(rules.seed, r, 0) % pool,
            )
            if j < 0:
                for k in range(pool):
                    if kv * (1.0 - hit[k]) + reserve <= free[k]:
                        out.choice[r] = UNREACHABLE
                continue
            turn = (j + 1) % pool
            t = tier[p, j]
            out.choice[r], out.tier[r], out.hit_tokens[r] = j, t, hit[j] * jobs.input_tokens[r]
            held[r] = jobs.input_tokens[r] * (1.0 - hit[j]) + jobs.output_tokens[r]
            reserved[j] += held[r]
            d.inbound[j] += 1.0
            if cached:
                pinned[r] = min(hit_blocks(j, jobs.blocks[first:last], slot_of), last - first)
                for b in range(pinned[r]):
                    pin(j, jobs.blocks[first + b], slot_of, refs, before, after, ends, idle)
                make_room(
                    j,
                    rules.capacity_tokens,
                    rules.block_tokens,
                    slot_of,
                    block_at,
                    before,
                    after,
                    ends,
                    idle,
                    used,
                    reserved,
                    spare,
                )
            payload = kv * (1.0 - hit[j])
            if payload <= 0.0:
                _land(r, now + fabric.tier_latency_s[t], d, out, behind)
                plan_next(d, j, out.landed_s, rules)
                continue
            in_flight[p, t] += 1.0
            sending[r] = rules.shards
            for shard in range(rules.shards):
                f = r * rules.shards + shard
                route(s, f, fabric, prefill[p], decode[j], shard, rules.seed)
                start(s, f, payload / rules.shards, now)
            refill(s, now)
            flow_s = next_end(s)
    stuck = 0.0
    for q in range(s.size[0]):
        f = s.active[q]
        settle(s, f, min(now, rules.until_s) if now < np.inf else s.since_s[f])
        stuck += s.left_bytes[f]
    return out, s.carried_bytes, stuck, events


@kernel
def _land(r, at, d, out, behind):
    """The last byte of request r is there: it queues for a slot."""
    j = out.choice[r]
    out.landed_s[r] = at
    d.inbound[j] -= 1.0
    d.queued[j] += 1
    if d.queue_tail[j] >= 0:
        behind[d.queue_tail[j]] = r
    else:
        d.queue_head[j] = r
    d.queue_tail[j] = r


@kernel
def _cache_prompt(
    r, j, jobs, rules, hits, held, slot_of, block_at, refs, before, after, ends, idle, used, reserved, spare
):
    """The prompt's blocks become shared: pinned in the cache of instance j instead of held by the request alone."""
    first, last = jobs.block_starts[r], jobs.block_starts[r + 1]
    n = hits
    while n < last - first:
        block = jobs.blocks[first + n]
        tokens = min(rules.block_tokens, jobs.input_tokens[r] - n * rules.block_tokens)
        if slot_of[j, block] >= 0:
            pin(j, block, slot_of, refs, before, after, ends, idle)
        else:
            reserved[j] += rules.block_tokens - tokens  # a whole block, from here on in the cache
            fits = make_room(
                j,
                rules.capacity_tokens,
                rules.block_tokens,
                slot_of,
                block_at,
                before,
                after,
                ends,
                idle,
                used,
                reserved,
                spare,
            )
            reserved[j] -= rules.block_tokens - tokens
            if not fits or used[j] >= spare.shape[1]:
                break
            insert(j, block, slot_of, block_at, refs, used, spare)
        held[r] -= tokens
        reserved[j] -= tokens
        n += 1
    return n


@kernel
def _set_background(s, fabric, level, by_link, now, refill_all):
    """The background takes its share of every link; flows in progress get new rates."""
    for link in range(s.capacity.shape[0]):
        share = level[link] if by_link else level[fabric.link_tier[link]]
        s.capacity[link] = fabric.link_bytes_per_s[link] * (1.0 - min(max(share, 0.0), 1.0))
    if refill_all:
        restate(s)
        refill(s, now)

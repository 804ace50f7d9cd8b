"""The event loop of a disaggregated cluster: a decision per finished prefill, flows, landing, batches, memory.

Events: a flow ends, a decode instance reaches an iteration boundary at which its batch changes, the background moves, a
prefill ends (decide, start the flows). Between events nothing changes, so time is exact, not stepped.
"""

from __future__ import annotations

import numpy as np

from dmodels.control.netkv import DecodePool, Oracle, Scoring
from dmodels.control.netkv.kernels import ROUND_ROBIN, choose_one, has_room, tier_paces
from dmodels.core.compiled import NONE, inline, kernel

from .cache import hit_blocks, insert, make_room, pin, unpin
from .flows import finish, mix, next_end, no_flows, refill, restate, route, settle, start
from .state import UNREACHABLE, empty_caches, idle_decoders, no_outcome, no_progress, tiers_between


@kernel
def run(fabric, prefill, decode, jobs, rules, tier_bytes_per_s, background, readings):
    """Simulate; returns the outcome, bytes carried per link, bytes still in flight, and how many events it took."""
    sites = prefill, decode
    count, pool, steps = jobs.ready_s.shape[0], decode.shape[0], background.shape[0]
    s, d = no_flows(count * rules.shards, fabric.link_bytes_per_s), idle_decoders(pool, rules.scoring.curve.max_batch)
    c, out, progress = empty_caches(jobs, rules, pool), no_outcome(count), no_progress(count)
    oracle = Oracle(tiers_between(fabric, prefill, decode), tier_bytes_per_s, fabric.tier_latency_s, np.zeros(4))
    in_flight, hit_frac = np.zeros((prefill.shape[0], 4)), np.zeros(pool)
    seen, next_s = DecodePool(np.zeros(pool), np.zeros(pool), np.zeros(pool), d.inbound), d.next_s
    _set_background(s, fabric, background[0])
    turn, i, events, phase, flow_s, pace = 0, 0, 0, 0, np.inf, np.zeros(4)
    while True:
        job_s = jobs.ready_s[i] if i < count else np.inf
        j = 0
        for k in range(1, pool):
            if next_s[k] < next_s[j]:
                j = k
        move_s = (phase + 1) * rules.background_step_s if phase + 1 < steps else np.inf
        if s.size[0] == 0 and i >= count:
            move_s = np.inf
        now = min(min(job_s, flow_s), min(next_s[j], move_s))
        if now == np.inf or now > rules.until_s:
            break
        events += 1
        if flow_s <= now:
            _end_flows(s, d, c, jobs, rules, progress, out, fabric, in_flight, now)
            flow_s = next_end(s)
        elif next_s[j] <= now:
            _turn_over(d, c, jobs, rules, progress, out, j, now)
        elif move_s <= now:
            phase += 1
            _set_background(s, fabric, background[phase])
            restate(s)
            refill(s, now)
            flow_s = next_end(s)
        else:
            oracle.congestion[:] = readings[min(int(now / rules.refresh_s), readings.shape[0] - 1)]
            j = _decide(d, c, jobs, rules, out, oracle, in_flight, hit_frac, seen, i, turn, pace)
            if j >= 0:
                turn = j + 1
                _send(s, d, c, jobs, rules, progress, out, fabric, sites, oracle, in_flight, hit_frac, i, j, now)
                flow_s = next_end(s)
            i += 1
    return out, s.carried_bytes, _stuck_bytes(s, rules.until_s), events


@inline
def plan_next(d, out, rules, j):
    """When the batch of instance j changes next, and after how many iterations."""
    curve, ends_at, iteration = rules.scoring.curve, d.ends_at, d.iteration[j]
    n, waiting = d.running[j], d.queue_head[j]
    if n == 0:
        d.next_s[j] = out.landed_s[waiting] if waiting >= 0 else np.inf
        return
    step = curve.base_s + curve.per_sequence_s * n
    skip = ends_at[j, 0] - iteration
    for q in range(1, n):
        skip = min(skip, ends_at[j, q] - iteration)
    if waiting >= 0 and n < curve.max_batch:
        wait = np.ceil((out.landed_s[waiting] - d.boundary_s[j]) / step - 1e-9)
        skip = min(skip, int(wait))
    d.skip[j] = skip
    d.next_s[j] = d.boundary_s[j] + skip * step


@inline
def _end_flows(s, d, c, jobs, rules, progress, out, fabric, in_flight, now):
    """Flows that have sent everything; a request whose last flow this was has landed."""
    q = 0
    while q < s.size[0]:
        f = s.active[q]
        if s.ends_s[f] > now + 1e-12:
            q += 1
            continue
        finish(s, f)
        r = f // rules.shards
        progress.sending[r] -= 1
        if progress.sending[r] == 0:
            in_flight[jobs.source[r], out.tier[r]] -= 1.0
            _land(d, progress, out, fabric, r, now)
            if c.on:
                _cache_prompt(c, jobs, progress, out, r)
            plan_next(d, out, rules, out.choice[r])
    refill(s, now)


@inline
def _turn_over(d, c, jobs, rules, progress, out, j, now):
    """An iteration boundary of instance j: finished requests leave, landed ones join."""
    d.boundary_s[j] = now
    d.iteration[j] += d.skip[j]
    ends_at, iteration, running = d.ends_at, d.iteration[j], d.running
    q = 0
    while q < running[j]:
        if ends_at[j, q] > iteration:
            q += 1
            continue
        r = d.request[j, q]
        out.finished_s[r] = now
        c.reserved[j] -= progress.held_tokens[r]
        for b in range(progress.pinned[r] - 1, -1, -1):
            unpin(c, j, jobs.blocks[jobs.block_starts[r] + b])
        d.running[j] -= 1
        d.ends_at[j, q], d.request[j, q] = d.ends_at[j, d.running[j]], d.request[j, d.running[j]]
    fresh, curve = d.running[j], rules.scoring.curve
    while d.queue_head[j] >= 0 and d.running[j] < curve.max_batch and out.landed_s[d.queue_head[j]] <= now + 1e-9:
        r = d.queue_head[j]
        d.queue_head[j] = progress.behind[r]
        if progress.behind[r] < 0:
            d.queue_tail[j] = NONE
        d.queued[j] -= 1
        out.joined_s[r] = now
        d.request[j, d.running[j]] = r
        d.ends_at[j, d.running[j]] = d.iteration[j] + max(int(jobs.output_tokens[r]), 1)
        d.running[j] += 1
    step = curve.base_s + curve.per_sequence_s * d.running[j]
    for q in range(fresh, d.running[j]):
        out.first_token_s[d.request[j, q]] = now + step
        out.step_s[d.request[j, q]] = step
    plan_next(d, out, rules, j)


@inline
def _decide(d, c, jobs, rules, out, oracle, in_flight, hit_frac, seen, r, turn, pace):
    """The instance for request r, or -1."""
    p, pool, tokens = jobs.source[r], hit_frac.shape[0], jobs.input_tokens[r]
    kv = tokens * rules.kv_bytes_per_token
    # arrays by themselves: numba counts references at every access to a record's
    free_bytes, queued, batch = seen.free_bytes, seen.queued, seen.batch
    waiting, running, inbound, reserved, used, idle = d.queued, d.running, d.inbound, c.reserved, c.used, c.idle
    slot_of, given_frac = c.slot_of, jobs.hit_frac
    blocks = jobs.blocks[jobs.block_starts[r] : jobs.block_starts[r + 1]]
    for j in range(pool):
        if c.on:
            hit_frac[j] = min(hit_blocks(slot_of, j, blocks) * rules.block_tokens / tokens, 1.0)
        else:
            hit_frac[j] = given_frac[r, j]
        free_tokens = c.capacity_tokens - reserved[j] - (used[j] - idle[j]) * c.block_tokens
        free_bytes[j] = free_tokens * rules.kv_bytes_per_token
        queued[j] = waiting[j]
        batch[j] = running[j] + (inbound[j] if rules.sees_inbound else 0.0)
    given = rules.scoring
    reserve_bytes = (rules.reserve_tokens + jobs.output_tokens[r]) * rules.kv_bytes_per_token
    scoring = Scoring(
        given.policy,
        given.curve,
        reserve_bytes,
        given.cache_weight,
        given.max_in_flight,
        given.destination_bytes_per_s,
    )
    tier_paces(scoring, oracle, in_flight[p], pace)
    first = turn if scoring.policy == ROUND_ROBIN else mix(rules.seed, r, 0) % pool
    tier, latency_s = oracle.tier_map[p], oracle.tier_latency_s
    j, _ = choose_one(scoring, kv, hit_frac, seen, tier, pace, latency_s, first)
    if j < 0:
        for k in range(pool):
            if has_room(scoring, kv, hit_frac[k], seen.free_bytes[k]):
                out.choice[r] = UNREACHABLE
    return j


@inline
def _send(s, d, c, jobs, rules, progress, out, fabric, sites, oracle, in_flight, hit_frac, r, j, now):
    """Request r goes to instance j: memory is taken, its flows start."""
    p, hit = jobs.source[r], hit_frac[j]
    t = oracle.tier_map[p, j]
    out.choice[r], out.tier[r], out.hit_tokens[r] = j, t, hit * jobs.input_tokens[r]
    progress.held_tokens[r] = jobs.input_tokens[r] * (1.0 - hit) + jobs.output_tokens[r]
    c.reserved[j] += progress.held_tokens[r]
    d.inbound[j] += 1.0
    if c.on:
        blocks = jobs.blocks[jobs.block_starts[r] : jobs.block_starts[r + 1]]
        progress.pinned[r] = hit_blocks(c.slot_of, j, blocks)
        for b in range(progress.pinned[r]):
            pin(c, j, blocks[b])
        make_room(c, j)
    payload = jobs.input_tokens[r] * rules.kv_bytes_per_token * (1.0 - hit)
    if payload <= 0.0:
        _land(d, progress, out, fabric, r, now)
        plan_next(d, out, rules, j)
        return
    in_flight[p, t] += 1.0
    progress.sending[r] = rules.shards
    for shard in range(rules.shards):
        f = r * rules.shards + shard
        route(s, f, fabric, sites[0][p], sites[1][j], shard, rules.seed)
        start(s, f, payload / rules.shards, now)
    refill(s, now)


@inline
def _land(d, progress, out, fabric, r, sent_s):
    """The last byte of request r, sent at `sent_s`, arrives: the request queues for a slot."""
    j = out.choice[r]
    out.landed_s[r] = sent_s + fabric.tier_latency_s[out.tier[r]]
    d.inbound[j] -= 1.0
    d.queued[j] += 1
    if d.queue_tail[j] >= 0:
        progress.behind[d.queue_tail[j]] = r
    else:
        d.queue_head[j] = r
    d.queue_tail[j] = r


@inline
def _cache_prompt(c, jobs, progress, out, r):
    """The prompt's blocks become shared: pinned in the cache of its instance instead of held by the request alone."""
    j = out.choice[r]
    first, last = jobs.block_starts[r], jobs.block_starts[r + 1]
    n = progress.pinned[r]
    while n < last - first:
        block = jobs.blocks[first + n]
        tokens = min(c.block_tokens, jobs.input_tokens[r] - n * c.block_tokens)
        if c.slot_of[j, block] >= 0:
            pin(c, j, block)
        else:
            c.reserved[j] += c.block_tokens - tokens  # a whole block, from here on in the cache
            fits = make_room(c, j)
            c.reserved[j] -= c.block_tokens - tokens
            if not fits or not insert(c, j, block):
                break
        progress.held_tokens[r] -= tokens
        c.reserved[j] -= tokens
        n += 1
    progress.pinned[r] = n


@inline
def _set_background(s, fabric, level):
    """The background takes its share of every link, by tier or by link."""
    for link in range(s.capacity.shape[0]):
        share = level[fabric.link_tier[link]] if level.shape[0] == 4 else level[link]
        s.capacity[link] = fabric.link_bytes_per_s[link] * (1.0 - share)


@inline
def _stuck_bytes(s, until_s):
    """Bytes of flows that have not ended; without an end of time those that nothing moves."""
    stuck = 0.0
    for q in range(s.size[0]):
        f = s.active[q]
        if until_s < np.inf:
            settle(s, f, until_s)
        stuck += s.left_bytes[f]
    return stuck

"""The compiled loop of `cluster`: arrivals, prefills, decode steps, control epochs, in order of time."""

from __future__ import annotations

import numpy as np

from dmodels.core.compiled import kernel


@kernel
def score_of(signal, turn, w, count, work, tokens, serving):
    """What the router looks at on worker w; the least is chosen."""
    if signal == 0:
        return 0.0 if turn == w else 1.0
    if signal == 1:
        return float(count[w])
    if signal == 2:
        return work[w]
    if signal == 3:
        return tokens[w]
    return serving[w]


@kernel
def best_home(need, role, draining, used, capacity, batch, slots):
    """The decoder with the most free blocks that takes a sequence of `need` blocks, or -1."""
    best, room = -1, -1.0
    for d in range(role.size):
        if role[d] == 1 and not draining[d] and batch[d] < slots:
            free = capacity - used[d]
            if free >= need and free > room:
                best, room = d, free
    return best


@kernel
def defragment(k, theta, role, draining, used, capacity, batch, slots, lines, blocks):
    """The move that lets most more requests of k blocks fit, away from a decoder below theta: (from, place, to)."""
    best, source, place, target = 0.0, -1, -1, -1
    for a in range(role.size):
        if role[a] != 1 or draining[a]:
            continue
        free = capacity - used[a]
        stranded = free - k * np.floor(free / k)
        if not (1.0 - (used[a] + stranded) / capacity < theta and stranded > 0):
            continue
        for s in range(batch[a]):
            size = blocks[lines[a, s]]
            for b in range(role.size):
                if b == a or role[b] != 1 or draining[b] or batch[b] >= slots or capacity - used[b] < size:
                    continue
                there = capacity - used[b]
                gain = np.floor((free + size) / k) + np.floor((there - size) / k)
                gain -= np.floor(free / k) + np.floor(there / k)
                worth = gain - 1e-6 * size
                if gain > 0 and worth > best:
                    best, source, place, target = worth, a, s, b
    return source, place, target


@kernel
def run_cluster(arrival, prompt, output, seconds, believed, blocks, role, machine, control, clients):
    base, step, slots_f, capacity, move_s, slo = machine
    signal, flow, theta, theta_frag, epoch, cool, limit, sees_waiting = control
    n, m, slots = arrival.size, role.size, int(slots_f)
    first, end, worker = np.full(n, np.nan), np.full(n, np.nan), np.full(n, -1)
    after, left = np.full(n, -1), output.copy()
    # prefill side
    head, tail, count = np.full(m, -1), np.full(m, -1), np.zeros(m, np.int64)
    work, tokens, serving = np.zeros(m), np.zeros(m), np.zeros(m)  # believed seconds; prompt tokens; those in service
    done_at, begun = np.full(m, np.inf), np.zeros(m)
    # decode side
    lines, batch, used = np.zeros((m, slots), np.int64), np.zeros(m, np.int64), np.zeros(m)
    joined = np.zeros(m, np.int64)  # sequences of `lines` that take part in the step that runs
    step_at = np.full(m, np.inf)
    draining = np.zeros(m, np.bool_)
    next_role = np.full(m, 2)
    waiting, first_waiting, n_waiting, waiting_blocks = np.empty(n, np.int64), 0, 0, 0.0
    freed_at, freed_w, freed_b = [np.inf], [0], [0.0]  # blocks that a finished move will free
    mean_blocks = max(1.0, np.ceil(blocks.mean())) if n else 1.0
    locked = np.zeros(m)  # a promoted worker keeps its role until then
    wait_until, changes, moved, turn = 0.0, 0, 0.0, 0
    seen_t, seen_q, seen_n, seen_f = [0.0], [np.zeros(m)], [0.0], [0.0]
    next_i, finished, next_epoch = 0, 0, epoch
    horizon = clients if clients > 0 else n  # requests that may arrive so far

    while finished < n:
        now = next_epoch
        kind, which = 3, -1
        if next_i < horizon and arrival[next_i] <= now:
            now, kind = arrival[next_i], 0
        for w in range(m):
            if done_at[w] < now:
                now, kind, which = done_at[w], 1, w
            if step_at[w] < now:
                now, kind, which = step_at[w], 2, w
        admit = False
        k = 1
        while k < len(freed_at):
            if freed_at[k] <= now:
                used[freed_w[k]] -= freed_b[k]
                freed_at.pop(k)
                freed_w.pop(k)
                freed_b.pop(k)
                admit = True
            else:
                k += 1

        if kind == 0:  # an arrival: the prefill worker of least score
            i = next_i
            next_i += 1
            best, least = -1, np.inf
            while role[turn % m] != 0 or draining[turn % m]:
                turn += 1
            for w in range(m):
                if role[w] == 0 and not draining[w]:
                    load = work[w]
                    if signal == 2 and head[w] >= 0:  # progress of the prompt in service counts
                        share = min(1.0, (now - begun[w]) / seconds[head[w]])
                        load -= believed[head[w]] * share
                    score = score_of(signal, turn % m, w, count, work, tokens, serving) if signal != 2 else load
                    if score < least:
                        best, least = w, score
            turn += 1
            w = best
            worker[i] = w
            count[w] += 1
            work[w] += believed[i]
            tokens[w] += prompt[i]
            if head[w] < 0:
                head[w] = tail[w] = i
                begun[w], done_at[w], serving[w] = now, now + seconds[i], prompt[i]
            else:
                after[tail[w]] = i
                tail[w] = i
        elif kind == 1:  # a prompt is done
            w = which
            i = head[w]
            first[i] = now
            count[w] -= 1
            tokens[w] -= prompt[i]
            work[w] = work[w] - believed[i] if count[w] > 0 else 0.0
            head[w] = after[i]
            if head[w] < 0:
                done_at[w], serving[w] = np.inf, 0.0
                if draining[w]:
                    role[w], draining[w] = next_role[w], False
            else:
                begun[w], done_at[w], serving[w] = now, now + seconds[head[w]], prompt[head[w]]
            left[i] -= 1
            if left[i] <= 0:
                end[i] = now
                finished += 1
                if clients > 0 and horizon < n:
                    arrival[horizon] = now
                    horizon += 1
            else:
                waiting[first_waiting + n_waiting] = i
                n_waiting += 1
                waiting_blocks += blocks[i]
                admit = True
        elif kind == 2:  # a decoder's step is over: a token for everyone who took part
            d = which
            s = 0
            for place in range(batch[d]):
                i = lines[d, place]
                if place < joined[d]:
                    left[i] -= 1
                if left[i] <= 0:
                    end[i] = now
                    finished += 1
                    used[d] -= blocks[i]
                    admit = True
                    if clients > 0 and horizon < n:
                        arrival[horizon] = now
                        horizon += 1
                else:
                    lines[d, s] = i
                    s += 1
            batch[d] = s
            step_at[d] = np.inf  # the next step begins below, with whoever is admitted now
            if s == 0 and draining[d]:
                role[d], draining[d] = next_role[d], False
        else:  # a control epoch
            next_epoch = now + epoch
            n_p = n_d = 0
            phi_p = phi_d = 0.0
            queue_p = 0.0
            total = free_all = stranded_all = 0.0
            for w in range(m):
                if draining[w]:
                    continue
                if role[w] == 0:
                    n_p += 1
                    phi_p += 1.0 - work[w] / slo
                    queue_p += count[w]
                elif role[w] == 1:
                    n_d += 1
                    free = capacity - used[w]
                    stranded = free - mean_blocks * np.floor(free / mean_blocks)
                    phi_d += 1.0 - (used[w] + stranded) / capacity
                    total += batch[w]
                    free_all += free
                    stranded_all += stranded
            phi_d -= sees_waiting * waiting_blocks / capacity
            phi_p, phi_d, queue_p = phi_p / n_p, phi_d / n_d, queue_p / n_p
            seen_t.append(now)
            seen_q.append(count.astype(np.float64))
            seen_n.append(total / n_d)
            seen_f.append(stranded_all / free_all if free_all > 0 else 0.0)
            if theta_frag > 0:
                need = blocks[waiting[first_waiting]] if n_waiting > 0 else mean_blocks
                for _ in range(4):
                    a, place, b = defragment(
                        need, theta_frag, role, draining, used, capacity, batch, slots, lines, blocks
                    )
                    if a < 0:
                        break
                    i = lines[a, place]
                    for k in range(place, batch[a] - 1):
                        lines[a, k] = lines[a, k + 1]
                    batch[a] -= 1
                    joined[a] -= 1 if place < joined[a] else 0
                    lines[b, batch[b]] = i
                    batch[b] += 1
                    if batch[a] == 0:
                        step_at[a] = np.inf
                    used[b] += blocks[i]
                    moved += blocks[i]
                    freed_at.append(now + blocks[i] * move_s)
                    freed_w.append(a)
                    freed_b.append(blocks[i])
            to = -1  # role that a standby worker gets; 10 + role: a worker of it is recalled
            if flow == 1 and now >= wait_until:
                if phi_p < theta * phi_d:
                    to = 0
                elif phi_d < theta * phi_p:
                    to = 1
                elif n_p > 1 and 1.0 - (1.0 - phi_p) * n_p / (n_p - 1) >= max(phi_d, 0.0):
                    to = 10
                elif n_d > 1 and 1.0 - (1.0 - phi_d) * n_d / (n_d - 1) >= max(phi_p, 0.0):
                    to = 11
            elif flow == 2:
                if queue_p > limit:
                    to = 0
                elif n_waiting > limit:
                    to = 1
                elif queue_p <= 1.0 and n_p > 1:
                    to = 10
                elif n_d > 1:
                    to = 11
            if to == 0 or to == 1:
                for w in range(m):
                    if role[w] == 2:
                        role[w], locked[w] = to, now + cool
                        changes += 1
                        wait_until = now + cool if flow == 1 else 0.0
                        admit = True
                        break
            elif to >= 10:  # only workers that came from standby go back: those beyond the first of each role
                for w in range(m - 1, -1, -1):
                    if role[w] == to - 10 and not draining[w] and locked[w] > 0 and now >= locked[w]:
                        changes += 1
                        wait_until = now + cool if flow == 1 else 0.0
                        next_role[w], locked[w] = 2, 0.0
                        if (to == 10 and count[w] == 0) or (to == 11 and batch[w] == 0):
                            role[w] = 2
                        else:
                            draining[w] = True
                        break

        while admit and n_waiting > 0:  # first come, first served: a large sequence holds up those behind it
            i = waiting[first_waiting]
            d = best_home(blocks[i], role, draining, used, capacity, batch, slots)
            if d < 0:
                break
            first_waiting += 1
            n_waiting -= 1
            waiting_blocks -= blocks[i]
            lines[d, batch[d]] = i
            batch[d] += 1
            used[d] += blocks[i]
        for d in range(m):
            if batch[d] > 0 and step_at[d] == np.inf:
                joined[d] = batch[d]
                step_at[d] = now + base + step * batch[d]

    queues = np.empty((len(seen_q), m))
    for k in range(len(seen_q)):
        queues[k] = seen_q[k]
    return (arrival, first, end, worker, np.array(seen_t), queues, np.array(seen_n), np.array(seen_f), changes, moved)

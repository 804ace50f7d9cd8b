"""The prefill/decode cluster in plain Python: workers and requests are objects, what happens next is found by looking.

It shares nothing with the compiled loops but the records of what is asked (`Workers`, `Control`, `Hybrid`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from math import inf

from dmodels.sim.cluster import Control, Flow, Hybrid, Signal, Workers


@dataclass(eq=False)
class Request:
    arrival: float
    prompt: int
    output: int
    seconds: float
    blocks: int
    believed: float = 0.0
    unread: float = 0.0  # prompt tokens
    made: int = 0
    first: float = math.nan
    end: float = math.nan
    worker: int = -1


@dataclass(eq=False)
class Worker:
    number: int
    kind: str  # prefill, decode, standby
    line: list[Request] = field(default_factory=list)  # prompts, the one in service first
    begun: float = 0.0
    prompt_ends: float = inf
    batch: list[Request] = field(default_factory=list)
    stepping: list[Request] = field(default_factory=list)  # those who get a token when the step ends
    step_ends: float = inf
    reading: list[tuple[Request, float]] = field(default_factory=list)  # prompt tokens of the step, where mixed
    reading_s: float = 0.0
    held: float = 0.0  # blocks
    leaving: bool = False
    came: float | None = None  # from standby, to stay until then

    def believed(self) -> float:
        return sum(r.believed for r in self.line)


class Cluster:
    """What both kinds of cluster share: memory, steps, moves, the order of events."""

    def __init__(self, requests: list[Request], machines: Workers, clients: int):
        kinds = ["prefill"] * machines.prefill + ["decode"] * machines.decode + ["standby"] * machines.standby
        self.workers = [Worker(i, kind) for i, kind in enumerate(kinds)]
        self.requests, self.machines = requests, machines
        self.coming = requests[: clients or None]
        self.later = requests[clients:] if clients else []
        self.homeless: list[Request] = []
        self.on_the_way: list[tuple[float, Worker, int]] = []
        self.typical = max(1, math.ceil(sum(r.blocks for r in requests) / len(requests)))
        self.epochs: list[tuple[float, float, float, list[int]]] = []
        self.next_epoch, self.changes, self.moved, self.now = 0.0, 0, 0, 0.0

    def run(self, epoch_s: float) -> Cluster:
        self.next_epoch = epoch_s
        while any(math.isnan(r.end) for r in self.requests):
            kind, worker = self.next_event()
            for item in [item for item in self.on_the_way if item[0] <= self.now]:
                self.on_the_way.remove(item)
                item[1].held -= item[2]
            if kind == "epoch":
                self.next_epoch = self.now + epoch_s
                self.look()
                self.control()
            elif kind == "arrival":
                self.arrive(self.coming.pop(0))
            elif kind == "prompt":
                self.read(worker)
            else:
                self.stepped(worker)
            self.settle()
            for w in self.workers:
                self.begin(w)
        return self

    def next_event(self):
        found = [(self.next_epoch, 0, "epoch", None)]
        if self.coming:
            found.append((self.coming[0].arrival, 1, "arrival", None))
        for w in self.workers:
            found += [(w.prompt_ends, 2 + 2 * w.number, "prompt", w), (w.step_ends, 3 + 2 * w.number, "step", w)]
        self.now, _, kind, worker = min(found, key=lambda event: event[:2])
        return kind, worker

    def free(self, w: Worker) -> float:
        return self.machines.kv_blocks - w.held

    def doing(self, kind: str) -> list[Worker]:
        return [w for w in self.workers if w.kind == kind and not w.leaving]

    def home(self, kind: str, blocks: int) -> Worker | None:
        """Of those of a kind that have a slot and the blocks, the one with the most."""
        able = [w for w in self.doing(kind) if len(w.batch) < self.machines.slots and self.free(w) >= blocks]
        return max(able, key=self.free, default=None)  # the first of equals

    def join(self, r: Request, w: Worker) -> None:
        w.batch.append(r)
        w.held += r.blocks

    def move(self, r: Request, source: Worker, target: Worker) -> None:
        """It has memory in both places until it has arrived, and misses the step that runs."""
        source.batch.remove(r)
        if r in source.stepping:
            source.stepping.remove(r)
        if not source.batch and not source.line:
            source.step_ends = inf
        self.join(r, target)
        self.moved += r.blocks
        self.on_the_way.append((self.now + r.blocks * self.machines.block_transfer_s, source, r.blocks))

    def done(self, r: Request) -> None:
        r.end = self.now
        if self.later:
            self.later[0].arrival = self.now
            self.coming.append(self.later.pop(0))

    def tokens(self, w: Worker) -> None:
        for r in w.stepping:
            r.made += 1
            if r.made == r.output:
                w.batch.remove(r)
                w.held -= r.blocks
                self.done(r)
        w.stepping, w.step_ends = [], inf

    def first_token(self, r: Request) -> None:
        r.first, r.made = self.now, 1
        if r.output == 1:
            self.done(r)
        else:
            self.homeless.append(r)

    def whole(self, w: Worker, blocks: int) -> float:
        return self.free(w) // blocks

    def stranded(self, w: Worker, blocks: int) -> float:
        return self.free(w) % blocks

    def look(self) -> None:
        decoders = self.doing("decode")
        free = sum(self.free(w) for w in decoders)
        lost = sum(self.stranded(w, self.typical) for w in decoders)
        mean = sum(len(w.batch) for w in decoders) / len(decoders)
        self.epochs.append((self.now, mean, lost / free if free > 0 else 0.0, [len(w.line) for w in self.workers]))


class Apart(Cluster):
    """Prompts one at a time on prefill workers, answers on decoders, standby workers by a rule of flow."""

    def __init__(self, requests, machines, clients, rules: Control):
        super().__init__(requests, machines, clients)
        self.rules, self.turn, self.quiet_until = rules, -1, -inf

    def score(self, w: Worker) -> float:
        served = w.line[0] if w.line else None
        progress = min(1.0, (self.now - w.begun) / served.seconds) * served.believed if served else 0.0
        return {
            Signal.REQUESTS: len(w.line),
            Signal.WORK: w.believed() - progress,
            Signal.TOKENS: sum(r.prompt for r in w.line),
            Signal.MEMORY: served.prompt if served else 0,
        }[self.rules.signal]

    def arrive(self, r: Request) -> None:
        able = self.doing("prefill")
        if self.rules.signal == Signal.TURN:
            w = min(able, key=lambda w: (w.number - self.turn - 1) % len(self.workers))
            self.turn = w.number
        else:
            w = min(able, key=self.score)
        r.worker = w.number
        w.line.append(r)
        if len(w.line) == 1:
            self.serve(w)

    def serve(self, w: Worker) -> None:
        w.begun, w.prompt_ends = self.now, self.now + w.line[0].seconds

    def read(self, w: Worker) -> None:
        r = w.line.pop(0)
        w.prompt_ends = inf
        if w.line:
            self.serve(w)
        self.retire(w)
        self.first_token(r)

    def stepped(self, w: Worker) -> None:
        self.tokens(w)
        self.retire(w)

    def retire(self, w: Worker) -> None:
        if w.leaving and not w.line and not w.batch:
            w.kind, w.leaving = "standby", False

    def settle(self) -> None:
        while self.homeless and (home := self.home("decode", self.homeless[0].blocks)):
            self.join(self.homeless.pop(0), home)

    def begin(self, w: Worker) -> None:
        if w.batch and w.step_ends == inf:
            w.stepping = list(w.batch)
            w.step_ends = self.now + self.machines.step.base_s + self.machines.step.per_sequence_s * len(w.batch)

    def freeness(self, w: Worker, blocks: int) -> float:
        return 1 - (w.held + self.stranded(w, blocks)) / self.machines.kv_blocks

    def control(self) -> None:
        prefill, decode = self.doing("prefill"), self.doing("decode")
        phi_p = sum(1 - w.believed() / self.machines.ttft_slo_s for w in prefill) / len(prefill)
        phi_d = sum(self.freeness(w, self.typical) for w in decode) / len(decode)
        if self.rules.sees_waiting:
            phi_d -= sum(r.blocks for r in self.homeless) / self.machines.kv_blocks / len(decode)
        queue = sum(len(w.line) for w in prefill) / len(prefill)
        if self.rules.theta_frag > 0:
            self.gather()
        if self.rules.flow == Flow.FREENESS and self.now >= self.quiet_until:
            before = self.changes
            self.balance({"prefill": phi_p, "decode": phi_d}, {"prefill": len(prefill), "decode": len(decode)})
            if self.changes > before:
                self.quiet_until = self.now + self.rules.cool_s
        elif self.rules.flow == Flow.REACTIVE:
            if queue > self.rules.queue_limit:
                self.promote("prefill")
            elif len(self.homeless) > self.rules.queue_limit:
                self.promote("decode")
            elif queue <= 1 and len(prefill) > 1:
                self.recall("prefill")
            elif len(decode) > 1:
                self.recall("decode")

    def balance(self, phi: dict[str, float], count: dict[str, int]) -> None:
        sides = (("prefill", "decode"), ("decode", "prefill"))
        for kind, other in sides:
            if self.doing("standby") and phi[kind] < self.rules.theta_flow * phi[other]:
                return self.promote(kind)
        for kind, other in sides:
            if count[kind] > 1:
                fewer = 1 - (1 - phi[kind]) * count[kind] / (count[kind] - 1)
                if fewer >= max(phi[other], 0.0):
                    return self.recall(kind)
        return None

    def promote(self, kind: str) -> None:
        if waiting := self.doing("standby"):
            waiting[0].kind, waiting[0].came = kind, self.now + self.rules.cool_s
            self.changes += 1

    def recall(self, kind: str) -> None:
        able = [w for w in self.doing(kind) if w.came is not None and self.now >= w.came]
        if able:
            able[-1].leaving, able[-1].came = True, None
            self.changes += 1
            self.retire(able[-1])

    def gather(self) -> None:
        """Up to four moves that let most more requests of the next in line fit, of those the smallest."""
        blocks = self.homeless[0].blocks if self.homeless else self.typical
        for _ in range(4):
            moves = []
            for source in self.doing("decode"):
                if not (self.freeness(source, blocks) < self.rules.theta_frag and self.stranded(source, blocks) > 0):
                    continue
                for r in source.batch:
                    for target in self.doing("decode"):
                        full = len(target.batch) >= self.machines.slots or self.free(target) < r.blocks
                        if target is source or full:
                            continue
                        before = self.whole(source, blocks) + self.whole(target, blocks)
                        after = (self.free(source) + r.blocks) // blocks + (self.free(target) - r.blocks) // blocks
                        if after > before:
                            moves.append((after - before, -r.blocks, r, source, target))
            if not moves:
                return
            best = max(moves, key=lambda move: move[:2])
            self.move(*best[2:])


class Mixed(Cluster):
    """Every worker reads prompts in chunks and decodes; answers flow between the two kinds."""

    def __init__(self, requests, machines, clients, rules: Hybrid):
        super().__init__(requests, machines, clients)
        self.rules = rules
        self.mark = rules.watermark_frac * machines.kv_blocks
        for r in requests:
            r.unread = r.prompt

    def chunk(self, w: Worker) -> float:
        return self.rules.chunk_tokens if w.kind == "prefill" else self.rules.decode_chunk_tokens

    def soonest(self, w: Worker, r: Request) -> float:
        """The first token of a prompt there: after the step that runs, by the steps that its line and it take."""
        if self.chunk(w) <= 0:
            return inf
        runs = w.step_ends < inf
        ahead = [*w.line, r]
        tokens = sum(x.unread for x in ahead) - (sum(n for _, n in w.reading) if runs else 0)
        seconds = sum(x.unread * x.seconds / x.prompt for x in ahead) - (w.reading_s if runs else 0)
        wait = w.step_ends - self.now if runs else 0.0
        if not w.batch:
            return wait + seconds
        steps = math.ceil(tokens / self.chunk(w) - 1e-9)
        law = self.machines.step
        return wait + max(seconds, steps * law.base_s) + steps * law.per_sequence_s * len(w.batch)

    def arrive(self, r: Request) -> None:
        times = {w: self.soonest(w, r) for w in self.workers}
        in_time = [w for w in self.workers if times[w] <= self.machines.ttft_slo_s]
        choice = [w for w in in_time if w.kind == "decode"] or in_time or self.workers
        w = min(choice, key=lambda w: times[w])
        r.worker = w.number
        w.line.append(r)

    def begin(self, w: Worker) -> None:
        if w.step_ends < inf or not (w.batch or w.line):
            return
        room, w.reading = self.chunk(w), []
        for r in w.line:
            if room > 0:
                w.reading.append((r, min(room, r.unread)))
                room -= w.reading[-1][1]
        w.reading_s = sum(n * r.seconds / r.prompt for r, n in w.reading)
        w.stepping = list(w.batch)
        law = self.machines.step
        w.step_ends = self.now + (
            max(law.base_s, w.reading_s) + law.per_sequence_s * len(w.batch) if w.batch else w.reading_s
        )

    def stepped(self, w: Worker) -> None:
        self.tokens(w)
        for r, n in w.reading:
            r.unread -= n
            if r.unread <= 0:
                w.line.remove(r)
                self.first_token(r)
        w.reading = []

    def read(self, w: Worker) -> None:
        raise AssertionError("prompts end with steps")

    def settle(self) -> None:
        while self.homeless:
            blocks = self.homeless[0].blocks
            home = self.home("decode", blocks)
            if home is None and self.rules.watermark_frac < 1:
                home = self.home("prefill", blocks)
            if home is None:
                return
            self.join(self.homeless.pop(0), home)

    def control(self) -> None:
        if self.rules.watermark_frac >= 1:
            return
        for w in self.workers:
            if w.kind == "decode":
                gone = 0
                while w.batch and w.held - gone > self.mark:
                    longest = max(w.batch, key=lambda r: r.made)
                    target = self.home("prefill", longest.blocks)
                    if target is None:
                        break
                    self.move(longest, w, target)
                    gone += longest.blocks
            else:
                for r in list(reversed(w.batch)):
                    limit = self.rules.back_frac * self.rules.tpot_slo_s
                    late = self.now - r.first > limit * max(r.made - 1, 1)
                    target = self.home("decode", r.blocks)
                    if late and target is not None and target.held + r.blocks <= self.mark:
                        self.move(r, w, target)


def simulate(arrival, prompt, output, seconds, machines, control, *, virtual_s=None, clients=0) -> Cluster:
    believed = seconds if virtual_s is None else virtual_s
    requests = [
        Request(float(a), int(p), int(o), float(s), math.ceil((p + o) / machines.block_tokens), float(b))
        for a, p, o, s, b in zip(arrival, prompt, output, seconds, believed, strict=True)
    ]
    kind = Mixed if isinstance(control, Hybrid) else Apart
    return kind(requests, machines, clients, control).run(control.epoch_s)

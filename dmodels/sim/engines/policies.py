"""The engines' schedulers by name: what each is told, with its own defaults and where the rule is written down."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from dmodels.core.errors import InputError


class Rule(IntEnum):
    """How a step is put together."""

    IN_FLIGHT = 0  # prompts and answers share its tokens
    PROMPTS_FIRST = 1  # a step of prompts alone, as long as one can be admitted


class VllmV1(NamedTuple):
    """vLLM's V1 scheduler: answers first, then prompts in what is left of the step's tokens, first come first served.

    A request is admitted where the blocks of its whole prompt are free; what an answer takes is found on the way, and
    where a running request finds no block the one admitted last gives way and is computed again, before all others
    that wait. Nobody is admitted in a step in which somebody gave way. `overlap`: a step is scheduled while the one
    before it runs, so that arrivals and ends count one step later.

    With priorities (`--scheduling-policy priority`) who waits is ordered by them, then by arrival, and who gives way is
    the last in that order, wherever it was admitted. What runs goes on: a prompt that was begun keeps its tokens of
    each step before any other is admitted, however important.

    Source: vllm/v1/core/sched/scheduler.py, `Scheduler.schedule` (0.19: `scheduler_reserve_full_isl`,
    `async_scheduling`); vllm/v1/core/kv_cache_manager.py.
    """

    kv_blocks: int
    slots: int = 256  # max_num_seqs
    step_tokens: int = 8192  # max_num_batched_tokens
    block_tokens: int = 16
    whole_prompt: bool = True  # scheduler_reserve_full_isl; otherwise the first chunk's blocks are enough
    overlap: bool = True  # async_scheduling

    @property
    def name(self) -> str:
        """The engine's."""
        return "vllm"


class SGLang(NamedTuple):
    """SGLang's scheduler: as long as a waiting prompt can be admitted, the next step computes prompts alone.

    A request reserves its prompt and its answer's limit (at most 4,096 tokens); of the answers that run, a share
    `new_token_ratio` of what their limits leave counts as taken. The ratio sinks from `first_ratio` with every step of
    answers, to `least_ratio` of it after 600. Where answers find no block, those with the fewest tokens (the longest
    prompt among equals) are retracted until 20 more tokens of each fit; they go to the end of the queue, and the ratio
    rises to what the answers have really used.

    Source: python/sglang/srt/managers/schedule_policy.py, `PrefillAdder`; schedule_batch.py, `retract_decode`;
    scheduler.py, `event_loop_overlap`; global_config.py (0.7, 0.14, 600, 20).
    """

    kv_blocks: int
    slots: int = 2048  # max_running_requests
    step_tokens: int = 8192  # chunked_prefill_size
    block_tokens: int = 1  # page_size
    prompt_tokens: int = 16384  # max_prefill_tokens
    first_ratio: float = 0.7
    least_ratio: float = 0.14  # of the first
    overlap: bool = True

    @property
    def name(self) -> str:
        """The engine's."""
        return "sglang"


class Capacity(IntEnum):
    """Capacity schedulers of TensorRT-LLM."""

    GUARANTEED_NO_EVICT = 0  # admitted where blocks up to its limit are free: nobody ever gives way
    MAX_UTILIZATION = 1  # admitted where its prompt's blocks are free; the last admitted gives way


class TensorRTLLM(NamedTuple):
    """TensorRT-LLM's executor: a capacity scheduler says who runs, the batch scheduler who is in the step.

    Answers first, then prompts in the order of arrival, whole unless `chunked`, within `step_tokens`.

    Source: tensorrt_llm/_torch/pyexecutor/scheduler.py, `GuaranteedNoEvictScheduler`; cpp/tensorrt_llm/batch_manager/
    capacityScheduler.cpp, `MaxUtilizationScheduler`; microBatchScheduler.cpp.
    """

    kv_blocks: int
    slots: int = 2048  # max_batch_size
    step_tokens: int = 8192  # max_num_tokens
    block_tokens: int = 32
    capacity: Capacity = Capacity.GUARANTEED_NO_EVICT
    chunked: bool = False
    overlap: bool = True

    @property
    def name(self) -> str:
        """The engine's."""
        return "trtllm"


Policy = VllmV1 | SGLang | TensorRTLLM
#: By the names of the engines.
POLICIES: dict[str, Any] = {"vllm": VllmV1, "sglang": SGLang, "trtllm": TensorRTLLM}


class SchedulerRules(NamedTuple):
    """A policy in plain numbers, as the compiled loop reads it."""

    rule: int
    slots: int
    step_tokens: int
    block_tokens: int
    overlap: bool
    chunked: bool
    to_limit: bool  # blocks up to the answer's limit are set aside at admission
    whole_prompt: bool  # the whole prompt must fit, not its first chunk alone
    takes_prompt: bool  # its blocks are taken at once
    admits_after_preemption: bool
    prompt_tokens: int
    first_ratio: float
    least_ratio: float
    by_priority: bool = False  # the queue and who gives way, by rank and then by arrival


def rules(policy: Policy) -> SchedulerRules:
    """What a policy does, after checking it."""
    for field in ("kv_blocks", "slots", "step_tokens", "block_tokens"):
        if not getattr(policy, field) >= 1:
            raise InputError(f"{policy.name}: {field} = {getattr(policy, field)}; accepted: whole numbers from 1")
    common = (int(policy.slots), int(policy.step_tokens), int(policy.block_tokens), bool(policy.overlap))
    if isinstance(policy, VllmV1):
        whole = bool(policy.whole_prompt)
        return SchedulerRules(Rule.IN_FLIGHT, *common, True, False, whole, False, False, 0, 0.0, 0.0)
    if isinstance(policy, SGLang):
        ratio, least = float(policy.first_ratio), float(policy.first_ratio * policy.least_ratio)
        if not (0.0 <= ratio <= 1.0 and 0.0 <= policy.least_ratio <= 1.0):
            raise InputError(f"sglang: first_ratio = {ratio:g}, least_ratio = {policy.least_ratio:g}; accepted: 0 to 1")
        most = int(policy.prompt_tokens)
        return SchedulerRules(Rule.PROMPTS_FIRST, *common, True, False, True, False, False, most, ratio, least)
    held = policy.capacity == Capacity.GUARANTEED_NO_EVICT
    return SchedulerRules(Rule.IN_FLIGHT, *common, bool(policy.chunked), held, True, True, True, 0, 0.0, 0.0)

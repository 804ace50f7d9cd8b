"""Serving engines as they schedule: vLLM V1, SGLang and TensorRT-LLM, step by step, on several instances.

Where `batching` has slots and one rule of chunks, here are the engines' own rules: who is admitted, what shares a step,
who gives way when no KV block is free, and what a prefix cache keeps. A step's time knows what its tokens attend to.
"""

from __future__ import annotations

from .laws import EngineLaw
from .policies import POLICIES, Capacity, Policy, SGLang, TensorRTLLM, VllmV1
from .prompts import SharedPrompts
from .simulation import Balance, simulate

__all__ = [
    "POLICIES",
    "Balance",
    "Capacity",
    "EngineLaw",
    "Policy",
    "SGLang",
    "SharedPrompts",
    "TensorRTLLM",
    "VllmV1",
    "simulate",
]

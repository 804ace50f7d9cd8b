"""One instance with continuous batching, request by request: in virtual time (`simulate`), and as a scan in JAX.

No command uses `scan`: it is for callers that simulate inside `jit` or on an accelerator.
"""

from __future__ import annotations

from .simulation import check_instance, simulate
from .step_times import TokenLaw, seconds, table, token_table, token_tables

__all__ = [
    "TokenLaw",
    "check_instance",
    "seconds",
    "simulate",
    "table",
    "token_table",
    "token_tables",
]

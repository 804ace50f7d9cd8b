"""The linear law of one decode iteration, free of heavy imports so that a router can read it."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Where NetKV caps its counter of transfers in flight: "roughly the NIC's saturated flow count".
MAX_IN_FLIGHT = 16.0


class BatchingCurve(NamedTuple):
    """W + H n, as a `StepLaw`, up to a largest batch; by default the fit that NetKV's TBTs imply."""

    base_s: Any = 12.48e-3
    per_sequence_s: Any = 0.115e-3
    max_batch: Any = 64.0

    def iteration_s(self, batch: Any) -> Any:
        """Seconds of one iteration with `batch` sequences."""
        return self.base_s + self.per_sequence_s * batch


NETKV_CURVE = BatchingCurve()

"""The linear law of one decode iteration, free of heavy imports so that a router can read it."""

from __future__ import annotations

from typing import Any, NamedTuple

#: Where NetKV caps its counter of transfers in flight: "roughly the NIC's saturated flow count".
MAX_IN_FLIGHT = 16.0


class BatchingCurve(NamedTuple):
    """Time of one decode iteration with n sequences, base + slope n. Default: the fit that NetKV's TBTs imply."""

    base_s: Any = 12.48e-3
    slope_s: Any = 0.115e-3
    max_batch: Any = 64.0

    def iteration_s(self, batch: Any) -> Any:
        """Seconds of one iteration with `batch` sequences."""
        return self.base_s + self.slope_s * batch


NETKV_CURVE = BatchingCurve()

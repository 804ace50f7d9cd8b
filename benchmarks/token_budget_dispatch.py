"""Microseconds of one live decision: token-budget dispatch and feedback (O(1)), Phasor's routing over 8 to 64 workers.

python -m benchmarks.token_budget_dispatch
"""

from __future__ import annotations

import time

from benchmarks.registry import record
from dmodels.control.phasor import PhasorRouter
from dmodels.control.token_budget import TokenBudgetRouter, pools, settings

CALLS = 20_000


def cases():
    """name -> a function that makes CALLS decisions."""
    for count, where in (
        (2, pools([8192], [8192, 65536], 64)),
        (6, pools([2**k for k in range(10, 15)], [2**k for k in range(10, 16)], 64)),
    ):
        router = TokenBudgetRouter(where, settings(miss_frac=0.01))
        router.on_response("prose", 9000, 2000)

        def dispatch(router=router):
            for i in range(CALLS):
                router.route("prose", 1000 + 7 * (i & 8191), 256)

        def learn(router=router):
            for i in range(CALLS):
                router.on_response("prose", 9000 + (i & 511), 2000)

        yield f"token budget: dispatch, {count} pools", dispatch
        yield f"token budget: feedback, {count} pools", learn
    for count in (8, 64):
        prefill = PhasorRouter([121e12] * count, 0.4)

        def route(prefill=prefill):
            for _ in range(CALLS):
                prefill.update(prefill.route(1e12), 1e12, 1)

        yield f"Phasor: route and finish, {count} workers", route


def main(repeats: int = 9) -> None:
    todo, best = dict(cases()), {}
    for _ in range(repeats):
        for name, run in todo.items():
            start = time.perf_counter()
            run()
            best[name] = min(best.get(name, float("inf")), time.perf_counter() - start)
    rows = [{"case": name, "us_per_call": 1e6 * seconds / CALLS} for name, seconds in best.items()]
    for row in rows:
        print(f"{row['case']:40} {row['us_per_call']:.2f} us")
    record("token_budget_dispatch", rows)


if __name__ == "__main__":
    main()

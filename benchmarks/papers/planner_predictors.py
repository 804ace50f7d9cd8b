"""Predictors of Dynamo's planner in a scaling loop on real days: what a better forecast is worth in workers.

Demand: ServeGen's windows of 600 s, prompt tokens/s for prefill and answer tokens/s for decode. Of the fourteen days of
m-small three are there to learn from, six are calm (one window without requests), and in five traffic stops and comes
back at up to twice the rate; deepseek-r1 has one day, six hours of it to learn from. Workers are sized so that the mean
needs thirty. Every predictor gets the least headroom that keeps the share of late requests at 1 %; what it then rents
is compared with a planner that knows the future and has its own least headroom.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np

from benchmarks.registry import Row, benchmark
from dmodels.control.planner import arima, constant, forecasts, kalman, scale, seasonal

DATA = Path(__file__).parents[3] / "shared" / "data" / "servegen"
DAY = 144  # windows
#: file, first window that counts, end
DAYS = {
    "m-small, calm": ("m-small", 3 * DAY, 9 * DAY),
    "m-small, stops": ("m-small", 9 * DAY, 14 * DAY),
    "deepseek-r1": ("deepseek-r1", DAY // 4, DAY),
}
PREDICTORS = {"constant": constant(), "ARIMA": arima(), "Kalman": kalman(), "seasonal": seasonal(float(DAY))}
WORKERS, LATE_FRAC, WAIT_SLO_S = 30.0, 0.01, 10.0
HEADROOM = np.concatenate([np.arange(1.0, 2.0, 0.01), np.arange(2.0, 12.01, 0.1)])


def demands(file: str) -> dict[str, np.ndarray]:
    """Tokens per second by pool, one value per window; a window without requests has no mean lengths."""
    table = np.genfromtxt(DATA / f"{file}_600s.csv", delimiter=",", skip_header=1, usecols=(1, 2, 3))
    rate, prompt, answer = table.T
    return {"prefill": np.nan_to_num(rate * prompt), "decode": np.nan_to_num(rate * answer)}


def courses(demand: np.ndarray, forecast: np.ndarray, startup: int, counts: slice) -> tuple[np.ndarray, np.ndarray]:
    """(mean workers, share of the requests that are late) by headroom, in the windows that count."""
    worker = demand[counts].mean() / WORKERS
    run = lambda headroom: scale(demand, forecast, worker, headroom=headroom, startup=startup, wait_slo_s=WAIT_SLO_S)
    course = jax.vmap(run)(HEADROOM)
    late = np.asarray(course.violation_frac)[:, counts] @ demand[counts] / demand[counts].sum()
    return np.asarray(course.instances)[:, counts].mean(1), late


def cheapest(late: np.ndarray) -> int:
    """The least headroom with at most `LATE_FRAC` late; the most there is if none has."""
    return int(np.argmax(late <= LATE_FRAC)) if (late <= LATE_FRAC).any() else len(late) - 1


@benchmark()
def planner_predictors(quick: bool) -> Iterator[Row]:
    """Planner predictors in a scaling loop on real days: workers at 1 % late, over a planner that knows the future."""
    with jax.enable_x64(True):
        for name, (file, begin, end) in DAYS.items():
            counts = slice(begin, end)
            for pool, demand in demands(file).items():
                for startup in (1,) if quick else (0, 1, 3):
                    ahead = startup + 1
                    known, late = courses(demand, np.append(demand[ahead:], np.zeros(ahead)), startup, counts)
                    least = known[cheapest(late)]
                    for kind, predictor in PREDICTORS.items():
                        expected = np.asarray(forecasts(predictor, demand, ahead))
                        workers, late = courses(demand, expected, startup, counts)
                        at, fifth = cheapest(late), int(np.searchsorted(HEADROOM, 1.2 - 1e-9))
                        off = np.abs(expected[begin - ahead : end - ahead] - demand[counts]) / demand[counts].mean()
                        yield {
                            "days": name,
                            "pool": pool,
                            "startup_windows": startup,
                            "predictor": kind,
                            "median_error_of_mean": float(np.median(off)),
                            "p99_error_of_mean": float(np.quantile(off, 0.99)),
                            "late_frac_at_headroom_1.2": float(late[fifth]),
                            "headroom": float(HEADROOM[at]),
                            "workers_over_knowing": float(workers[at] / least),
                            "late_frac": float(late[at]),
                        }

"""Prices of anarchy: exact for one game, estimated from a router's log, and in closed form for families of games.

`dmodels route` uses `price`, `dmodels poa` uses `index`, `log` and `log_windows`; `bounds`, `queues` and `smooth` are
used by the ledger.
"""

from __future__ import annotations

from .bounds import (
    AFFINE_ATOMIC,
    AFFINE_NONATOMIC,
    AFFINE_WEIGHTED,
    identical_workers_price,
    pole_limit,
    pole_price,
    polynomial_atomic,
    polynomial_nonatomic,
    polynomial_weighted,
    singleton_price,
    softmax_regret,
)
from .index import IndexCost, PoaIndex, calibrated_cost, poa_index
from .log import RequestLog, log_from_rows, read_log
from .log_windows import Windows, driver, windows
from .price import PAPER_FORM, PriceOfAnarchy, price_of_anarchy
from .queues import mm1_equilibrium, mm1_optimum, mm1_price, mmc_split
from .smooth import Smoothness, coarse_ceiling_s, smoothness

__all__ = [
    "AFFINE_ATOMIC",
    "AFFINE_NONATOMIC",
    "AFFINE_WEIGHTED",
    "PAPER_FORM",
    "IndexCost",
    "PoaIndex",
    "PriceOfAnarchy",
    "RequestLog",
    "Smoothness",
    "Windows",
    "calibrated_cost",
    "coarse_ceiling_s",
    "driver",
    "identical_workers_price",
    "log_from_rows",
    "mm1_equilibrium",
    "mm1_optimum",
    "mm1_price",
    "mmc_split",
    "poa_index",
    "pole_limit",
    "pole_price",
    "polynomial_atomic",
    "polynomial_nonatomic",
    "polynomial_weighted",
    "price_of_anarchy",
    "read_log",
    "singleton_price",
    "smoothness",
    "softmax_regret",
    "windows",
]

"""Prices of anarchy: exact for one game, estimated from a router's log, and in closed form for families of games.

`dmodels route` uses `price`, `dmodels poa` uses `index`, `log` and `log_windows`; `bounds`, `queues` and `smooth` are
used by the ledger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmodels.core.names import resolved

if TYPE_CHECKING:  # the names of `_HOME` as type checkers and editors read them
    from .bounds import AFFINE_ATOMIC as AFFINE_ATOMIC
    from .bounds import AFFINE_NONATOMIC as AFFINE_NONATOMIC
    from .bounds import AFFINE_WEIGHTED as AFFINE_WEIGHTED
    from .bounds import identical_workers_price as identical_workers_price
    from .bounds import pole_limit as pole_limit
    from .bounds import pole_price as pole_price
    from .bounds import polynomial_atomic as polynomial_atomic
    from .bounds import polynomial_nonatomic as polynomial_nonatomic
    from .bounds import polynomial_weighted as polynomial_weighted
    from .bounds import singleton_price as singleton_price
    from .bounds import softmax_regret as softmax_regret
    from .index import IndexCost as IndexCost
    from .index import PoaIndex as PoaIndex
    from .index import calibrated_cost as calibrated_cost
    from .index import poa_index as poa_index
    from .log import RequestLog as RequestLog
    from .log import log_from_rows as log_from_rows
    from .log import read_log as read_log
    from .log_windows import Windows as Windows
    from .log_windows import driver as driver
    from .log_windows import windows as windows
    from .price import PAPER_FORM as PAPER_FORM
    from .price import PriceOfAnarchy as PriceOfAnarchy
    from .price import price_of_anarchy as price_of_anarchy
    from .queues import mm1_equilibrium as mm1_equilibrium
    from .queues import mm1_optimum as mm1_optimum
    from .queues import mm1_price as mm1_price
    from .queues import mmc_split as mmc_split
    from .smooth import Smoothness as Smoothness
    from .smooth import coarse_ceiling_s as coarse_ceiling_s
    from .smooth import smoothness as smoothness

#: Public name -> module that defines it.
_HOME = {
    "AFFINE_ATOMIC": "bounds",
    "AFFINE_NONATOMIC": "bounds",
    "AFFINE_WEIGHTED": "bounds",
    "identical_workers_price": "bounds",
    "pole_limit": "bounds",
    "pole_price": "bounds",
    "polynomial_atomic": "bounds",
    "polynomial_nonatomic": "bounds",
    "polynomial_weighted": "bounds",
    "singleton_price": "bounds",
    "softmax_regret": "bounds",
    "IndexCost": "index",
    "PoaIndex": "index",
    "calibrated_cost": "index",
    "poa_index": "index",
    "RequestLog": "log",
    "log_from_rows": "log",
    "read_log": "log",
    "Windows": "log_windows",
    "driver": "log_windows",
    "windows": "log_windows",
    "PAPER_FORM": "price",
    "PriceOfAnarchy": "price",
    "price_of_anarchy": "price",
    "mm1_equilibrium": "queues",
    "mm1_optimum": "queues",
    "mm1_price": "queues",
    "mmc_split": "queues",
    "Smoothness": "smooth",
    "coarse_ceiling_s": "smooth",
    "smoothness": "smooth",
}

__all__ = [*_HOME]


if not TYPE_CHECKING:  # it would take any misspelt name for one of these

    def __getattr__(name: str) -> Any:
        return resolved(__name__, _HOME, name)


def __dir__() -> list[str]:
    return sorted(__all__)

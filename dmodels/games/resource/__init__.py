"""The prefill/decode split as a game over a shared GPU budget: equilibria, the social optimum, whole GPUs.

`dmodels split` uses `solve`, `queues` and `integer`; `violation` holds the papers' violation rates.
"""

from __future__ import annotations

from .game import Game, Split, balance_of
from .integer import WholeSplit, integer_split
from .queues import DecodeBatch, PrefillQueue, serving_game
from .solve import equilibria, equilibrium, explain, social_optimum
from .violation import Alone, Exponential, Logistic, Multiplied, Power, Starved

__all__ = [
    "Alone",
    "DecodeBatch",
    "Exponential",
    "Game",
    "Logistic",
    "Multiplied",
    "Power",
    "PrefillQueue",
    "Split",
    "Starved",
    "WholeSplit",
    "balance_of",
    "equilibria",
    "equilibrium",
    "explain",
    "integer_split",
    "serving_game",
    "social_optimum",
]

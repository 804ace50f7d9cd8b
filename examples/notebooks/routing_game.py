# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What selfish routing costs
#
# Requests choose the worker that is cheapest for themselves. How far is that from the best assignment for all? The
# answers below are exact: each is an equilibrium and an optimum that were found, with bounds that meet.

# %%
import numpy as np

from dmodels.games import routing
from dmodels.games.anarchy import identical_workers_price, price_of_anarchy
from dmodels.games.routing import counterfactuals

# %% [markdown]
# ## The smallest example
#
# Two requests; one worker whose latency is the number of its requests, one that always takes 2. If both sit on the
# first, neither gains by moving, and together they pay 4. One on each pays 3.

# %%
pigou = routing.RoutingGame([[1.0, 2.0], [2.0, 2.0]], np.zeros((2, 2)))
print(
    "both on the first:",
    routing.social_cost_s(pigou, [0, 0]),
    "most that one gains by moving:",
    routing.gain_s(pigou, [0, 0]),
)
price = price_of_anarchy(pigou)
print("price of anarchy between", float(price.lower), "and", float(price.upper))
assert float(price.lower) == float(price.upper) == 4 / 3

# %% [markdown]
# ## Caches can make it worse
#
# Two equal workers. Every request's prefix is on one of them, and a miss costs omega. The worst equilibrium sends
# everyone to the wrong worker: moving alone would only make the other one fuller. The price is 1 + omega / f(N/m), so
# it *falls* as latency grows, where one might expect it to explode near saturation.

# %%
curve = 0.020 + 0.005 * np.arange(1, 41)
omega = 0.004
for n in (2, 8, 20, 40):
    overlap = np.zeros((n, 2))
    overlap[np.arange(n), np.arange(n) % 2] = 1.0
    price = price_of_anarchy(routing.RoutingGame(np.tile(curve, (2, 1)), overlap, omega))
    bound = identical_workers_price(float(curve[n // 2 - 1]), omega)
    print(f"{n:2d} requests: price {float(price.upper):.4f}, closed form {bound:.4f}")
    assert abs(float(price.upper) - bound) < 1e-9

# %% [markdown]
# ## Simple policies on the same requests

# %%
n, workers = 24, 3
overlap = np.zeros((n, workers))
overlap[np.arange(n), np.arange(n) % workers] = 1.0
game = routing.RoutingGame(np.tile(0.020 + 0.005 * np.arange(1, n + 1), (workers, 1)), overlap, 0.015)
for name, ratio in counterfactuals(game, np.random.default_rng(0), 200).items():
    print(f"{name:15s} {np.mean(ratio):.3f} times the least cost")
    assert np.min(ratio) >= 1 - 1e-12

"""What games of placement and of a split do unless they are told otherwise, and how long they go on."""

from __future__ import annotations

import importlib
import inspect

import numpy as np

from dmodels.games import placement, resource
from dmodels.games.placement import PlacementGame, complete, pure_equilibrium, value_of_sharing

UNSAID = {
    "approximate_equilibrium": {"start": None, "max_rounds": 20},
    "at_risk": {"extra_bytes": None, "workers": None, "start": None, "together": False}
    | {"plays": 3, "max_profiles": 2e4, "rng": None},
    "best_bound": {"target_s": None, "iterations": 60, "tier": None},
    "best_response_dynamics": {"start": None, "order": None, "max_rounds": 1000}
    | {"coordinated": False, "worth_frac": 1e-12},
    "equilibria": {"max_profiles": 2e6},
    "greedy_optimum": {"polish": True},
    "more_memory": {"tier": 0, "extra_bytes": None},
    "paradox_search": {"access_s": 0.0, "recompute_s": 4.0, "best": False},
    "price_of_anarchy": {"max_profiles": 3e5, "starts": 8, "rng": None},
    "pure_equilibrium": {"max_profiles": 2e5, "starts": 8, "rng": None},
    "ring": {"directed": False},
    "rises": {"max_profiles": 1e5},
    "social_optimum": {"time_limit_s": 60.0, "rel_gap": 1e-9},
    "value_of_sharing": {"iterations": 20, "max_rounds": 100},
    "integer_split": {"optimum": None},
    "serving_game": {"efficiency": None, "prefill_weight": 1.0, "decode_weight": 1.0, "window_s": 30.0},
}
#: Two workers, three blocks, a place in each of two tiers: none of its profiles is an equilibrium.
RESTLESS = PlacementGame(np.tile([2.0, 3.0, 4.0], (2, 1)), [1.0, 2.0], [1.0, 1.0], complete(2, 2.0), 5.0)


def test_what_is_done_where_nothing_is_said():
    found = {}
    for room in (placement, resource):
        for name in filter(lambda name: inspect.isfunction(getattr(room, name)), room.__all__):
            asked = inspect.signature(getattr(room, name)).parameters.values()
            if defaults := {one.name: one.default for one in asked if one.default is not one.empty}:
                found[name] = defaults
    assert found == UNSAID


def test_sizes_from_which_an_answer_is_another():
    limits = {
        "placement.anarchy": {"EXACT_VARIABLES": 6_000},
        "placement.existence": {"WORTH_FRACS": (1e-12, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)},
        "placement.optimum": {"MOST_VARIABLES": 400_000},
        "placement.response": {"CYCLE_BYTES": 268_435_456},
        "placement.pure_equilibria": {"TIE_RTOL": 1e-11},
        "placement.bound_dual": {"ROUNDS": 4},
        "resource.roots": {"GRID": 64, "MOST": 8, "ALIKE": 1e-6},
    }
    for module, written in limits.items():
        known = vars(importlib.import_module(f"dmodels.games.{module}"))
        assert {name: known[name] for name in written} == written


def listened(monkeypatch, module, name, *told):
    """What `module` asks `name` for, by these parameters, when it is called."""
    asked, function = [], getattr(importlib.import_module(f"dmodels.games.placement.{module}"), name)

    def call(*args, **more):
        given = inspect.signature(function).bind(*args, **more)
        given.apply_defaults()
        asked.append(tuple(given.arguments[one] for one in told))
        return function(*args, **more)

    monkeypatch.setattr(f"dmodels.games.placement.{module}.{name}", call)
    return asked


def test_how_long_play_goes_on(monkeypatch):
    """A hundred rounds from each start, and twenty with moves of each worth until nobody moves."""
    played = listened(monkeypatch, "existence", "best_response_dynamics", "max_rounds", "worth_frac")
    assert pure_equilibrium(RESTLESS, max_profiles=0, starts=1).certificate["exists"] == -1
    worth = [1e-12, 1e-3, 3e-3, 1e-2, 3e-2, 0.1]
    assert played == [(100, 1e-12)] * 2 + [(20, share) for share in worth]
    pooled = listened(monkeypatch, "sharing", "best_response_dynamics", "max_rounds", "coordinated")
    steps = listened(monkeypatch, "sharing", "best_bound", "iterations", "target_s")
    told = value_of_sharing(RESTLESS)
    value_of_sharing(RESTLESS, 3, 7)
    assert pooled == [(100, False), (100, True), (7, False), (7, True)]
    assert steps == [(20, told.coordinated.social_s), (3, told.coordinated.social_s)]
    first = listened(monkeypatch, "response", "best_response_dynamics", "max_rounds", "coordinated")
    placement.best_bound(RESTLESS, iterations=1)
    assert first == [(2, True)]

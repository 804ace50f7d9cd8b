"""A split's curves, slope and planners on a game made by hand: what each part is told, and what it makes of it."""

from __future__ import annotations

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from dmodels.core.records import float64
from dmodels.studies import split
from dmodels.studies.split import at_rate


class Record(SimpleNamespace):
    def replace(self, **changes):
        return type(self)(**vars(self) | changes)


class Game(Record):
    """Workers of four GPUs; what a split costs is said by `law`, of its GPUs for prefill, the rate and all GPUs."""

    def cost(self, x):
        assert self.prefill.arrival_rps is self.decode.arrival_rps
        return self.law(x, self.prefill.arrival_rps, self.budget_gpus)


class Late(Record):
    """A queue's violations: here its rate times its GPUs, and the other's."""

    def __call__(self, *gpus):
        return self.arrival_rps * gpus[0] + sum(gpus[1:])


def a_game(law=None, **decode):
    step = Record(most_count=lambda slo_s: 1000.0 * slo_s, iteration_s=lambda n: 0.01 + n * 2.5e-4)
    known = {"tpot_slo_s": 0.05, "slots_count": 40.0, "output_tokens": 100.0, "prefill_rps_per_gpu": 0.5}
    return Game(
        law=law,
        budget_gpus=32.0,
        prefill_worker_gpus=4.0,
        prefill=Late(arrival_rps=6.0, ttft_slo_s=2.0),
        decode=Late(arrival_rps=6.0, step=step, **known | decode),
    )


def test_the_same_game_at_another_rate():
    game = a_game()
    other = at_rate(game, 9.0)
    assert (other.prefill.arrival_rps, other.decode.arrival_rps) == (9.0, 9.0)
    assert other.replace(prefill=game.prefill, decode=game.decode) == game and other.prefill.ttft_slo_s == 2.0


@float64
def test_curves_are_of_both_stages_whose_gpus_are_all_there_are():
    ttft, itl = split._curves.__wrapped__(a_game(), np.array([4.0, 8.0]))
    assert ttft.tolist() == [24.0, 48.0] and itl.tolist() == [6.0 * 28 + 4, 6.0 * 24 + 8]


@float64
def test_the_optimum_moves_with_the_rate_as_its_bowl_does():
    """The bottom of (x - 3 r)^2 moves by three GPUs for each request a second; a corner stays, and so does a ridge."""
    slope = lambda law, x: float(split._slope.__wrapped__(a_game(law), jnp.asarray(x)))
    bowl = lambda x, rate, gpus: (x - 3.0 * rate) ** 2
    assert slope(bowl, 18.0) == pytest.approx(3.0) and slope(bowl, 0.5) == pytest.approx(3.0)
    assert slope(lambda x, rate, gpus: (x + rate) ** 2, 5.0) == pytest.approx(-1.0)
    assert [slope(bowl, corner) for corner in (0.0, 32.0)] == [0.0, 0.0]
    assert slope(lambda *given: -bowl(*given), 18.0) == 0.0 == slope(lambda x, rate, gpus: x * rate, 18.0)


@pytest.mark.parametrize(
    ("slots", "prefills", "decodes", "decode_rps", "counts"),
    [
        (40.0, 3.0, 5.0, 20.0, range(1, 8)),  # 40 requests in steps of 20 ms, 100 tokens each
        (60.0, 1.0, 0.0, 50.0 / 2.25, [1]),  # 50 that are in time, in steps of 22.5 ms
    ],
)
def test_planners_know_what_a_worker_serves(monkeypatch, slots, prefills, decodes, decode_rps, counts):
    game = a_game(slots_count=slots)
    whole = Record(value=Record(prefill_instances=prefills, decode_instances=decodes))
    monkeypatch.setattr(split, "_courses", lambda *given: given)
    monkeypatch.setattr(split, "on_host", lambda found: found)
    played, pools, tried, rate, start, total = split._planners(game, whole, "rate")
    assert played is game and rate == "rate" and (start, total) == (prefills, prefills + decodes)
    assert (float(pools.prefill_rps), float(pools.decode_rps)) == (2.0, pytest.approx(decode_rps))
    assert (float(pools.ttft_wait_slo_s), float(pools.decode_wait_slo_s)) == (2.0, 2.0)
    assert tried.tolist() == list(counts)
    whole.value.decode_instances = 5000.0 - prefills
    tried = split._planners(game, whole, "rate")[2]
    assert (tried[0], tried[-1], len(tried)) == (1.0, 4999.0, 1024) and (tried == tried.round()).all()


@float64
def test_four_planners_play_the_same_burst_each_by_its_own_rule(monkeypatch):
    """Of splits that cost the same to a millionth the price-driven one takes the middle."""
    fakes = {"planner": lambda rule, **how: (rule, how), "reactive": lambda: "reactive"}
    fakes |= {"best_response": lambda cost: cost, "anarchy_driven": lambda cost, target: (cost, target)}
    fakes |= {"sla_target": lambda *rates: rates, "run": lambda *given: given}
    fakes["score"] = lambda course, rates: ("score", course[0], rates)
    for name, fake in fakes.items():
        monkeypatch.setattr(split, name, fake)
    told = lambda x, rate, gpus: x + 100.0 * rate + 10_000.0 * gpus
    pools, counts = Record(prefill_rps=2.0, decode_rps=20.0), np.arange(1.0, 8.0)
    courses, scores = split._courses.__wrapped__(a_game(told), pools, counts, "rates", 3.0, 8.0)
    assert list(courses) == list(scores) == ["one at a time", "best response", "price-driven", "SLA target"]
    for name, (kind, *given) in courses.items():
        assert given == [pools, "rates", 3.0, 8.0] and scores[name] == ("score", kind, "rates")
    (one, slow), (best, plain), (driven, free), (target, sla) = (kind for kind, *_ in courses.values())
    assert (one, slow, plain) == ("reactive", {"delay": 1}, {}) and free == sla == {"step": 8.0, "grace": 0.0}
    assert target == (2.0, 20.0) and driven[0] is best
    assert float(best(3.0, 7.0, 5.0)) == 12.0 + 500.0 + 10_000.0 * 28.0

    def middle(law, of=8.0, rate=5.0):
        courses, _ = split._courses.__wrapped__(a_game(law), pools, counts, "rates", 3.0, 8.0)
        return float(courses["price-driven"][0][0][1](of, rate))

    assert middle(told) == 1.0 and middle(lambda x, rate, gpus: -x) == 7.0
    assert middle(lambda x, rate, gpus: jnp.maximum(jnp.abs(x / 4.0 - rate) - 1.0, 0.0)) == 5.0  # of 4, 5 and 6
    assert middle(lambda x, rate, gpus: jnp.abs(x - gpus / 2.0), of=6.0) == 3.0
    assert middle(lambda x, rate, gpus: 4.9e-7 * x / 4.0) == 2.0  # of 1, 2 and 3

"""What is refused, in the words in which it is refused: which field, its value, and what is accepted."""

from __future__ import annotations

import gzip
import json
import re

import numpy as np
import pytest

from dmodels.core.errors import InputError, TraceError
from dmodels.core.routing import RoutingPolicy
from dmodels.games import routing
from dmodels.games.anarchy import bounds, calibrated_cost, log_from_rows, poa_index, read_log, windows
from dmodels.games.anarchy.price import equilibrium_program
from dmodels.games.routing import RoutingGame, policy_flows, stochastic
from dmodels.models.latency import affine

LINE = affine([1.0, 1.0], 0.0)
GAME = RoutingGame(LINE, np.zeros((2, 2)), 0.5)
BATCH = RoutingGame(LINE, np.zeros((3, 2, 2)), 0.5)
LOG = log_from_rows(iter([{"arrival": 0, "completion": 1, "worker": "a"}]))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RoutingGame(LINE, np.ones(2)), "overlap has shape (2,); accepted: (..., requests, workers)"),
        (lambda: RoutingGame(LINE, np.ones((0, 2))), "overlap has shape (0, 2); accepted: (..., requests, workers)"),
        (lambda: RoutingGame(LINE, [[1.0, np.inf]]), "overlap holds NaN or infinity; accepted are finite numbers"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), -0.5), "omega = -0.5; accepted are finite numbers from 0"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), np.inf), "omega = inf; accepted are finite numbers from 0"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), 1.0, [2, 1.5]), "counts = [2.  1.5]; accepted are whole numbers"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), 1.0, [2, -1]), "counts = [ 2. -1.]; accepted are whole numbers"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), 1.0, [2, np.inf]), "counts = [ 2. inf]; accepted are whole"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), 1.0, [1, 1, 1]), "counts for 3 groups, overlap for 2; accepted"),
        (lambda: RoutingGame(LINE, np.ones((2, 2)), 1.0, [0, 0]).arrays(), "counts are all 0; accepted: at least one"),
        (lambda: RoutingGame(LINE, np.ones((2, 3))).arrays(), "curve for 2 workers, overlap for 3; accepted: as many"),
        (lambda: routing.potential(GAME, [0, 2]), "assignment holds 0..2; accepted are workers 0..1"),
        (lambda: routing.potential(GAME, [-1, 1]), "assignment holds -1..1; accepted are workers 0..1"),
        (lambda: routing.potential(GAME, [0.5, 1]), "assignment holds 0.5..1.0; accepted are workers 0..1"),
        (lambda: routing.potential(GAME, [0]), "assignment has shape (1,); accepted: a worker for each of 2 requests"),
        (lambda: routing.gain_s(GAME, np.eye(2, dtype=int)), "assignment reads as a flow (requests, workers) and as 2"),
        (
            lambda: policy_flows(GAME, "best", np.random.default_rng(0)),
            f"policy 'best'; accepted are {', '.join(routing.POLICIES)}",
        ),
        (
            lambda: policy_flows(BATCH, RoutingPolicy.RANDOM, np.random.default_rng(0)),
            "3 games; accepted is one",
        ),
        (lambda: routing.gibbs_loads(BATCH, 1.0), "3 games; accepted is one: take them one by one"),
        (lambda: routing.gibbs_loads(GAME, 0.0), "tau = 0.0; accepted are positive numbers of seconds"),
        (lambda: routing.logit_equilibrium(GAME, 0.0), "tau = 0.0; accepted are positive numbers of seconds (0: use"),
        (lambda: routing.logit_equilibrium(GAME, 1.0, max_steps=0), "max_steps = 0; accepted are whole numbers from 1"),
        (
            lambda: routing.gibbs_loads(RoutingGame(LINE, np.eye(2), 0.5), 1.0),
            "requests differ in their overlaps; accepted are games of one prefix group, or omega = 0",
        ),
        (
            lambda: routing.logit_equilibria(RoutingGame(LINE, np.zeros((2, 2, 2)), 0.5, [[1, 2], [2, 2]]), 1.0),
            "counts differ in their sum, or are 0; accepted are batches of equal numbers, each from 1",
        ),
        (
            lambda: routing.logit_equilibria(RoutingGame(LINE, np.zeros((2, 2, 2)), 0.5, [[1, 2], [3, 0]]), 1.0),
            "counts differ in their sum, or are 0; accepted",
        ),
        (lambda: routing.logit_equilibria(BATCH, [1.0, 1.0]), "tau has shape (2,); accepted broadcasts with the games"),
        (
            lambda: poa_index([1.0, 1.0], [0], np.zeros((2, 3))),
            "latency_s (2,), worker (1,), overlap (2, 3); accepted are (..., n), (..., n) and (..., n, m)",
        ),
        (lambda: poa_index([1.0], [0], np.zeros((2, 3))), "latency_s (1,), worker (1,), overlap (2, 3); accepted"),
        (lambda: poa_index(1.0, 0, np.zeros((2, 3))), "latency_s (), worker (), overlap (2, 3); accepted"),
        (lambda: poa_index([1.0], [0], np.zeros(1)), "latency_s (1,), worker (1,), overlap (1,); accepted"),
        (
            lambda: poa_index([1.0, 1.0], [1, 3], np.zeros((2, 3))),
            "worker holds 1..3; accepted are whole numbers 0..2",
        ),
        (lambda: poa_index([1.0], [-1], np.zeros((1, 3))), "worker holds -1..-1; accepted are whole numbers 0..2"),
        (lambda: poa_index([1.0], [0.5], np.zeros((1, 3))), "worker holds 0.5..0.5; accepted are whole numbers 0..2"),
        (lambda: windows(LOG, 0, 5), "window 0, step 5; accepted are whole numbers from 1"),
        (lambda: windows(LOG, 5, 0), "window 1, step 0; accepted are whole numbers from 1"),
        (lambda: bounds.polynomial_atomic(0), "degree = 0; accepted are whole numbers from 1"),
        (lambda: bounds.polynomial_atomic(1.5), "degree = 1.5; accepted are whole numbers from 1"),
        (lambda: bounds.polynomial_weighted(0.5), "degree = 0.5; accepted are numbers from 1"),
        (lambda: equilibrium_program(BATCH), "game is a batch of shape (3,); accepted is one game"),
    ],
)
def test_mistakes_are_told_in_full(make, says):
    with pytest.raises(InputError, match=f"^{re.escape(says)}"):
        make()


def test_the_first_row_of_no_use_is_told():
    with pytest.raises(TraceError, match=r"^log: none of 2 rows is usable; row 1: unreadable: torn$"):
        log_from_rows(iter(["torn", {}]))
    with pytest.raises(TraceError, match=r"^log: none of 0 rows is usable$"):
        log_from_rows(iter([]))
    with pytest.raises(TraceError, match=r"^mine: none of 1 rows is usable$"):
        log_from_rows(iter([{}]), name="mine", limit=0)


def test_what_is_said_of_a_row():
    """The value, shortened to 40 letters; and how far a time is off."""
    row = {"id": "x" * 50, "arrival": 1.0, "completion": 3.0, "worker": "a"}
    bad = [
        row,
        row,
        row | {"id": 1, "completion": 0.5},
        row | {"id": 2, "latency": -2.0},
        row | {"id": 3, "worker": "w" * 50},
        row | {"id": 4, "latency": 4.5},
        row | {"id": 5, "arrival": "y" * 50},
        row | {"id": 6, "overlap": 1.25},
        row | {"id": 7, "overlap": "[" + "1" * 50},
        row | {"id": 8, "prefix": "  [" + "1" * 50},
        {"id": 9, "completion": 3.0, "worker": "a"},
        {"id": 10, "arrival": 1.0, "worker": "a"},
        {"id": 11, "arrival": 1.0, "completion": 3.0},
        row | {"id": 12, "completion": 100.0, "arrival": 99.0},
        row | {"id": 13, "ttft": -1.0},
        "t" * 90,
    ]
    log = log_from_rows(iter(bad), workers=["a"])
    assert log.reports == (
        f"row 2: id {'x' * 40!r} was seen before",
        "row 3: completion 0.5 s before arrival 1 s",
        "row 4: negative latency -2 s or ttft",
        f"row 5: unknown worker {'w' * 40!r}",
        "row 6: latency 4.5 s, completion - arrival 2 s",
        f"row 7: arrival {'y' * 40!r} is no time in seconds",
        "row 8: overlap '1.25' is no share from 0 to 1",
        f"row 9: overlap {'[' + '1' * 39!r} is no list",
        f"row 10: prefix {'[' + '1' * 39!r} is no list",
        "row 11: no arrival",
        "row 12: no completion",
        "row 13: no worker",
        "row 15: negative latency 2 s or ttft",
        f"row 16: unreadable: {'t' * 80}",
        "row 14: 97 s without a completion before this one",
    )
    assert log.rows_count == 16 and log.problems["clock skew"] == log.problems["gap"] == 1
    many = log_from_rows(iter([row | {"id": k, "worker": None} for k in range(30)] + [row]))
    assert len(many.reports) == 20 and many.problems == {"missing field": 30}


def test_limits_of_a_log_are_a_minute_and_a_second_unless_said(tmp_path):
    rows = [{"id": k, "arrival": at, "completion": at + 1, "worker": "a"} for k, at in enumerate((0, 60, 120.5))]
    rows += [rows[0] | {"id": "a", "latency": 2.0}, rows[0] | {"id": "b", "latency": 2.5}]
    assert log_from_rows(iter(rows)).problems == {"gap": 1, "clock skew": 1}
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    assert read_log(file).problems == {"gap": 1, "clock skew": 1}
    assert read_log(file, gap_s=60.5, skew_s=0.5).problems == {"clock skew": 2}
    assert read_log(file, gap_s=30.0, skew_s=1.5).problems == {"gap": 2}
    file.write_text("torn\n" * 30 + json.dumps(rows[0]))
    assert len(read_log(file).reports) == 20 and len(read_log(file, limit=3).reports) == 3


def test_a_log_is_read_by_how_its_name_ends(tmp_path):
    """In capitals, too, and packed."""
    text = "arrival,completion,worker\n1,3.5,a\n"
    (tmp_path / "LOG.CSV").write_text(text)
    with gzip.open(tmp_path / "log.csv.gz", "wt") as packed:
        packed.write(text)
    for name in ("LOG.CSV", "log.csv.gz"):
        log = read_log(tmp_path / name, ["b", "a"])
        assert log.latency_s.tolist() == [2.5] and log.worker.tolist() == [1] and log.workers == ("b", "a")


def test_overlaps_of_another_length_are_counted_one_by_one():
    base = {"completion": 9.0, "worker": "b"}
    said = ([0.25, 0.5], [0.5], [0.75, 1.0], [0.1, 0.2, 0.3], [])
    rows = [base | {"arrival": k, "overlap": share} for k, share in enumerate(said)]
    log = log_from_rows(iter(rows), workers=["a", "b"])
    assert log.problems == {"overlap of another length": 3} and not log.notices
    assert log.overlap.tolist() == [[0.25, 0.5], [0.0, 0.0], [0.75, 1.0], [0.0, 0.0], [0.0, 0.0]]
    only = log_from_rows(iter(rows[1:2]), workers=["a", "b"])
    assert only.notices == ("the log holds no overlap; it is taken as 0 everywhere",)
    both = log_from_rows(iter([row | {"prefix": "x"} for row in (rows[0], rows[2])]), workers=["a", "b"])
    assert not both.notices and both.overlap.tolist() == [
        [0.25, 0.5],
        [0.75, 1.0],
    ]  # what is said, not what is replayed


def test_profiles_are_listed_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(stochastic, "_MOST_PROFILES", 4)
    profiles, law = routing.gibbs_profiles(GAME, 1.0)
    assert profiles.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]] and law.sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match=r"^3\^2 profiles; accepted are at most 4"):
        routing.gibbs_profiles(RoutingGame(affine(np.ones(3), 0.0), np.zeros((2, 3))), 1.0)


def test_two_million_profiles_are_few_enough(monkeypatch):
    """5^9 are 1,953,125, and 2^21 are 2,097,152."""

    class Listed(Exception):
        """They would be."""

    def product(*names, repeat):
        raise Listed

    monkeypatch.setattr(stochastic.itertools, "product", product)
    with pytest.raises(Listed):
        routing.gibbs_profiles(RoutingGame(affine(np.ones(5), 0.0), np.zeros((9, 5))), 1.0)
    with pytest.raises(InputError, match=r"^2\^21 profiles; accepted are at most 2,000,000: use gibbs_loads$"):
        routing.gibbs_profiles(RoutingGame(LINE, np.zeros((21, 2))), 1.0)


def test_a_calibrated_cost_has_no_pole_and_the_places_that_are_given():
    data = np.array([[1.0, 2.0, 3.0]]), np.array([[0, 0, 1]]), np.zeros((1, 3, 2))
    found, other = calibrated_cost(*data), calibrated_cost(*data, 9.0)
    assert (float(found.d_s), float(found.beta)) == (0.0, 2.0)
    for shaped in ([a[0] for a in data], [a[None] for a in data]):  # one window, or a batch of batches
        one = calibrated_cost(*shaped)
        assert (float(one.a_s), float(one.b_s)) == pytest.approx((float(found.a_s), float(found.b_s)))
    assert (float(found.capacity), float(other.capacity)) == (64.0, 9.0)

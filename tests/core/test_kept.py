"""What is kept between processes is found again for the same question, and for no other."""

from __future__ import annotations

import pickle

import jax
import numpy as np
import pytest

from dmodels.core.kept import kept
from dmodels.games.resource import Alone, Exponential, Game
from dmodels.games.resource.solve import equilibrium
from dmodels.solvers import assign

GAME = Game(Exponential(0.3), Alone(Exponential(0.5)), 8.0)


class Mine(Exponential):
    """A rate of a caller's."""


@pytest.fixture
def folder(tmp_path):
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    yield tmp_path / "dmodels"
    jax.config.update("jax_compilation_cache_dir", before)


def _asked(*arguments):
    """(answer, whether it was worked out)"""
    done = []
    answer = kept(*arguments, lambda: done.append(1) or {"answer": np.arange(3)})
    return answer, bool(done)


def test_the_same_question_is_answered_from_disk(folder):
    first, worked = _asked(equilibrium, (GAME, ((), np.dtype(float))))
    again, worked_again = _asked(equilibrium, (GAME, ((), np.dtype(float))))
    assert worked and not worked_again
    np.testing.assert_array_equal(first["answer"], again["answer"])
    assert len([*folder.iterdir()]) == 1


def test_equal_questions_are_the_same_whatever_objects_they_share(folder):
    kind = np.dtype(float)
    copy = pickle.loads(pickle.dumps(np.zeros(1))).dtype
    assert copy is not kind and copy == kind
    assert _asked(equilibrium, (kind, kind))[1]
    assert not _asked(equilibrium, (kind, copy))[1]


@pytest.mark.parametrize(
    "other", [(assign, (GAME, ())), (equilibrium, (GAME, (3,))), (equilibrium, (GAME.prefill, ()))]
)
def test_another_question_is_worked_out(folder, other):
    _asked(equilibrium, (GAME, ()))
    assert _asked(*other)[1]


@pytest.mark.parametrize("own", [lambda x: x, Mine(0.3), _asked], ids=["lambda", "class", "function"])
def test_nothing_is_kept_of_what_is_a_callers_own(folder, own):
    """Another process may know something else by the same name."""
    for arguments in ((equilibrium, (own,)), (_asked, ())):
        assert _asked(*arguments)[1] and _asked(*arguments)[1]
    assert not folder.exists()


def test_a_broken_file_is_written_anew(folder):
    _asked(equilibrium, ())
    next(folder.iterdir()).write_bytes(b"\x80\x04cut short")
    assert _asked(equilibrium, ())[1] and not _asked(equilibrium, ())[1]


def test_without_a_folder_everything_is_worked_out():
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    assert _asked(equilibrium, ())[1] and _asked(equilibrium, ())[1]
    jax.config.update("jax_compilation_cache_dir", before)

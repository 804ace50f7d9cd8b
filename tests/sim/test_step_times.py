"""Laws of an iteration as the simulators read them: tables, several laws side by side, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dmodels.core.errors import InputError
from dmodels.models.latency import StepLaw
from dmodels.sim.batching import TokenLaw
from dmodels.sim.batching import step_times as laws


def on_the_line(x, grid, values):
    """Linear between neighbours, and on along the last or first pair beyond them; a lone value is constant."""
    if len(grid) == 1:
        return values[0]
    k = next((k for k in range(len(grid) - 1) if x <= grid[k + 1]), len(grid) - 2)
    return values[k] + (x - grid[k]) * (values[k + 1] - values[k]) / (grid[k + 1] - grid[k])


def test_several_laws_in_one_table_are_each_of_them():
    """Laws blind to tokens, on two uneven counts, and on five, for instances of other sizes; beyond every grid, too."""
    rng = np.random.default_rng(0)
    uneven = TokenLaw(rng.uniform(1, 2, (5, 2)), np.array([3.0, 10.0]))
    fine = TokenLaw(rng.uniform(1, 2, (3, 5)), np.array([0.0, 1.0, 4.0, 9.0, 11.0]), decodes=True)
    own, slots = (StepLaw(2.0, 0.5), uneven, fine), (6, 4, 2)
    times, grids = laws.token_tables(own, slots)
    assert times.shape == (3, 7, 5) and (np.diff(grids, axis=1) > 0).all()
    second = laws.seconds.py_func
    for law, most, table, grid in zip(own, slots, times, grids, strict=True):
        alone = laws.token_table(law, most)
        decodes = law is fine
        for n in range(1, most + 1):
            for decoding in range(n + 1):
                for prompts in (0, 1, 2, 6, 11, 40):
                    row, tokens = (decoding, prompts) if decodes else (n, decoding + prompts)
                    if law is own[0]:
                        expected = 2.0 + 0.5 * n
                    else:
                        expected = on_the_line(tokens, law.tokens, law.times_s[row])
                    for told in (alone, (table, grid)):
                        assert second(*told, decodes, n, decoding, prompts) == pytest.approx(expected)


def test_a_law_in_every_form_it_may_have():
    expected = [7.0, 9.0, 11.0]
    for law in (StepLaw(5.0, 2.0), lambda n: 5.0 + 2.0 * n, [0.0, *expected], expected, np.array(expected)):
        assert laws.table(law, 3)[1:].tolist() == expected
        assert [column.tolist() for column in laws.token_table(law, 3)] == [[[t] for t in laws.table(law, 3)], [0.0]]
    assert laws.table(3.0, 2).tolist() == laws.table(lambda n: 3.0, 2).tolist() == [3.0] * 3
    tabulated = TokenLaw.tabulated(lambda n, tokens: 1.0 + 0.5 * n + 0.25 * tokens, 2, 8.0, 5)
    assert tabulated.tokens.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0] and not tabulated.decodes
    assert tabulated.times_s.tolist() == [[1 + n / 2 + t / 4 for t in range(0, 9, 2)] for n in range(3)]
    assert TokenLaw.tabulated(lambda n, tokens: 7.0, 1, 8.0, 3, decodes=True).times_s.tolist() == [[7.0] * 3] * 2


@pytest.mark.parametrize(
    "law, why",
    [
        ([1.0, 1.0], r"\(2,\) times for 3 slots"),
        (np.ones((4, 1)), "one time per count 0..3"),
        *(([1.0, *row], "takes 0 s") for row in ([0.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 0.0])),
        *(([np.inf if k == late else 1.0 for k in range(4)], "takes 1 s; .* finite") for late in (1, 2, 3)),
        ([1.0, np.nan, 3.0, 2.0], "takes 2 s; accepted: finite times above 0"),
        (TokenLaw(np.ones((4, 2)), np.array([0.0, 1.0])), "accepted here: StepLaw"),
    ],
)
def test_tables_that_are_none(law, why):
    with pytest.raises(InputError, match=why):
        laws.table(law, 3)


def test_token_tables_that_are_none():
    grid = np.array([0.0, 1.0, 5.0])
    idle = np.ones((3, 3))
    idle[0] = 0.0
    laws.token_table(TokenLaw(idle, grid), 2)  # nobody asks what an iteration of no request takes
    zero, late = np.ones((3, 3)), np.ones((3, 3))
    zero[2, 1], late[1, 2] = 0.0, np.nan
    for law, why in (
        (TokenLaw(idle, grid, decodes=True), "takes no time"),  # an iteration of prompts alone
        (TokenLaw(zero, grid), "takes no time"),
        (TokenLaw(late, grid), "takes no time or infinitely long"),
        (TokenLaw(np.ones((2, 3)), grid), "for 2 slots"),
        (TokenLaw(np.ones((3, 2)), grid), "over 3 token counts"),
        (TokenLaw(np.ones((3, 1)), grid[:1]), "k >= 2 increasing counts"),
        (TokenLaw(np.ones((3, 3)), np.array([0.0, 1.0, 1.0])), "increasing counts"),
    ):
        with pytest.raises(InputError, match=why):
            laws.token_table(law, 2)

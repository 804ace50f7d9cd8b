"""Published games with known equilibria. "FK" is F. Facchinei, C. Kanzow, Penalty methods for the solution of
generalized Nash equilibrium problems (with complete test problems), technical report, Rome 2009."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

INF = np.inf


def quadratic(matrix, right):
    """Costs 1/2 M_ii x_i^2 + x_i (sum over j != i of M_ij x_j) + q_i x_i, whose pseudogradient is M x + q."""
    m = np.asarray(matrix, float)
    return [lambda x, i=i: x[i] * (jnp.asarray(m[i]) @ x - 0.5 * m[i, i] * x[i] + right[i]) for i in range(len(right))]


HARKER = quadratic([[2, 8 / 3], [5 / 4, 2]], [-34, -24.25])  # Harker, EJOR 54 (1991)

RIVER_A, RIVER_E = np.array([0.01, 0.05, 0.01]), np.array([2.9, 2.88, 2.85])
RIVER = [lambda x, i=i: (RIVER_A[i] * x[i] + 0.01 * jnp.sum(x) - RIVER_E[i]) * x[i] for i in range(3)]
RIVER_LIMITS = ([[3.25, 1.25, 4.125], [2.2915, 1.5625, 2.8125]], [100, 100])

OLIGOPOLY = [(10, 1.2), (8, 1.1), (6, 1.0), (4, 0.9), (2, 0.8)]  # Murphy, Sherali, Soyster 1982; FK A.16


def oligopoly(i):
    c, d = OLIGOPOLY[i]

    def cost(x, p):
        total = jnp.sum(x)
        make = c * x[i] + d / (1 + d) * 5 ** (-1 / d) * x[i] ** ((1 + d) / d)
        return make - 5000 ** (1 / 1.1) * x[i] * total ** (-1 / 1.1) + 0.0 * p["total"]

    return cost


#: FK A.16 a-d: total supply -> printed equilibrium (five digits)
OLIGOPOLY_PRINTED = {
    75: [10.40386, 13.03582, 15.40735, 17.38156, 18.77133],
    100: [14.05009, 17.79838, 20.90719, 23.11143, 24.13292],
    150: [23.58880, 28.68425, 32.02153, 33.28726, 32.41818],
    200: [35.78533, 40.74896, 42.80249, 41.96638, 38.69685],
}

GENERATORS = [(0.04, 2.0), (0.035, 1.75), (0.125, 1.0), (0.0166, 3.25), (0.05, 3.0), (0.05, 3.0)]  # FK A.15
GENERATORS_PRINTED = [46.66150, 32.15293, 15.00419, 22.10485, 12.34076, 12.34076]
GENERATORS_UPPER = [80, 80, 50, 55, 30, 40]


def electricity(player):
    own = [[0], [1, 2], [3, 4, 5]][player]

    def cost(x):
        price = 378.4 - 2.0 * jnp.sum(x)
        made = sum(0.5 * GENERATORS[k][0] * x[k] ** 2 + GENERATORS[k][1] * x[k] for k in own)
        return made - price * sum(x[k] for k in own)

    return cost


# FK A.3: each player has constraints of its own that involve its rivals
A3_A = [np.array([[20, 5, 3], [5, 5, -5], [3, -5, 15.0]]), np.array([[11, -1], [-1, 9.0]]),
        np.array([[48, 39], [39, 53.0]])]  # fmt: skip
A3_B = [np.array([[-6, 10, 11, 20], [10, -4, -17, 9], [15, 8, -22, 21.0]]),
        np.array([[20, 1, -3, 12, 1], [10, -4, 8, 16, 21.0]]),
        np.array([[10, -2, 22, 12, 16], [9, 19, 21, -4, 20.0]])]  # fmt: skip
A3_b = [np.array([1, -1, 1.0]), np.array([1, 0.0]), np.array([-1, 2.0])]
A3_PRINTED = [-0.3805, -0.1227, -0.9932, 0.3903, 1.1638, 0.0504, 0.0176]
A3_OWN = [[0, 1, 2], [3, 4], [5, 6]]


def a3_map():
    """(M, q) of the pseudogradient of FK A.3."""
    matrix, right = np.zeros((7, 7)), np.zeros(7)
    for own, a, b, c in zip(A3_OWN, A3_A, A3_B, A3_b, strict=True):
        others = [k for k in range(7) if k not in own]
        matrix[np.ix_(own, own)], matrix[np.ix_(own, others)], right[own] = a, b, c
    return matrix, right


A3_PRIVATE = {
    0: ([[1, 1, 1, 0, 0, 0, 0], [1, 1, -1, -1, 0, 0, 1]], [20, 5]),
    1: ([[0, -1, -1, 1, -1, 1, 0]], [7]),
    2: ([[-1, 0, -1, 1, 0, 0, 1]], [4]),
}


def a18():
    """FK A.18 (two generators, three regional markets): (M, q), shared (A, b), private budgets."""
    slope, top = np.array([40 / 500, 35 / 400, 32 / 600]), np.array([40.0, 35.0, 32.0])
    one = np.tile(np.diag(slope), (2, 2))
    matrix = np.block([[2 * one, one], [one, 2 * one]])
    right = np.tile(15.0 - top, 4)
    price = -np.tile(np.diag(slope), 4)  # S_k - top_k, as a row of the twelve sales
    pairs = [(0, 1), (0, 2), (1, 2)]
    rows = [sign * (price[i] - price[j]) for i, j in pairs for sign in (1, -1)]
    limits = [1 - sign * (top[i] - top[j]) for i, j in pairs for sign in (1, -1)]
    capacity = np.kron(np.eye(4), np.ones(3))
    return matrix, right, (np.array(rows + list(capacity)), np.array([*limits, 100, 50, 100, 50]))

"""What cells of measured kernels share, how their tables are cut and which tree chooses a kernel, by other means."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace as Record

import jax
import numpy as np
import pytest
from scipy import stats

from dmodels.core.records import float64
from dmodels.fit.curves import fit_closed_loop
from dmodels.fit.knee import knee
from dmodels.fit.operators import coefficients
from dmodels.fit.operators import refit as refitting
from dmodels.fit.operators import samples as cut
from dmodels.fit.operators.cells import Fitted, Prior, fit_cell
from dmodels.fit.operators.hierarchy import DEVIATION, Cell, effects, expected, generation, levels
from dmodels.fit.operators.rows import Kernels, _newer
from dmodels.fit.operators.tree import DEPTH, LEAF, learn
from dmodels.models.operators import law, number_format
from dmodels.models.operators.constants import values


def drawn_cells(rng, count):
    pick = lambda *of: str(rng.choice(of))
    return [
        Cell(
            pick("h100_sxm", "h200_sxm", "b200_sxm", "l40s"),
            pick("vllm", "sglang"),
            pick("fp8", "bfloat16"),
            pick("", "a", "b"),
            int(rng.integers(0, 2)),
        )
        for _ in range(count)
    ]


def test_effects_are_the_posterior_mean_of_their_linear_model():
    """In the other form, of precisions: (B' D^-1 B + Sigma^-1)^-1 B' D^-1 u, with D = v + 0.4^2."""
    rng = np.random.default_rng(0)
    cells = drawn_cells(rng, 25)
    u, variance = rng.normal(size=(25, 3)), rng.uniform(0.01, 2.0, (25, 3))
    found = effects(cells, u, variance)
    names = sorted(found)
    assert set(names) == {level for cell in cells for level in levels(cell)}
    belongs = np.array([[float(name in levels(cell)) for name in names] for cell in cells])
    prior = np.diag([DEVIATION[name.split("=")[0]] ** -2.0 for name in names])
    for c in range(3):
        weight = 1.0 / (variance[:, c] + 0.4**2)
        wanted = np.linalg.solve((belongs.T * weight) @ belongs + prior, belongs.T @ (weight * u[:, c]))
        assert [found[name][c] for name in names] == pytest.approx(wanted, abs=1e-9)
    new = Cell("gb300", "vllm", "fp8", "a", 5)
    assert expected(found, new, 3) == pytest.approx(sum(found[name] for name in levels(new) if name in found))
    assert expected({}, new, 2).tolist() == [0.0, 0.0]


def test_levels_of_a_cell_by_its_words():
    cell = Cell("h200_sxm", "vllm", "fp8", "k", 2)
    facts = {"all": "", "range": "2", "dtype": "fp8", "generation": "hopper", "gpu": "h200_sxm"}
    facts |= {"engine": "vllm", "kernel": "k"}
    wanted = {f"{name}={'|'.join(facts[part] for part in name.split('+'))}" for name in DEVIATION}
    assert set(levels(cell)) == wanted and len(levels(cell)) == len(DEVIATION)
    assert set(levels(cell._replace(kernel=""))) == {name for name in wanted if not name.startswith("kernel")}
    assert {generation(g) for g in ("h100_nvl", "h200", "h20")} == {"hopper"} and generation("rtx_4090") == "ada"
    assert generation("rtx_pro_6000") == "blackwell_rtx" and generation("unheard_of") == "unheard_of"


def impurity(labels):
    return len(labels) - sum(labels.count(x) ** 2 for x in set(labels)) / len(labels) if labels else 0.0


def grown(points, labels, depth):
    """(tree, impurity of its leaves): every split of every feature tried."""
    common = max(sorted(set(labels)), key=labels.count)
    best = (impurity(labels) * (1 - 1e-9), None)
    if depth and len(set(labels)) > 1:
        for name in points[0]:
            steps = sorted({p[name] for p in points})
            for low, high in itertools.pairwise(steps):
                split = (low + high) / 2
                sides = [[x for p, x in zip(points, labels, strict=True) if (p[name] > split) == s] for s in (0, 1)]
                if min(map(len, sides)) >= LEAF and sum(map(impurity, sides)) < best[0]:
                    best = (sum(map(impurity, sides)), (name, split))
    if best[1] is None:
        return common
    name, split = best[1]
    sides = []
    for side in (0, 1):
        mine = [(p, x) for p, x in zip(points, labels, strict=True) if (p[name] > split) == side]
        sides.append(grown([p for p, _ in mine], [x for _, x in mine], depth - 1))
    return sides[0] if sides[0] == sides[1] else [name, split, *sides]


def test_a_tree_splits_where_the_kernels_are_purest():
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(6, 60)) if seed else 150
        shape = {"m": rng.integers(0, 12, n).astype(float), "n": rng.integers(0, 50, n).astype(float)}
        kernel = ((shape["m"] > 5) + (shape["n"] > 30) * (rng.random(n) < 0.8)).astype(int)
        if not seed:  # in layers, so that the depth is what ends it
            kernel = (shape["n"] // 6).astype(int) % 2 + (shape["m"].astype(int) // 3) % 2
        points = [dict(zip(shape, row, strict=True)) for row in zip(*shape.values(), strict=True)]
        assert learn(shape, kernel, ["m", "n"]) == grown(points, kernel.tolist(), DEPTH)


def test_rows_of_a_table_are_cut_into_ranges_and_every_tenth_shape_is_kept_apart(monkeypatch):
    of, rng = law("gemm"), np.random.default_rng(0)
    edges = list(of.edges)
    shape = {"m": np.repeat(np.arange(1.0, 121.0), 5), "n": np.tile([64.0, 128, 256, 512, 1024], 120)}
    shape["k"] = np.full(600, 256.0)
    if edges:  # as many rows in each range, some exactly on an edge, and too few in the last
        shape[of.switch] = rng.choice([*edges, *(0.5 * x for x in edges), 2.0 * edges[-1]], 600)
        shape[of.switch][:] = np.where(shape[of.switch] > edges[-1], edges[-1], shape[of.switch])
        shape[of.switch][:5] = 2.0 * edges[-1]
    table = Kernels("gemm", "h100_sxm", "vllm", "fp8", "a", shape, np.arange(1.0, 601.0))
    monkeypatch.setattr(cut, "read", lambda one: [one])
    found = cut.samples([table], rows=50, tested=7)
    assert set(found) == {"gemm"}
    seen = []
    for s in found["gemm"]:
        assert s.cell[:4] == ("h100_sxm", "vllm", "fp8", "a")
        low, high = [-math.inf, *edges][s.cell.range], [*edges, math.inf][s.cell.range]
        inside = (shape[of.switch] > low) & (shape[of.switch] <= high) if edges else np.ones(600, bool)
        fitted, held = set(table.seconds[inside & ~table.held_out]), set(table.seconds[inside & table.held_out])
        assert s.count == len(fitted) >= 8
        for part, whole, most in ((s.fitted, fitted, 50), (s.held_out, held, 7)):
            assert len(part.seconds) == min(len(whole), most) and set(part.seconds) <= whole
            assert list(part.seconds) == sorted(set(part.seconds))
            for field, column in part.shape.items():
                assert np.array_equal(column, shape[field][part.seconds.astype(int) - 1])
        seen.append(s.cell.range)
    counts = [
        int((np.searchsorted(edges, shape[of.switch][~table.held_out]) == i).sum()) for i in range(len(edges) + 1)
    ]
    assert seen == [i for i, count in enumerate(counts) if count >= 8]


@float64
def test_the_constants_of_a_cell_are_the_least_of_its_loss():
    """ln t with Cauchy's loss beyond 2.5 of 0.06, and the prior; nothing around it is better."""
    of, form, rng = law("gemm"), number_format("bfloat16"), np.random.default_rng(1)
    gpu = cut.hardware(["h100_sxm"])["h100_sxm"]
    shape = {
        "m": 2.0 ** rng.integers(0, 13, 60),
        "n": 128.0 * rng.integers(1, 64, 60),
        "k": 128.0 * rng.integers(1, 64, 60),
    }
    width = len(of.constants)
    of_rows = jax.jit(lambda u: of.seconds(shape, values(of.constants, u), gpu, form, 1.0))
    seconds_of = lambda u: np.asarray(of_rows(np.broadcast_to(u, (60, width))))
    centre = cut.typical("gemm")[0]
    truth = centre + rng.normal(0, 0.3, width)
    seconds = seconds_of(truth) * np.exp(rng.normal(0, 0.05, 60))
    seconds[:3] *= 4.0  # outliers
    prior = Prior(centre, np.full(width, 0.5), centre)
    found = fit_cell("gemm", "bfloat16", gpu, shape, seconds, prior=prior, rows=90)

    def loss(u):
        r = (np.log(seconds) - np.log(seconds_of(u))) / 0.06
        return (2.5**2 * np.log1p((r / 2.5) ** 2)).sum() + (((u - centre) / 0.5) ** 2).sum()

    for far in np.geomspace(0.01, 1.0, 12):
        assert loss(found.u) < 1.002 * loss(found.u + far * rng.normal(0, prior.deviation))
    slope = np.stack(
        [(np.log(seconds_of(found.u + h)) - np.log(seconds_of(found.u - h))) / 2e-5 for h in 1e-5 * np.eye(width)], 1
    )
    r = (np.log(seconds) - np.log(seconds_of(found.u))) / 0.06
    rows = (slope / (0.06**2 * (1 + (r / 2.5) ** 2))[:, None]).T @ slope
    alone = 1 / np.maximum(1 / np.diag(np.linalg.inv(rows + 4 * np.eye(width))) - 4, 1e-6)
    assert found.variance == pytest.approx(alone, rel=1e-3) and 1 <= found.steps <= 25


def test_a_knee_and_its_interval_by_the_fit_beside_it():
    rng = np.random.default_rng(5)
    clients = np.array([1.0, 2, 4, 8, 12, 16, 24, 32])
    rate = clients / (2.0 + 0.1 * np.maximum(clients, 1)) * np.exp(rng.normal(0, 0.02, 8))
    found, fit = knee(clients, rate, 0.9), fit_closed_loop(clients, rate)
    service, think = fit.values["service_s"], fit.values["think_s"]
    names = list(fit.values)
    c = fit.log_covariance
    i, j = names.index("service_s"), names.index("think_s")
    spread = math.sqrt(c[i, i] + c[j, j] - 2 * c[i, j]) * stats.t.ppf(0.95, 6)
    assert found.clients == pytest.approx(1 + think / service) and found.ceiling_rps == pytest.approx(1 / service)
    assert (found.low, found.high) == pytest.approx([1 + think / service * math.exp(s * spread) for s in (-1, 1)])
    early = knee(clients, clients / (80.0 + 0.02 * clients))
    assert early.clients > 64 and "far below the knee" in early.warnings[0]


@pytest.mark.parametrize("count, quantile", [(3, 12.7062), (4, 4.30265), (5, 3.18245)])
def test_two_numbers_are_fitted_so_two_loads_fewer_are_free(count, quantile):
    """Student's quantiles of one, two and three degrees of freedom, from a printed table; at 50 % their quartiles."""
    quartile = {3: 1.0, 4: 0.816497, 5: 0.764892}[count]
    clients = np.array([1.0, 4.0, 16.0, 64.0, 256.0])[:count]
    rate = clients / (2.0 + 0.1 * clients) * np.array([1.01, 0.98, 1.02, 0.99, 1.01])[:count]
    wide, narrow = (knee(clients, rate, level) for level in (0.95, 0.5))
    far = lambda found: math.log((found.high - 1.0) / (found.low - 1.0))
    assert far(wide) / far(narrow) == pytest.approx(quantile / quartile, rel=1e-4)


def test_releases_come_after_one_another():
    """As they did: candidates before what they became, mends of it after, numbers as numbers."""
    told = ["0.5.6", "0.5.6.post1", "0.5.6.post2", "0.5.10", "0.14.0", "1.0.0rc3", "1.0.0", "1.3.0rc9", "1.3.0rc20"]
    for k, older in enumerate(told):
        assert not _newer(older, older)
        assert all(_newer(newer, older) and not _newer(older, newer) for newer in told[k + 1 :])


def test_letters_of_variances():
    """Half a decade each, from a to z; what lies beyond is kept at the end."""
    powers = np.array([-9.0, -6.0, -0.5, 0.0, 0.26, 6.5, 9.0])
    assert coefficients._letters(10.0**powers) == "aalmnzz"
    assert coefficients._variance("almnz") == pytest.approx(10.0 ** np.array([-6.0, -0.5, 0.0, 0.5, 6.5]))


def drawn_rows(cell, rows):
    """So many products of a cell, a second each."""
    shape = {field: np.arange(1.0, rows + 1.0) for field in law("gemm").fields}
    return Kernels("gemm", cell.gpu, cell.engine, cell.dtype, cell.kernel, shape, np.ones(rows))


def test_what_is_held_out_is_predicted_without_its_own_pair_or_gpu(monkeypatch):
    """Of three GPUs, two under two engines: whose constants a prediction may know, as the bits of a number."""
    pairs = [("h100_sxm", "vllm"), ("h100_sxm", "sglang"), ("h200_sxm", "vllm"), ("h200_sxm", "sglang"), ("l4", "vllm")]
    bit = {pair: 2.0**k for k, pair in enumerate(pairs)}
    cells = [Cell(*pair, "fp8", "a", 0) for pair in pairs]
    sampled = [cut.Sample(cell, drawn_rows(cell, 8), drawn_rows(cell, 3), 8) for cell in cells]
    monkeypatch.setattr(refitting, "gathered", lambda kind, kept, fitted, trees: sum(bit[s.cell[:2]] for s in kept))
    monkeypatch.setattr(refitting, "trees", lambda *_: None)
    monkeypatch.setattr(refitting, "Coefficients", lambda kinds, _: Record(choice=lambda *asked: kinds["gemm"]))
    monkeypatch.setattr(
        refitting, "predicted", lambda kind, shape, dtype, gpu, known, warm: 1.0 + known + 0 * shape["m"]
    )
    found = refitting.errors("gemm", sampled, [None] * 5, dict.fromkeys(("h100_sxm", "h200_sxm", "l4")))
    assert [(one.gpu, one.engine) for one in found] == pairs
    for one in found:
        own, on_gpu = bit[one.gpu, one.engine], sum(bit[pair] for pair in pairs if pair[0] == one.gpu)
        told = {protocol: errors.tolist() for protocol, errors in one.errors.items()}
        assert told == {"shapes": [31.0] * 3, "pair": [31.0 - own] * 3, "gpu": [31.0 - on_gpu] * 3}


def test_rows_count_for_a_tree_as_many_as_they_are_a_sample_of(monkeypatch):
    cells = [Cell("h100_sxm", "vllm", "fp8", kernel, 0) for kernel in "ab"]
    sampled = [
        cut.Sample(c, drawn_rows(c, n), drawn_rows(c, 0), m) for c, n, m in zip(cells, (2, 4), (10, 4), strict=True)
    ]
    asked = []
    monkeypatch.setattr(refitting, "learn", lambda shape, kernel, fields, weight: asked.append((kernel, weight)) or 7)
    assert refitting.trees("gemm", sampled) == {("h100_sxm", "vllm", "fp8"): 7}
    ((kernel, weight),) = asked
    assert (kernel.tolist(), weight.tolist()) == ([0, 0, 1, 1, 1, 1], [5, 5, 1, 1, 1, 1])
    assert refitting.trees("gemm", sampled[:1]) == {("h100_sxm", "vllm", "fp8"): 0} and len(asked) == 1


def test_constants_of_ranges_that_were_measured_and_kernels_of_the_nearest_gpu():
    """A kernel's own where it ran, of the nearest range between, of its relatives beyond; and of another GPU of the
    generation before any other that ran them."""
    width = len(law("gemm").constants)
    of = lambda *ranges: {k: Fitted(np.full(width, 1.0 + k), np.ones(width)) for k in ranges}
    measured = {
        ("a100_sxm", "vllm", "fp8"): coefficients.Measured({"old": of(0)}, 0),
        ("h100_sxm", "vllm", "fp8"): coefficients.Measured({"new": of(0, 2)}, 0),
        ("h200_sxm", "sglang", "fp8"): coefficients.Measured({"theirs": of(0, 4)}, 0),
    }
    known = coefficients.Coefficients({"gemm": coefficients.Kind("gemm", measured)}, {})
    own, typical = known.choice("gemm", "h100_sxm", "vllm", "fp8").u[0], cut.typical("gemm")
    assert [own[k].tolist() for k in (0, 2)] == [[1.0] * width, [3.0] * width]
    assert own[1].tolist() in ([1.0] * width, [3.0] * width) and own[5].tolist() == [3.0] * width  # which no kernel saw
    relatives = typical[4] + expected(known.kinds["gemm"].levels, Cell("h100_sxm", "vllm", "fp8", "new", 4), width)
    assert own[4].tolist() == relatives.tolist()
    for gpu, kernel in (("h200_sxm", "new"), ("a100_pcie", "old"), ("b200_sxm", "old")):
        assert known.choice("gemm", gpu, "vllm", "fp8").kernels == (kernel,)
    assert known.label("gemm", "b200_sxm", "trtllm", "fp8") == coefficients.DATA_SHEET
    assert known.label("gemm", "b200_sxm", "vllm", "fp4") == coefficients.RELATIVES

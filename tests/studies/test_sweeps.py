"""Which points of a sweep are run by an engine, and what axes and outputs are called."""

from __future__ import annotations

import pytest

pytest.importorskip("xarray")

from dmodels import catalog
from dmodels.studies.plan import Layout
from dmodels.studies.plan.layouts import in_precision
from dmodels.studies.sweep import IN_WORDS, _runs
from tests.audit.tables import IN_WORDS as AUDITED


def test_axes_and_outputs_have_the_words_that_tables_and_pictures_are_audited_by():
    assert {name: told.partition(" [")[0] for name, told in AUDITED.items()} == IN_WORDS


@pytest.mark.parametrize(
    ("model", "gpu", "layout", "runs"),
    [
        ("llama-3.1-70b", "a100_80gb_sxm", {"tp": 8}, True),
        ("llama-3.1-70b", "a100_80gb_sxm", {"tp": 8, "weights": "fp8"}, False),  # which has no units for it
        ("llama-3.1-70b", "a100_80gb_sxm", {"tp": 8, "kv": "fp8"}, False),
        ("llama-3.1-70b", "h100_sxm", {"tp": 8, "weights": "fp8", "kv": "fp8"}, True),
        ("llama-3.1-70b", "h100_sxm", {"tp": 8, "weights": "fp4"}, False),
        ("llama-3.1-70b", "b200_sxm", {"tp": 8, "weights": "fp4"}, True),
        ("llama-3.1-70b", "h100_sxm", {"tp": 3}, False),  # which does not divide its heads
        ("llama-3.1-70b", "h100_sxm", {"tp": 16}, False),  # more than a node has
        ("deepseek-v3", "h200_sxm", {"dp": 16, "ep": 16}, True),  # whole experts over two nodes
        ("deepseek-v3", "h200_sxm", {"tp": 2, "dp": 8, "ep": 16}, False),
        ("deepseek-v3", "h200_sxm", {"dp": 12, "ep": 12}, False),  # not over one and a half
    ],
)
def test_a_point_counts_where_an_engine_runs_it(model, gpu, layout, runs):
    made = Layout(gpu, **layout)
    assert _runs(made, in_precision(catalog.model(model), made), {gpu: catalog.gpu(gpu)}) == runs

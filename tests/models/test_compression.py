"""Compressed prompts against a count in plain Python, and what no compressor can do."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest

from dmodels.catalog import workload
from dmodels.core.errors import InputError
from dmodels.core.workload import Workload
from dmodels.models.compression import Compression, compressed
from dmodels.models.pooling import Headroom
from dmodels.studies.pools import pool_study

LENGTHS = [(500, 100, 0.4), (7000, 500, 0.2), (9000, 500, 0.2), (15000, 1000, 0.1), (40000, 1000, 0.1)]
MIX = Workload(*(np.array(column, float) for column in zip(*LENGTHS, strict=True)))


def test_a_split_with_compressed_prompts_counted_by_hand():
    """8,192 tokens, half of a prompt may go: 9,000 and, just, not 15,000 (7,192 are less than half of it)."""
    threshold, rate, price = 8192, 1000.0, 0.5
    study = pool_study(MIX, threshold, rate, 65536, headroom=Headroom(), compression=Compression(0.5, 50_000.0, price))
    seconds = lambda slots: (8e-3 + 0.65e-3 * slots) / slots  # of an instance per iteration of a request
    short = long = read = 0.0
    for prompt, output, share in LENGTHS:
        if prompt + output > threshold and prompt * 0.5 <= threshold - output:
            read += share * prompt
            prompt = threshold - output
        work = share * (ceil(prompt / 512) + output)
        short, long = (short + work, long) if prompt + output <= threshold else (short, long + work)
    fleet = ceil(rate * short * seconds(128)) + ceil(rate * long * seconds(16)) + ceil(rate * read / 50_000 * price)
    assert study.compressed_frac.tolist() == [0.2] and study.compressed_instances_count.tolist() == [fleet]
    assert fleet < study.savings.dual_instances_count[0]


def test_without_a_compressor_the_fleet_is_the_split():
    study = pool_study(MIX, [4096, 8192], 100.0, 65536)
    np.testing.assert_array_equal(study.compressed_instances_count, study.savings.dual_instances_count)
    assert not study.compressed_frac.any()


def test_what_compression_keeps():
    """Nothing that fitted is touched, no prompt falls below its share, prefixes shrink along."""
    azure = workload("azure-paper")
    azure = azure.replace(cached_tokens=0.5 * azure.input_tokens)
    found = compressed(azure, 4096.0, Compression(keep_frac=0.3))
    ratio = found.workload.input_tokens / np.maximum(azure.input_tokens, 1)
    touched = found.workload.input_tokens < azure.input_tokens
    assert touched.any() and ratio[touched].min() >= 0.3 and (azure.total_tokens[touched] > 4096).all()
    np.testing.assert_allclose(found.workload.total_tokens[touched], 4096.0)
    np.testing.assert_allclose(found.workload.cached_tokens, 0.5 * found.workload.input_tokens)
    assert found.compressed_frac == pytest.approx(azure.weight_frac[touched].sum())


@pytest.mark.parametrize("bad", [{"keep_frac": 0.0}, {"keep_frac": 1.5}, {"tokens_per_s": 0.0}])
def test_bad_compressors_are_refused(bad):
    with pytest.raises(InputError, match="accepted"):
        compressed(MIX, 8192.0, Compression(**bad))

"""Request logs in three formats say the same; nonsense is counted, never fatal."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dmodels.core.errors import TraceError
from dmodels.games.anarchy import IndexCost, driver, log_from_rows, read_log, windows

ROWS = [
    {"id": f"r{i}", "arrival": i * 0.1, "completion": i * 0.1 + 1.0, "worker": f"w{i % 2}", "overlap": 0.25}
    for i in range(40)
]


def test_three_formats_are_one_log(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    with (tmp_path / "a.csv").open("w", newline="") as out:
        table = csv.DictWriter(out, ROWS[0])
        table.writeheader()
        table.writerows(ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    logs = [read_log(tmp_path / name) for name in ("a.jsonl", "a.csv", "a.parquet")]
    for log in logs:
        assert log.ids == logs[0].ids and log.workers == ("w0", "w1") and not log.problems
        np.testing.assert_array_equal(log.latency_s, logs[0].latency_s)
        np.testing.assert_array_equal(log.overlap, logs[0].overlap)


def test_prefixes_are_replayed_in_order_of_arrival():
    """Worker a saw x y; a request x y z then finds two of three blocks there and none on b."""
    rows = [
        {"arrival": 0, "completion": 2, "worker": "a", "prefix": ["x", "y"]},
        {"arrival": 1, "completion": 3, "worker": "b", "prefix": ["x", "y", "z"]},
        {"arrival": 2, "completion": 4, "worker": "b", "prefix": "x y q"},
    ]
    log = log_from_rows(iter(rows))
    np.testing.assert_allclose(log.overlap, [[0, 0], [2 / 3, 0], [2 / 3, 2 / 3]])
    assert "never evict" in log.notices[0] and log.ids == ("row 1", "row 2", "row 3")


def test_an_idle_system_is_the_quickest_twentieth():
    """Of a hundred requests six took 1 s and the others 4: 3.82 in the mean is what load adds to an idle 1 s."""
    rows = [r | {"id": f"{r['id']} {k}", "latency": 1.0 if k < 6 else 4.0} for k, r in enumerate((ROWS * 3)[:100])]
    found = windows(log_from_rows(iter(rows)), size=100, base_s=None)
    assert float(found.queueing[0]) == pytest.approx(3.82)
    every = [len(windows(log_from_rows(iter(rows)), size).start_s) for size in (1, 2, 3, 100)]
    assert every == [100, 99, 98, 1]  # half a window apart, one request at least


def test_each_complaint_names_its_row():
    """The reader counts rows as an editor counts the lines of a file without a head."""
    bad = [
        ({"id": "r3"}, "duplicated id"),
        ({"completion": -1.0}, "completion before arrival"),
        ({"worker": None}, "missing field"),
        ({"arrival": "soon"}, "bad number"),
        ({"overlap": 1.5}, "bad number"),
        ({"latency": 9.0, "id": "slow"}, "clock skew"),
        ({"arrival": 300.0, "completion": 301.0, "id": "late"}, "gap"),
    ]
    for place in (1, 5, 41):
        for changed, kind in bad if place > 4 else bad[1:-1]:
            rows = [*ROWS[: place - 1], ROWS[0] | {"id": "new"} | changed, *ROWS[place - 1 :]]
            log = log_from_rows(iter(rows))
            assert dict(log.problems) == {kind: 1}, (place, kind, log.problems)
            assert log.reports[0].startswith(f"row {place}: "), log.reports


def test_times_of_day_are_seconds_and_corrupted_ones_are_none():
    """Seconds since 1970 are times; milliseconds since then would lie 50,000 years ahead."""
    times = [row | {"arrival": 1.8e9 + row["arrival"], "completion": 1.8e9 + row["completion"]} for row in ROWS]
    assert len(log_from_rows(iter(times))) == len(ROWS)
    late = [times[0] | {"id": "ms", "arrival": 1.8e12, "completion": 1.8e12 + 1000.0}]
    assert log_from_rows(iter([*times, *late])).problems == {"bad number": 1}
    ends = [{"arrival": -1e12, "completion": 1e12, "worker": "a"}, {"completion": 1.001e12, "worker": "a"}]
    log = log_from_rows(iter([*ends, {"arrival": -1.001e12, "worker": "a"}]))
    assert log.latency_s.tolist() == [2e12] and log.problems == {"bad number": 2}


def test_a_log_is_the_same_in_blocks_of_any_size(monkeypatch):
    """Rows of all kinds: shares by order, by name and of one's own, prefixes, and what is of no use."""
    rng = np.random.default_rng(7)
    said = [
        lambda: {"overlap": rng.integers(0, 5, 3).tolist()},
        lambda: {"overlap": (rng.integers(0, 5, 3) / 4).tolist()},
        lambda: {"overlap": {f"w{j}": 0.25 for j in rng.permutation(4)[: rng.integers(3)]}},
        lambda: {"overlap": 0.75},
        lambda: {"prefix": " ".join(map(str, rng.integers(0, 4, rng.integers(1, 6))))},
        lambda: {"ttft": float(rng.integers(-1, 9))},
        dict,
    ]
    rows = []
    for k in range(90):
        at = float(rng.integers(0, 200))
        row = {
            "id": int(rng.integers(80)) if k % 4 else None,
            "arrival": at,
            "completion": at + float(rng.integers(-1, 20)),
        }
        rows.append(row | {"worker": f"w{rng.integers(4)}", "latency": at % 5 or None} | said[int(rng.integers(7))]())
        rows += ["torn"] * (k % 20 == 7)
    told = []
    for size in (8192, 7, 1):
        monkeypatch.setattr("dmodels.core.rows.BATCH_ROWS", size)
        log = log_from_rows(iter(rows), workers=["w0", "w1", "w2"], gap_s=4.0)
        told.append({name: repr(np.asarray(value).tolist()) for name, value in vars(log).items()})
    assert told[0] == told[1] == told[2] and len(log.problems) == 7
    assert 20 < len(log) < 70 and len(log.notices) == 2


def test_worker_objects_and_other_names():
    rows = [{"request_id": 7, "start": "1.5", "e2e": 2, "decode_worker_id": 3, "overlaps": {"3": 0.5, "9": 1.0}}]
    log = log_from_rows(iter(rows), workers=[1, 3])
    assert log.ids == ("7",) and log.completion_s.tolist() == [3.5] and log.overlap.tolist() == [[0.0, 0.5]]


#: From the one that is believed where a row has several.
SPELLINGS = {
    "ids": "id request_id req_id",
    "arrival_s": "arrival arrival_s arrival_time start start_s",
    "completion_s": "completion completion_s completion_time end end_s finish",
    "worker": "worker worker_id decode_worker decode_worker_id",
    "latency_s": "latency latency_s e2e e2e_s e2e_latency",
    "ttft_s": "ttft ttft_s time_to_first_token",
    "overlap": "overlap overlaps overlap_score overlap_scores",
}


@pytest.mark.parametrize("field", SPELLINGS)
def test_of_several_names_in_a_row_the_first_is_believed(field):
    """Whether it is said in capitals or not; the next where it is empty."""
    names = SPELLINGS[field].split()
    told = {name: 0.5 + k / 16 for k, name in enumerate(names)}
    for k, name in enumerate(names):
        row = {"id": 1, "arrival": 0.0, "completion": 4.0, "worker": 7} | dict.fromkeys(names, "")
        row |= {f" {one.upper()}": told[one] for one in reversed(names[k:])}
        log = log_from_rows(iter([row]), skew_s=9.0)
        found = log.workers if field == "worker" else getattr(log, field)
        assert float(np.ravel(found)[0]) == told[name] and not log.problems


def test_prefixes_by_any_name_the_first_before_the_others():
    names = "prefix prefix_hashes hash_ids blocks block_hashes".split()
    for k in range(len(names)):
        said = dict.fromkeys(names[:k]) | {names[k]: "x"} | dict.fromkeys(names[k + 1 :], "y")
        base = {"completion": 9, "worker": "a", "prefix": "x"}
        log = log_from_rows(iter([base | {"arrival": 0}, base | {"arrival": 1} | said]))
        assert log.overlap.tolist() == [[0.0], [1.0]]


values = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(),
    st.integers(),
    st.text(max_size=8),
    st.lists(st.floats(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.floats(), max_size=2),
    st.just("1e400"),
    st.just(10**400),
)
fields = st.sampled_from(["id", "arrival", "completion", "worker", "latency", "ttft", "overlap", "prefix", "x"])


@settings(max_examples=150)
@given(st.lists(st.one_of(st.dictionaries(fields, values, max_size=8), st.text(max_size=10), values), max_size=8))
def test_no_row_crashes_the_reader(junk):
    """Every row is used or counted."""
    log = log_from_rows(iter([*junk, ROWS[0]]), limit=3)
    dropped = log.rows_count - len(log)
    kept_but_counted = {"gap", "clock skew", "overlap of another length"}
    assert dropped == sum(n for kind, n in log.problems.items() if kind not in kept_but_counted)
    assert len(log.reports) <= 3 and np.isfinite(log.latency_s).all() and (log.latency_s >= 0).all()


@settings(max_examples=60)
@given(data=st.binary(max_size=300), suffix=st.sampled_from([".csv", ".jsonl", ".parquet", ".log"]))
def test_no_bytes_crash_the_reader(data, suffix, tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / f"log{suffix}"
    path.write_bytes(data)
    try:
        read_log(path)
    except TraceError as error:
        assert "\n" not in str(error)


def test_windows_multiply_to_the_index_and_name_the_driver():
    rng = np.random.default_rng(0)
    rows = [
        {
            "id": i,
            "arrival": float(i),
            "completion": i + (1.0 if i < 300 else 40.0) + rng.uniform(0, 0.01),
            "worker": int(rng.integers(3)),
        }
        for i in range(600)
    ]
    log = log_from_rows(iter(rows))
    w = windows(log, size=100, step=50)
    np.testing.assert_allclose(w.routing * w.constant * w.queueing, w.index.poa_hat, rtol=1e-12)
    short, long = windows(log), windows(log, 512, 256, IndexCost(0.005, 0.02, 0.01, 2.0, 64.0, 0.015), False, None)
    assert len(short.start_s) == 1 and short.end_s[0] == log.completion_s[511]
    assert repr(short) == repr(long)
    assert driver(w)[0] == "constant" and driver(w)[-1] == "queue"
    assert w.end_s[0] == log.completion_s[99] and (np.diff(w.end_s) >= 0).all()
    unsaid = windows(log)  # 512 requests, and the next window half of that later, which is not whole
    assert unsaid.start_s.tolist() == [log.completion_s[0]] and unsaid.end_s.tolist() == [log.completion_s[511]]
    assert windows(log, 200).start_s.tolist() == log.completion_s[[0, 100, 200, 300, 400]].tolist()
    unknown = w._replace(routing=np.array([1.3, 1.0, np.nan]), queueing=np.full(3, np.nan))
    assert driver(unknown) == ["routing", "constant", "constant"]

"""Reading traces: four layouts, one line for everything that is wrong, and never a traceback."""

import gzip
import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dmodels.core.errors import InputError, TraceError
from dmodels.models.traffic import Trace, burstiness, prefix_hits, read_trace, trace_file

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:05,3180,8"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
MOONCAKE = [
    {"timestamp": 0, "input_length": 1100, "output_length": 50, "hash_ids": [0, 1, 2]},
    {"timestamp": 3000, "input_length": 1536, "output_length": 9, "hash_ids": [0, 1, 7]},
]
PLAIN = "time_s,input_tokens,output_tokens\n0,100,10\n1.5,200,20\n4,300,30\n"


@pytest.fixture
def file(tmp_path):
    def write(content, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def _lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_azure_times_are_dates(file):
    t = read_trace(file(AZURE))
    assert t.layout == "azure" and t.input_tokens.tolist() == [4808, 3180] and t.output_tokens.tolist() == [10, 8]
    assert t.time_s.tolist() == [0, pytest.approx(1.02004)]


def test_azure_2024_dates_carry_a_time_zone(file):
    t = read_trace(
        file(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
            "2024-05-10 00:00:01.009930+00:00,2399,6\n"
        )
    )
    assert t.time_s.tolist() == [0, pytest.approx(1.0)]


def test_mooncake_times_are_milliseconds_and_blocks_are_kept(file):
    t = read_trace(file(_lines(MOONCAKE)))
    assert t.time_s.tolist() == [0, 3] and t.block_ids.tolist() == [0, 1, 2, 0, 1, 7]
    assert t.block_starts.tolist() == [0, 3, 6]


def test_burstgpt_failures_are_dropped_and_counted(file):
    t = read_trace(file(BURST + "45,GPT-4,100,0,100,API log\n118,ChatGPT,1087,230,1317,Conversation log\n"))
    assert t.time_s.tolist() == [0, 113] and t.notices == ("dropped 1 failed request (0 response tokens)",)


def test_plain_csv_and_json_lines_say_the_same(file):
    rows = [
        dict(zip(("time_s", "input_tokens", "output_tokens"), r, strict=True))
        for r in ((0, 100, 10), (1.5, 200, 20), (4, 300, 30))
    ]
    a, b = read_trace(file(PLAIN)), read_trace(file(_lines(rows), "t.jsonl"))
    for name in ("time_s", "input_tokens", "output_tokens"):
        assert getattr(a, name).tolist() == getattr(b, name).tolist()
    assert a.rate_rps == 0.5


def test_gzip_byte_order_mark_blank_lines_and_quotes_are_read(file):
    text = "\ufeff\n" + PLAIN.replace("200", '"200"').replace("\n", "\r\n\r\n")
    assert read_trace(file(gzip.compress(text.encode()), "t.csv.gz")).input_tokens.tolist() == [100, 200, 300]


@pytest.mark.parametrize("text", [AZURE, BURST, PLAIN + "7,1\n9,8,7\n5,5,5", PLAIN + "9,9", _lines(MOONCAKE) + "{\n"])
def test_a_table_is_the_same_trace_however_many_lines_are_read_at_a_time(file, text, monkeypatch):
    whole = read_trace(file(text), repair=True)
    for chars in (1, 60):
        monkeypatch.setattr(trace_file, "CHUNK_CHARS", chars)
        found = read_trace(file(text), repair=True)
        for name in ("time_s", "input_tokens", "output_tokens", "block_ids", "block_starts", "notices"):
            assert np.array_equal(getattr(found, name), getattr(whole, name)), name


def test_the_files_of_the_public_traces(shared_data):
    conv = read_trace(shared_data / "azure_2023_conv.csv")
    assert len(conv) == 19_366 and conv.input_tokens.max() == 14_050 and conv.notices == ()
    assert len(read_trace(shared_data / "azure_2023_code.csv")) == 8_819
    mooncake = read_trace(shared_data / "mooncake_conversation.jsonl")
    assert len(mooncake) == 12_031
    assert np.array_equal(np.diff(mooncake.block_starts), np.ceil(mooncake.input_tokens / 512))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("  \n\n", "empty"),
        (PLAIN.splitlines()[0], "no usable request"),
        ("a,b,c\n1,2,3\n", "line 1: columns 'a,b,c' are unknown; accepted: TIMESTAMP,"),
        (PLAIN.replace("200", "-5"), r"line 3: input_tokens = '-5'; accepted: a whole number from 0"),
        (PLAIN.replace("200", "2.5"), r"line 3: input_tokens = '2.5'"),
        (PLAIN.replace("200", "nan"), r"line 3: input_tokens = 'nan'"),
        (PLAIN.replace("1.5", "soon"), r"line 3: time_s = 'soon'; accepted: a finite number of s"),
        (AZURE.replace("2023-11-16 18:17:05", "2023-13-16 18:17:05"), "line 3: TIMESTAMP = '2023-13-16"),
        (PLAIN + "5,40", "line 5: the last line is cut off: 2 of 3 fields"),
        (PLAIN + "2,400,40\n", "line 5: time_s goes back in time"),
        (PLAIN.replace("200", "0"), "line 3: input_tokens = 0; accepted: at least 1 token"),
        (PLAIN.replace(",20\n", ",0\n"), "line 3: output_tokens = 0; accepted: at least 1 token"),
        (_lines(MOONCAKE)[:-20], "line 2: the last line is cut off: "),
        (_lines([MOONCAKE[0], {"timestamp": 1}]), "line 2: 'input_length' is missing"),
        (_lines([{**MOONCAKE[0], "hash_ids": [1.5]}]), r"line 1: hash_ids = \[1.5\]; accepted: a list of whole"),
        (_lines([{**MOONCAKE[0], "input_length": True}]), "line 1: input_length = True"),
        (b"\x1f\x8bnonsense", "broken gzip"),
        (PLAIN.encode() + b"\xff\xfe", "line 5: byte 0xff is not text"),
    ],
)
def test_what_is_wrong_is_one_line_that_says_where(file, text, says):
    with pytest.raises(TraceError, match=says) as caught:
        read_trace(file(text))
    assert "\n" not in str(caught.value) and "trace.csv" in str(caught.value)


def test_repair_mends_and_says_what_it_did(file):
    t = read_trace(file(PLAIN + "2,400,40\n3,0,5\n9,9"), repair=True)
    assert t.time_s.tolist() == [0, 1.5, 2, 4] and t.input_tokens.tolist() == [100, 200, 400, 300]
    assert [notice.split()[0] for notice in t.notices] == ["dropped", "dropped", "sorted"]
    assert "line 7: the last line is cut off: 2 of 3 fields" in t.notices[0]


def _only_trace_errors(path, repair):
    try:
        trace = read_trace(path, repair=repair)
    except TraceError as error:
        assert "\n" not in str(error)
    else:
        assert len(trace) > 0 and (np.diff(trace.time_s) >= 0).all() and (trace.input_tokens > 0).all()
        assert (trace.output_tokens > 0).all() and np.isfinite(trace.time_s).all()


fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fuzz
@given(
    st.binary(max_size=200),
    st.sampled_from([b"", b"\x1f\x8b\x08", PLAIN.encode()[:34], AZURE.encode()[:42], b"{"]),
    st.booleans(),
)
def test_random_bytes_never_get_past_the_reader(file, tail, head, repair):
    _only_trace_errors(file(head + tail), repair)


nasty = st.sampled_from(
    [
        "",
        ",",
        '"',
        "\n",
        "\r",
        "\x00",
        "1e999",
        "-1",
        "NaN",
        "9" * 5000,
        "{",
        "}",
        "[" * 3000,
        "null",
        "true",
        "²",
        "١",
        "0x1",
        "2023-02-30 00:00:00",
        '{"a":1}',
        "\u2028",
    ]
)


@fuzz
@given(
    st.sampled_from([AZURE, BURST, PLAIN, _lines(MOONCAKE)]),
    st.lists(st.tuples(st.integers(0, 300), nasty), max_size=3),
    st.integers(0, 400),
    st.booleans(),
)
def test_mutated_lines_never_get_past_the_reader(file, text, edits, cut, repair):
    for at, piece in edits:
        text = text[:at] + piece + text[at + len(piece) % 7 :]
    _only_trace_errors(file(text[: len(text) if cut > 300 else cut].encode("utf-8", "surrogatepass")), repair)


def test_prefix_hits_are_leading_blocks(file):
    t = read_trace(
        file(_lines([*MOONCAKE, {"timestamp": 4000, "input_length": 1100, "output_length": 1, "hash_ids": [0, 1, 2]}]))
    )
    assert prefix_hits(t).tolist() == [0, 1024, 1099]  # at least one token is computed
    assert prefix_hits(t, 0).tolist() == [0, 0, 0]
    assert prefix_hits(t, 3).tolist() == [0, 1024, 1024]  # block 2 was the least recently used when 7 came


def test_a_bigger_prefix_cache_never_hits_less():
    """LRU has the inclusion property, also when a prefix must be whole."""
    rng = np.random.default_rng(1)
    lengths = rng.integers(1, 8, 400)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    # block ids that name their whole prefix, as hashes of chains do
    ids = np.concatenate([rng.integers(0, 12) * 100 + np.arange(n) for n in lengths])
    one = np.ones(400)
    t = Trace("t", np.arange(400.0), 512.0 * lengths, one, block_ids=ids, block_starts=starts)
    hits = [prefix_hits(t, c) for c in (0, 3, 10, 30, 100, float("inf"))]
    assert all((b >= a).all() for a, b in pairwise(hits)) and hits[-1].sum() > hits[0].sum()


def test_a_trace_without_blocks_has_no_prefix_hits(file):
    with pytest.raises(InputError, match="no prefix blocks"):
        prefix_hits(read_trace(file(PLAIN)))


def test_poisson_arrivals_have_dispersion_one():
    rng = np.random.default_rng(3)
    b = burstiness(np.cumsum(rng.exponential(0.1, 200_000)), (1.0, 10.0))
    assert b.interarrival_cv == pytest.approx(1.0, abs=0.01)
    np.testing.assert_allclose(b.dispersion_count, 1.0, atol=0.1)  # 2,000 windows: standard error 0.03


def test_batches_have_the_dispersion_of_their_size():
    rng = np.random.default_rng(4)
    batches = np.repeat(np.cumsum(rng.exponential(1.0, 50_000)), 5)
    assert burstiness(batches, 10.0).dispersion_count[0] == pytest.approx(5.0, rel=0.1)


def test_bursts_do_not_depend_on_when_the_clock_started():
    """Two, one and no arrivals in three windows of a second: mean 1, variance 2/3, peak 2; two whole windows do."""
    time = np.array([0.0, 0.5, 1.2, 3.0])
    for start in (0.0, 1e3):
        found = burstiness(start + time, 1.0)
        assert found.dispersion_count[0] == pytest.approx(2 / 3) and found.peak_to_mean_frac[0] == pytest.approx(2.0)
    both = burstiness(np.array([0.0, 0.5, 1.2, 1.9, 2.0]), [1.0, 1.1]).dispersion_count
    assert both[0] == 0.0 and np.isnan(both[1])


def test_the_busiest_window_is_compared_with_the_mean_one():
    """Three arrivals, then one, in windows of a second: 3 over 2."""
    assert burstiness(np.array([0.0, 0.1, 0.2, 1.5, 2.0]), 1.0).peak_to_mean_frac[0] == 1.5


def test_bursts_are_looked_for_over_a_second_ten_and_a_minute():
    assert burstiness(np.arange(10.0)).window_s.tolist() == [1.0, 10.0, 60.0]


@pytest.mark.parametrize(
    ("name", "text", "column"),
    [
        ("t.csv", "time_s,input_tokens,output_tokens,Team\n0,5,1,a\n1,6,1, b \n", "Team"),
        (
            "t.csv",
            "TIMESTAMP,ContextTokens,GeneratedTokens;Team\n".replace(";", ",")
            + "2023-11-16 18:17:03,5,1,a\n2023-11-16 18:17:04,6,1,b\n",
            "Team",
        ),
        (
            "t.jsonl",
            '{"time_s": 0, "input_tokens": 5, "output_tokens": 1, "team": "a"}\n'
            '{"time_s": 1, "input_tokens": 6, "output_tokens": 1, "team": "b"}\n',
            "team",
        ),
        (
            "log.jsonl",
            '{"startTime": "2026-01-24T09:20:47Z", "prompt_tokens": 6, "completion_tokens": 1, "metadata": '
            '{"team": "b"}}\n{"startTime": "2026-01-24T09:20:46Z", "prompt_tokens": 5, "completion_tokens": 1, '
            '"metadata": '
            '{"team": "a"}}\n',
            "metadata.team",
        ),
        (
            "log.jsonl",
            '{"startTime": "2026-01-24T09:20:46Z", "prompt_tokens": 5, "completion_tokens": 1, '
            '"request_headers": {"x-team": "a"}}\n{"startTime": "2026-01-24T09:20:47Z", "prompt_tokens": 6, '
            '"completion_tokens": 1, "request_headers": {"x-team": "b"}}\n',
            "x-team",
        ),
    ],
    ids=["plain", "azure", "jsonl", "field of a log", "header of a log"],
)
def test_a_column_that_tells_classes_apart_stays_with_its_requests(name, text, column, tmp_path):
    (tmp_path / name).write_text(text)
    trace = read_trace(tmp_path / name, class_column=column)
    assert trace.labels.tolist() == ["a", "b"] and trace.input_tokens.tolist() == [5.0, 6.0]
    assert read_trace(tmp_path / name).labels is None
    with pytest.raises(TraceError, match=r"no (column|row has a field or header) 'tenant'"):
        read_trace(tmp_path / name, class_column="tenant")


def test_labels_move_with_the_requests_that_are_sorted_or_dropped(tmp_path):
    (tmp_path / "t.csv").write_text("time_s,input_tokens,output_tokens,team\n2,5,1,c\n0,5,1,a\n1,0,1,b\n")
    assert read_trace(tmp_path / "t.csv", repair=True, class_column="team").labels.tolist() == ["a", "c"]

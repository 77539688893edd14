"""
Random AI records with values that are hard to write: long decimals, other scripts, late and early times.
"""

from __future__ import annotations

from hypothesis import strategies as st

from spool.record import CURRENCY, NS, RUNS, Correction, Inference, UsageMetric

NOON = 1_793_016_000  # 2026-10-26, 12:00 UTC

WORDS = st.sampled_from(["openai", "gpt-5", "ünïcode", "emoji 🦔", "=cmd()", "", "a" * 300])
MAYBE = st.none() | WORDS
COUNTS = st.none() | st.integers(0, 2**40)
AMOUNTS = st.none() | st.decimals(-(10**6), 10**6, places=27, allow_nan=False).map(lambda x: f"{x:f}")
TIMES = st.none() | st.integers((NOON - 40 * 86400) * NS, (NOON + 3 * 86400) * NS)
TAGS = st.dictionaries(WORDS.filter(bool), WORDS, max_size=32)
IDS = st.binary(min_size=16, max_size=16)
SENDERS = dict.fromkeys(("user", "team", "session", "api_key", "device"), MAYBE)
CALLS = st.builds(
    Inference,
    id=IDS,
    source=WORDS,
    request_id=MAYBE,
    trace_id=MAYBE,
    span_id=MAYBE,
    start_time=TIMES,
    end_time=TIMES,
    provider=MAYBE,
    request_model=MAYBE,
    response_model=MAYBE,
    operation=MAYBE,
    region=MAYBE,
    error_type=MAYBE,
    price_book=MAYBE,
    input_tokens=COUNTS,
    output_tokens=COUNTS,
    cache_read_tokens=COUNTS,
    cache_write_tokens=COUNTS,
    cache_write_1h_tokens=COUNTS,
    reasoning_tokens=COUNTS,
    cost=AMOUNTS,
    estimated_cost=st.none() | st.sampled_from(["0", "0.1", "12.000000000000000000000000001"]),
    cost_source=st.sampled_from(["none", "reported", "estimated"]),
    status=st.sampled_from(["ok", "error", "cached"]),
    tags=TAGS,
    shadow=st.booleans(),
    **SENDERS,
    **dict.fromkeys(RUNS, MAYBE),
    charges=st.just({}) | st.just({"EUR": "1.5", "JPY": "0.000000000001"}),
    counted_by=st.none() | IDS,
    meters=st.just({}) | st.just({"web_searches": 3, "audio_seconds": "1.25"}),
)
METRICS = st.builds(
    UsageMetric, id=IDS, source=WORDS, name=WORDS, token_type=st.sampled_from([None, "input", "output", "cache_read"]),
    value=st.integers(-(10**13), 10**13), model=MAYBE, start_time=TIMES, end_time=TIMES, tags=TAGS,
    shadow=st.booleans(), meter=st.sampled_from([None, "input_audio_tokens"]), **SENDERS,
) | st.builds(
    UsageMetric, id=IDS, source=WORDS, name=WORDS, value=AMOUNTS.filter(bool), unit=st.sampled_from([CURRENCY, "EUR"]),
    start_time=TIMES, end_time=TIMES,
)  # fmt: skip
CORRECTIONS = st.builds(
    Correction,
    id=IDS,
    source=WORDS,
    corrects=IDS,
    reason=st.just("late_usage"),
    known_at=st.integers(NOON * NS, (NOON + 86400) * NS),
    start_time=st.integers((NOON - 86400) * NS, NOON * NS),
    before=CALLS,
    after=CALLS,
)
RECORDS = CALLS | METRICS | CORRECTIONS

"""Container usage from samples, compared with amounts worked out by hand."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.clusters.usage import usage as metering
from gateway.clusters.usage import usage as of_usage
from gateway.clusters.usage.series import NAME, MetricSeries
from gateway.clusters.usage.usage import (
    CPU,
    DAY_MS,
    GAP_MS,
    GPU,
    MEMORY,
    OTHER,
    DayUsage,
    KnownPod,
    MeterRules,
    OpenUsage,
    UsageMeter,
    WorkloadOnNode,
    decode_usage,
    encode_usage,
    split_by_day,
)
from tests.rounds import examples

DAY = 20_000 * DAY_MS  # an arbitrary day
MINUTE = 60_000
RULES = MeterRules(tags=("team", "cost-center"), most=100, now_ms=DAY + DAY_MS)
WEB = {"namespace": "shop", "pod": "web-6d4cf56db6-x2x9k", "container": "app", "node": "n-1"}
CPU_NAME, MEMORY_NAME = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"


def test_open_usage_is_restored_from_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Open usage is restored from its stored parts, including usage that an earlier version stored in one part.
    """
    monkeypatch.setattr(of_usage, "PART", 3)
    usage = OpenUsage(
        series={f"s-{number}": (number, 2**60 + number) for number in range(10)},
        pods={f"p-{number}": KnownPod(workload="w", tags={"team": "ä"}, at=number) for number in range(4)},
        namespaces={"a": {"team": "ops"}},
        nodes={"i-1": "n-1"},
        days={0: DayUsage(used={place_key(): [1, 2, 3]}, had={"n-1": [4, 5, 6]}, nodes={"n-1": "n-1"})},
    )
    for body in (encode_usage(usage), msgspec.json.encode(usage)):
        assert usage == decode_usage(body)
    assert OpenUsage() == decode_usage(b"{}") == decode_usage(encode_usage(OpenUsage()))


def place_key() -> str:
    return WorkloadOnNode("n-1", "shop", "web", {"team": "search"}).key


def series(name: str, *samples: tuple[int, float], **labels: str) -> MetricSeries:
    return MetricSeries({NAME: name, **labels}, [(DAY + at, value) for at, value in samples])


def metered(*bodies: list[MetricSeries], rules: MeterRules = RULES) -> OpenUsage:
    usage = OpenUsage()
    for body in bodies:
        meter = UsageMeter(usage, rules)
        meter.add_series(body)
        meter.add_nodes_and_forget_ended()
    return usage


def used(usage: OpenUsage, kind: int, day: int = DAY) -> dict[tuple[str, str], int]:
    """Sum usage by namespace and workload."""
    found: Counter[tuple[str, str]] = Counter()
    known = usage.days.get(day // 1000)
    for key, amounts in (known.used if known else {}).items():
        place = WorkloadOnNode.from_key(key)
        found[place.namespace, place.workload] += amounts[kind]
    return {place: amount for place, amount in found.items() if amount}


def test_a_counter_counts_what_it_rose_by() -> None:
    """
    Usage is the increase of a counter. The value at the first sample does not count, and an increase over
    midnight is divided between the days. A counter restarts with its container.
    """
    minutes = [(0, 100.0), (MINUTE, 130.5), (2 * MINUTE, 10.0), (3 * MINUTE, 10.0)]
    usage = metered([series(CPU_NAME, *minutes, **WEB)])
    assert {("shop", "web"): 40_500_000} == used(usage, CPU)
    last = DAY_MS - MINUTE
    usage = metered([series(CPU_NAME, (last, 0.0), (DAY_MS + 3 * MINUTE, 8.0), **WEB)])
    assert {("shop", "web"): 2_000_000} == used(usage, CPU)
    assert {("shop", "web"): 6_000_000} == used(usage, CPU, DAY + DAY_MS)


@pytest.mark.parametrize(("late_ms", "expected"), [(0, 4_000_000), (1, 0)])
def test_a_series_is_known_for_three_days(late_ms: int, expected: int) -> None:
    """
    An increase counts if the previous sample is at most three days old. After that, the series and its pod are
    forgotten.
    """
    rules = replace(RULES, now_ms=DAY + 3 * DAY_MS + late_ms)
    first = [series("kube_pod_info", (0, 1.0), **WEB), series(CPU_NAME, (0, 5.0), **WEB)]
    known = metered(first, rules=rules)
    assert [expected > 0] * 2 == [bool(known.series), bool(known.pods)]
    usage = metered(first, [series(CPU_NAME, (3 * DAY_MS, 9.0), **WEB)], rules=rules)
    assert expected == sum(sum(used(usage, CPU, DAY + day * DAY_MS).values()) for day in range(4))


def test_a_level_holds_until_the_next_sample() -> None:
    """If samples are missing, the last level counts for at most ten minutes."""
    found = [(0, 1000.0), (MINUTE, 500.0), (MINUTE + 2 * GAP_MS, 0.0)]
    usage = metered([series(MEMORY_NAME, *found, **WEB)])
    assert {("shop", "web"): 1000 * MINUTE + 500 * GAP_MS} == used(usage, MEMORY)


def test_gpu_counts_only_while_its_container_runs() -> None:
    """A GPU counts only while the container runs. Finished and waiting pods use none."""
    told = {"resource": "nvidia_com_gpu"}
    minutes = [(n * MINUTE, 2.0) for n in range(40)]
    request = series("kube_pod_container_resource_requests", *minutes, **WEB, **told)
    assert {} == used(metered([request]), GPU)
    running = series(MEMORY_NAME, (0, 1.0), (5 * MINUTE, 1.0), **WEB)
    usage = metered([running, request])
    assert {("shop", "web"): 2 * 15 * MINUTE * 1000} == used(usage, GPU)


def test_what_nodes_have() -> None:
    """The cores, memory and GPUs of nodes are summed over time. All names of a node lead to the same node."""
    two = [(0, 4.0), (MINUTE, 4.0)]
    usage = metered([
        series("kube_node_status_capacity", *two, node="n-1", resource="cpu"),
        series("kube_node_status_capacity", *two, node="n-1", resource="pods"),
        series("kube_node_info", (0, 1.0), node="n-1", provider_id="aws:///eu-west-1a/i-0abc"),
    ])  # fmt: skip
    [day] = usage.days.values()
    assert {"n-1": [4 * MINUTE * 1000, 0, 0]} == day.had
    assert {"n-1": "n-1", "i-0abc": "n-1"} == day.nodes


def test_pods_have_workloads_nodes_and_tags() -> None:
    """
    Tags are from the pod's information, then its labels, then its namespace. Without an owner, the pod's name
    gives the workload.
    """
    two = [(0, 1.0), (MINUTE, 2.0)]
    one = [(0, 1.0)]
    pods = {
        "job-1-abcde": {"created_by_kind": "Job", "created_by_name": "job-1"},
        "api-7f9c-zz": {"created_by_kind": "ReplicaSet", "created_by_name": "api-6d4cf56db6"},
        "db-0": {}, "agent-x2x9k": {}, "web-6d4cf56db6-x2x9k": {}, "plain": {},
    }  # fmt: skip
    body = [
        series("kube_namespace_labels", *one, namespace="a", label_team="ops", label_cost_center="7"),
        series("kube_pod_labels", *one, namespace="a", pod="db-0", label_team="data", label_other="x"),
    ]
    for pod, told in pods.items():
        body.append(series(CPU_NAME, *two, namespace="a", pod=pod, container="c", cpu="total"))
        if told:
            body.append(series("kube_pod_info", *one, namespace="a", pod=pod, node="n-2", **told))
    [day] = metered(body).days.values()
    found = {place.workload: place for place in map(WorkloadOnNode.from_key, day.used)}
    assert {"job-1", "api", "db", "agent", "web", "plain"} == set(found)
    assert {"team": "data", "cost-center": "7"} == found["db"].tags
    assert {"team": "ops", "cost-center": "7"} == found["api"].tags
    assert found["api"].node == "n-2"
    assert found["db"].node == ""


def test_sums_of_pods_and_odd_samples_are_left_out() -> None:
    """
    Totals of pods are ignored, because they would count usage twice. Values that are not numbers and
    impossible times are ignored as well.
    """
    two = [(0, 1.0), (MINUTE, 2.0)]
    odd = [(0, 1.0), (1, float("nan")), (2, -5.0), (3, float("inf")), (30 * DAY_MS, 9.0), (-99 * DAY_MS, 9.0)]
    body = [series(CPU_NAME, *two, **{**WEB, "container": name}) for name in ("", "POD")]
    body += [series(CPU_NAME, *two, id="/"), series(CPU_NAME, *odd, **WEB), series("other", *two, **WEB)]
    assert {} == metered(body).days


def test_series_over_the_limit_are_counted_and_left_out() -> None:
    """Series over the limit are left out and counted. The series that reaches the limit still counts."""
    two = [(0, 1.0), (MINUTE, 2.0)]
    rules = MeterRules(tags=(), most=2, now_ms=RULES.now_ms)
    meter = UsageMeter(OpenUsage(), rules)
    meter.add_series([series(CPU_NAME, *two, **{**WEB, "container": name}) for name in "abc"])
    assert len(meter.usage.series) == 2
    assert meter.left_out == 2
    assert {("shop", "web"): 2_000_000} == used(meter.usage, CPU)


def test_very_many_places_of_a_day_are_one(monkeypatch: Any) -> None:
    """Beyond a limit per node, further places are summed under one name, so no usage is lost."""
    monkeypatch.setattr(metering, "MAX_PLACES", 2)
    two = [(0, 1.0), (MINUTE, 2.0)]
    usage = metered([series(CPU_NAME, *two, **{**WEB, "namespace": name}) for name in "abcd"])
    expected = {("a", "web"): 1_000_000, ("b", "web"): 1_000_000, ("", OTHER): 2_000_000}
    assert expected == used(usage, CPU)


def test_what_has_ended_is_forgotten() -> None:
    """Open series and pods are dropped three days after their last sample."""
    later = MeterRules(tags=(), most=9, now_ms=DAY + 4 * DAY_MS)
    usage = metered([series(CPU_NAME, (0, 1.0), (MINUTE, 2.0), **WEB)], rules=later)
    assert usage.series == {}
    assert usage.pods == {}
    assert {("shop", "web"): 1_000_000} == used(usage, CPU)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(25), deadline=None)
def test_the_order_and_repeats_of_bodies_change_nothing(seed: int) -> None:
    """If two senders report one cluster, or files are read twice, the sums are those of one sender."""
    chance = random.Random(seed)
    names = [(CPU_NAME, f"p-{n}") for n in range(3)] + [(MEMORY_NAME, f"p-{n}") for n in range(3)]
    bodies = []
    level: Counter[str] = Counter()
    for at in range(0, 30 * MINUTE, MINUTE):
        level.update({pod: chance.randrange(100) for _, pod in names})
        bodies.append([
            series(name, (at, float(level[pod])), namespace="a", pod=pod, container="c") for name, pod in names
        ])  # fmt: skip
    once = metered(*bodies)
    again = []
    for place, body in enumerate(bodies):
        again += [chance.sample(body, len(body)), *chance.sample(bodies[: place + 1], 1)]
    assert once.days == metered(*again).days


@given(st.integers(0, 10**30), st.integers(0, 10**12), st.integers(1, 40 * DAY_MS))
@settings(max_examples=examples(50), deadline=None)
def test_days_come_to_the_whole(amount: int, start: int, length: int) -> None:
    """The parts of an amount by day sum to the exact amount, and no part is negative."""
    parts = list(split_by_day(amount, start, start + length))
    assert amount == sum(part for _, part in parts)
    assert all(part > 0 for _, part in parts)

"""
Container usage: processor time, and memory and GPUs over time. Usage is summed by day, node, namespace,
workload and tags.

The sums are whole numbers, from samples of the cluster's metrics. The newest time and value of each series
are stored, so a sample read twice changes nothing. The state of a cluster is stored in documents made of
parts, because encoding all series of a large cluster in one call would block the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import TypeVar

import msgspec

from gateway.clusters.usage.series import NAME, MetricSeries

# Indexes in amounts. Their units are core-microseconds, byte-milliseconds and GPU-microseconds.
CPU, MEMORY, GPU = range(3)
PART = 1000  # maximum series or pods in one part of a document

UsageAmounts = list[int]  # amounts of use in the order CPU, MEMORY, GPU
_Value = TypeVar("_Value")
_encoder = msgspec.json.Encoder(order="sorted")
_parts = msgspec.json.Decoder(list[msgspec.Raw])

DAY_MS = 86_400_000
GAP_MS = 600_000  # milliseconds; the maximum time for which a value applies until the next sample
KEPT_MS = 3 * DAY_MS  # milliseconds without samples after which a series or a pod is forgotten
OLDEST_MS = 62 * DAY_MS
AHEAD_MS = 3_600_000  # milliseconds by which a sample may be ahead of the clock
MAX_PLACES = 5000  # maximum places per day and cluster; further places are summed as one workload
OTHER = "(other)"
_MILLION = 1_000_000
_KINDS = {"cpu": CPU, "memory": MEMORY, "nvidia_com_gpu": GPU, "amd_com_gpu": GPU}
_CPU_SECONDS = "container_cpu_usage_seconds_total"
_MEMORY_BYTES = "container_memory_working_set_bytes"
_CAPACITY = "kube_node_status_capacity"
_REQUESTS = "kube_pod_container_resource_requests"
_POD_LABELS = ("kube_pod_labels", "cloudzero_pod_labels")
_NAMESPACE_LABELS = ("kube_namespace_labels", "cloudzero_namespace_labels")
_LABEL = "label_"
# sample labels that the usage meter reads
_OF_SAMPLES = (NAME, "namespace", "pod", "container", "cpu", "resource", "node")
# Kubernetes appends parts of these characters to the names of pods.
_RANDOM = "[bcdfghjklmnpqrstvwxz2456789]"
_REPLICA_SET = re.compile(f"-{_RANDOM}{{6,10}}$")
_OF_DEPLOYMENT = re.compile(f"-{_RANDOM}{{6,10}}-{_RANDOM}{{5}}$")
_OF_SET = re.compile(rf"-({_RANDOM}{{5}}|\d+)$")
_NO_NAME = re.compile("[^a-zA-Z0-9_]")


class KnownPod(msgspec.Struct, gc=False):
    """A pod of a cluster. `at` is the time of its last sample, in milliseconds."""

    workload: str = ""
    node: str = ""
    tags: dict[str, str] = {}
    at: int = 0


class DayUsage(msgspec.Struct):
    """
    The usage of a day. `used` is the usage by namespace, workload and tags, and `had` is the capacity by
    node.

    `nodes` maps the last part of the provider's node id to the node.
    """

    used: dict[str, UsageAmounts] = {}
    had: dict[str, UsageAmounts] = {}
    nodes: dict[str, str] = {}


class OpenUsage(msgspec.Struct):
    """
    A cluster's usage of days that are still open, with the state that later samples need. `series` has the
    time and value of the last sample of each series.
    """

    series: dict[str, tuple[int, int]] = {}
    pods: dict[str, KnownPod] = {}
    namespaces: dict[str, dict[str, str]] = {}
    nodes: dict[str, str] = {}
    days: dict[int, DayUsage] = {}  # usage by day; the key is the start of the day in epoch seconds


class OpenDays(msgspec.Struct):
    """A cluster's usage on days that are still open, decoded without the state that later samples need."""

    days: dict[int, DayUsage] = {}


class WorkloadOnNode(msgspec.Struct, frozen=True):
    node: str
    namespace: str
    workload: str
    tags: dict[str, str]

    @property
    def key(self) -> str:
        return encode_key([self.node, self.namespace, self.workload, self.tags])

    @classmethod
    def from_key(cls, key: str) -> WorkloadOnNode:
        return cls(*msgspec.json.decode(key))


class _EncodedUsage(msgspec.Struct):
    """The stored form of `OpenUsage`: its series and pods are lists of encoded parts."""

    series: msgspec.Raw = msgspec.Raw(b"[]")
    pods: msgspec.Raw = msgspec.Raw(b"[]")
    namespaces: dict[str, dict[str, str]] = {}
    nodes: dict[str, str] = {}
    days: dict[int, DayUsage] = {}


_kept = msgspec.json.Decoder(_EncodedUsage)
_series = msgspec.json.Decoder(dict[str, tuple[int, int]])
_pods = msgspec.json.Decoder(dict[str, KnownPod])


def encode_usage(usage: OpenUsage) -> bytes:
    document = _EncodedUsage(
        series=_encode_mapping_in_parts(usage.series),
        pods=_encode_mapping_in_parts(usage.pods),
        namespaces=usage.namespaces,
        nodes=usage.nodes,
        days=usage.days,
    )
    return msgspec.json.encode(document)


def decode_usage(body: bytes) -> OpenUsage:
    """
    Decode a document that `encode_usage` encoded. Documents of older versions have all series and all pods
    in one part.
    """
    document = _kept.decode(body)
    return OpenUsage(
        series=_decode_mapping_from_parts(document.series, _series),
        pods=_decode_mapping_from_parts(document.pods, _pods),
        namespaces=document.namespaces,
        nodes=document.nodes,
        days=document.days,
    )


def _encode_mapping_in_parts(mapping: Mapping[str, object]) -> msgspec.Raw:
    return msgspec.Raw(b"[" + b",".join(map(msgspec.json.encode, _split_into_parts(mapping))) + b"]")


def _split_into_parts(mapping: Mapping[str, _Value]) -> Iterator[dict[str, _Value]]:
    items = iter(mapping.items())
    while part := dict(islice(items, PART)):
        yield part


def _decode_mapping_from_parts(
    raw: msgspec.Raw, decoder: msgspec.json.Decoder[dict[str, _Value]]
) -> dict[str, _Value]:
    merged: dict[str, _Value] = {}
    for part in _parts.decode(raw) if bytes(memoryview(raw)[:1]) == b"[" else [raw]:
        merged |= decoder.decode(part)
    return merged


def add_days(first: DayUsage, second: DayUsage) -> DayUsage:
    total = DayUsage(nodes=first.nodes | second.nodes)
    for day in (first, second):
        _add_amounts_by_key(total.used, day.used)
        _add_amounts_by_key(total.had, day.had)
    return total


def _add_amounts_by_key(totals: dict[str, UsageAmounts], added: Mapping[str, UsageAmounts]) -> None:
    for key, amounts in added.items():
        amounts_before = totals.setdefault(key, [0, 0, 0])
        totals[key] = [sum(pair) for pair in zip(amounts_before, amounts, strict=True)]


def encode_key(values: Sequence[object]) -> str:
    return _encoder.encode(values).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterRules:
    """
    The rules of a meter. `tags` are the labels to store, and `most` is the maximum number of series per cluster.
    """

    tags: Sequence[str]
    most: int
    now_ms: int

    @property
    def labels(self) -> Mapping[str, str]:
        return {_LABEL + _NO_NAME.sub("_", tag): tag for tag in self.tags}


class UsageMeter:
    """
    Adds metric series to `usage`. `taken` counts the added series, and `left_out` the series above the limit.
    """

    def __init__(self, usage: OpenUsage, rules: MeterRules) -> None:
        self.usage = usage
        self.taken = self.left_out = 0
        self.changed: set[int] = set()  # start times of the days whose usage changed, in epoch seconds
        self._rules = rules
        self._labels = rules.labels
        self._takes: Mapping[str, Callable[[MetricSeries], None]] = {
            _CPU_SECONDS: self._add_cpu_series,
            _MEMORY_BYTES: self._add_memory_series,
            _CAPACITY: self._add_capacity_series,
            _REQUESTS: self._add_gpu_request_series,
        }

    def add_series(self, received: Iterable[MetricSeries]) -> None:
        """
        Add the series of one body. Facts about pods are added first, because samples refer to pods.

        Until then, samples wait as plain tuples, because the garbage collector does not examine these.
        """
        samples = []
        for series in received:
            self.taken += 1
            name = series.labels.get(NAME, "")
            if name in self._takes:
                label_values = tuple([series.labels.get(label, "") for label in _OF_SAMPLES])
                samples.append((label_values, tuple(series.samples)))
            elif series.samples:
                self._learn_labels(name, series)
        for label_values, series_samples in samples:
            labels = {label: word for label, word in zip(_OF_SAMPLES, label_values, strict=True) if word}
            self._takes[labels[NAME]](MetricSeries(labels, series_samples))

    def add_nodes_and_forget_ended(self) -> None:
        """Add the node names to the changed days, and forget series and pods that have ended."""
        for day in self.changed:
            self.usage.days[day].nodes |= self.usage.nodes
        usage, oldest = self.usage, self._rules.now_ms - KEPT_MS
        usage.series = {key: last for key, last in usage.series.items() if last[0] >= oldest}
        usage.pods = {key: pod for key, pod in usage.pods.items() if pod.at >= oldest}

    def _learn_labels(self, name: str, metric_series: MetricSeries) -> None:
        labels = metric_series.labels
        namespace = labels.get("namespace", "")
        if name == "kube_pod_info":
            pod = self._update_pod(metric_series)
            pod.workload = _workload_name(labels) or pod.workload
            pod.node = labels.get("node") or pod.node
        elif name in _POD_LABELS:
            self._update_pod(metric_series).tags = self._tags_from_labels(labels)
        elif name in _NAMESPACE_LABELS and namespace:
            self.usage.namespaces[namespace] = self._tags_from_labels(labels)
        elif name == "kube_node_info" and (node := labels.get("node")):
            id = labels.get("provider_id", "").rpartition("/")[2]
            self.usage.nodes |= {node: node, id: node} if id else {node: node}

    def _tags_from_labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        tags = ((tag, labels.get(label)) for label, tag in self._labels.items())
        return {tag: value for tag, value in tags if value}

    def _update_pod(self, metric_series: MetricSeries) -> KnownPod:
        labels = metric_series.labels
        key = encode_key([labels.get("namespace", ""), labels.get("pod", "")])
        pod = self.usage.pods.get(key)
        if pod is None:
            pod = KnownPod()
            if len(self.usage.pods) < self._rules.most:
                self.usage.pods[key] = pod
        times = [at for at, _ in metric_series.samples if at <= self._latest_accepted_ms]
        pod.at = max([pod.at, *times])
        return pod

    @property
    def _latest_accepted_ms(self) -> int:
        return self._rules.now_ms + AHEAD_MS

    def _add_cpu_series(self, metric_series: MetricSeries) -> None:
        """
        Add the increase of a CPU counter since its previous sample. The counter starts at 0 again when its
        container restarts.
        """
        if not _is_container(metric_series.labels):
            return
        key = _series_key(metric_series.labels, "cpu")
        for at, value in self._new_samples(key, metric_series):
            amount = round(value * _MILLION)
            last_sample = self._replace_last_sample(key, at, amount)
            if last_sample is not None:
                rise = amount - last_sample[1] if amount >= last_sample[1] else amount
                self._add_amount(self._workload_of_series(metric_series), CPU, rise, last_sample[0], at)

    def _add_memory_series(self, metric_series: MetricSeries) -> None:
        if _is_container(metric_series.labels):
            self._add_gauge_series(metric_series, MEMORY, self._workload_of_series(metric_series))

    def _add_capacity_series(self, metric_series: MetricSeries) -> None:
        kind = _KINDS.get(metric_series.labels.get("resource", ""))
        node = metric_series.labels.get("node", "")
        if kind is not None and node:
            self._add_gauge_series(metric_series, kind, node)

    def _add_gpu_request_series(self, metric_series: MetricSeries) -> None:
        if _KINDS.get(metric_series.labels.get("resource", "")) != GPU:
            return
        running = self.usage.series.get(_series_key(metric_series.labels, _MEMORY_BYTES))
        if running is None:
            return
        samples = [(at, value) for at, value in metric_series.samples if at <= running[0] + GAP_MS]
        self._add_gauge_series(
            metric_series._replace(samples=samples), GPU, self._workload_of_series(metric_series)
        )

    def _add_gauge_series(self, metric_series: MetricSeries, kind: int, place: WorkloadOnNode | str) -> None:
        key = _series_key(metric_series.labels, metric_series.labels[NAME])
        scale = 1 if kind == MEMORY else 1000
        for at, value in self._new_samples(key, metric_series):
            last_sample = self._replace_last_sample(key, at, round(value * scale))
            if last_sample is not None:
                until = min(at, last_sample[0] + GAP_MS)
                self._add_amount(
                    place, kind, last_sample[1] * (until - last_sample[0]), last_sample[0], until
                )

    def _new_samples(self, key: str, metric_series: MetricSeries) -> Iterator[tuple[int, float]]:
        last = self.usage.series.get(key)
        newest = self._rules.now_ms - OLDEST_MS if last is None else last[0]
        for at, value in sorted(metric_series.samples):
            is_sound = isfinite(value) and value >= 0
            if newest < at <= self._latest_accepted_ms and is_sound:
                newest = at
                yield at, value

    def _replace_last_sample(self, key: str, at: int, value: int) -> tuple[int, int] | None:
        samples = self.usage.series
        last_sample = samples.get(key)
        if last_sample is None and len(samples) >= self._rules.most:
            self.left_out += 1
            return None
        samples[key] = at, value
        return last_sample

    def _workload_of_series(self, metric_series: MetricSeries) -> WorkloadOnNode:
        labels, pod = metric_series.labels, self._update_pod(metric_series)
        namespace = labels.get("namespace", "")
        tags = self.usage.namespaces.get(namespace, {}) | pod.tags
        node = labels.get("node") or pod.node
        workload = pod.workload or _workload_in_pod_name(labels.get("pod", ""))
        return WorkloadOnNode(node, namespace, workload, tags)

    def _add_amount(self, place: WorkloadOnNode | str, kind: int, amount: int, start: int, end: int) -> None:
        """
        Add an amount of `kind` (CPU, MEMORY or GPU) to the days of its time span in milliseconds. `place` is
        the workload that used it, or the name of the node whose capacity it is.
        """
        for day, part in split_by_day(amount, start, end):
            day_usage = self.usage.days.setdefault(day, DayUsage())
            if isinstance(place, str):
                amounts = day_usage.had.setdefault(place, [0, 0, 0])
            else:
                amounts = day_usage.used.setdefault(_place_key(place, day_usage), [0, 0, 0])
            amounts[kind] += part
            self.changed.add(day)


def split_by_day(amount: int, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Divide an amount between the UTC days of a time span in milliseconds. The parts add up exactly."""
    assigned, at = 0, start
    while at < end:
        midnight = (at // DAY_MS + 1) * DAY_MS
        until = min(midnight, end)
        cumulative = amount * (until - start) // (end - start)
        if cumulative > assigned:
            yield at // DAY_MS * (DAY_MS // 1000), cumulative - assigned
        assigned, at = cumulative, until


def _place_key(place: WorkloadOnNode, day_usage: DayUsage) -> str:
    key = place.key
    if key in day_usage.used or len(day_usage.used) < MAX_PLACES:
        return key
    return WorkloadOnNode(place.node, "", OTHER, {}).key


def _is_container(labels: Mapping[str, str]) -> bool:
    """
    Return whether a series is about a container, and not about a whole pod or node or a pod's pause
    container.
    """
    return labels.get("container", "") not in ("", "POD") and bool(labels.get("pod"))


def _series_key(labels: Mapping[str, str], kind: str) -> str:
    """Return the key of a measured value, so that a series from two senders counts once."""
    names = ("namespace", "pod", "container", "cpu", "resource")
    values = [labels.get(name, "") for name in names] if labels.get("pod") else _node_and_resource(labels)
    if kind == _MEMORY_BYTES:
        values = [*values[:3], "", ""]
    return encode_key([kind, *values])


def _node_and_resource(labels: Mapping[str, str]) -> list[str]:
    return [labels.get(name, "") for name in ("node", "resource")]


def _workload_name(labels: Mapping[str, str]) -> str:
    kind, name = labels.get("created_by_kind", ""), labels.get("created_by_name", "")
    if name in ("", "<none>"):
        return ""
    return _REPLICA_SET.sub("", name) if kind == "ReplicaSet" else name


def _workload_in_pod_name(pod: str) -> str:
    name = _OF_DEPLOYMENT.sub("", pod)
    return name if name != pod else _OF_SET.sub("", pod)

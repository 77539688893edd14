"""
The OTLP message classes with one change: what an item holds of messages stays encoded, each a run of bytes.

Protobuf's own objects for a key and its value cost more than all else that is done to a span (measured: 10
us of 12 for fifteen attributes), and a message of two bytes takes a hundred in memory. The bytes on the wire
are the same; `protobuf_decoder` reads those that it needs.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FileDescriptor
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

# Of messages within an item; nobody reads exemplars, links, buckets and quantiles.
_ENCODED = frozenset(
    {
        "attributes",
        "body",
        "events",
        "links",
        "exemplars",
        "quantile_values",
        "positive",
        "negative",
        "metadata",
        "entity_refs",
    }
)
_SERVICES = (trace_service_pb2, metrics_service_pb2, logs_service_pb2)


def _build() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name in added:
            return
        added.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        for message in list(copy.message_type):
            _encode(message)
            if message.name == "KeyValue":
                encoded = copy.message_type.add()
                encoded.CopyFrom(message)
                encoded.name = "EncodedKeyValue"
                _encode(encoded, {"value"})
        pool.Add(copy)

    for service in _SERVICES:
        add(service.DESCRIPTOR)
    return pool


def _encode(message: descriptor_pb2.DescriptorProto, names: Collection[str] = _ENCODED) -> None:
    # Nested types (events) keep the classes they have: few of them are read, all of them are checked.
    for field in message.field:
        if field.name in names and field.type == descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"opentelemetry.proto.{name}"))


_pool = _build()

TracesRequest = _message("collector.trace.v1.ExportTraceServiceRequest")
MetricsRequest = _message("collector.metrics.v1.ExportMetricsServiceRequest")
LogsRequest = _message("collector.logs.v1.ExportLogsServiceRequest")
KeyValue = _message("common.v1.KeyValue")
AnyValue = _message("common.v1.AnyValue")
Event = _message("trace.v1.Span.Event")
EncodedKeyValue = _message("common.v1.EncodedKeyValue")
Resource = _message("resource.v1.Resource")
InstrumentationScope = _message("common.v1.InstrumentationScope")
Span = _message("trace.v1.Span")

"""
OpAMP messages: the part of the protocol that Tollhouse reads or writes.

Numbers, names and types are those of opamp.proto and anyvalue.proto of the OpAMP specification 0.18.0
(https://github.com/open-telemetry/opamp-spec, Copyright The OpenTelemetry Authors, Apache License 2.0). All
other fields are unknown fields here: the parser skips them, and no code can read
them. Attribute values are read only if they are scalars.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gateway.core.errors import BadPayload

_FILE = "tollhouse/opamp.proto"
# Each field is `number name type`. A type in capitals is a message, and a star marks a repeated field.
_MESSAGES: Mapping[str, str] = {
    "AnyValue": "1 string_value string, 2 bool_value bool, 3 int_value int64, 4 double_value double",
    "KeyValue": "1 key string, 2 value AnyValue",
    "AgentDescription": "1 identifying_attributes *KeyValue, 2 non_identifying_attributes *KeyValue",
    "ComponentHealth": "1 healthy bool, 3 last_error string, 4 status string, 6 component_health_map *NamedHealth",
    "NamedHealth": "1 key string, 2 value ComponentHealth",  # type of one entry of the map as it is sent
    "AgentDisconnect": "",
    "AgentToServer": (
        "1 instance_uid bytes, 2 sequence_num uint64, 3 agent_description AgentDescription, 4 capabilities uint64, "
        "5 health ComponentHealth, 9 agent_disconnect AgentDisconnect"
    ),
    "Header": "1 key string, 2 value string",
    "Headers": "1 headers *Header",
    "OpAMPConnectionSettings": (
        "1 destination_endpoint string, 2 headers Headers, 4 heartbeat_interval_seconds uint64"
    ),
    "ConnectionSettingsOffers": "1 hash bytes, 2 opamp OpAMPConnectionSettings",
    "RetryInfo": "1 retry_after_nanoseconds uint64",
    "ServerErrorResponse": "1 type int32, 2 error_message string, 3 retry_info RetryInfo",
    "ServerToAgent": (
        "1 instance_uid bytes, 2 error_response ServerErrorResponse, "
        "4 connection_settings ConnectionSettingsOffers, 6 flags uint64, 7 capabilities uint64"
    ),
}

REPORTS_HEARTBEAT, ACCEPTS_OPAMP_SETTINGS = 0x2000, 0x100  # bits of an agent's capabilities
ACCEPTS_STATUS, OFFERS_SETTINGS = 0x1, 0x20  # bits of a server's capabilities
REPORT_FULL_STATE = 0x1  # flag of a response: the agent must send its full state
BAD_REQUEST, UNAVAILABLE = 1, 2  # type numbers of an error response


def _build_pool() -> descriptor_pool.DescriptorPool:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package="opamp.proto.v1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field_name, kind in _parse_protobuf_field_declarations(fields):
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            if kind in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".opamp.proto.v1.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
            if name == "AnyValue":
                field.oneof_index = 0
        if name == "AnyValue":
            message.oneof_decl.add(name="value")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def _parse_protobuf_field_declarations(declarations: str) -> Iterator[tuple[int, str, str]]:
    for field in filter(None, declarations.split(", ")):
        number, name, kind = field.split()
        yield int(number), name, kind


_pool = _build_pool()


def _message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"opamp.proto.v1.{name}"))


AgentToServer = _message_class("AgentToServer")
ServerToAgent = _message_class("ServerToAgent")


def decode_agent_message(body: bytes) -> Any:
    """Decode an AgentToServer message. Raises BadPayload."""
    try:
        message = AgentToServer.FromString(body)
    except DecodeError:
        raise BadPayload("The body is not an AgentToServer message of OpAMP.") from None
    if len(message.instance_uid) != 16:
        raise BadPayload("instance_uid must have 16 bytes.")
    return message

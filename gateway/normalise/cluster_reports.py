"""Reports of a container agent about its cluster: the protobuf messages ClusterStatus and ClusterConfig."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from gateway.core.errors import BadPayload
from spool.clusters import ClusterCheck, ReportedCluster

STATES = ("init_started", "init_ok", "init_failed", "pod_started", "pod_stopping", "config_load")

# The fields that are read. All other fields are ignored.
_STATUS = {
    "account": 1,
    "region": 2,
    "name": 3,
    "state": 4,
    "chart_version": 5,
    "agent_version": 6,
    "validator_version": 8,
    "k8s_version": 9,
    "checks": 10,
    "provider_id": 11,
    "release_name": 12,
    "namespace": 13,
}
_CONFIG = {
    "account": 1,
    "region": 2,
    "namespace": 3,
    "provider_id": 4,
    "name": 5,
    "k8s_version": 6,
    "release_name": 7,
    "chart_version": 8,
    "agent_version": 9,
}
_CHECK = {"name": 1, "passing": 2, "error": 3}
_Field = descriptor_pb2.FieldDescriptorProto
_TYPES = {"state": _Field.TYPE_INT32, "passing": _Field.TYPE_BOOL, "checks": _Field.TYPE_MESSAGE}
_COMMON = tuple(name for name in _CONFIG if name in _STATUS)


def read_cluster_status(body: bytes) -> ReportedCluster:
    """Read a status. Raises BadPayload if the body is not a ClusterStatus, or names no cluster."""
    message = _parse_message(ClusterStatus, body, "ClusterStatus")
    checks = tuple(
        ClusterCheck(name=check.name, passing=check.passing, error=check.error) for check in message.checks
    )
    state = STATES[message.state - 1] if 1 <= message.state <= len(STATES) else ""
    facts = {name: getattr(message, name) for name in _COMMON}
    return ReportedCluster(**facts, state=state, validator_version=message.validator_version, checks=checks)


def read_cluster_config(body: bytes) -> ReportedCluster:
    """Read a configuration. Raises BadPayload if the body is not a ClusterConfig, or names no cluster."""
    message = _parse_message(ClusterConfig, body, "ClusterConfig")
    return ReportedCluster(**{name: getattr(message, name) for name in _COMMON})


def _parse_message(type: Any, body: bytes, name: str) -> Any:
    try:
        message = type.FromString(body)
    except DecodeError as error:
        raise BadPayload(f"The body is not a {name} message.") from error
    if not message.name:
        raise BadPayload(f"The {name} message names no cluster.")
    return message


def _build_message_types() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="container_agent.proto", package="container", syntax="proto3"
    )
    for message_name, fields in (("Check", _CHECK), ("Status", _STATUS), ("Config", _CONFIG)):
        message = file.message_type.add(name=message_name)
        for name, number in fields.items():
            field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
            field.type = _TYPES.get(name, _Field.TYPE_STRING)
            if name == "checks":
                field.label, field.type_name = _Field.LABEL_REPEATED, ".container.Check"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("Status", "Config")
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"container.{name}"))
        for name in names
    }


_TYPES_BY_NAME = _build_message_types()
ClusterStatus, ClusterConfig = _TYPES_BY_NAME["Status"], _TYPES_BY_NAME["Config"]

"""Addresses of the agent that measures a cluster: files of container metrics, remote write, and statuses."""

from __future__ import annotations

from gateway.http.address import WRITE, Address
from gateway.http.answers import JSON, PROTOBUF
from gateway.http.key_carriage import AS_BEARER
from gateway.receivers import container_metrics
from gateway.schemas import BOOLEAN, BYTES, OBJECT, TEXT, Schema, array, closed
from spool.registry.scopes import (
    ABANDON_CONTAINER_FILES,
    CONTAINER_STATUS,
    REMOTE_WRITE_CONTAINERS,
    UPLOAD_CONTAINER_FILES,
)

_BASE = "/v1/container-metrics"
_NOTHING = closed({})
_ADDRESSES: Schema = {"type": "object", "additionalProperties": TEXT}
_CLUSTER = container_metrics.CLUSTER_PARAMETERS
_AGENT = container_metrics.AGENT_PARAMETERS

ROWS = (
    Address(
        methods=("POST",),
        path=_BASE + "/upload",
        name="announce_container_files",
        summary="An address for each file that a cluster's agent wants to send",
        handler=container_metrics.announce_files,
        endpoint="container-metrics/upload",
        scope=UPLOAD_CONTAINER_FILES,
        body=container_metrics.UploadAnnouncement,
        takes={JSON: container_metrics.UploadAnnouncement},
        gives={200: {JSON: _ADDRESSES}},
        checks_query=True,
        required=_CLUSTER,
        optional=_AGENT,
    ),
    Address(
        methods=("PUT",),
        path=_BASE + "/files/{token}",
        name="put_container_file",
        summary="The bytes of one file, at the address that was given out for it; without a key",
        handler=container_metrics.put_file,
        endpoint="container-metrics/files",
        takes={"application/octet-stream": BYTES},
        gives={200: {JSON: _NOTHING}},
        refusals=(400, 403, 413, 415, 500, 503),
        checks_query=True,
    ),
    Address(
        methods=("POST",),
        path=_BASE + "/abandon",
        name="abandon_container_files",
        summary="The agent does not have these files any more",
        handler=container_metrics.abandon_files,
        endpoint="container-metrics/abandon",
        scope=ABANDON_CONTAINER_FILES,
        body=container_metrics.Abandonments,
        takes={JSON: array(closed({"reference_id": TEXT}, {"reason": TEXT}))},
        gives={200: {JSON: _NOTHING}},
        checks_query=True,
        required=_CLUSTER,
        optional=_AGENT,
    ),
    Address(
        methods=("POST",),
        path=_BASE + "/status",
        name="report_container_status",
        summary="What a cluster says of itself; with `type=configLoad` its configuration",
        handler=container_metrics.report_status,
        endpoint="container-metrics/status",
        scope=CONTAINER_STATUS,
        key=AS_BEARER,
        check=container_metrics.check_protobuf,
        body=bytes,
        max_bytes=container_metrics.MAX_STATUS_BYTES,
        takes={PROTOBUF: BYTES},
        gives={200: {JSON: _NOTHING}},
        checks_query=True,
        optional=("type", *_CLUSTER, *_AGENT),
    ),
    Address(
        methods=("GET",),
        path=_BASE + "/status",
        name="show_container_status",
        summary="Whether the last status of a cluster was taken from this key",
        handler=container_metrics.show_status,
        endpoint="container-metrics/status",
        scope=CONTAINER_STATUS,
        key=AS_BEARER,
        gives={200: {JSON: closed({"taken": BOOLEAN})}},
        refusals=(400, 401, 403, 415, 429, 500, 503),
        checks_query=True,
        required=_CLUSTER,
    ),
    Address(
        methods=("GET",),
        path=_BASE + "/config",
        name="show_container_config",
        summary="What was set for the agent of a cluster, for the key that reports it; with `ETag`",
        handler=container_metrics.show_config,
        endpoint="container-metrics/config",
        scope=CONTAINER_STATUS,
        key=AS_BEARER,
        gives={200: {JSON: closed({"version": {"type": ["string", "null"]}, "config": OBJECT})}},
        refusals=(400, 401, 403, 404, 415, 429, 500, 503),
        checks_query=True,
        required=_CLUSTER,
        optional=("applied", "failed"),
    ),
    Address(
        methods=("POST",),
        path=_BASE,
        name="write_container_metrics",
        summary="Prometheus remote write, passed on as it comes",
        handler=container_metrics.write_remote,
        endpoint="container-metrics",
        scope=REMOTE_WRITE_CONTAINERS,
        check=container_metrics.check_protobuf,
        passes=(container_metrics.SNAPPY,),
        takes={PROTOBUF: BYTES},
        gives={200: {JSON: _NOTHING}},
        refusals=WRITE,
        checks_query=True,
        required=_CLUSTER,
        optional=_AGENT,
    ),
)

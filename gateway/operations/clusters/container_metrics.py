"""
Receivers for container metrics of a cluster's agent: file uploads, bodies of Prometheus remote write, and statuses.

The sender learns only whether its data was accepted, and nothing else about the organization. A 200 is sent
after the bytes and their row are on disk.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple, Protocol

import msgspec
from aiohttp import web
from msgspec import Meta
from yarl import URL

from gateway.clusters.agent_config import check_reported_failure, hash_config, parse_reported_version
from gateway.clusters.clusters import Clusters
from gateway.core.errors import BadPayload, Refusal
from gateway.core.schemas import (
    BOOLEAN,
    BYTES,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    array_schema,
    closed_object_schema,
    schema_with_description,
)
from gateway.http import bodies
from gateway.http.address import AS_BEARER, WRITE, ApiAddress
from gateway.http.answers import JSON, PROTOBUF, json_response
from gateway.http.requests import Result
from gateway.normalise import cluster_reports
from gateway.operations.requests.key_requests import KeyRequest
from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles, ContainerUpload, FileTooLarge, UploadOfStoredFile
from spool.container_files.values import (
    ABANDONED,
    AnnouncedFile,
    ClusterIdentity,
    ContainerFile,
    ContainerSender,
)
from spool.errors import KeyEnded, NotThere
from spool.installation import derive_secret
from spool.log.partial_reports import ExpectedVersion
from spool.registry.field_notes import words
from spool.registry.scopes import (
    ABANDON_CONTAINER_FILES,
    CONTAINER_STATUS,
    REMOTE_WRITE_CONTAINERS,
    UPLOAD_CONTAINER_FILES,
)

CLUSTER_PARAMETERS = ("cluster_name", "cloud_account_id", "region")
AGENT_PARAMETERS = ("count", "shipper_id", "expiration")
SHIPPER_ID, AGENT_VERSION = "X-CloudZero-Shipper-ID", "X-CloudZero-Version"
REPLAY = "X-CloudZero-Replay"
CONFIG_STATUS, CONFIG_LOAD = "X-Cloudzero-Config-Status", "configLoad"
SNAPPY = "snappy"
MAX_FILES = 200
MAX_TEXT = 256
MAX_STATUS_BYTES = 1024 * 1024
EXPIRATION_S, LONGEST_EXPIRATION_S = 3600, 7 * 86_400
# maximum bytes of the value of the replay header, because many clients read at most 8 KiB of a header
MAX_REPLAY_BYTES = 7000

Reference = Annotated[str, Meta(min_length=1, max_length=512)]
Text = Annotated[str, Meta(max_length=MAX_TEXT)]


class ClusterReportServices(Protocol):
    """What agents of clusters need. `secret` is that of the installation."""

    clusters: Clusters
    reports: ClusterTable
    container_files: ContainerFiles
    secret: bytes

    async def upload_expectations_of_key(self, key_number: int, /) -> Sequence[ExpectedVersion]:
        """Return conditions for requests to an upload address. Raises KeyEnded if its key has ended."""


class FileAnnouncement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reference_id: Annotated[Reference, words("The name of the file.")]
    sha_256: Annotated[
        Annotated[str, Meta(pattern="^[0-9A-Fa-f]{64}$")] | None,
        words("The SHA-256 digest of the file, in hexadecimal."),
    ] = None
    size: Annotated[Annotated[int, Meta(ge=0, le=2**53)] | None, words("The size of the file in bytes.")] = (
        None
    )


class UploadAnnouncement(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    shipperId: Annotated[Text, words("The agent that sends the files.")] = ""
    files: Annotated[list[FileAnnouncement], words("The files to send."), Meta(max_length=MAX_FILES)] = []


class Abandonment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    reference_id: Reference
    reason: Text = ""


Abandonments = Annotated[list[Abandonment], Meta(max_length=1000)]

_BASE = "/v1/container-metrics"
_TAKEN = {200: {JSON: closed_object_schema({})}}


def check_protobuf(request: web.Request) -> None:
    """Raise Refusal 415 if the body's stated media type is not protobuf."""
    if "Content-Type" in request.headers and request.content_type not in (
        PROTOBUF,
        "application/protobuf",
        "application/octet-stream",
    ):
        raise Refusal(415, "unsupported_media_type", f"This address accepts only {PROTOBUF}.")


@ApiAddress(
    methods=("POST",),
    path=_BASE + "/upload",
    name="announce_container_files",
    summary="Request an upload address for each file of a cluster's agent",
    endpoint="container-metrics/upload",
    scope=UPLOAD_CONTAINER_FILES,
    gives={200: {JSON: {**OBJECT, "additionalProperties": TEXT}}},
    required=CLUSTER_PARAMETERS,
    optional=AGENT_PARAMETERS,
)
async def announce_files(request: KeyRequest[ClusterReportServices, UploadAnnouncement]) -> Result:
    """
    Return an upload address for every file. A header contains new addresses for files that are still missing.
    """
    identity, sender = (
        await _record_contact_of_named_cluster(request),
        _container_sender(request, request.body.shipperId),
    )
    _whole_number_parameter(request.http, "count", default=0, maximum=2**31)
    lasts_s = _whole_number_parameter(
        request.http, "expiration", default=EXPIRATION_S, maximum=LONGEST_EXPIRATION_S
    )
    files = _container_files(request)
    expires_at = request.receivers.clock.now() + max(1, lasts_s)
    announced = [
        AnnouncedFile(reference=file.reference_id, size=file.size, sha256=file.sha_256)
        for file in request.body.files
    ]
    rows = await files.announce_files(identity, announced, sender, expires_at=expires_at)
    response = json_response({row.reference: _upload_address(request, row, expires_at) for row in rows})
    announced_ids = {row.id for row in rows}
    missing = [
        file
        for file in await files.missing_files(identity, key=sender.key, limit=MAX_FILES)
        if file.id not in announced_ids
    ]
    replay = _missing_files_header(request, missing, expires_at)
    if replay:
        response.headers[REPLAY] = replay
    return response


@ApiAddress(
    methods=("PUT",),
    path=_BASE + "/files/{token}",
    name="put_container_file",
    summary="Upload one file to the address that was issued for it; needs no key",
    endpoint="container-metrics/files",
    takes={"application/octet-stream": BYTES},
    gives=_TAKEN,
    refusals=(400, 403, 413, 415, 500, 503),
)
async def put_file(request: KeyRequest[ClusterReportServices, None]) -> Result:
    """
    Store the bytes of an announced file. The signed address replaces the key.

    The address becomes invalid together with the key that requested it.
    """
    address = verify_upload_address_token(
        _upload_address_secret(request), request.path_parameter("token"), now=request.receivers.clock.now()
    )
    try:
        expects = (
            () if address.key is None else await request.services.upload_expectations_of_key(address.key)
        )
        await _store_upload(request, await _container_files(request).begin_upload(address.file, expects))
    except (NotThere, KeyEnded):
        raise expired_upload_address_refusal() from None
    return {}


@ApiAddress(
    methods=("POST",),
    path=_BASE + "/abandon",
    name="abandon_container_files",
    summary="Report that the agent no longer has these files",
    endpoint="container-metrics/abandon",
    scope=ABANDON_CONTAINER_FILES,
    takes={
        JSON: array_schema(
            closed_object_schema(
                {"reference_id": schema_with_description(TEXT, "The name of the file.")},
                {"reason": schema_with_description(TEXT, "Why the agent gives the file up.")},
            )
        )
    },
    gives=_TAKEN,
    required=CLUSTER_PARAMETERS,
    optional=AGENT_PARAMETERS,
)
async def abandon_files(request: KeyRequest[ClusterReportServices, Abandonments]) -> Result:
    reasons = {abandonment.reference_id: abandonment.reason for abandonment in request.body}
    await _container_files(request).mark_files_abandoned(
        _cluster_identity(request), reasons, _container_sender(request, "")
    )
    return {}


@ApiAddress(
    methods=("POST",),
    path=_BASE + "/status",
    name="report_container_status",
    summary="Report the status of a cluster, or with `type=configLoad` its configuration",
    endpoint="container-metrics/status",
    scope=CONTAINER_STATUS,
    key=AS_BEARER,
    check=check_protobuf,
    max_bytes=MAX_STATUS_BYTES,
    takes={PROTOBUF: BYTES},
    gives=_TAKEN,
    optional=("type", *CLUSTER_PARAMETERS, *AGENT_PARAMETERS),
)
async def report_status(request: KeyRequest[ClusterReportServices, bytes]) -> Result:
    """Store a cluster's report about itself, and forward it unchanged."""
    http = request.http
    type = http.query.get("type")
    if type not in (None, CONFIG_LOAD):
        raise Refusal(400, "invalid_parameter", f"type must be {CONFIG_LOAD} or left out")
    is_config = type is not None or CONFIG_STATUS in http.headers
    read = cluster_reports.read_cluster_config if is_config else cluster_reports.read_cluster_status
    cluster = read(request.body)
    await request.services.reports.store_report(
        cluster, expected_versions=request.bearer.expects, key=request.bearer.name
    )
    identity = ClusterIdentity(cluster.account, cluster.region, cluster.name)
    kind = "config" if is_config else "status"
    await _container_files(request).put_status(
        identity, kind, _container_sender(request, ""), request="", body=request.body
    )
    return {}


@ApiAddress(
    methods=("GET",),
    path=_BASE + "/status",
    name="show_container_status",
    summary="Check whether the last status of a cluster was accepted from this key",
    endpoint="container-metrics/status",
    scope=CONTAINER_STATUS,
    key=AS_BEARER,
    gives={
        200: {
            JSON: closed_object_schema(
                {"taken": schema_with_description(BOOLEAN, "Whether the last status was accepted.")}
            )
        }
    },
    refusals=(400, 401, 403, 415, 429, 500, 503),
    required=CLUSTER_PARAMETERS,
)
async def show_container_status(request: KeyRequest[ClusterReportServices, None]) -> Result:
    """Return only whether the last status of a cluster was accepted from this key."""
    return {
        "taken": await _container_files(request).has_newest_status(
            _cluster_identity(request), key=request.bearer.name
        )
    }


@ApiAddress(
    methods=("GET",),
    path=_BASE + "/config",
    name="show_container_config",
    summary="Show the agent configuration of a cluster, only to the key that reports the cluster; with `ETag`",
    endpoint="container-metrics/config",
    scope=CONTAINER_STATUS,
    key=AS_BEARER,
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "version": schema_with_description(
                        TEXT_OR_NULL, "The version of the configuration, or null."
                    ),
                    "config": schema_with_description(OBJECT, "The configuration of the agent."),
                }
            )
        }
    },
    refusals=(400, 401, 403, 404, 415, 429, 500, 503),
    required=CLUSTER_PARAMETERS,
    optional=("applied", "failed"),
)
async def show_config(request: KeyRequest[ClusterReportServices, None]) -> web.Response:
    """
    Return the settings of a cluster's agent to the key that reports the cluster, or 304 if the agent has them.

    `applied` is the version that the agent runs, and `failed` is the reason why it could not apply the wanted
    version. Raises NotThere for any other cluster, because a key may read only the settings of the cluster
    that it reports.
    """
    identity = _cluster_identity(request)
    cluster = request.services.clusters.table.find_by_name(identity.account, identity.region, identity.name)
    if cluster is None or not await _container_files(request).has_newest_status(
        identity, key=request.bearer.name
    ):
        raise NotThere("this key has not reported such a cluster")
    applied = request.http.query.get("applied")
    if applied is not None:
        failed = check_reported_failure(request.http.query.get("failed", ""))
        await request.services.clusters.store_config_report(
            cluster, applied=parse_reported_version(applied), failed=failed
        )
    version = hash_config(cluster.config)
    headers = {"ETag": f'"{version or "none"}"', "Cache-Control": "private, no-cache"}
    if request.http.headers.get("If-None-Match", "").removeprefix("W/") == headers["ETag"]:
        return web.Response(status=304, headers=headers)
    response = json_response({"version": version, "config": dict(cluster.config)})
    response.headers.update(headers)
    return response


@ApiAddress(
    methods=("POST",),
    path=_BASE,
    name="write_container_metrics",
    summary="Send Prometheus remote write, which is forwarded unchanged",
    endpoint="container-metrics",
    scope=REMOTE_WRITE_CONTAINERS,
    check=check_protobuf,
    passes=(SNAPPY,),
    takes={PROTOBUF: BYTES},
    gives=_TAKEN,
    refusals=WRITE,
    required=CLUSTER_PARAMETERS,
    optional=AGENT_PARAMETERS,
)
async def store_prometheus_remote_write(request: KeyRequest[ClusterReportServices, None]) -> Result:
    """Store a body of Prometheus remote write. It is forwarded unchanged."""
    http = request.http
    if http.headers.get("Content-Encoding", "").strip().lower() != SNAPPY:
        raise Refusal(
            415,
            "unsupported_encoding",
            "Remote write must be compressed: send it with Content-Encoding snappy.",
        )
    headers = {
        name: http.headers[name]
        for name in ("Content-Type", "X-Prometheus-Remote-Write-Version")
        if name in http.headers
    }
    headers_json = msgspec.json.encode(headers).decode()
    upload = await _container_files(request).begin_remote_write(
        await _record_contact_of_named_cluster(request), _container_sender(request, ""), request=headers_json
    )
    await _store_upload(request, upload, min_bytes=1)
    return web.Response(status=200, body=b"{}", content_type="application/json")


async def _store_upload(
    request: KeyRequest[ClusterReportServices, None],
    upload: ContainerUpload | UploadOfStoredFile,
    *,
    min_bytes: int = 0,
) -> None:
    """Receive and store an upload, unless it is a repeat. If it ends early, delete the partial data."""
    try:
        await _receive_body(request, upload)
        if upload.size < min_bytes:
            raise BadPayload("The body is empty.")
        await upload.store_if_new()
    except BaseException:
        await upload.discard_upload()
        raise


async def _receive_body(
    request: KeyRequest[ClusterReportServices, None], upload: ContainerUpload | UploadOfStoredFile
) -> None:
    max_bytes = _container_files(request).settings.max_file_bytes
    received = 0

    async def check_size_and_write_piece(piece: bytes) -> None:
        nonlocal received
        received += len(piece)
        if received > max_bytes:
            raise FileTooLarge(f"it is larger than {max_bytes} bytes (container.max_file_bytes)")
        await upload.write(piece)

    try:
        length = request.http.content_length
        if length is not None and length > max_bytes:
            raise FileTooLarge(f"it is larger than {max_bytes} bytes (container.max_file_bytes)")
        await bodies.forward_body(
            request.http,
            request.share,
            check_size_and_write_piece,
            min_rate=request.receivers.min_upload_rate,
        )
    except FileTooLarge as error:
        raise Refusal(413, "file_too_large", f"The file was rejected: {error}.") from error


def _container_files(request: KeyRequest[ClusterReportServices, Any]) -> ContainerFiles:
    return request.services.container_files


def _upload_address_secret(request: KeyRequest[ClusterReportServices, Any]) -> bytes:
    return derive_upload_address_secret(request.services.secret)


def _cluster_identity(request: KeyRequest[ClusterReportServices, Any]) -> ClusterIdentity:
    query = request.http.query
    missing = [name for name in CLUSTER_PARAMETERS if not query.get(name)]
    if missing:
        raise Refusal(400, "missing_parameter", f"the query lacks {', '.join(missing)}")
    name, account, region = (query[name] for name in CLUSTER_PARAMETERS)
    if max(map(len, (name, account, region))) > MAX_TEXT:
        raise Refusal(
            400,
            "invalid_parameter",
            f"{', '.join(CLUSTER_PARAMETERS)} may have at most {MAX_TEXT} characters each",
        )
    return ClusterIdentity(account, region, name)


async def _record_contact_of_named_cluster(
    request: KeyRequest[ClusterReportServices, Any],
) -> ClusterIdentity:
    """Return the cluster that the query names. Raises Refusal 403 if an operator disabled it."""
    identity = _cluster_identity(request)
    await request.services.clusters.record_data_from_cluster(
        identity.account, identity.region, identity.name, request.bearer
    )
    return identity


def _container_sender(request: KeyRequest[ClusterReportServices, Any], shipper: str) -> ContainerSender:
    http = request.http
    shipper_id = http.headers.get(SHIPPER_ID) or http.query.get("shipper_id") or shipper
    version = http.headers.get(AGENT_VERSION, "")
    bearer = request.bearer
    return ContainerSender(
        key=bearer.name,
        shipper=shipper_id[:MAX_TEXT],
        agent_version=version[:MAX_TEXT],
        expects=bearer.expects,
    )


def _whole_number_parameter(http: web.Request, name: str, *, default: int, maximum: int) -> int:
    text = http.query.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and int(text) <= maximum):
        raise Refusal(400, "invalid_parameter", f"{name} must be a whole number of at most {maximum}")
    return int(text)


def _upload_address(
    request: KeyRequest[ClusterReportServices, Any], file: ContainerFile, expires_at: float
) -> str:
    """
    Return the upload address of a file. Its path replaces the last segment of the request's path.

    Its host is the configured host, or the host that the agent used.
    """
    token = signed_upload_address_token(
        _upload_address_secret(request), file.id, expires_at, key=request.bearer.number
    )
    base = _container_files(request).settings.upload_url or str(_request_origin(request.http))
    path = request.http.path.rpartition("/")[0]
    return f"{base.rstrip('/')}{path}/files/{token}"


def _request_origin(http: web.Request) -> URL:
    try:
        return http.url.origin()
    except ValueError as error:
        raise BadPayload("The header Host is not a valid host.") from error


def _missing_files_header(
    request: KeyRequest[ClusterReportServices, Any], missing: Sequence[ContainerFile], expires_at: float
) -> str:
    """Return the header with as many missing files as fit. The next answer contains the rest."""
    entries: list[dict[str, str]] = []
    size = 2
    for file in missing:
        if file.state == ABANDONED:
            continue
        entry = {"ref_id": file.reference, "url": _upload_address(request, file, expires_at)}
        size += len(msgspec.json.encode(entry).decode()) + 1
        if size > MAX_REPLAY_BYTES:
            break
        entries.append(entry)
    return msgspec.json.encode(entries).decode() if entries else ""


_SIZE = 16
_TOKEN = re.compile(r"([0-9a-f]{32}-([0-9]{1,12})(?:-([0-9]{1,18}))?)-([0-9a-f]{32})")


class VerifiedUploadAddress(NamedTuple):
    """
    The signed last part of an upload address. It replaces the key, for one file and until a time.

    It reveals the number of the key that requested it, but not the number or order of files. No other
    installation accepts it. `key` is the number of the key, or None if the key was not in the key list.
    """

    file: str
    key: int | None


def derive_upload_address_secret(secret: bytes) -> bytes:
    """Derive the secret that signs upload addresses from the installation's secret."""
    return derive_secret(secret, "addresses of container files")


def signed_upload_address_token(secret: bytes, id: str, expires_at: float, *, key: int | None) -> str:
    text = f"{id}-{int(expires_at)}" if key is None else f"{id}-{int(expires_at)}-{key}"
    return f"{text}-{_token_signature(secret, text)}"


def verify_upload_address_token(secret: bytes, token: str, *, now: float) -> VerifiedUploadAddress:
    """Check a token and return its content. Raises Refusal 403 if it is forged or expired."""
    match = _TOKEN.fullmatch(token)
    if match is None or not hmac.compare_digest(_token_signature(secret, match[1]), match[4]):
        raise Refusal(
            403, "invalid_address", "Tollhouse did not issue this address. Announce the file first."
        )
    if int(match[2]) < now:
        raise expired_upload_address_refusal()
    return VerifiedUploadAddress(match[1].partition("-")[0], None if match[3] is None else int(match[3]))


def expired_upload_address_refusal() -> Refusal:
    """
    Return the refusal for an expired address. If the agent finds "Request has expired" in it, it announces
    the file again.
    """
    return Refusal(403, "expired", "Request has expired: announce the file again to get a new address.")


def _token_signature(secret: bytes, text: str) -> str:
    return blake2b(text.encode(), key=secret, digest_size=_SIZE).hexdigest()

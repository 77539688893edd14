from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from exporters.destinations.declaration import DestinationType
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.record import AI_TELEMETRY

if TYPE_CHECKING:
    from exporters.exporter import WholeDeliveryExporter
    from exporters.lake.exporter import LakeContext, LakeExporter
    from exporters.lake.stores import LakeStore
    from exporters.lake.watch import LakeCheckResult
    from exporters.probe import Probe

LINGER_S: Final = 15 * 60.0
USUAL_RECORDS: Final = 250_000
MOST_RECORDS: Final = 1_000_000  # limit of records, because a file is in memory while it is sent
SCHEMES: Final = {"s3": "s3", "gcs": "gs", "azure": "az"}
WITH_FILES: Final = (*SCHEMES, "file")  # types of destinations that write files
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


def _build_lake_type(name: str) -> DestinationType:
    return DestinationType(
        name=name,
        needs="url" if name in SCHEMES else "path",
        build_lake=build_exporter,
        beside=build_destination_check,
        probe=probe_destination,
        probe_for_installation=probe_destination,
        problems=settings_problems,
        secret_lines=3 if name == "s3" else 1,
        linger_s=LINGER_S,
    )


def build_exporter(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, context: LakeContext
) -> LakeExporter:
    from exporters.lake.exporter import LakeExporter
    from exporters.lake.formats import FORMATS
    from exporters.lake.tables import TABLES

    return LakeExporter(
        open_store(settings, secret),
        context,
        destination=settings.name,
        format=FORMATS[settings.format],
        table=TABLES[settings.topics[0]],
        clock=clock,
        max_records=settings.batch_records or USUAL_RECORDS,
        leave_out=settings.leave_out,
    )


def build_destination_check(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, context: LakeContext
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    async def check_store() -> LakeCheckResult:
        from exporters.lake.watch import check_lake_files

        return await check_lake_files(open_store(settings, secret), context, route_name(settings))

    return build_periodic_check(settings, clock, context, check_store)


def build_periodic_check(
    settings: DestinationSettings,
    clock: Clock,
    context: LakeContext,
    check: Callable[[], Awaitable[LakeCheckResult]],
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Return a task that checks periodically and stores the results, or None if checks are off."""
    verdicts = context.verdicts
    if not settings.verify or verdicts is None:
        return None

    async def run_lake_watch() -> None:
        from exporters.lake.watch import LakeWatch  # imported only for the running task

        lake_watch = LakeWatch(
            check=check, verdicts=verdicts, route=route_name(settings), every_s=settings.verify, clock=clock
        )
        await lake_watch.run()

    return run_lake_watch


def with_landing_times(
    exporter: WholeDeliveryExporter, settings: DestinationSettings, clock: Clock, context: LakeContext
) -> WholeDeliveryExporter:
    """Return the exporter so that it also records when deliveries landed, if these times are used."""
    if context.verdicts is None:
        return exporter
    from exporters.lake.exporter import LandingRecorder

    return LandingRecorder(exporter, context.verdicts, route_name(settings), clock)


def route_name(settings: DestinationSettings) -> str:
    return f"{settings.name}/{settings.topics[0]}"


def open_store(settings: DestinationSettings, secret: SecretSource | None) -> LakeStore:
    """Open the store of a data lake. Raises ValueError if its library is not installed."""
    if settings.type not in SCHEMES:
        from exporters.lake.stores import FolderStore

        return FolderStore(Path(settings.path or ""))
    try:
        from exporters.lake.object_store import ObjectStore
    except ImportError as error:
        raise ValueError(f"type {settings.type!r} needs a library: pip install 'tollhouse[lake]'") from error
    return ObjectStore(settings, secret)


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, installation: str | None = None
) -> Probe:
    """Test the store. One small object remains in it."""
    from exporters.errors import SendError
    from exporters.lake.exporter import probe_store
    from exporters.probe import REFUSED, Probe, error_probe

    try:
        return await probe_store(open_store(settings, secret), installation)
    except ValueError as error:
        return Probe(status=REFUSED, words=str(error))
    except SendError as error:
        return error_probe(error)


def has_focus_format(settings: DestinationSettings) -> bool:
    return settings.format.startswith("focus")


def settings_problems(shown_name: str, settings: DestinationSettings) -> Iterator[str]:
    needed = {"parquet": "pyarrow"} if settings.format.endswith("parquet") else {}
    if has_focus_format(settings) and settings.topics != (AI_TELEMETRY,):
        yield f"{shown_name}.topics: format {settings.format!r} accepts only {AI_TELEMETRY}"
    if settings.type in SCHEMES:
        needed["a store"] = "obstore"
        yield from _store_problems(shown_name, settings)
    elif settings.url:
        yield f"{shown_name}.url: type 'file' has a path"
    for feature, library in needed.items():
        if find_spec(library) is None:
            yield f"{shown_name}: {feature} needs {library}: pip install 'tollhouse[lake]'"
    if (settings.batch_records or 0) > MOST_RECORDS:
        yield f"{shown_name}.batch_records: at most {MOST_RECORDS:,}, because a file is held in memory while it is sent"
    if not settings.required:
        yield f"{shown_name}.required: a data lake needs every record, so remove `required = false`"
    if settings.leave_out:
        yield from _left_out_column_problems(shown_name, settings)


def _left_out_column_problems(shown_name: str, settings: DestinationSettings) -> Iterator[str]:
    from exporters.lake.tables import OPTIONAL, left_out_problems

    yield from left_out_problems(shown_name, settings.leave_out, OPTIONAL)


def _store_problems(shown_name: str, settings: DestinationSettings) -> Iterator[str]:
    parts = urlsplit(settings.url)
    scheme = SCHEMES[settings.type]
    if settings.url and (parts.scheme != scheme or not parts.netloc or parts.query or parts.fragment):
        yield f"{shown_name}.url: type {settings.type!r} takes {scheme}://BUCKET/PREFIX"
    if "@" in parts.netloc:
        yield f"{shown_name}.url must not contain a user or a password: remove the part before the @"
    if settings.type == "azure" and not settings.account:
        yield f"{shown_name}.account is required for type 'azure': the name of the storage account"
    if settings.encryption and settings.type != "s3":
        yield f"{shown_name}.encryption is only for type 's3'"
    is_known = settings.encryption in ("", "AES256") or settings.encryption.startswith("aws:kms:")
    if not is_known:
        yield f"{shown_name}.encryption: 'AES256' or 'aws:kms:KEY'"
    if settings.endpoint:
        yield from _endpoint_problems(f"{shown_name}.endpoint", settings.endpoint)


def _endpoint_problems(shown_name: str, endpoint: str) -> Iterator[str]:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield f"{shown_name} must begin with https://"
    elif parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        yield (
            f"{shown_name}: use https://, because http:// sends all records unencrypted and is accepted only "
            "for loopback addresses"
        )
    elif "@" in parts.netloc:
        yield f"{shown_name} must not contain a user or a password: remove the part before the @"


FOLDER: Final = _build_lake_type("file")
S3: Final = _build_lake_type("s3")
GCS: Final = _build_lake_type("gcs")
AZURE: Final = _build_lake_type("azure")

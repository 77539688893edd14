from __future__ import annotations

import re
from collections.abc import Mapping, Set
from importlib.resources import files
from typing import Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from exporters.clickhouse.table import COLUMN_TYPES, TableSums
from exporters.errors import Misconfigured, PostponableError, Retryable, SendError
from exporters.http.client import (
    ClientSettings,
    HttpClient,
    check_certificate_accepted,
    is_refused_certificate,
)
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock

T = TypeVar("T")
TIMEOUT_S: Final = 120.0
_ROW_BYTES: Final = 256  # estimated bytes of a response row
_ANSWER_BYTES: Final = 1024 * 1024
_CODE: Final = re.compile(r"Code: (\d+)")
# Error codes about columns, settings and rights. The server answers them with 500, although waiting does not
# help.
_FAULTS: Final = frozenset({16, 36, 44, 70, 117, 164, 291, 452, 497, 516})
# Settings with which a repeated insert forms the same blocks, whose tokens the server remembers.
_INSERT: Final = {
    "async_insert": "0",
    "max_insert_threads": "1",
    "max_insert_block_size": "1048576",
    "input_format_parallel_parsing": "0",
    "input_format_skip_unknown_fields": "0",
    # a server profile could skip unreadable rows and report success
    "input_format_allow_errors_num": "0",
    "input_format_allow_errors_ratio": "0",
    "date_time_input_format": "best_effort",
    "insert_deduplicate": "1",
    "deduplicate_blocks_in_dependent_materialized_views": "1",
    "insert_quorum": "auto",
    "insert_quorum_parallel": "0",
}


class ClickHouseServer:
    """
    The HTTP interface of a server. Its methods raise Misconfigured if the operator must fix something,
    otherwise Retryable.
    """

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None, *, clock: Clock) -> None:
        parts = urlsplit(settings.url)
        self._root = f"{parts.scheme}://{parts.netloc}/"
        self._database = parts.path.strip("/")
        self._table = settings.table
        self._secret = secret
        self._settings = ClientSettings(
            proxy=settings.proxy,
            ca_file=settings.ca_file,
            cert_file=settings.tls_cert_file,
            key_file=settings.tls_key_file,
            timeout_s=TIMEOUT_S,
            compression="none",
        )
        self._client = HttpClient(self._settings, clock=clock)
        certificates = [settings.ca_file, settings.tls_cert_file, settings.tls_key_file]
        self._certificates = [SecretSource("certificates", file=file) for file in certificates if file]
        self._used_stamps = self._certificate_file_states()

    async def fetch_row_keys(
        self, log_editions: Set[str], first_number: int, last_number: int
    ) -> set[tuple[int, str]]:
        """
        Return the keys of stored rows in a range of numbers. At most one row more than the range has numbers
        is read.
        """
        max_rows = last_number - first_number + 2
        names = ", ".join(f"'{edition}'" for edition in sorted(log_editions))
        query = self._format_query(
            "rows", editions=names, first=first_number, last=last_number, most=max_rows
        )
        settings = {"select_sequential_consistency": "1"}
        answer = await self._request_text(query, settings, max_bytes=max_rows * _ROW_BYTES)
        try:
            lines = [line.split("\t") for line in answer.splitlines()]
            return {(int(number), id) for number, id in lines}
        except ValueError as error:
            raise Retryable(
                "the response of ClickHouse has no rows of number and id", answered=False
            ) from error

    async def insert_rows(self, body: bytes, token: str) -> None:
        """Insert gzip-compressed lines of JSON. The server accepts each token only once."""
        columns = ", ".join(f"`{name}`" for name in COLUMN_TYPES)
        query = self._format_query("insert", columns=columns)
        await self._send_query(
            query, body, {**_INSERT, "insert_deduplication_token": token}, is_compressed=True
        )

    async def fetch_column_types(self) -> dict[str, str]:
        """Return the type of each column by name, {} if the table does not exist."""
        lines = (await self._request_text(self._format_query("columns"), {})).splitlines()
        return {name: type for name, _, type in (line.partition("\t") for line in lines)}

    async def fetch_engine(self) -> str:
        return await self._request_text(self._format_query("engine"), {})

    async def fetch_bounds_and_count(self) -> tuple[int, int, int]:
        """Return the lowest and the highest number and the number of rows, all 0 if the table is empty."""
        answer = await self._request_text(self._format_query("ends"), {"select_sequential_consistency": "1"})
        return _decode_lines(answer, tuple[int, int, int])[0]

    async def fetch_sums(
        self, first_number: int, last_number: int, *, numbers_per_sum: int, since_day: str, until_day: str
    ) -> list[TableSums]:
        query = self._format_query(
            "sums",
            first=first_number,
            last=last_number,
            step=numbers_per_sum,
            since=since_day,
            until=until_day,
        )
        return _decode_lines(
            await self._request_text(query, {"select_sequential_consistency": "1"}), TableSums
        )

    async def close(self) -> None:
        await self._client.close()

    def _format_query(self, name: str, **values: object) -> str:
        text = files(__package__).joinpath(f"{name}.sql").read_text("utf-8")
        return text.strip().format(table=self._table, **values)

    async def _request_text(
        self, query: str, settings: Mapping[str, str], *, max_bytes: int = _ANSWER_BYTES
    ) -> str:
        return (await self._send_query(query, b"", settings, max_bytes=max_bytes)).decode("utf-8", "replace")

    async def _send_query(
        self,
        query: str,
        body: bytes,
        settings: Mapping[str, str],
        *,
        max_bytes: int = _ANSWER_BYTES,
        is_compressed: bool = False,
    ) -> bytes:
        # without `wait_end_of_query`, an error could follow after the status of the response
        parameters = {**settings, "wait_end_of_query": "1", "query": query}
        if self._database:
            parameters["database"] = self._database
        user, _, password = (self._secret.value() if self._secret else "").partition("\n")
        stamps = self._certificate_file_states()
        if stamps != self._used_stamps:
            await self._client.close()
            self._used_stamps = stamps
        try:
            answer = await self._client.send(
                f"{self._root}?{urlencode(parameters)}",
                body,
                content_type="text/plain",
                headers=self._identity_headers(user, password),
                secrets=(password,),
                max_answer_bytes=max_bytes,
                is_compressed=is_compressed,
            )
        except SendError as error:
            if self._settings.cert_file is not None and not self._settings.proxy and error.status is None:
                await check_certificate_accepted(self._root, self._settings)
            raise _pause_or_retry_error(error) from error
        if "x-clickhouse-exception-code" in answer.headers:
            raise Retryable("ClickHouse began to respond, and then failed", answered=False)
        return answer.body

    def _identity_headers(self, user: str, password: str) -> Mapping[str, str]:
        if not user:
            return {}
        if self._settings.cert_file is not None and not password:
            return {"X-ClickHouse-User": user, "X-ClickHouse-SSL-Certificate-Auth": "on"}
        return {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}

    def _certificate_file_states(self) -> list[object]:
        return [source.change_stamp() for source in self._certificates]


def _decode_lines(answer: str, type: type[T]) -> list[T]:
    try:
        return msgspec.json.Decoder(type).decode_lines(answer)
    except msgspec.MsgspecError as error:
        raise Retryable("the response of ClickHouse has no sums of rows", answered=False) from error


def _pause_or_retry_error(error: SendError) -> SendError:
    """
    Return an error after which the route pauses or waits. It never rejects a record, because a delivery is
    inserted as a whole.
    """
    message = str(error)
    code = _CODE.search(message)
    is_fault = (
        not isinstance(error, Retryable)
        or (code is not None and int(code[1]) in _FAULTS)
        or is_refused_certificate(error)
    )
    kind = Misconfigured if is_fault else Retryable
    wait_s = error.retry_after_s if isinstance(error, PostponableError) else None
    return kind(message, answered=False, ambiguous=error.ambiguous, retry_after_s=wait_s)

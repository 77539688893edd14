"""
A destination of type webhook: a signed POST of JSON per delivery.

The body is `{"topic": "...", "records": [...]}`, with canonical records and no shadows. It is not compressed,
because receivers are small programs. `Tollhouse-Timestamp` is the time of sending in seconds since the epoch.
`Tollhouse-Signature` is `v1=` and the HMAC-SHA256 in hex of the timestamp, a full stop and the body, keyed
with the secret.

A 2xx means that the receiver accepted the whole delivery, even if the rest of its response is lost. A
record may be sent again. After no answer, 500, 502 or 504, the same body is sent under the same
`Idempotency-Key`, up to three times for the same status. Later the record may be sent with other records,
but always with the same `id`.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import orjson

from exporters import batch as batches
from exporters.batch import map_with_pauses
from exporters.destinations.declaration import DestinationType
from exporters.errors import DeliveryTooLarge, Retryable, SendError
from exporters.http.client import ClientSettings, HttpClient
from exporters.probe import Probe, error_probe, probe_connection
from exporters.redaction import secrets_in_query
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import Record, record_to_json

TIMESTAMP = "Tollhouse-Timestamp"
SIGNATURE = "Tollhouse-Signature"
MAX_BYTES = 4 * 1024**2


class WebhookExporter:
    in_flight = 4
    max_records = 1000

    def __init__(
        self, client: HttpClient, settings: DestinationSettings, secret: SecretSource | None, *, clock: Clock
    ) -> None:
        self._client = client
        self._clock = clock
        self._url = settings.url
        self._headers = dict(settings.headers)
        self._secret = secret

    async def prepare_delivery_mark(self, delivery: Delivery) -> str | None:
        return None

    async def send(self, delivery: Delivery, entries: Sequence[LogEntry]) -> Settlement:
        batch = batches.build_batch_without_duplicates(delivery, entries)
        if not batch.records:
            return batch.settlement_unless_all_rejected()
        topic = delivery.route.rpartition("/")[2]
        rows = await map_with_pauses(batch.records, _encode_records)
        body = b'{"topic":%b,"records":[%b]}' % (orjson.dumps(topic), b",".join(rows))
        if len(body) > MAX_BYTES and delivery.count > 1:
            raise DeliveryTooLarge(f"{len(body)} bytes, over {MAX_BYTES}", answered=False)
        headers = {**self._headers, **self._signature_headers(body)}
        try:
            await self._client.send(
                self._url,
                body,
                content_type="application/json",
                idempotency_key=delivery.idempotency_key,
                headers=headers,
                secrets=[*headers.values(), *secrets_in_query(self._url)],
            )
        except Retryable as error:
            # a 2xx whose body broke off is a success
            if error.status is None or error.status >= 300:
                raise
        return batch.settlement_unless_all_rejected()

    async def close(self) -> None:
        await self._client.close()

    def _signature_headers(self, body: bytes) -> dict[str, str]:
        timestamp = str(int(self._clock.now()))
        if self._secret is None:
            return {TIMESTAMP: timestamp}
        return {TIMESTAMP: timestamp, SIGNATURE: sign_body(self._secret.value(), timestamp, body)}


def _encode_records(records: Sequence[tuple[Record, float]]) -> bytes:
    return b",".join([orjson.dumps(record_to_json(record)) for record, _ in records])


def sign_body(secret: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a body. Receivers should compare it in constant time."""
    digest = hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    return f"v1={digest}"


def build_exporter(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> WebhookExporter:
    client = HttpClient(ClientSettings(compression="none", may_take_and_fail=True), clock=clock)
    return WebhookExporter(client, settings, secret, clock=clock)


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    """Test only the secret and the connection, because the receiver treats every POST as a delivery."""
    try:
        if secret is not None:
            secret.value()
    except SendError as error:
        return error_probe(error)
    async with HttpClient(ClientSettings(), clock=clock) as client:
        return await probe_connection(client, settings.url)


TYPE = DestinationType(name="webhook", needs="url", build=build_exporter, probe=probe_destination)

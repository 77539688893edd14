from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from exporters.destinations.declaration import DestinationType
from exporters.kafka.messages import AWS, MOST_RECORDS
from exporters.lake.destination import build_periodic_check, route_name, with_landing_times
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock

if TYPE_CHECKING:
    from exporters.exporter import WholeDeliveryExporter
    from exporters.kafka.exporter import Brokers
    from exporters.lake.exporter import LakeContext
    from exporters.lake.watch import CountedNumbers, LakeCheckResult
    from exporters.probe import Probe

USUAL_RECORDS: Final = 1000
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")


def build_exporter(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, context: LakeContext
) -> WholeDeliveryExporter:
    brokers = build_brokers(settings, secret, settings.topics[0])
    from exporters.kafka.exporter import KafkaExporter

    exporter = KafkaExporter(brokers, context.landings, max_records=settings.batch_records or USUAL_RECORDS)
    return with_landing_times(exporter, settings, clock, context)


def build_brokers(settings: DestinationSettings, secret: SecretSource | None, topic: str) -> Brokers:
    """Return the connection to the brokers. Raises ValueError if the library is not installed."""
    try:
        from exporters.kafka.exporter import Brokers
    except ImportError as error:
        raise ValueError("type 'kafka' needs a library: pip install 'tollhouse[kafka]'") from error
    return Brokers(settings, secret, topic=topic)


def build_destination_check(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, context: LakeContext
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    route = route_name(settings)

    async def count_numbers(below_number: int) -> CountedNumbers:
        from exporters.kafka.recount import recount_topic
        from exporters.lake.watch import CountedNumbers

        counted = await recount_topic(settings, secret, route, below_number=below_number)
        return CountedNumbers(counted.differences, counted.settled, counted.absent or 0)

    async def check_topic() -> LakeCheckResult:
        from exporters.lake.watch import compare_record_numbers_with_accounting

        return await compare_record_numbers_with_accounting(context, route, count_numbers)

    return build_periodic_check(settings, clock, context, check_topic)


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    """Test the connection under a separate id, without sending a message."""
    from exporters.errors import SendError
    from exporters.probe import REFUSED, Probe, error_probe

    for topic in settings.topics:
        try:
            brokers = build_brokers(settings, secret, topic)
        except ValueError as error:
            return Probe(status=REFUSED, words=str(error))
        try:
            await brokers.open_and_fetch_progress(f"tollhouse.check.{settings.name}", ())
            await brokers.begin_and_abort_transaction()
        except SendError as error:
            return error_probe(error)
        finally:
            await brokers.close()
    try:
        return await _probe_topics(settings, secret)
    except SendError as error:
        return error_probe(error)


async def _probe_topics(settings: DestinationSettings, secret: SecretSource | None) -> Probe:
    from exporters.kafka.exporter import fetch_topic_setups, topic_problems
    from exporters.probe import OK, REFUSED, Probe

    names = [settings.topic.replace("{topic}", topic) for topic in settings.topics]
    progress = settings.topic.replace("{topic}", "progress")
    setups = await fetch_topic_setups(settings, secret, [*names, progress])
    wrong = [
        problem
        for topic, setup in setups.items()
        for problem in topic_problems(topic, setup, is_progress_topic=topic == progress)
    ]
    if wrong:
        return Probe(status=REFUSED, words="; ".join(wrong))
    shown = "; ".join(f"{topic}: {setups[topic]}" for topic in names if topic in setups)
    how = "transactions are allowed" if settings.transactions else "without transactions, so at least once"
    return Probe(status=OK, words=f"its topics exist ({shown}), {how}")


def settings_problems(shown_name: str, settings: DestinationSettings) -> Iterator[str]:
    if find_spec("aiokafka") is None:
        yield f"{shown_name}: type 'kafka' needs aiokafka: pip install 'tollhouse[kafka]'"
    brokers = settings.url.split(",")
    if settings.url and not all(_is_broker_address(broker) for broker in brokers):
        yield f"{shown_name}.url: type 'kafka' needs HOST:PORT, with commas between brokers"
    elif not settings.tls and any(broker.rpartition(":")[0] not in _LOOPBACK for broker in brokers):
        yield (
            f"{shown_name}.tls: false is accepted only for loopback addresses, because it sends all records "
            "unencrypted"
        )
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        yield f"{shown_name}: set both tls_cert_file and tls_key_file, or neither"
    elif settings.tls_cert_file is not None and not settings.tls:
        yield f"{shown_name}.tls_cert_file needs TLS: remove `tls = false`"
    if (settings.batch_records or 0) > MOST_RECORDS:
        yield (
            f"{shown_name}.batch_records: at most {MOST_RECORDS:,} for type 'kafka', because a transaction is "
            "held in memory"
        )
    if "{topic}" not in settings.topic:
        yield f"{shown_name}.topic must contain {{topic}}, because progress needs its own topic"
    if settings.sasl == "oauthbearer" and settings.identity_token_file is None:
        yield f"{shown_name}.identity_token_file is required for sasl 'oauthbearer': the file with the token"
    if settings.sasl not in ("", "oauthbearer", AWS) and settings.secret_file is None:
        yield f"{shown_name}.secret_file is required for sasl {settings.sasl!r}: user and password, one per line"
    if settings.sasl == AWS and not re.fullmatch(r"[a-z0-9-]+", settings.region):
        yield f"{shown_name}.region is required for sasl {AWS!r}: the region of the cluster"
    if settings.leave_out:
        yield f"{shown_name}.leave_out is only for data lakes and clickhouse: remove it"
    if not settings.required:
        yield f"{shown_name}.required: a topic needs every record, so remove `required = false`"


def _is_broker_address(text: str) -> bool:
    host, _, port = text.strip().rpartition(":")
    return bool(host) and port.isdigit() and "@" not in host and "/" not in host


TYPE = DestinationType(
    name="kafka",
    needs="url",
    build_lake=build_exporter,
    beside=build_destination_check,
    probe=probe_destination,
    problems=settings_problems,
    secret_lines=3,  # maximum lines of the secret, which `aws-msk-iam` needs
)

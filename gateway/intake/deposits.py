"""
The single entry point for all records except AI telemetry: usage events, unit-cost operations and hourly
billing files.

Nothing is priced. Operations and files are stored unchanged, because they are forwarded as received.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.core.errors import Refusal
from gateway.intake.attribution import RecordAttributor
from gateway.people.authentication.bearer import AuthenticatedKey, key_ended_refusal
from spool.errors import KeyEnded, KeyReused
from spool.identity import RecordIdentity, RequestDedupKeys
from spool.log.counted_names import AmountOf
from spool.log.partial_reports import ExpectedVersion
from spool.log.protocols import RecordLog
from spool.log.values import Receipt, Submission
from spool.record import BILLING_DATA, UNIT_COST, USAGE_EVENTS, HourlyBillingFile, UnitCostOperation
from spool.turns.fair_turns import pause_if_step_was_long

if TYPE_CHECKING:
    from gateway.normalise.events import UsageEventBatch


class NonTelemetryIntake:
    """
    Stores records that are not AI telemetry. Each method returns when its records are on disk.

    SpoolFull means that nothing was stored. SpoolUnavailable means the same, except that PostgreSQL may have
    stored a commit that was not confirmed in time.
    """

    def __init__(
        self, record_log: RecordLog, attributor: RecordAttributor, *, amount_of: AmountOf | None = None
    ) -> None:
        self._log = record_log
        self._attribution = attributor
        self._amount_of = amount_of

    def has_request(self, request: RequestDedupKeys) -> bool:
        """
        Return whether this process stored the same request before. If not, another process may have stored
        it.
        """
        return self._log.knows_request(request)

    async def store_events(
        self, events: UsageEventBatch, bearer: AuthenticatedKey, *, request: RequestDedupKeys | None = None
    ) -> Receipt:
        """Store usage events. Labels of the key fill missing tags, and `privacy.emails` applies to ids."""
        for record in events.records:
            self._attribution.apply_to_event(record, bearer.labels)
            self._attribution.erase_if_unconfirmed(record, bearer.lower_installation)
            await pause_if_step_was_long()
        submission = Submission(
            topic=USAGE_EVENTS,
            received=events.received,
            records=events.records,
            identities=events.identities,
            rejected=Counter(reject.reason for reject in events.rejects),
            expects=bearer.expects,
            left_out=events.left_out,
            amount_of=self._amount_of,
            request=request,
        )
        return await self._append_submission(submission)

    async def store_operations(
        self,
        records: Sequence[UnitCostOperation],
        identities: Sequence[RecordIdentity],
        bearer: AuthenticatedKey | None = None,
        *,
        expected_versions: Sequence[ExpectedVersion] = (),
        request: RequestDedupKeys | None = None,
        is_repeat: bool = False,
    ) -> Receipt:
        """
        Store operations. Without a `bearer`, they come from Tollhouse itself. Raises Stale if an expectation fails.
        """
        expected = [*_row_expectations_of_bearer(bearer), *expected_versions]
        return await self._store_records(
            UNIT_COST, records, identities, expected, request=request, is_repeated_request=is_repeat
        )

    async def store_hourly_file(
        self,
        record: HourlyBillingFile,
        identity: RecordIdentity,
        bearer: AuthenticatedKey,
        *,
        request: RequestDedupKeys | None = None,
        is_repeat: bool = False,
    ) -> Receipt:
        """
        Store an hourly file. `is_repeat` means that the same request was stored before. Then Stale is raised
        if the request is no longer known.
        """
        expected = _row_expectations_of_bearer(bearer)
        return await self._store_records(
            BILLING_DATA, [record], [identity], expected, request=request, is_repeated_request=is_repeat
        )

    async def _store_records(
        self,
        topic: str,
        records: Sequence[UnitCostOperation | HourlyBillingFile],
        identities: Sequence[RecordIdentity],
        expected_versions: Sequence[ExpectedVersion],
        *,
        request: RequestDedupKeys | None,
        is_repeated_request: bool,
    ) -> Receipt:
        return await self._append_submission(
            Submission(
                topic=topic,
                received=len(records),
                records=records,
                identities=identities,
                expects=expected_versions,
                request=request,
                is_repeat=is_repeated_request,
            )
        )

    async def _append_submission(self, submission: Submission) -> Receipt:
        try:
            return await self._log.append_submission(submission)
        except KeyEnded as error:
            raise key_ended_refusal() from error
        except KeyReused as error:
            raise _key_reused_refusal() from error


def _key_reused_refusal() -> Refusal:
    message = (
        "Nothing of this body was stored: its idempotency key belongs to another body. Send it with a "
        "new key."
    )
    return Refusal(422, "idempotency_key_reused", message)


def _row_expectations_of_bearer(bearer: AuthenticatedKey | None) -> Sequence[ExpectedVersion]:
    return () if bearer is None else bearer.expects

"""An admitted request of the operator API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from gateway.http.holders.installation import InstallationServices
from gateway.http.holders.people import PeopleServices
from gateway.http.lists import List, Rows
from gateway.http.requests import AdmittedRequest
from gateway.money.costs.reader import CostReader
from gateway.service.errors import Refusal
from spool.ledger.ledger import Ledger
from spool.ledger.slices import SlicedLedger
from spool.registry.operators import Actor, Session
from spool.registry.registry import Registry
from spool.registry.roles import Holder, Rights, holder_of

Services = TypeVar("Services")
Body = TypeVar("Body")
Row = TypeVar("Row")


@dataclass(slots=True, kw_only=True)
class OperatorRequest(AdmittedRequest[Body], Generic[Services, Body]):
    """
    `services` is the holder that the handler names: `OperatorRequest[SpoolServices, None]`. `shared` is what every
    handler may ask, and `whole_ledger` the ledger with the calls of everybody.

    `session` is None on the operator socket, and before anybody is signed in; so is `asker`, the signed-in
    user as a role holder.

    `role` is that of the account or of the link, `rights` what it and the role documents give at this moment.
    """

    services: Services
    shared: InstallationServices
    whole_ledger: Ledger
    actor: Actor
    role: str
    rights: Rights
    session: Session | None = None
    asker: Holder | None = None

    def number(self, name: str) -> int:
        """A part of the path that is a number. Refusal 404 if it is none."""
        text = self.word(name)
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Refusal(404, "not_found", f"{name} is a whole number")
        return int(text)

    def now(self) -> float:
        return self.shared.clock.now()

    @property
    def reads(self) -> CostReader:
        """What the person sees of costs."""
        return CostReader(
            whole=self.whole_ledger, require_registry=self.shared.require_registry, rights=self.rights
        )

    @property
    def is_limited(self) -> bool:
        """True if the person may see only a part of the calls, or none."""
        return self.reads.is_limited

    @property
    def ledger(self) -> SlicedLedger:
        """The ledger as the person may see it."""
        return self.reads.ledger

    @property
    def registry(self) -> Registry:
        """The registry. Refusal 503 with the reason while it cannot be read."""
        return self.shared.require_registry()

    @asynccontextmanager
    async def audited(self, action: str, target: str, after: Mapping[str, object]) -> AsyncIterator[None]:
        """
        Around a change of the spool: its audit row.

        The row comes first, because the two lie in different files: a crash in between leaves a row without a
        change, never a change without a row. A failure gets a row of its own.
        """
        registry = self.registry
        await registry.note(self.actor, action, target, after=after)
        try:
            yield
        except Exception:
            await registry.note(self.actor, f"{action}.failed", target)
            raise

    async def list(self, listed: List[Row], rows: Rows[Row]) -> Mapping[str, object]:
        return await self.page(listed, rows, self.shared)


def holder(people: PeopleServices, session: Session) -> Holder:
    """Return the signed-in user as a role holder."""
    found = holder_of(session)
    return replace(found, has_default_role=is_default(people, session.issuer, found.groups))


def is_default(people: PeopleServices, issuer: str, groups: Collection[str]) -> bool:
    """True if the role of a provider's person with these groups is the default one, by the present settings."""
    oidc = people.oidc
    if oidc is None or not issuer:
        return False
    from gateway.people.authentication.oidc.people import has_default_role

    return has_default_role(groups, oidc.settings)

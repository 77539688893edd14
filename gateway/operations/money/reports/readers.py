"""The current rights of the person for whom a report is written."""

from __future__ import annotations

from collections.abc import Callable, Collection

from spool.errors import NotThere
from spool.registry.operators import SignInSession
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.roles import EVERYTHING, Rights, RoleHolder, session_holder

# a function of an account's issuer and groups that returns whether the account's role is the default role
IsDefault = Callable[[str, Collection[str]], bool]


class NotReadable(Exception):
    """Raised if a person may not receive a scheduled report. The message is the reason."""


async def newest_sign_in_groups(registry: Registry, person: str) -> tuple[str, ...]:
    """Return the person's OpenID groups as of the newest sign-in. Return none if that session has ended."""
    sessions = await registry.operators.live_sessions()
    own_sessions: list[SignInSession] = [
        session for session in sessions if person and session.operator and session.account == person
    ]
    newest = max(own_sessions, key=lambda session: session.created_at, default=None)
    return () if newest is None else session_holder(newest).groups


async def recipient_rights(registry: Registry, person: str, is_default: IsDefault) -> Rights:
    """
    Return a recipient's rights. The recipient "" may see everything. Raises NotReadable if the person has no
    enabled account or may not see costs.
    """
    if not person:
        return EVERYTHING
    try:
        account = await registry.operators.get(person)
    except NotThere:
        raise NotReadable(f"{person} has no account") from None
    if account.disabled:
        raise NotReadable(f"the account of {person} is disabled")
    groups = await newest_sign_in_groups(registry, person)
    has_default_role = is_default(account.issuer, groups)
    rights = registry.roles.holder_rights(
        RoleHolder(person=person, groups=groups, base=account.role, has_default_role=has_default_role)
    )
    if VIEW_COSTS not in rights.permission_sets:
        raise NotReadable(f"{person} may not see costs")
    return rights

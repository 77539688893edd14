"""The operators that people of an OpenID provider are: who is added, changed or refused at a sign-in."""

from __future__ import annotations

from dataclasses import replace

from spool.errors import AlreadyThere, NotAllowed
from spool.registry.operators import NOBODY, Actor, Operator, Person, check_role
from spool.registry.registry_rows import RegistryRows
from spool.registry.roles import Roles


def kept_operator(
    rows: RegistryRows, roles: Roles, person: Person, actor: Actor, now: float, *, takes_accounts: bool
) -> Operator:
    """The operator that a person of a provider is, kept with an audit row of what is new."""
    email = actor.name
    named = replace(person, email=email)
    named = replace(named, role=roles.base_of(named))
    operator = _operator_of(rows, named, email, now, takes_accounts=takes_accounts)
    before = rows.find(Operator, email)
    if before is None:
        after = {"role": operator.role, "issuer": person.issuer}
        rows.add_audit(now, actor, "operator.add", email, after=after)
    elif before.role != operator.role:
        rows.delete_sessions_of(email)
        was, became = {"role": before.role}, {"role": operator.role, "issuer": person.issuer}
        rows.add_audit(now, actor, "operator.role", email, before=was, after=became)
    if before != operator:
        rows.put(operator)
    return operator


def _operator_of(
    rows: RegistryRows, person: Person, email: str, now: float, *, takes_accounts: bool
) -> Operator:
    """The operator that a person of a provider is, as it shall be kept."""
    known = rows.find(Operator, email)
    if known is None:
        return Operator(
            email=email,
            role=check_role(person.role),
            created_by=email,
            created_at=now,
            last_modified=now,
            password=NOBODY,
            issuer=person.issuer,
            subject=person.subject,
        )
    is_same_person = (known.issuer, known.subject) == (person.issuer, person.subject)
    if not is_same_person and (known.issuer or not takes_accounts):
        raise AlreadyThere("this e-mail address belongs to another operator")
    if known.disabled:
        raise NotAllowed("this operator is disabled")
    role = check_role(person.role) if person.decides_role else known.role
    if is_same_person and role == known.role:
        return known
    return replace(known, role=role, issuer=person.issuer, subject=person.subject, last_modified=now)

"""
The person that an ID token names: the operator's name, groups and role by the settings of [oidc]. No I/O.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from hashlib import blake2b
from typing import Any
from urllib.parse import urlsplit

from gateway.configuration.sections import OidcSettings
from gateway.people.authentication.oidc.problems import SignInProblem
from gateway.people.authentication.oidc.tokens import Claims
from spool.errors import Invalid
from spool.registry.operators import ROLES, Person, check_email

MAX_GROUPS = 1000
MAX_GROUP_CHARACTERS = 256
_PLAIN_SUBJECT = re.compile(r"[a-z0-9._-]{1,64}")


def person_from_claims(claims: Claims, settings: OidcSettings, *, refreshes: bool) -> Person:
    """Return the person of checked claims. Raises SignInProblem if the person may not sign in."""
    groups = _read_groups(claims, settings.groups_claim) or ()
    if settings.allowed_groups and not set(groups) & set(settings.allowed_groups):
        raise SignInProblem("group")
    session = claims.get("sid")
    roles = _roles_of_groups(groups, settings)
    return Person(
        email=_person_name(claims, settings),
        role=max(roles, key=ROLES.index, default=settings.default_role),
        decides_role=bool(settings.roles),
        is_mapped=bool(roles),
        issuer=settings.issuer,
        subject=claims["sub"],
        session=session if isinstance(session, str) else "",
        groups=groups,
        refreshes=refreshes,
    )


def has_default_role(groups: Collection[str], settings: OidcSettings) -> bool:
    """
    Return whether the default role applies: the settings map groups to roles, but no group of this person.
    """
    return bool(settings.roles) and not _roles_of_groups(groups, settings)


def _roles_of_groups(groups: Collection[str], settings: OidcSettings) -> list[str]:
    return [settings.roles[group] for group in groups if group in settings.roles]


def _person_name(claims: Claims, settings: OidcSettings) -> str:
    email = _verified_email(claims, settings)
    if settings.allowed_domains:
        if email is None:
            raise SignInProblem("email")
        if email.rpartition("@")[2] not in {domain.lower() for domain in settings.allowed_domains}:
            raise SignInProblem("domain")
    if settings.named_by == "sub":
        subject: str = claims["sub"]
        plain = _PLAIN_SUBJECT.fullmatch(subject)
        local = (
            subject
            if plain
            else blake2b(subject.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        )
        return check_email(f"{local}@{urlsplit(settings.issuer).hostname}")
    if email is None:
        raise SignInProblem("email")
    return email


def _verified_email(claims: Claims, settings: OidcSettings) -> str | None:
    """
    Return the verified address. An unverified one could be anybody's, and would let a person sign in as
    another.
    """
    verified = claims.get("email_verified", settings.assume_verified_email)
    email = claims.get("email")
    if verified not in (True, "true") or not isinstance(email, str):
        return None
    try:
        return check_email(email)
    except Invalid:
        return None


def has_groups_claim(claims: Claims, settings: OidcSettings) -> bool:
    """Return whether the claims state groups, even if it is an empty list."""
    return _read_groups(claims, settings.groups_claim) is not None


def has_verified_email(claims: Claims, settings: OidcSettings) -> bool:
    return _verified_email(claims, settings) is not None


def _read_groups(claims: Claims, claim: str) -> tuple[str, ...] | None:
    claim_value: Any = claims.get(claim)
    if claim_value is None and "." in claim:
        claim_value = claims
        for part in claim.split("."):
            claim_value = claim_value.get(part) if isinstance(claim_value, dict) else None
    if claim_value is None:
        return None
    names = (
        [claim_value]
        if isinstance(claim_value, str)
        else claim_value
        if isinstance(claim_value, list)
        else []
    )
    return tuple(name for name in names if isinstance(name, str) and len(name) <= MAX_GROUP_CHARACTERS)[
        :MAX_GROUPS
    ]

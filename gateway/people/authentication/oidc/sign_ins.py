"""Sign-ins with an OpenID provider, from the first click to the end of the session when the provider says so."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.people.authentication.oidc.people import person_of
from gateway.people.authentication.oidc.problems import (
    GrantRefused,
    ProviderDown,
    SignInProblem,
    TokenRefused,
)
from gateway.people.authentication.oidc.provider import IdentityProvider
from gateway.people.authentication.oidc.tokens import LOGOUT_TOKEN_LIFE_S
from gateway.service.configuration.sections import OidcSettings
from spool.clock import Clock
from spool.errors import AlreadyThere, NotAllowed, SpoolError
from spool.registry.operators import NO_ROLE, Actor, Session
from spool.registry.registry import Registry

_log = logging.getLogger(__name__)

CALLBACK = "api/oidc-callback"  # under the console's address
BEGUN_LIFE_S = 600.0  # what a person has for typing a password at the provider
MAX_BEGUN = 1000
MAX_LOGOUT_IDS = 10_000
LOOK_EVERY_S = 15.0
GRACE_S = 120.0  # after the time of a check, before others end the session of a gateway that does not make it


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """
    A sign-in that the provider has not answered. `browser` is the secret in the cookie of who began it at `place`.
    """

    place: str
    browser: str
    nonce: str
    verifier: str
    ends_at: float


@dataclass(kw_only=True)
class _Checked:
    """When a session is due to be checked, and the token for that; None if the provider gave no further one."""

    token: str | None
    due: float


class ProviderSignIns:
    """
    One for the process. Sign-ins that have begun and refresh tokens are kept in memory alone.

    A restart forgets both: who was about to sign in begins again, and a session that the provider was asked
    about ends when its next check is not made. Of several gateways, each checks the sessions that began at
    it, and says in the registry until when it has; any of them ends a session that nobody checks any more.
    """

    def __init__(self, settings: OidcSettings, registry: Registry, clock: Clock) -> None:
        self.settings = settings
        self.provider = IdentityProvider(settings, settings.console + CALLBACK, clock)
        self._operators = registry.operators
        self._clock = clock
        self._begun: OrderedDict[str, _Begun] = OrderedDict()
        self._checked: dict[bytes, _Checked] = {}
        self._logouts: OrderedDict[str, float] = OrderedDict()
        self._actor = Actor("OpenID provider", urlsplit(settings.issuer).hostname or "")

    async def close(self) -> None:
        await self.provider.close()

    async def begin(self, *, place: str) -> tuple[str, str]:
        """
        Begin a sign-in: return the browser's next address and the secret for its cookie. SignInProblem if the
        provider does not answer.

        Of too many that have begun, the oldest of the place with the most is forgotten.
        """
        state, browser, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(4))
        try:
            address = await self.provider.sign_in_address(state=state, nonce=nonce, verifier=verifier)
        except ProviderDown as error:
            raise self._problem("down", error) from error
        ends_at = self._clock.monotonic() + BEGUN_LIFE_S
        self._begun[state] = _Begun(
            place=place, browser=browser, nonce=nonce, verifier=verifier, ends_at=ends_at
        )
        if len(self._begun) > MAX_BEGUN:
            [(most, _)] = Counter(each.place for each in self._begun.values()).most_common(1)
            del self._begun[next(state for state, each in self._begun.items() if each.place == most)]
        return address, browser

    async def finish(self, answer: Mapping[str, str], *, browser: str, address: str) -> tuple[str, Session]:
        """A new session and its secret, from what the browser brings back. SignInProblem says why not."""
        begun = self._begun.pop(answer.get("state", ""), None)  # whatever comes of it, it is used up
        if begun is None or begun.ends_at <= self._clock.monotonic() or not _is_same(begun.browser, browser):
            raise SignInProblem("state")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise SignInProblem("token")
        if "code" not in answer:
            raise SignInProblem("denied")
        try:
            tokens = await self.provider.redeem(answer["code"], verifier=begun.verifier, nonce=begun.nonce)
            person = person_of(tokens.claims or {}, self.settings, refreshes=tokens.refresh is not None)
            secret, session = await self._operators.sign_in_person(
                person,
                address=address,
                life_s=self.settings.session,
                takes_accounts=self.settings.link_accounts,
            )
        except ProviderDown as error:
            raise self._problem("down", error) from error
        except GrantRefused as error:
            raise self._problem("code", error) from error
        except TokenRefused as error:
            raise self._problem("token", error) from error
        except AlreadyThere as error:
            raise SignInProblem("taken") from error
        except NotAllowed as error:
            raise SignInProblem("disabled") from error
        except SpoolError as error:
            raise self._problem("unavailable", error) from error
        if tokens.refresh is not None:
            self._checked[session.digest] = _Checked(token=tokens.refresh, due=self._next_check())
        return secret, session

    async def log_out(self, text: str) -> int:
        """
        End the sessions that a logout token names; how many. TokenRefused if it is not to be trusted.

        They began before the token was issued. So a token that is used again, after a restart or at another
        gateway, ends nothing new.
        """
        claims = await self.provider.logout_claims(text)
        self._check_unused(claims["jti"])
        subject = claims.get("sub")
        sid = claims.get("sid")
        latest = claims["iat"] + self.settings.clock_skew

        def is_meant(session: Session) -> bool:
            return (
                session.issuer == self.settings.issuer
                and session.created_at <= latest
                and (subject is None or session.subject == subject)
                and (sid is None or session.provider_session == sid)
            )

        await self._operators.end_tokens(
            self.settings.issuer, subject=subject, sign_in=sid, issued_by=claims["iat"]
        )
        ended = await self._operators.end_sessions_where(is_meant, actor=self._actor)
        self._logouts[claims["jti"]] = self._clock.now() + LOGOUT_TOKEN_LIFE_S + 2 * self.settings.clock_skew
        return ended

    async def run(self) -> None:
        """Look now and then whether a session is due to be checked."""
        while True:
            try:
                await self.check_due()
            except SpoolError as error:
                _log.warning("sessions cannot be checked now: %s", error, extra={"action": "oidc_check"})
            await asyncio.sleep(LOOK_EVERY_S)

    async def check_due(self) -> None:
        """
        Ask the provider about every session that is due here; end those whose person may not go on, and those
        that whoever has their token does not check.
        """
        sessions = [session for session in await self._operators.sessions() if session.refreshes]
        for digest in self._checked.keys() - {session.digest for session in sessions}:
            del self._checked[digest]
        until = await self._operators.checked_until()
        for session in sessions:
            checked = self._checked.get(session.digest)
            if checked is not None:
                goes_on = checked.due > self._clock.monotonic() or await self._may_go_on(session, checked)
            else:
                first = session.created_at + self.settings.recheck + GRACE_S
                goes_on = self._clock.now() <= until.get(session.digest, first)
            if not goes_on:
                await self._end(session)

    async def _end(self, session: Session) -> None:
        """End a session once, also if others find the same at this moment."""
        await self._operators.end_sessions_where(lambda one: one.digest == session.digest, actor=self._actor)

    async def _may_go_on(self, session: Session, checked: _Checked) -> bool:
        """
        True if the provider still knows the person, with the same role; if it does not answer, it is asked later.
        """
        until = self._clock.now() + self.settings.recheck + GRACE_S
        if checked.token is None or not await self._operators.take_check(session, until=until):
            return False
        checked.due = self._next_check()
        try:
            tokens = await self.provider.refresh(checked.token)
        except ProviderDown as error:
            _log.warning("the OpenID provider does not answer: %s", error, extra={"action": "oidc_check"})
            return True
        except (GrantRefused, TokenRefused):
            return False
        checked.token = tokens.refresh
        if tokens.claims is None:
            return True
        try:
            person = person_of(tokens.claims, self.settings, refreshes=True)
        except SignInProblem:
            return False
        # Who is in no mapped group has NO_ROLE in place of the default role if a role document names the
        # person.
        was_named = session.role == NO_ROLE and not person.is_mapped
        has_same_role = not person.decides_role or was_named or person.role == session.role
        has_same_groups = set(person.groups) == set(json.loads(session.groups))
        return person.subject == session.subject and has_same_role and has_same_groups

    def _check_unused(self, id: str) -> None:
        """TokenRefused for a logout token that came before."""
        now = self._clock.now()
        while self._logouts and (
            next(iter(self._logouts.values())) <= now or len(self._logouts) >= MAX_LOGOUT_IDS
        ):
            self._logouts.popitem(last=False)
        if id in self._logouts:
            raise TokenRefused("it was used before")

    def _next_check(self) -> float:
        return self._clock.monotonic() + self.settings.recheck

    def _problem(self, word: str, error: Exception) -> SignInProblem:
        _log.warning("a sign-in failed: %s", error, extra={"action": "oidc_sign_in", "reason": word})
        return SignInProblem(word)


def _is_same(kept: str, given: str) -> bool:
    return hmac.compare_digest(kept.encode(), given.encode("utf-8", "surrogatepass"))

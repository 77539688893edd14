"""Sign-ins with an OpenID provider, from the first click until the provider ends the session."""

from __future__ import annotations

import hmac
import json
import logging
import secrets
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from urllib.parse import urlsplit

from gateway.configuration.sections import OidcSettings
from gateway.people.authentication.oidc.people import person_from_claims
from gateway.people.authentication.oidc.problems import (
    GrantRefused,
    ProviderDown,
    SignInProblem,
    TokenRefused,
)
from gateway.people.authentication.oidc.provider import IdentityProvider
from gateway.people.authentication.oidc.tokens import LOGOUT_TOKEN_LIFE_S
from spool.clock import Clock
from spool.errors import AlreadyThere, NotAllowed, SpoolError
from spool.loops import failure_logger, for_each_item, repeat
from spool.registry.operators import NO_ROLE, Actor, SignInSession
from spool.registry.registry import Registry

_log = logging.getLogger(__name__)

# the provider returns the browser to this path below the console's address
CALLBACK = "api/oidc-callback"
BEGUN_LIFE_S = 600.0  # seconds in which a person may type a password at the provider
MAX_BEGUN = 1000
MAX_LOGOUT_IDS = 10_000
LOOK_EVERY_S = 15.0
# seconds after which other gateways end the session if its own gateway has not done a due check
GRACE_S = 120.0


@dataclass(frozen=True, kw_only=True)
class _SignInInProgress:
    """
    A sign-in that has begun. `browser` is the secret in the cookie, and `place` the address where it started.
    """

    place: str
    browser: str
    nonce: str
    verifier: str
    ends_at: float


@dataclass(kw_only=True)
class _SessionCheck:
    """
    The result of checking a session with the provider. `token` is the new refresh token, or None if the
    provider returned none.
    """

    token: str | None
    due: float


class ProviderSignIns:
    """
    The sign-ins of this process. Sign-ins in progress and refresh tokens are only in memory.

    A restart loses both: people who were signing in must start again, and a session that the provider must
    confirm ends at its next due check. If several gateways share the storage, each gateway checks the
    sessions that started on it, and stores until when they are confirmed. Any gateway ends sessions whose own
    gateway no longer checks them.
    """

    def __init__(self, settings: OidcSettings, registry: Registry, clock: Clock) -> None:
        self.settings = settings
        self.provider = IdentityProvider(settings, settings.console + CALLBACK, clock)
        self._operators = registry.operators
        self._clock = clock
        self._begun: OrderedDict[str, _SignInInProgress] = OrderedDict()
        self._checked: dict[bytes, _SessionCheck] = {}
        self._logouts: OrderedDict[str, float] = OrderedDict()
        self._actor = Actor("OpenID provider", urlsplit(settings.issuer).hostname or "")

    async def close(self) -> None:
        await self.provider.close()

    async def begin_sign_in(self, *, address_group: str) -> tuple[str, str]:
        """
        Start a sign-in. Return the browser's next address and the secret for its cookie. Raises SignInProblem
        if the provider does not respond.

        If too many sign-ins are in progress, the client address (`address_group`) with the most sign-ins loses its
        oldest one.
        """
        state, browser, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(4))
        try:
            address = await self.provider.sign_in_address(state=state, nonce=nonce, verifier=verifier)
        except ProviderDown as error:
            raise self._log_problem("down", error) from error
        ends_at = self._clock.monotonic() + BEGUN_LIFE_S
        self._begun[state] = _SignInInProgress(
            place=address_group, browser=browser, nonce=nonce, verifier=verifier, ends_at=ends_at
        )
        if len(self._begun) > MAX_BEGUN:
            [(busiest_place, _)] = Counter(sign_in.place for sign_in in self._begun.values()).most_common(1)
            del self._begun[
                next(state for state, sign_in in self._begun.items() if sign_in.place == busiest_place)
            ]
        return address, browser

    async def finish(
        self, answer: Mapping[str, str], *, browser: str, address: str
    ) -> tuple[str, SignInSession]:
        """
        Finish a sign-in, and return the session's secret and the session. Raises SignInProblem with the
        reason for a failure.
        """
        # an attempt can be used only once, whatever its result
        begun = self._begun.pop(answer.get("state", ""), None)
        if (
            begun is None
            or begun.ends_at <= self._clock.monotonic()
            or not _is_same_secret(begun.browser, browser)
        ):
            raise SignInProblem("state")
        if answer.get("iss", self.settings.issuer) != self.settings.issuer:
            raise SignInProblem("token")
        if "code" not in answer:
            raise SignInProblem("denied")
        try:
            tokens = await self.provider.exchange_code(
                answer["code"], verifier=begun.verifier, nonce=begun.nonce
            )
            person = person_from_claims(
                tokens.claims or {}, self.settings, refreshes=tokens.refresh is not None
            )
            secret, session = await self._operators.sign_in_person(
                person,
                address=address,
                life_s=self.settings.session,
                takes_over_accounts=self.settings.link_accounts,
            )
        except ProviderDown as error:
            raise self._log_problem("down", error) from error
        except GrantRefused as error:
            raise self._log_problem("code", error) from error
        except TokenRefused as error:
            raise self._log_problem("token", error) from error
        except AlreadyThere as error:
            raise SignInProblem("taken") from error
        except NotAllowed as error:
            raise SignInProblem("disabled") from error
        except SpoolError as error:
            raise self._log_problem("unavailable", error) from error
        if tokens.refresh is not None:
            self._checked[session.digest] = _SessionCheck(token=tokens.refresh, due=self._next_check_at())
        return secret, session

    async def end_sessions_of_logout_token(self, logout_token: str) -> int:
        """
        End the sessions that a logout token names, and return their number. Raises TokenRefused for
        an invalid token.

        Only sessions that began before the token was issued are ended. So if the token is repeated, after a
        restart or at another gateway, no newer session ends.
        """
        claims = await self.provider.verify_logout_token(logout_token)
        self._check_logout_unused(claims["jti"])
        subject = claims.get("sub")
        sid = claims.get("sid")
        latest = claims["iat"] + self.settings.clock_skew

        def is_session_named_by_token(session: SignInSession) -> bool:
            return (
                session.issuer == self.settings.issuer
                and session.created_at <= latest
                and (subject is None or session.subject == subject)
                and (sid is None or session.provider_session == sid)
            )

        await self._operators.end_tokens(
            self.settings.issuer, subject=subject, sign_in=sid, issued_by=claims["iat"]
        )
        ended = await self._operators.end_sessions_where(is_session_named_by_token, actor=self._actor)
        self._logouts[claims["jti"]] = self._clock.now() + LOGOUT_TOKEN_LIFE_S + 2 * self.settings.clock_skew
        return ended

    async def run(self) -> None:
        await repeat(
            self.end_unconfirmed_sessions,
            every_s=LOOK_EVERY_S,
            failed="sessions cannot be checked now",
            action="oidc_check",
        )

    async def end_unconfirmed_sessions(self) -> None:
        """
        Check every due session of this gateway with the provider. End the sessions that the provider no
        longer confirms, and the sessions that their own gateway no longer checks.
        """
        sessions = [session for session in await self._operators.live_sessions() if session.refreshes]
        for digest in self._checked.keys() - {session.digest for session in sessions}:
            del self._checked[digest]
        until = await self._operators.check_claim_ends_by_session()

        async def end_unless_confirmed(session: SignInSession) -> None:
            checked = self._checked.get(session.digest)
            if checked is not None:
                goes_on = checked.due > self._clock.monotonic() or await self._recheck_session(
                    session, checked
                )
            else:
                first = session.created_at + self.settings.recheck + GRACE_S
                goes_on = self._clock.now() <= until.get(session.digest, first)
            if not goes_on:
                await self._end_session(session)

        log = failure_logger("a session could not be checked", action="oidc_check", name=attrgetter("digest"))
        await for_each_item(sessions, end_unless_confirmed, log)

    async def _end_session(self, session: SignInSession) -> None:
        # another task may end the same session
        await self._operators.end_sessions_where(
            lambda other: other.digest == session.digest, actor=self._actor
        )

    async def _recheck_session(self, session: SignInSession, checked: _SessionCheck) -> bool:
        until = self._clock.now() + self.settings.recheck + GRACE_S
        if checked.token is None or not await self._operators.claim_provider_check(session, until=until):
            return False
        checked.due = self._next_check_at()
        try:
            tokens = await self.provider.refresh(checked.token)
        except ProviderDown as error:
            _log.warning("the OpenID provider does not respond: %s", error, extra={"action": "oidc_check"})
            return True
        except (GrantRefused, TokenRefused):
            return False
        checked.token = tokens.refresh
        if tokens.claims is None:
            return True
        try:
            person = person_from_claims(tokens.claims, self.settings, refreshes=True)
        except SignInProblem:
            return False
        # A person in no mapped group has NO_ROLE instead of the default role if a stored role names the person.
        was_named = session.role == NO_ROLE and not person.is_mapped
        has_same_role = not person.decides_role or was_named or person.role == session.role
        has_same_groups = set(person.groups) == set(json.loads(session.groups))
        return person.subject == session.subject and has_same_role and has_same_groups

    def _check_logout_unused(self, id: str) -> None:
        now = self._clock.now()
        while self._logouts and (
            next(iter(self._logouts.values())) <= now or len(self._logouts) >= MAX_LOGOUT_IDS
        ):
            self._logouts.popitem(last=False)
        if id in self._logouts:
            raise TokenRefused("its id (jti) was used before")

    def _next_check_at(self) -> float:
        return self._clock.monotonic() + self.settings.recheck

    def _log_problem(self, problem_word: str, error: Exception) -> SignInProblem:
        _log.warning("a sign-in failed: %s", error, extra={"action": "oidc_sign_in", "reason": problem_word})
        return SignInProblem(problem_word)


def _is_same_secret(stored: str, presented: str) -> bool:
    return hmac.compare_digest(stored.encode(), presented.encode("utf-8", "surrogatepass"))

"""
Assistants of people who sign in with the provider of [oidc]. Each request has a token that identifies its person.

Identity and rights are the same as in the console. Tollhouse creates, forwards and stores no token. It only
stores the provider's keys and the hashes of valid tokens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.configuration.sections import McpOAuthSettings
from gateway.core.errors import Refusal
from gateway.core.rate_limits import TokenBuckets, address_network
from gateway.people.authentication.access import GUESSES, GUESSES_PER_S
from gateway.people.authentication.assistant_people import (
    PersonUsingAssistant,
    bad_token_refusal,
    no_scope_refusal,
)
from gateway.people.authentication.oidc.people import (
    has_default_role,
    has_groups_claim,
    has_verified_email,
    person_from_claims,
)
from gateway.people.authentication.oidc.problems import ProviderDown, SignInProblem, TokenRefused
from gateway.people.authentication.oidc.sign_ins import ProviderSignIns
from gateway.people.authentication.oidc.tokens import (
    Claims,
    ExpectedAccess,
    has_groups_left_out_of_token,
    has_scope,
    token_client,
)
from spool.clock import Clock
from spool.errors import AlreadyThere, NotAllowed, TokenEnded
from spool.registry.operators import NO_ROLE, ROLES, Operator, Person
from spool.registry.registry import Registry
from spool.registry.roles import RoleHolder

_log = logging.getLogger(__name__)

_CONSOLE_FIRST = "sign in to the console once, because the token lacks data that a first sign-in needs"
_GROUPS_LEFT_OUT = (
    "the token leaves out groups that you are in, and roles depend on groups; configure the provider "
    "to send fewer groups, for example only those of Tollhouse"
)
# results of a sign-in, as labels of the metric
ADMITTED, INVALID, NO_SCOPE, NOT_LET, DOWN = "admitted", "invalid", "no_scope", "not_let", "provider_down"


class AssistantSignIns:
    """
    Sign-ins by token. `settings` returns the current settings of [mcp.oauth]. `told` is called with the
    outcome of each check.
    """

    def __init__(
        self,
        sign_ins: ProviderSignIns,
        registry: Registry,
        clock: Clock,
        *,
        settings: Callable[[], McpOAuthSettings],
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._oidc = sign_ins.settings
        self._provider = sign_ins.provider
        self._registry = registry
        self._clock = clock
        self._settings = settings
        self.told = told
        self._guesses = TokenBuckets(clock, burst=GUESSES, per_s=GUESSES_PER_S)

    async def admit(self, token_text: str, *, address: str) -> PersonUsingAssistant:
        """
        Admit a token. Raises Refusal 401 for an invalid token, 403 for a person without access, and 503 while
        the provider's keys cannot be fetched.
        """
        oauth = self._settings()
        try:
            claims = await self._verify_within_limits(token_text, oauth, address)
            if not has_scope(claims, oauth.read_scope) and not has_scope(claims, oauth.write_scope):
                self.told(NO_SCOPE)
                raise no_scope_refusal(oauth)
            person = await self._find_person(claims, oauth, address)
        except (TokenRefused, TokenEnded) as error:
            self.told(INVALID)
            _log.warning("a token of an assistant is refused: %s", error, extra={"action": "mcp_token"})
            raise bad_token_refusal(oauth, str(error)) from error
        except ProviderDown as error:
            self.told(DOWN)
            _log.warning("the OpenID provider does not respond: %s", error, extra={"action": "mcp_token"})
            message = "the provider that signs people in does not respond; retry, or use an API key"
            raise Refusal(503, "provider_down", message, retry_after_s=30) from error
        except SignInProblem as error:
            raise self._report_not_permitted(str(error)) from error
        self.told(ADMITTED)
        return person

    async def refresh_person(self, person: PersonUsingAssistant, *, address: str) -> PersonUsingAssistant:
        """Return current rights. Refuses as `admit` does."""
        oauth = self._settings()
        try:
            return await self._find_person(person.claims, oauth, address)
        except TokenEnded as error:
            raise bad_token_refusal(oauth, str(error)) from error
        except SignInProblem as error:
            raise self._report_not_permitted(str(error)) from error

    async def _verify_within_limits(self, text: str, oauth: McpOAuthSettings, address: str) -> Claims:
        """
        Return the claims of a token. A refused token counts as a guess from its address.

        The address is charged before the check, unless the token was valid recently.
        """
        if self._provider.has_verified_token(text):
            return await self._verify_token(text, oauth)
        network = address_network(address)
        wait_s = self._guesses.wait_s(network)
        if wait_s:
            message = "too many unknown tokens from this address; retry later"
            raise Refusal(429, "too_many_attempts", message, retry_after_s=wait_s)
        with self._guesses.charge_on_failure(network, TokenRefused):
            return await self._verify_token(text, oauth)

    async def _verify_token(self, text: str, oauth: McpOAuthSettings) -> Claims:
        expected = ExpectedAccess(
            issuer=self._oidc.issuer,
            audiences=oauth.audiences or (oauth.resource,),
            clients=oauth.clients,
            now=self._clock.now(),
            skew_s=self._oidc.clock_skew,
            max_life_s=oauth.max_life,
        )
        return await self._provider.verify_access_token(text, expected)

    async def _find_person(
        self, claims: Claims, oauth: McpOAuthSettings, address: str
    ) -> PersonUsingAssistant:
        if has_groups_left_out_of_token(claims, self._oidc.groups_claim):
            raise self._report_not_permitted(_GROUPS_LEFT_OUT)
        sign_in = claims.get("sid")
        known = await self._registry.operators.find_by_token(
            self._oidc.issuer,
            claims["sub"],
            sign_in=sign_in if isinstance(sign_in, str) else "",
            issued_at=claims["iat"],
        )
        if known is None:
            holder = await self._add_person_and_build_holder(claims, address)
        elif known.disabled:
            raise SignInProblem("disabled")
        else:
            holder = self._rights_holder(known, self._person_from_claims(claims, known), claims)
        return PersonUsingAssistant(
            holder=holder,
            client=token_client(claims),
            may_write=has_scope(claims, oauth.write_scope),
            claims=claims,
        )

    async def _add_person_and_build_holder(self, claims: Claims, address: str) -> RoleHolder:
        named = self._oidc.named_by == "sub" or has_verified_email(claims, self._oidc)
        if not named or (self._has_group_rules() and not has_groups_claim(claims, self._oidc)):
            raise self._report_not_permitted(_CONSOLE_FIRST)
        person = person_from_claims(claims, self._oidc, refreshes=False)
        try:
            operator = await self._registry.operators.add_person(
                person, address=address, takes_over_accounts=self._oidc.link_accounts
            )
        except AlreadyThere as error:
            raise SignInProblem("taken") from error
        except NotAllowed as error:
            raise SignInProblem("disabled") from error
        return self._rights_holder(operator, person, claims)

    def _person_from_claims(self, claims: Claims, operator: Operator) -> Person:
        person_claims = dict(claims)
        if self._oidc.named_by == "email" and not has_verified_email(claims, self._oidc):
            person_claims |= {"email": operator.email, "email_verified": True}
        return person_from_claims(person_claims, self._oidc, refreshes=False)

    def _rights_holder(self, operator: Operator, person: Person, claims: Claims) -> RoleHolder:
        """
        Return the holder of a token's rights.

        If roles depend on groups and the token names no groups, only roles assigned to the address apply. The
        account's role does not apply, because a group might reduce it. Otherwise, the lower of the account's
        role and the token's role applies, because an older token may name groups that the person has left.
        """
        base = operator.role
        if self._has_group_rules() and not has_groups_claim(claims, self._oidc):
            base = NO_ROLE
        elif person.decides_role:
            base = min(base, person.role, key=ROLES.index)
        closed = has_default_role(person.groups, self._oidc)
        return RoleHolder(person=operator.email, groups=person.groups, base=base, has_default_role=closed)

    def _has_group_rules(self) -> bool:
        by_settings = self._oidc.roles or self._oidc.allowed_groups
        return bool(by_settings) or any(role.groups for role in self._registry.roles.all())

    def _report_not_permitted(self, message: str) -> Refusal:
        self.told(NOT_LET)
        return Refusal(403, "not_let", message)

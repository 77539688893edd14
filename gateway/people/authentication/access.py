"""
Access with keys.

The key table belongs to spool.registry, and changes to it apply here. So a deleted or disabled key is refused
at the next check, including on open connections and streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias, TypeVar

from gateway.configuration.server import ServerSettings
from gateway.configuration.values import ConfigError, Networks, has_literal_text
from gateway.core.errors import Refusal
from gateway.core.rate_limits import TokenBuckets, address_network
from gateway.people.authentication.bearer import KEPT_UNDER, AuthenticatedKey, describe_wrong_form
from gateway.people.authentication.legacy_key import DEPLOYMENT, LegacyKey
from spool.caches import remove_oldest_eighth
from spool.clock import Clock
from spool.errors import AlreadyThere, KeyEnded, NotAllowed, NotThere, SpoolError
from spool.log.partial_reports import ExpectedVersion
from spool.loops import repeat
from spool.people import People
from spool.record import utc_iso
from spool.registry import enrolment_tokens
from spool.registry.enrolment_tokens import EnrolmentToken, EnrolmentTokenTable
from spool.registry.keys import DELETED, DISABLED, ENABLED, EXPIRED, OPENS, WAITS, ApiKey
from spool.registry.operators import Actor
from spool.registry.scopes import ENROLL, SEND_AI_TELEMETRY, WITHOUT_FIGURES, granting_use_case
from spool.registry.tables.expired_tries import ExpiredKeyUses, ExpiredKeyUseTable
from spool.registry.tables.export_tests import ExportTestTable
from spool.registry.tables.keys import KeyTable

_WithUser: TypeAlias = "Callable[[AuthenticatedKey, object, object], AuthenticatedKey]"
_log = logging.getLogger(__name__)

FLUSH_EVERY_S = 5.0
GUESSES = 30  # unknown keys that one address may try at once; after that, one more every two seconds
GUESSES_PER_S = 0.5
MOST_BEARERS = 10_000  # maximum bearers that are cached between requests
TEST_LOG_S = 10.0  # seconds between two log lines about test spans under one key
_DEFAULTS = ServerSettings()

NOT_OPEN = {
    DELETED: (
        "server.api_key_file still contains a key that was deleted or replaced; put another key into the file"
    ),
    WAITS: (
        "the key of server.api_key_file was deleted, and the file now contains another key; run "
        "`tollhouse keys adopt` to accept it"
    ),
}


async def _no_key_names() -> Sequence[str]:
    return ()


async def _no_times() -> Mapping[str, float]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKey(ApiKey):
    """
    A key with facts that are not stored with it, as of `listed_at`: when a product last tested its export
    with the key, when its newest record arrived, and the requests since it expired. `addresses` are the
    networks from which the key may be used, or () for all.
    """

    listed_at: float
    last_test: float | None
    last_record: float | None
    expired_tries: ExpiredKeyUses | None
    addresses: tuple[str, ...]


AnyKey = TypeVar("AnyKey", bound=ApiKey)


class KeyStore(Protocol):
    """What the check of a key reads and writes of the registry."""

    keys: KeyTable
    enrolment_tokens: EnrolmentTokenTable
    export_tests: ExportTestTable
    expired_tries: ExpiredKeyUseTable
    people: People
    is_shared: bool

    @property
    def is_memory_fresh(self) -> bool:
        """Return whether memory has the changes of other processes up to a second ago."""

    async def wait_until_caught_up(self) -> None:
        """Wait until memory has all changes before this call. Raises SpoolUnavailable after a second."""


class KeyAccess:
    """
    The check of keys. `devices` resolves device keys (`thd_...`) and returns None for unknown keys. If the
    registry file is damaged, there is no registry. Then only the deployment's key and device keys are
    accepted; all other keys get 503 and may retry.

    `local` is the bearer of requests without a key, only on an agent's own machine. Such requests have only
    its scopes.
    """

    def __init__(
        self,
        registry: KeyStore | None,
        settings: ServerSettings = _DEFAULTS,
        *,
        clock: Clock,
        devices: Callable[[str], AuthenticatedKey | None] | None = None,
        local: AuthenticatedKey | None = None,
        deployment: str = DEPLOYMENT,
        node: str = "this gateway",
        others: Callable[[], Awaitable[Sequence[str]]] = _no_key_names,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._devices = devices
        self.local = local
        # on an agent: returns the local key with the user who opened a connection between two addresses
        self.with_user_of_connection: _WithUser = lambda bearer, client, server: bearer
        self._deployment = Actor(deployment, "server.api_key_file")
        self._node = node
        self._others = others
        self._guesses = TokenBuckets(clock, burst=GUESSES, per_s=GUESSES_PER_S)
        self._legacy: LegacyKey | None = None
        self._is_told = False  # whether it was logged that the key of the file could not be adopted
        self._is_adopted = False  # whether the registry has the key of the file
        self._rates: Mapping[str, int] = {}
        self._limits: Mapping[str, TokenBuckets] = {}
        # key number -> the key, and the bearer made from it
        self._bearers: dict[int, tuple[ApiKey, AuthenticatedKey]] = {}
        self.configure(settings, LegacyKey(settings.api_key_file) if settings.api_key_file else None)
        self._seen: dict[int, float] = {}  # key number -> time of the last use since the start
        self._unwritten: set[int] = set()
        self._tests: dict[int, float] = {}  # key number -> time of the last test span since the start
        self._unwritten_tests: set[int] = set()
        # key number -> uses of the expired key that are not stored yet
        self._unwritten_tries: dict[int, ExpiredKeyUses] = {}
        self._task: asyncio.Task[None] | None = None
        self.failed_attempts = 0
        # function that returns the time of the newest record by key name
        self.newest_records: Callable[[], Awaitable[Mapping[str, float]]] = _no_times

    def configure(self, settings: ServerSettings, legacy: LegacyKey | None) -> None:
        if legacy is not None and self._legacy is not None:
            legacy.last_accessed = self._legacy.last_accessed
        self._legacy = legacy
        self._is_adopted = False
        self._accept_bearer = settings.accept_bearer
        self._chain_keys = settings.chain_keys
        self._figure_keys = settings.figure_keys
        self.key_headers = tuple({name.lower(): None for name in settings.key_headers})
        self._key_addresses = {
            name: (networks, Networks(networks)) for name, networks in settings.key_addresses.items()
        }
        self._bearers.clear()
        rates = {"requests": settings.max_key_requests_per_s, "bytes": settings.max_key_bytes_per_s}
        # replace buckets only if the rates changed, because keys must not get back what they used up
        if rates != self._rates:
            self._rates = rates
            self._limits = {
                word: TokenBuckets(self._clock, burst=rate, per_s=rate, size=50_000)
                for word, rate in rates.items()
                if rate
            }

    async def admit_with_current_keys(
        self, secret: str | None, scope: str, *, address: str
    ) -> AuthenticatedKey:
        """
        Admit a key as `admit` does. A refusal is based only on facts that are as new as the request, because
        other gateways may change keys.

        Another gateway may have created or enabled the key a moment ago. So before a refusal, this waits for
        the next regular read of the database. Raises Refusal 503 if no such read succeeds. Keys refused for
        too many attempts do not wait.
        """
        if (
            self._registry is not None
            and self._registry.is_shared
            and self._can_be_valid_at_other_gateways(secret, scope, address)
        ):
            try:
                await self._registry.wait_until_caught_up()
            except SpoolError as error:
                message = "Tollhouse could not check whether this key was created or changed just now; retry"
                raise Refusal(503, "keys_unavailable", message, retry_after_s=1) from error
        return self.admit(secret, scope, address=address)

    def find_validity_check(self, credential: str | None) -> Callable[[], bool] | None:
        """
        Return a check for further requests with a key that was checked in full: it notes the use of the key and
        returns whether the key is still valid, which it is not after a change of the key or of the settings, or after
        the end of one of its secrets. Return None for a key that must be checked in full each time.
        """
        key = self._find_key(_strip_bearer(credential or ""))
        checked = None if key is None else self._bearers.get(key.id)
        if self._registry is None or key is None or checked is None or checked[0] is not key:
            return None
        keys = self._registry.keys
        known_key, full_check, ends_at = key, checked, keys.next_secret_end(key)

        def note_use_if_valid() -> bool:
            if self._bearers.get(known_key.id) is not full_check or not keys.is_unchanged(known_key, ends_at):
                return False
            self._seen[known_key.id] = self._clock.now()
            self._unwritten.add(known_key.id)
            return True

        return note_use_if_valid

    def admit(self, secret: str | None, scope: str, *, address: str) -> AuthenticatedKey:
        """
        Admit a key. `secret` is the whole value of the Authorization header. Wrong keys from the same address
        never delay a valid key.

        Raises Refusal 401, 403 or 429, or 503 if the key table cannot be read.
        """
        if self.local is not None and scope in self.local.scopes:
            return self.local
        if not secret or not secret.strip():
            message = "no API key: send the key as the whole value of the Authorization header"
            raise self._count_and_refuse("missing_key", message)
        plain = _strip_bearer(secret)
        if len(plain) < len(secret) and not self._accept_bearer:
            raise self._count_and_refuse(
                "bearer_prefix",
                "the header has a Bearer prefix: send only the key as its value, or let the "
                "operator set server.accept_bearer",
            )
        secret = plain
        if scope not in KEPT_UNDER and self._registry is not None and not self._registry.is_memory_fresh:
            message = (
                "the database was unreachable for a second, so Tollhouse cannot check whether this key "
                "is still valid; retry"
            )
            raise Refusal(503, "keys_unavailable", message, retry_after_s=1)
        bearer = self._find_bearer(secret, address)
        if scope not in bearer.scopes:
            raise missing_scope_refusal(scope)
        if scope not in WITHOUT_FIGURES and self._hides_figures(bearer.name):
            raise hidden_figures_refusal()
        return bearer

    def _hides_figures(self, name: str) -> bool:
        if self._registry is None or not self._registry.people.min_group:
            return False
        return not any(fnmatchcase(name, pattern) for pattern in self._figure_keys)

    def charge_request(self, bearer: AuthenticatedKey, *, requests: int, bytes: int) -> None:
        """Charge a request. Raises Refusal 429 until earlier charges are paid off."""
        if not self._limits:
            return
        amounts = {"requests": requests, "bytes": bytes}
        for word, buckets in self._limits.items():
            # refuse before the body is read
            wait_s = buckets.wait_s(bearer.name) if requests or amounts[word] else 0
            if wait_s:
                raise Refusal(
                    429,
                    "key_limit",
                    f"this key is over its limit of {word} per second; retry later",
                    retry_after_s=wait_s,
                )
        for word, buckets in self._limits.items():
            if amounts[word]:
                buckets.charge(bearer.name, amounts[word])

    def charge_refused_bytes(self, bearer: AuthenticatedKey, *, bytes: int) -> None:
        """Charge the bytes of a request that was refused for another reason."""
        if "bytes" in self._limits:
            self._limits["bytes"].charge(bearer.name, bytes)

    def keys(self) -> list[ApiKey]:
        """Return all keys with their latest use, including the deployment's key."""
        keys = [] if self._registry is None else self._registry.keys.all()
        if self._legacy and not self._is_adopted:
            keys.append(self._legacy.key)
        return [replace(key, last_accessed=self._last_access_at(key)) for key in keys]

    async def listed_keys(self) -> Sequence[ListedKey]:
        """Return all keys, with the facts that all gateways know about them."""
        tests = dict({} if self._registry is None else await self._registry.export_tests.all())
        tests |= {id: max(at, tests.get(id, 0.0)) for id, at in self._tests.items()}
        records = await self.newest_records()
        tries = await self.expired_tries()
        now = self._clock.now()
        return [
            ListedKey(
                **{field.name: getattr(key, field.name) for field in fields(key)},
                listed_at=now,
                last_test=tests.get(key.id),
                last_record=records.get(key.name),
                expired_tries=tries.get(key.id),
                addresses=tuple(name for names, _ in self._allowed_networks(key.name) for name in names),
            )
            for key in self.keys()
        ]

    async def expired_tries(self) -> Mapping[int, ExpiredKeyUses]:
        """Return the requests with expired keys at all gateways, by the key's number."""
        if self._registry is None:
            return {}
        tries = dict(await self._registry.expired_tries.expired_uses_by_key_id())
        tries |= {
            id: each.add_or_keep_later_expiry(tries.get(id)) for id, each in self._unwritten_tries.items()
        }
        now = self._clock.now()
        expired = {key.id: key.expires_at for key in self.keys() if key.state(now) == EXPIRED}
        return {id: each for id, each in tries.items() if expired.get(id) == each.expires_at}

    def find_key_and_gateway_flag(self, secret: str) -> tuple[ApiKey, bool] | None:
        """
        Return a key, even if it is expired, and whether the key's senders may be other gateways. Return None
        for an unknown key.
        """
        key = self._find_key(secret) or self._find_expired_key(secret)
        return None if key is None else (key, bool(self._matching_chain_key_patterns(key.name)))

    def note_test_span(self, bearer: AuthenticatedKey) -> None:
        if bearer.number is None:
            return
        now = self._clock.now()
        if now - self._tests.get(bearer.number, 0.0) >= TEST_LOG_S:
            _log.info(
                "a test span arrived, which is not counted",
                extra={"action": "export_test", "key": bearer.name},
            )
        self._tests[bearer.number] = now
        self._unwritten_tests.add(bearer.number)

    def unmatched_address_patterns(self) -> list[str]:
        """
        Return the name patterns in `server.key_addresses` that match no key, and so restrict nothing.
        Patterns for devices are left out.
        """
        names = [key.name for key in self.keys()]
        return [
            pattern
            for pattern in self._key_addresses
            if not pattern.startswith("device ") and not any(fnmatchcase(name, pattern) for name in names)
        ]

    def _last_access_at(self, key: ApiKey) -> float | None:
        times = [at for at in (self._seen.get(key.id), key.last_accessed) if at is not None]
        return max(times, default=None)

    def key(self, name: str) -> ApiKey:
        """Return the key with a name. Raises NotThere."""
        return _require_key(self.keys(), name)

    async def listed_key(self, name: str) -> ListedKey:
        """Return the key with a name, with its facts. Raises NotThere."""
        return _require_key(await self.listed_keys(), name)

    def has_same_legacy_key(self, other: LegacyKey | None) -> bool:
        return (self._legacy and self._legacy.digest) == (other and other.digest)

    @property
    def is_bearer_prefix_accepted(self) -> bool:
        return self._accept_bearer

    def has_key_file(self) -> bool:
        return self._legacy is not None

    @property
    def legacy_key_problem(self) -> str:
        """
        Return why the deployment's key is not accepted. Return "" if it is accepted, or if that is unknown.
        """
        legacy = self._legacy
        registry = self._registry
        if legacy is None or registry is None:
            return ""
        if registry.keys.is_ended_file_secret(legacy.secret):
            return NOT_OPEN[DELETED]
        is_known = registry.keys.find_by_secret(legacy.secret) or registry.keys.find_expired_by_secret(
            legacy.secret
        )
        is_waiting = self._is_adopted and not is_known
        return NOT_OPEN[WAITS] if is_waiting else ""

    async def start(self) -> None:
        """
        Store last uses every few seconds. Raises ConfigError if another gateway has another key in the file
        of `server.api_key_file`.
        """
        if self._legacy and self._registry:
            try:
                await self.adopt_legacy_key(other_gateways=await self._others())
            except AlreadyThere:  # people created another key with this name
                await self.adopt_legacy_key_or_log()
            except NotAllowed as error:
                raise ConfigError([f"server.api_key_file of {self._node}: {error}"]) from error
            except SpoolError:
                await self.adopt_legacy_key_or_log()  # follow_file() logs a problem and tries again
        self._task = asyncio.create_task(self._store_uses_repeatedly(), name="last-access")

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self.store_uses()

    async def store_uses(self) -> None:
        """
        Store the last uses of keys in one transaction. Also read the deployment's key file if it changed.
        """
        if self._legacy and (self._legacy.reload_secret_if_changed() or not self._is_adopted):
            await self.adopt_legacy_key_or_log()
        if self._registry is None:
            return
        if self._unwritten_tests:
            await self._store_test_span_times(self._registry)
        if self._unwritten_tries:
            await self._store_tries(self._registry)
        if not self._unwritten:
            return
        batch = {key_id: self._seen[key_id] for key_id in self._unwritten}
        self._unwritten.clear()
        try:
            await self._registry.keys.store_access_times(batch)
        except SpoolError as error:
            self._unwritten.update(batch)
            extra = {"action": "last_access_failed"}
            _log.warning("last uses of keys could not be stored and are retried: %s", error, extra=extra)

    async def _store_test_span_times(self, registry: KeyStore) -> None:
        batch = {key_id: self._tests[key_id] for key_id in self._unwritten_tests}
        self._unwritten_tests.clear()
        try:
            await registry.export_tests.add(batch, keys={key.id for key in registry.keys.all()})
        except SpoolError as error:
            self._unwritten_tests.update(batch)
            extra = {"action": "export_test_not_stored"}
            _log.warning("times of test spans could not be stored and are retried: %s", error, extra=extra)

    async def _store_tries(self, registry: KeyStore) -> None:
        batch, self._unwritten_tries = self._unwritten_tries, {}
        try:
            await registry.expired_tries.add(batch, keys=registry.keys.all())
        except SpoolError as error:
            for id, tries in batch.items():
                self._unwritten_tries[id] = tries.add_or_keep_later_expiry(self._unwritten_tries.get(id))
            extra = {"action": "expired_tries_not_stored"}
            _log.warning("uses of expired keys could not be stored and are retried: %s", error, extra=extra)

    async def adopt_legacy_key(
        self,
        *,
        works_after_deletion: bool = False,
        actor: Actor | None = None,
        other_gateways: Sequence[str] = (),
    ) -> str | None:
        """
        Store the key of the deployment's key file in the registry. Return OPENS, DELETED or WAITS (see
        `KeyTable.adopt_file_secret`), or None without a key file.
        """
        if self._legacy is None or self._registry is None:
            return None
        outcome = await self._registry.keys.adopt_file_secret(
            self._legacy.secret,
            use_case=SEND_AI_TELEMETRY,
            actor=actor or self._deployment,
            works_after_deletion=works_after_deletion,
            other_gateways=other_gateways,
        )
        self._is_adopted, self._is_told = True, False
        if outcome != OPENS:
            _log.warning(NOT_OPEN[outcome], extra={"action": "key_not_open"})
        return outcome

    async def adopt_legacy_key_or_log(self) -> None:
        """
        Let the registry adopt the deployment's key, and log a failure. Until then, the key is accepted
        without the registry.
        """
        try:
            await self.adopt_legacy_key()
        except SpoolError as error:
            if not self._is_told:
                extra = {"action": "key_not_adopted"}
                _log.warning(
                    "the key of server.api_key_file could not be stored in the list of keys: %s",
                    error,
                    extra=extra,
                )
            self._is_told = True

    async def _store_uses_repeatedly(self) -> None:
        await repeat(
            self.store_uses,
            every_s=FLUSH_EVERY_S,
            failed="the last uses of keys could not be stored",
            action="uses_not_stored",
        )

    def _can_be_valid_at_other_gateways(self, credential: str | None, scope: str, address: str) -> bool:
        secret = _strip_bearer(credential or "").strip()
        # for a device key, its text shows whether it is newer than the keys that this process knows
        if not secret or secret.startswith("thd_"):
            return False
        if self._registry is not None and self._registry.enrolment_tokens.find_by_text(secret) is not None:
            return False  # a token never becomes valid again, and its scope never changes
        key = self._find_key(secret)
        if key is not None:
            return key.status != ENABLED or scope not in self._key_bearer(key).scopes
        if self._registry is not None and self._registry.keys.is_secret_expired(secret):
            return True  # valid again if another gateway extended the expiry
        if self._registry is not None and self._registry.keys.is_known_or_ended_secret(secret):
            return False  # a replaced secret never becomes valid again
        return not self._guesses.wait_s(address_network(address))

    def _find_bearer(self, secret: str, address: str) -> AuthenticatedKey:
        if secret.startswith("thd_") and self._devices:
            bearer = self._devices(secret)
            if bearer:
                self._check_address(bearer.name, address)
                return (
                    replace(bearer, may_chain=True)
                    if self._matching_chain_key_patterns(bearer.name)
                    else bearer
                )
            raise self._refuse_guess(secret, address)
        if secret.startswith(enrolment_tokens.PREFIX) and self._registry is not None:
            token = self._registry.enrolment_tokens.find_by_text(secret)
            if token is None:
                raise self._refuse_guess(secret, address)
            return self._token_bearer(self._registry, token, address)
        key = self._find_key(secret)
        if key is None:
            if self._registry is None:
                raise Refusal(
                    503, "keys_unavailable", "the key table cannot be read; retry later", retry_after_s=30
                )
            if expired := self._find_expired_key(secret):
                raise self._refuse_expired(expired)
            if self._registry.keys.is_known_or_ended_secret(secret):
                # not counted as a guess, because the installation had this key before
                raise self._refuse_unknown()
            raise self._refuse_guess(secret, address)
        if key.status == DISABLED:
            raise self._refuse_disabled()
        self._check_address(key.name, address)
        self._seen[key.id] = self._clock.now()
        self._unwritten.add(key.id)
        bearer = self._key_bearer(key)
        expectation = (
            self._registry.keys.valid_secret_expectation(secret) if self._registry and key.id else None
        )
        return bearer if expectation is None else replace(bearer, expects=(expectation,))

    def _token_bearer(self, registry: KeyStore, token: EnrolmentToken, address: str) -> AuthenticatedKey:
        """
        Return the bearer of an enrolment token. A token without remaining uses stays valid for devices that
        it enrolled, because the answer with a device's key may have been lost. Raises Refusal 401 if the
        token has ended.
        """
        if token.ended_at <= self._clock.now():
            self.failed_attempts += 1
            raise ended_token_refusal()
        self._check_address(token.sender, address)
        expects = registry.enrolment_tokens.not_revoked_expectations(token)
        return AuthenticatedKey(token.sender, frozenset({ENROLL}), expects=expects, token=token.id)

    def _check_address(self, name: str, address: str) -> None:
        places = self._allowed_networks(name)
        if places and not any(address in networks for _, networks in places):
            message = "this API key may not be used from this address; see server.key_addresses"
            raise Refusal(403, "address_not_allowed", message)

    def _allowed_networks(self, name: str) -> Sequence[tuple[Sequence[str], Networks]]:
        if name in self._key_addresses:
            return (self._key_addresses[name],)
        return [places for pattern, places in self._key_addresses.items() if fnmatchcase(name, pattern)]

    def _matching_chain_key_patterns(self, name: str) -> Sequence[str]:
        return [pattern for pattern in self._chain_keys if fnmatchcase(name, pattern)]

    def _key_bearer(self, key: ApiKey) -> AuthenticatedKey:
        known, bearer = self._bearers.get(key.id, (None, None))
        if bearer is None or known is not key:  # compare by identity, because a changed key is a new object
            naming = self._matching_chain_key_patterns(key.name)
            # the pattern "*" alone does not make a key that of a gateway
            is_gateway = any(map(has_literal_text, naming))
            bearer = AuthenticatedKey(
                key.name,
                key.current_scopes,
                key.labels,
                may_chain=bool(naming),
                is_gateway=is_gateway,
                number=key.id or None,
            )
            if len(self._bearers) >= MOST_BEARERS:
                remove_oldest_eighth(self._bearers)
            self._bearers[key.id] = key, bearer
        return bearer

    async def upload_expectations_of_key(self, key_number: int) -> tuple[ExpectedVersion, ...]:
        """
        Return conditions for requests to an upload address returned earlier.

        Raises KeyEnded if the key was deleted, disabled or has expired. Without a readable registry, nothing
        is checked.
        """
        if self._registry is None:
            return ()
        if self._registry.is_shared and self._registry.keys.find_by_number(key_number) is None:
            # wait, because another gateway may have created the key just before it returned the address
            await self._registry.wait_until_caught_up()
        key = self._registry.keys.find_by_number(key_number)
        if key is None or key.state(self._clock.now()) != ENABLED:
            raise KeyEnded("the key that requested the upload address was deleted, disabled or has expired")
        return self._registry.keys.enabled_key_expectations(key_number)

    def _find_key(self, secret: str) -> ApiKey | None:
        if self._registry is None:
            return self._legacy.key if self._legacy and self._legacy.matches(secret) else None
        key = self._registry.keys.find_by_secret(secret)
        if (
            key is None
            and self._legacy
            and not self._is_adopted
            and not self._registry.keys.is_ended_file_secret(secret)
        ):
            return self._legacy.key if self._legacy.matches(secret) else None
        return key

    def _find_expired_key(self, secret: str) -> ApiKey | None:
        return None if self._registry is None else self._registry.keys.find_expired_by_secret(secret)

    def _refuse_expired(self, key: ApiKey) -> Refusal:
        if key.status == DISABLED:
            return self._refuse_disabled()
        now = self._clock.now()
        expiry = key.expires_at or now
        tried = ExpiredKeyUses(expires_at=expiry, count=1, newest=now)
        self._unwritten_tries[key.id] = tried.add_or_keep_later_expiry(self._unwritten_tries.get(key.id))
        message = (
            f"this API key expired on {utc_iso(expiry)}; use another key, or ask an operator to move the date"
        )
        return self._count_and_refuse("expired_key", message)

    def _refuse_disabled(self) -> Refusal:
        return self._count_and_refuse("disabled_key", "this API key is disabled; an operator can enable it")

    def _refuse_guess(self, secret: str, address: str) -> Refusal:
        network = address_network(address)
        wait_s = self._guesses.wait_s(network)
        if wait_s:
            self.failed_attempts += 1
            return Refusal(
                429,
                "too_many_attempts",
                "too many unknown keys from this address; retry later",
                retry_after_s=wait_s,
            )
        self._guesses.charge(network)
        return self._refuse_unknown(describe_wrong_form(secret))

    def _refuse_unknown(self, wrong_form: str = "") -> Refusal:
        message = "this API key is unknown or was deleted"
        return self._count_and_refuse("unknown_key", f"{message}; {wrong_form}" if wrong_form else message)

    def _count_and_refuse(self, type: str, message: str) -> Refusal:
        self.failed_attempts += 1
        return Refusal(401, type, message)


def _require_key(keys: Iterable[AnyKey], name: str) -> AnyKey:
    for key in keys:
        if key.name == name:
            return key
    raise NotThere(f"there is no key named {name!r}")


def _strip_bearer(credential: str) -> str:
    return credential[7:].strip() if credential[:7].lower() == "bearer " else credential


def missing_scope_refusal(scope: str) -> Refusal:
    use_case = granting_use_case(scope)
    grant = f'or the managed use case "{use_case}"' if use_case else "(no managed use case grants it)"
    return Refusal(403, "missing_scope", f"this API key lacks the scope {scope}; give it that scope {grant}")


def hidden_figures_refusal() -> Refusal:
    """Return the refusal for a key that may not read figures, because `privacy.min_group` hides them."""
    message = (
        "privacy.min_group hides figures of small groups of people, so keys read no figures; an operator may name "
        "this key in server.figure_keys"
    )
    return Refusal(403, "min_group", message)


def ended_token_refusal() -> Refusal:
    message = "this enrolment token was revoked or has expired; an operator can create another one"
    return Refusal(401, "token_ended", message)

"""Access by key: immediate refusals with a reason, and rate limits."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.server import ServerSettings
from gateway.configuration.values import ConfigError
from gateway.core.errors import Refusal
from gateway.core.rate_limits import TokenBuckets
from gateway.people.authentication.access import GUESSES, KeyAccess
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import BILLING_DROP, INGEST, SEND_AI_TELEMETRY
from spool.sqlite.registry import open_registry
from tests.moved_clock import MovedClock
from tests.spool.kept import audit_rows

ACTOR = Actor("ada@example.com", "127.0.0.1")
HERE = "192.0.2.1"


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest_asyncio.fixture
async def registry(tmp_path: Path, clock: MovedClock) -> AsyncIterator[Registry]:
    registry = await open_registry(tmp_path, secret=b"i" * 32, clock=clock)
    yield registry
    await registry.close()


async def a_key(registry: Registry, name: str = "search team", **given: Any) -> str:
    _, secret = await registry.keys.create(
        name=name, actor=ACTOR, **(given or {"use_cases": [SEND_AI_TELEMETRY]})
    )
    return secret


def refused(access: KeyAccess, secret: str | None, scope: str = INGEST, address: str = HERE) -> Refusal:
    with pytest.raises(Refusal) as caught:
        access.admit(secret, scope, address=address)
    return caught.value


@pytest.mark.parametrize("secret", [None, "", "  "])
async def test_no_key(registry: Registry, clock: MovedClock, secret: str | None) -> None:
    """A request without a key gets 401, and the error explains how to send a key."""
    refusal = refused(KeyAccess(registry, clock=clock), secret)
    assert refusal.status == 401
    assert refusal.type == "missing_key"
    assert "send the key as the whole value of the Authorization header" in refusal.message


async def test_an_unknown_key(registry: Registry, clock: MovedClock) -> None:
    """An unknown key is refused. The message does not repeat the key."""
    refusal = refused(KeyAccess(registry, clock=clock), "th_guessed")
    assert refusal.status == 401
    assert refusal.type == "unknown_key"
    assert "guessed" not in refusal.message


async def test_a_disabled_key(registry: Registry, clock: MovedClock) -> None:
    """A disabled key is refused as soon as `disable` returns, and the message says that it is disabled."""
    secret = await a_key(registry)
    access = KeyAccess(registry, clock=clock)
    access.admit(secret, INGEST, address=HERE)
    await registry.keys.disable("search team", actor=ACTOR)
    refusal = refused(access, secret)
    assert refusal.status == 401
    assert refusal.type == "disabled_key"
    await registry.keys.enable("search team", actor=ACTOR)
    assert "search team" == access.admit(secret, INGEST, address=HERE).name


async def test_a_deleted_key(registry: Registry, clock: MovedClock) -> None:
    """A deleted key is refused as soon as `delete` returns, whatever its open connections still send."""
    secret = await a_key(registry)
    access = KeyAccess(registry, clock=clock)
    await registry.keys.delete("search team", confirm="search team", actor=ACTOR)
    assert {401} == {refused(access, secret).status for _ in range(GUESSES * 10)}


async def test_a_bearer_follows_its_key(registry: Registry, clock: MovedClock) -> None:
    """A change of a key or of the settings applies from the key's next request."""
    access = KeyAccess(registry, ServerSettings(chain_keys=()), clock=clock)
    secret = await a_key(registry, labels={"team": "search"}, scopes=[INGEST])
    before = access.admit(secret, INGEST, address=HERE)
    assert before.name == "search team"
    assert before.labels == {"team": "search"}
    assert before.may_chain is False
    await registry.keys.edit(
        "search team", new_name="site-1", labels={"team": "ads"}, scopes=[BILLING_DROP], actor=ACTOR
    )
    assert "missing_scope" == refused(access, secret).type
    after = access.admit(secret, BILLING_DROP, address=HERE)
    assert after.name == "site-1"
    assert after.labels == {"team": "ads"}
    assert after.may_chain is False
    access.configure(ServerSettings(chain_keys=("site-*",)), None)
    chained = access.admit(secret, BILLING_DROP, address=HERE)
    assert chained.may_chain is True
    assert chained.is_gateway is True


@pytest.mark.parametrize("prefix", ["Bearer ", "bearer ", "BEARER  "])
async def test_a_bearer_prefix(registry: Registry, clock: MovedClock, prefix: str) -> None:
    """
    A key with a prefix such as Bearer gets 401, and the error says to send it without. `server.accept_bearer`
    accepts the prefix.
    """
    secret = await a_key(registry)
    refusal = refused(KeyAccess(registry, clock=clock), prefix + secret)
    assert refusal.status == 401
    assert refusal.type == "bearer_prefix"
    assert "send only the key as its value" in refusal.message
    assert "server.accept_bearer" in refusal.message
    lenient = KeyAccess(registry, ServerSettings(accept_bearer=True), clock=clock)
    assert "search team" == lenient.admit(prefix + secret, INGEST, address=HERE).name
    assert "search team" == lenient.admit(secret, INGEST, address=HERE).name


@pytest.mark.proves("A write-only key reads data")
async def test_a_missing_scope(registry: Registry, clock: MovedClock) -> None:
    """
    A key without the required scope gets 403. The error names the scope and the use case that grants it, or
    says that no use case does.
    """
    secret = await a_key(registry)
    for scope, words in (
        (BILLING_DROP, '"Send Billing Data"'),
        ("insights:read_insights", "no managed use case"),
    ):
        refusal = refused(KeyAccess(registry, clock=clock), secret, scope)
        assert refusal.status == 403
        assert refusal.type == "missing_scope"
        assert scope in refusal.message
        assert words in refusal.message


@pytest.mark.proves("Somebody guesses a key")
async def test_secrets_are_compared_in_constant_time(
    registry: Registry, clock: MovedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The secret is hashed with the installation's pepper, and `hmac.compare_digest` compares the hashes."""
    compared: list[tuple[bytes, bytes]] = []
    original = hmac.compare_digest

    def noted(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return original(left, right)

    secret = await a_key(registry)
    monkeypatch.setattr(hmac, "compare_digest", noted)
    KeyAccess(registry, clock=clock).admit(secret, INGEST, address=HERE)
    [(kept, given)] = compared
    assert kept == given
    assert 32 == len(kept)
    assert secret.encode() not in kept


async def test_a_known_key_is_admitted_until_something_changes(registry: Registry, clock: MovedClock) -> None:
    """Each change of the key or of the settings, and the end of a secret, require a full check."""
    keys, name = registry.keys, "search team"
    secret = await a_key(registry)
    access = KeyAccess(registry, clock=clock)

    def known() -> Callable[[], bool]:
        access.admit(secret, INGEST, address=HERE)
        note_use_if_valid = access.find_validity_check(secret)
        assert note_use_if_valid is not None
        assert note_use_if_valid()
        return note_use_if_valid

    before = known()
    await a_key(registry, "another key")
    assert before()
    clock.move(1)
    assert before()
    assert clock.now() == access.key(name).last_accessed
    for change in (
        lambda: keys.edit(name, labels={"team": "red"}, actor=ACTOR),
        lambda: keys.rotate(name, overlap_s=30, actor=ACTOR),
        lambda: keys.edit(name, expires_at=clock.now() + 60, actor=ACTOR),
    ):
        before = known()
        await change()
        assert not before()
    before = known()
    access.configure(ServerSettings(), None)
    assert not before()
    before = known()
    clock.move(30)
    assert not before()
    assert 401 == refused(access, secret).status


@pytest.mark.proves("Somebody guesses a key")
async def test_guesses_are_limited_by_address(registry: Registry, clock: MovedClock) -> None:
    """
    After a burst of unknown keys, the address gets 429 with Retry-After. Valid keys and other addresses
    do not wait.
    """
    secret = await a_key(registry)
    access = KeyAccess(registry, clock=clock)
    assert [401] * GUESSES == [refused(access, f"th_guess{n}").status for n in range(GUESSES)]
    limited = refused(access, "th_one_more")
    assert limited.status == 429
    assert limited.type == "too_many_attempts"
    assert limited.retry_after_s is not None
    assert 401 == refused(access, "th_guess", address="192.0.2.2").status
    assert "search team" == access.admit(secret, INGEST, address=HERE).name
    clock.move(limited.retry_after_s)
    assert 401 == refused(access, "th_guess").status
    assert GUESSES + 3 == access.failed_attempts


async def test_one_ipv6_host_is_one_address(registry: Registry, clock: MovedClock) -> None:
    """
    Two IPv6 addresses in one /64 network count as one address, because such a network belongs to one host.
    """
    access = KeyAccess(registry, clock=clock)
    for number in range(GUESSES):
        refused(access, "th_guess", address=f"2001:db8::{number:x}")
    assert 429 == refused(access, "th_guess", address="2001:db8::ffff").status
    assert 401 == refused(access, "th_guess", address="2001:db8:0:1::1").status


def test_the_table_of_addresses_is_bounded(clock: MovedClock) -> None:
    """A flood from many addresses drops the least recently used ones instead of filling the memory."""
    buckets = TokenBuckets(clock, burst=1, per_s=1, size=100)
    for number in range(1000):
        buckets.charge(str(number))
    assert 100 == len(buckets)
    assert buckets.wait_s("0") == 0
    assert buckets.wait_s("999") == 1


async def test_last_access_is_written_in_batches(
    registry: Registry, clock: MovedClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The check of a key only notes the time of the access. One transaction writes all these times, and they survive a
    restart.
    """
    secrets = [await a_key(registry, f"key {number}") for number in range(3)]
    batches: list[dict[int, float]] = []
    write = registry.keys.store_access_times

    async def noted(times: dict[int, float]) -> None:
        batches.append(dict(times))
        await write(times)

    monkeypatch.setattr(registry.keys, "store_access_times", noted)
    access = KeyAccess(registry, clock=clock)
    for _ in range(100):
        clock.move(0.01)
        for secret in secrets[:2]:
            access.admit(secret, INGEST, address=HERE)
    assert [] == batches
    await access.store_uses()
    await access.store_uses()
    assert [2] == [len(batch) for batch in batches]
    await registry.close()
    again = await open_registry(tmp_path, secret=b"i" * 32, clock=clock)
    assert [clock.now(), clock.now(), None] == [key.last_accessed for key in again.keys.all()]
    await again.close()


async def test_an_idle_flush_writes_nothing(registry: Registry, clock: MovedClock, tmp_path: Path) -> None:
    access = KeyAccess(registry, clock=clock)
    before = await audit_rows(registry), written(tmp_path)
    await access.store_uses()
    assert before == (await audit_rows(registry), written(tmp_path))


def written(directory: Path) -> dict[str, tuple[int, int]]:
    """Return the size and modification time of every file."""
    files = ((path, path.stat()) for path in directory.iterdir())
    return {path.name: (stat.st_size, stat.st_mtime_ns) for path, stat in files}


async def test_a_key_over_its_request_limit_waits(registry: Registry, clock: MovedClock) -> None:
    """One noisy sender gets 429 with Retry-After while another key is served."""
    access = KeyAccess(registry, ServerSettings(max_key_requests_per_s=5), clock=clock)
    noisy, quiet = AuthenticatedKey("noisy", frozenset()), AuthenticatedKey("quiet", frozenset())
    for _ in range(5):
        access.charge_request(noisy, requests=1, bytes=10**9)
    with pytest.raises(Refusal) as caught:
        access.charge_request(noisy, requests=1, bytes=0)
    assert caught.value.status == 429
    assert caught.value.type == "key_limit"
    assert caught.value.retry_after_s == 1
    access.charge_request(quiet, requests=1, bytes=0)
    clock.move(1)
    access.charge_request(noisy, requests=1, bytes=0)


async def test_one_body_above_the_byte_limit_passes_and_is_paid_off(
    registry: Registry, clock: MovedClock
) -> None:
    """
    A body larger than the limit for one second is accepted once. The next body waits until the rate is met again.
    """
    access = KeyAccess(registry, ServerSettings(max_key_bytes_per_s=1000), clock=clock)
    bearer = AuthenticatedKey("large", frozenset())
    access.charge_request(bearer, requests=1, bytes=11_000)
    with pytest.raises(Refusal) as caught:
        access.charge_request(bearer, requests=1, bytes=1)
    assert 11 == caught.value.retry_after_s
    clock.move(11)
    access.charge_request(bearer, requests=1, bytes=1)


async def test_a_key_over_its_byte_limit_is_refused_before_its_body_is_read(
    registry: Registry, clock: MovedClock
) -> None:
    """Bytes of a refused body also count, because reading it cost as much."""
    access = KeyAccess(registry, ServerSettings(max_key_bytes_per_s=1000), clock=clock)
    bearer = AuthenticatedKey("bombs", frozenset())
    access.charge_request(bearer, requests=1, bytes=0)
    access.charge_refused_bytes(bearer, bytes=5000)
    with pytest.raises(Refusal) as caught:
        access.charge_request(bearer, requests=1, bytes=0)
    assert caught.value.status == 429
    assert caught.value.retry_after_s == 5


async def test_without_limits_nothing_is_counted(registry: Registry, clock: MovedClock) -> None:
    access = KeyAccess(registry, clock=clock)
    for _ in range(1000):
        access.charge_request(AuthenticatedKey("any", frozenset()), requests=1000, bytes=10**12)


async def test_device_keys_are_resolved_by_their_own_table(registry: Registry, clock: MovedClock) -> None:
    """
    A `thd_` secret is resolved by the device table. A secret that the table does not know counts as a guess.
    """
    device = AuthenticatedKey("laptop-1", frozenset({INGEST}), device="laptop-1")
    access = KeyAccess(registry, clock=clock, devices={"thd_laptop-1_1_ab": device}.get)
    assert device == access.admit("thd_laptop-1_1_ab", INGEST, address=HERE)
    assert "unknown_key" == refused(access, "thd_laptop-2_1_ab").type
    assert "missing_scope" == refused(access, "thd_laptop-1_1_ab", BILLING_DROP).type


async def test_damaged_key_table_gives_senders_503_with_retry_after(
    clock: MovedClock, tmp_path: Path
) -> None:
    """
    A damaged key table is the gateway's fault, so senders get 503 with Retry-After. The deployment's
    key still works.
    """
    file = tmp_path / "key"
    file.write_text("deployed-key")
    access = KeyAccess(None, ServerSettings(api_key_file=file), clock=clock)
    refusal = refused(access, "th_good_one")
    assert refusal.status == 503
    assert refusal.type == "keys_unavailable"
    assert refusal.retry_after_s is not None
    assert "Legacy API Key" == access.admit("deployed-key", INGEST, address=HERE).name
    await access.store_uses()


@pytest.mark.parametrize("text", ["", "short", "two words", "\n"])
def test_a_key_file_that_holds_no_key_is_a_configuration_error(
    clock: MovedClock, tmp_path: Path, text: str
) -> None:
    """
    If the key file is empty, or its text is too short or more than one word, the server does not start,
    because anyone could guess such a key.
    """
    file = tmp_path / "key"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"server\.api_key_file"):
        KeyAccess(None, ServerSettings(api_key_file=file), clock=clock)


def test_a_key_file_that_is_missing_is_a_configuration_error(clock: MovedClock, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.api_key_file"):
        KeyAccess(None, ServerSettings(api_key_file=tmp_path / "missing"), clock=clock)


async def test_the_legacy_key_remembers_its_last_access(
    registry: Registry, clock: MovedClock, tmp_path: Path
) -> None:
    """The last access of the deployment's key survives a restart, like that of other keys."""
    file = tmp_path / "key"
    file.write_text("deployed-key")
    access = KeyAccess(registry, ServerSettings(api_key_file=file), clock=clock)
    await access.start()
    access.admit("deployed-key", INGEST, address=HERE)
    await access.stop()
    clock.move(100)
    again = KeyAccess(registry, ServerSettings(api_key_file=file), clock=clock)
    await again.start()
    assert clock.now() - 100 == again.key("Legacy API Key").last_accessed
    await again.stop()


async def test_the_last_access_may_be_at_another_gateway(registry: Registry, clock: MovedClock) -> None:
    """If another gateway noted a later access of the key, that time is shown."""
    access = KeyAccess(registry, clock=clock)
    access.admit(await a_key(registry), INGEST, address=HERE)
    began = clock.now()
    assert began == access.key("search team").last_accessed
    # The access time is stored as if another gateway had noted it.
    await registry.keys.store_access_times({registry.keys.all()[0].id: began + 60})
    assert began + 60 == access.key("search team").last_accessed
    clock.move(120)
    access.admit(await a_key(registry, "other team"), INGEST, address=HERE)
    assert began + 60 == access.key("search team").last_accessed

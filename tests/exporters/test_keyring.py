"""The choice of the upstream key and the address for each stream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from exporters.check import check_streams
from exporters.errors import Misconfigured
from exporters.service.paths import STREAMS, UpstreamPaths
from exporters.service.upstream_client import Keyring
from exporters.settings import UpstreamKey, UpstreamSettings
from spool.clock import SystemClock
from spool.registry import scopes

NARROW = UpstreamKey(name="narrow", secret_env="NARROW", use_cases=(scopes.SEND_AI_TELEMETRY,))
ENVIRON = {"NARROW": "secret-narrow"}


ROUNDS = 200
# few scopes, so that many keys grant the same one
GRANTED = (scopes.INGEST, scopes.BILLING_DROP, scopes.VALIDATE_BILLING_DROP, scopes.ENROLL, scopes.PING)


def _random_keys(random: Random) -> list[UpstreamKey]:
    """Return up to six keys in random order, with use cases or with scopes."""
    names = random.sample("abcdef", random.randint(0, 6))
    return [_random_key(name, random) for name in names]


def _random_key(name: str, random: Random) -> UpstreamKey:
    if random.random() < 0.4:
        use_cases = tuple(random.sample(sorted(scopes.USE_CASES), random.randint(1, 2)))
        return UpstreamKey(name=name, secret_env=name, use_cases=use_cases)
    fixed = tuple(random.sample(GRANTED, random.randint(1, len(GRANTED))))
    return UpstreamKey(name=name, secret_env=name, scopes=fixed)


def _narrowest(keys: Sequence[UpstreamKey], scope: str) -> str | None:
    """Return the name of the key that must send a scope, found by comparing all keys by hand."""
    best: tuple[int, str] | None = None
    for key in keys:
        granted = {*key.scopes}
        for use_case in key.use_cases:
            granted |= scopes.USE_CASES[use_case]
        if scope in granted and (best is None or len(granted) < best[0]):
            best = len(granted), key.name
    return best and best[1]


@pytest.mark.proves("A stolen upstream key opens too much")
def test_the_key_with_the_fewest_scopes_sends() -> None:
    """Of the keys that grant a scope, the one with the fewest scopes is used, and the first of equal ones."""
    random = Random(7)
    for _ in range(ROUNDS):
        keys = _random_keys(random)
        keyring = Keyring(keys, {key.name: f"secret-{key.name}" for key in keys})
        for scope in GRANTED:
            name = _narrowest(keys, scope)
            covering = keyring.key_for(scope)
            assert name == (covering and covering.settings.name)
            assert name is None or f"secret-{name}" == keyring.secret_for(scope)


async def test_check_names_the_key_that_sends() -> None:
    """`tollhouse check` names the key with the fewest scopes for each stream, whatever the order of the keys."""
    random = Random(11)
    for _ in range(ROUNDS // 20):
        keys = tuple(_random_keys(random))
        settings = UpstreamSettings(base_url="http://127.0.0.1:9", keys=keys, connection_id="one", timeout=1)
        found = await check_streams(settings, clock=SystemClock())
        assert {"traces", "metrics", "billing-drops"} <= {stream.stream for stream in found}
        assert [_narrowest(keys, stream.scope) for stream in found] == [stream.key for stream in found]


def test_a_missing_scope_is_named_with_what_would_grant_it() -> None:
    """If no key has the scope of a stream, the reason of the parked route states which key is missing."""
    with pytest.raises(
        Misconfigured, match=r"covers the scope ai-telemetry-ingest:ingest-ai-telemetry .*Send AI Telemetry"
    ):
        Keyring([], ENVIRON).secret_for(scopes.INGEST)


def test_scopes_of_a_use_case_are_resolved_per_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The scopes of a use case are looked up at each request. So if a scope joins a use case, existing keys may
    use it without an edit.
    """
    keyring = Keyring([NARROW], ENVIRON)
    assert keyring.key_for(scopes.PING) is None
    monkeypatch.setitem(scopes.USE_CASES, scopes.SEND_AI_TELEMETRY, frozenset({scopes.INGEST, scopes.PING}))
    assert "secret-narrow" == keyring.secret_for(scopes.PING)


def test_a_secret_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """After the secret file changes, the next request uses the new secret, and the key's stamp changes."""
    file = tmp_path / "key"
    file.write_text("one\n")
    keyring = Keyring([UpstreamKey(name="k", secret_file=file, scopes=(scopes.INGEST,))])
    before = keyring.secret_file_states()
    assert "one" == keyring.secret_for(scopes.INGEST)
    assert before == keyring.secret_file_states()
    new = tmp_path / "key.new"
    new.write_text("two\n")
    new.replace(file)
    assert "two" == keyring.secret_for(scopes.INGEST)
    assert before != keyring.secret_file_states()


def test_only_secrets_in_files_are_watched(tmp_path: Path) -> None:
    """A file that does not exist yet is watched as well. A variable cannot change, so its stamp is None."""
    file = tmp_path / "key"
    keys = (UpstreamKey(name="a", secret_file=file), UpstreamKey(name="b", secret_env="B"))
    keyring = Keyring(keys, ENVIRON)
    missing, variable = keyring.secret_file_states()
    assert missing is not None
    assert variable is None
    file.write_text("one\n")
    assert missing != keyring.secret_file_states()[0]


@pytest.mark.parametrize("content", [None, "", "\n", "two\nlines", "a b", "bell\x07"])
def test_a_secret_that_cannot_be_used_refuses(tmp_path: Path, content: str | None) -> None:
    """
    With a missing, empty or mangled secret the route waits. The message names file and key, never the content.
    """
    file = tmp_path / "key"
    if content is not None:
        file.write_text(content)
    keyring = Keyring([UpstreamKey(name="telemetry", secret_file=file, scopes=(scopes.INGEST,))])
    with pytest.raises(Misconfigured, match="upstream key telemetry") as refusal:
        keyring.secret_for(scopes.INGEST)
    assert "lines" not in str(refusal.value)
    assert str(file) in str(refusal.value)


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(Misconfigured, match="NARROW"):
        Keyring([NARROW], {}).secret_for(scopes.INGEST)


@pytest.mark.proves("A secret appears in a log, an answer or an upstream's error")
def test_the_secret_is_in_no_repr() -> None:
    """Logs may print a keyring, so its repr must hold no secret."""
    keyring = Keyring([NARROW], ENVIRON)
    keyring.secret_for(scopes.INGEST)
    assert "secret-narrow" not in repr(vars(keyring)) + repr(keyring.key_for(scopes.INGEST))


def test_every_stream_uses_a_scope_of_the_catalogue() -> None:
    """
    Every stream uses a scope of the catalogue. With another scope, no key could send the stream, and it would
    be parked forever.
    """
    assert set() == {stream.scope for stream in STREAMS.values()} - scopes.SCOPES


@pytest.mark.parametrize(
    ("settings", "stream", "parts", "url"),
    [
        ({}, "traces", {}, "https://cost.example/v1/traces"),
        (
            {"ai_telemetry_url": "https://otel.example/ai/"},
            "metrics",
            {},
            "https://otel.example/ai/v1/metrics",
        ),
        (
            {"ai_telemetry_url": "https://otel.example"},
            "ping",
            {},
            "https://cost.example/v1/ai-control-plane/ping",
        ),
        ({"paths": {"traces": "/otlp/t"}}, "traces", {}, "https://cost.example/otlp/t"),
        ({"paths": {"traces": "https://b.example/t"}}, "traces", {}, "https://b.example/t"),
        ({"paths": {"metrics": ""}}, "metrics", {}, None),
        ({}, "usage-events", {}, None),
        (
            {"connection_id": "c/1"},
            "billing-drops",
            {},
            "https://cost.example/v2/connections/billing/external/c%2F1/billing_drops",
        ),
        (
            {},
            "unit-cost",
            {"kind": "metric", "stream": "a b", "operation": "sum"},
            "https://cost.example/unit-cost/v1/telemetry/metric/a%20b/sum",
        ),
    ],
)
def test_a_stream_has_one_address(
    settings: dict[str, object], stream: str, parts: dict[str, str], url: str | None
) -> None:
    """
    The address of a stream is the table's default, unless the settings have a base for its kind or a
    path in upstream.paths.
    """
    upstream = UpstreamSettings(base_url="https://cost.example/", **settings)  # type: ignore[arg-type]
    assert url == UpstreamPaths(upstream).url(stream, **parts)


def test_an_overridden_path_is_not_the_published_one() -> None:
    """Paths that an operator chose, or that only Tollhouse serves, count as unverified."""
    paths = UpstreamPaths(UpstreamSettings(base_url="https://x", paths={"billing-drops": "/b"}))
    assert [False, False, True] == [
        paths.has_documented_path(name) for name in ("billing-drops", "traces", "unit-cost")
    ]

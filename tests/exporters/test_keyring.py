"""The choice of the upstream key and the address for each stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from exporters.errors import Misconfigured
from exporters.service.paths import STREAMS, Paths
from exporters.service.upstream_client import Keyring
from exporters.settings import UpstreamKey, UpstreamSettings
from spool.registry import scopes

WIDE = UpstreamKey(name="wide", secret_env="WIDE", scopes=(scopes.INGEST, scopes.ENROLL))
NARROW = UpstreamKey(name="narrow", secret_env="NARROW", use_cases=(scopes.SEND_AI_TELEMETRY,))
ENVIRON = {"WIDE": "secret-wide", "NARROW": "secret-narrow"}


def test_a_managed_use_case_goes_first() -> None:
    """If two keys grant a scope, the key with a use case sends it, in any order of the file."""
    keyring = Keyring([WIDE, NARROW], ENVIRON)
    assert "secret-narrow" == keyring.secret_for(scopes.INGEST)
    assert "secret-wide" == keyring.secret_for(scopes.ENROLL)


def test_a_missing_scope_is_named_with_what_would_grant_it() -> None:
    """If no key has the scope of a stream, the reason of the parked route states which key is missing."""
    with pytest.raises(
        Misconfigured, match=r"covers the scope ai-telemetry-ingest:ingest-ai-telemetry .*Send AI Telemetry"
    ):
        Keyring([], ENVIRON).secret_for(scopes.INGEST)


def test_a_use_case_is_resolved_when_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The scopes of a use case are looked up at each request. So if a scope joins a use case, existing keys may
    use it without an edit.
    """
    keyring = Keyring([NARROW], ENVIRON)
    assert keyring.covering(scopes.PING) is None
    monkeypatch.setitem(scopes.USE_CASES, scopes.SEND_AI_TELEMETRY, frozenset({scopes.INGEST, scopes.PING}))
    assert "secret-narrow" == keyring.secret_for(scopes.PING)


def test_a_secret_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """After the secret file changes, the next request uses the new secret, and the key's stamp changes."""
    file = tmp_path / "key"
    file.write_text("one\n")
    keyring = Keyring([UpstreamKey(name="k", secret_file=file, scopes=(scopes.INGEST,))])
    before = keyring.stamps()
    assert "one" == keyring.secret_for(scopes.INGEST)
    assert before == keyring.stamps()
    new = tmp_path / "key.new"
    new.write_text("two\n")
    new.replace(file)
    assert "two" == keyring.secret_for(scopes.INGEST)
    assert before != keyring.stamps()


def test_only_secrets_in_files_are_watched(tmp_path: Path) -> None:
    """A file that does not exist yet is watched as well. A variable cannot change, so its stamp is None."""
    file = tmp_path / "key"
    keys = (UpstreamKey(name="a", secret_file=file), UpstreamKey(name="b", secret_env="B"))
    keyring = Keyring(keys, ENVIRON)
    missing, variable = keyring.stamps()
    assert missing is not None
    assert variable is None
    file.write_text("one\n")
    assert missing != keyring.stamps()[0]


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


def test_the_secret_is_in_no_repr() -> None:
    """Logs may print a keyring, so its repr must hold no secret."""
    keyring = Keyring([NARROW], ENVIRON)
    keyring.secret_for(scopes.INGEST)
    assert "secret-narrow" not in repr(vars(keyring)) + repr(keyring.covering(scopes.INGEST))


def test_every_stream_asks_for_a_scope_of_the_catalogue() -> None:
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
    assert url == Paths(upstream).url(stream, **parts)


def test_an_overridden_path_is_not_the_published_one() -> None:
    """Paths that an operator chose, or that only Tollhouse serves, count as unverified."""
    paths = Paths(UpstreamSettings(base_url="https://x", paths={"billing-drops": "/b"}))
    assert [False, False, True] == [
        paths.published(name) for name in ("billing-drops", "traces", "unit-cost")
    ]

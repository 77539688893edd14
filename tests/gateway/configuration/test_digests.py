"""Digests with which gateways on one storage compare the settings that must be equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gateway.configuration.changes import digest_settings, is_setting_shared_by_gateways
from gateway.configuration.sections import Config, PrivacySettings
from gateway.configuration.server import ServerSettings
from spool.settings import SpoolSettings, StorageSettings

SECRET = b"s" * 32
CONFIG = Config()


def differing(config: Config, *, prices: str = "2026") -> set[str]:
    before = digest_settings(CONFIG, prices="2026", secret=SECRET)
    after = digest_settings(config, prices=prices, secret=SECRET)
    assert before.keys() == after.keys()
    return {name for name, digest in before.items() if after[name] != digest}


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (replace(CONFIG, spool=SpoolSettings(hold=0)), {"spool.hold"}),
        (replace(CONFIG, privacy=PrivacySettings(emails="drop")), {"privacy.emails"}),
        (replace(CONFIG, server=ServerSettings(accept_bearer=True)), {"server.accept_bearer"}),
        (replace(CONFIG, server=ServerSettings(listen="127.0.0.1:1")), set()),
        (replace(CONFIG, storage=StorageSettings(node_name="b", dsn_file=Path("elsewhere"))), set()),
        (replace(CONFIG, data_dir=Path("elsewhere")), set()),
    ],
)
def test_what_differs(config: Config, names: set[str]) -> None:
    """
    The digests cover only settings that must be equal on all gateways. Settings of one machine may differ.
    """
    assert names == differing(config)


def test_the_prices_themselves() -> None:
    """The digest covers the prices themselves, not the path of the price file."""
    assert {"prices"} == differing(CONFIG, prices="2027")
    assert not is_setting_shared_by_gateways("prices.file")


def test_no_value_can_be_found_out() -> None:
    """Without the installation's secret, no value can be derived from its digest."""
    one, other = (digest_settings(CONFIG, prices="2026", secret=secret) for secret in (SECRET, b"t" * 32))
    assert not set(one.values()) & set(other.values())
    assert one == digest_settings(Config(), prices="2026", secret=SECRET)

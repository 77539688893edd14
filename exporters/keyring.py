"""Which upstream key is sent with which stream: managed use cases first, resolved through one catalogue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exporters.errors import Misconfigured
from exporters.secret_source import SecretSource
from exporters.settings import UpstreamKey
from spool.registry import scopes


@dataclass(frozen=True)
class KeyringEntry:
    settings: UpstreamKey
    secret: SecretSource

    def grants(self, scope: str) -> bool:
        """Resolved now and not at start, because the catalogue may change what a use case covers."""
        return scope in scopes.granted(scopes=self.settings.scopes, use_cases=self.settings.use_cases)


class Keyring:
    def __init__(self, keys: Sequence[UpstreamKey], environ: Mapping[str, str] | None = None) -> None:
        # Stable: within both kinds the configuration's order holds.
        ordered = sorted(keys, key=lambda key: not key.use_cases)
        self._keys = [KeyringEntry(key, _secret_source(key, environ)) for key in ordered]

    def covering(self, scope: str) -> KeyringEntry | None:
        """The narrowest key that grants a scope: the first with a use case, else the first with scopes."""
        return next((key for key in self._keys if key.grants(scope)), None)

    def secret_for(self, scope: str) -> str:
        """Misconfigured if no key covers the scope, or the covering key's secret cannot be read."""
        key = self.covering(scope)
        if key is None:
            use_case = scopes.granting_use_case(scope)
            hint = f' (use_cases = ["{use_case}"] grants it)' if use_case else ""
            raise Misconfigured(f"no key in upstream.keys covers the scope {scope}{hint}", answered=False)
        return key.secret.value()

    def stamps(self) -> list[object]:
        """Differs from an earlier answer when a secret file changed."""
        return [key.secret.stamp() for key in self._keys]


def _secret_source(key: UpstreamKey, environ: Mapping[str, str] | None) -> SecretSource:
    name = f"upstream key {key.name}"
    return SecretSource(name, file=key.secret_file, env=key.secret_env, environ=environ)

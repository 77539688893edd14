"""
The client of the upstream. It sends each stream to its path, with the key that has the fewest rights
for the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

from exporters.errors import Misconfigured
from exporters.http.answers import HttpAnswer, check_not_web_page
from exporters.http.client import MAX_ANSWER_BYTES, ClientSettings, HttpClient
from exporters.secret_source import SecretSource
from exporters.service.paths import STREAMS, UpstreamPaths
from exporters.settings import UpstreamKey, UpstreamSettings
from spool.clock import Clock
from spool.registry import scopes


@dataclass(frozen=True)
class KeyringEntry:
    settings: UpstreamKey
    secret: SecretSource

    @property
    def granted_scopes(self) -> frozenset[str]:
        """
        Return the scopes of the key. This is computed for each call, because the catalogue of use cases may change.
        """
        return scopes.resolve_scopes(scopes=self.settings.scopes, use_cases=self.settings.use_cases)


class Keyring:
    def __init__(self, keys: Sequence[UpstreamKey], environ: Mapping[str, str] | None = None) -> None:
        self._keys = [KeyringEntry(key, _secret_source(key, environ)) for key in keys]

    def key_for(self, scope: str) -> KeyringEntry | None:
        """
        Return the key with the fewest scopes among those that grant this scope (the first of several), or
        None.
        """
        granting = (key for key in self._keys if scope in key.granted_scopes)
        return min(granting, key=lambda key: len(key.granted_scopes), default=None)

    def secret_for(self, scope: str) -> str:
        """
        Return the secret for a scope. Raises Misconfigured if no key covers the scope, or if its secret
        cannot be read.
        """
        key = self.key_for(scope)
        if key is None:
            use_case = scopes.granting_use_case(scope)
            hint = f' (use_cases = ["{use_case}"] grants it)' if use_case else ""
            raise Misconfigured(f"no key in upstream.keys covers the scope {scope}{hint}", answered=False)
        return key.secret.value()

    def secret_file_states(self) -> list[object]:
        return [key.secret.change_stamp() for key in self._keys]


def _secret_source(key: UpstreamKey, environ: Mapping[str, str] | None) -> SecretSource:
    name = f"upstream key {key.name}"
    return SecretSource(name, file=key.secret_file, env=key.secret_env, environ=environ)


class UpstreamClient:
    def __init__(self, client: HttpClient, paths: UpstreamPaths, keyring: Keyring) -> None:
        self.client = client
        self._paths = paths
        self._keyring = keyring

    @classmethod
    def from_settings(cls, settings: UpstreamSettings, *, clock: Clock) -> UpstreamClient:
        return cls(build_client(settings, clock=clock), UpstreamPaths(settings), Keyring(settings.keys))

    async def send(
        self,
        name: str,
        body: bytes,
        /,
        *,
        method: str = "POST",
        content_type: str = "application/json",
        idempotency_key: str | None = None,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        **parts: str,
    ) -> HttpAnswer:
        """
        Send one request to a stream. `parts` fill the placeholders of its path.

        Raises Misconfigured before sending if the path is empty or no key covers the stream, and the
        errors of `HttpClient.send`.
        """
        with self.name_refused_key_in_errors(name):
            answer = await self.client.send(
                self._paths.required_url(name, **parts),
                body,
                method=method,
                content_type=content_type,
                authorization=self.authorization(name),
                idempotency_key=idempotency_key,
                max_answer_bytes=max_answer_bytes,
            )
        check_not_web_page(answer)
        return answer

    async def post(
        self,
        name: str,
        body: bytes,
        *,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        content_type: str = "application/json",
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> HttpAnswer:
        parameters = urlencode(query)
        with self.name_refused_key_in_errors(name):
            answer = await self.client.send(
                self._paths.required_url(name) + (f"?{parameters}" if parameters else ""),
                body,
                content_type=content_type,
                authorization=self.authorization(name),
                headers=headers,
                max_answer_bytes=max_answer_bytes,
            )
        check_not_web_page(answer)
        return answer

    def url(self, stream: str) -> str | None:
        return self._paths.url(stream)

    def authorization(self, stream: str) -> str:
        return self._keyring.secret_for(STREAMS[stream].scope)

    @contextmanager
    def name_refused_key_in_errors(self, stream: str) -> Iterator[None]:
        try:
            yield
        except Misconfigured as error:
            key = self._keyring.key_for(STREAMS[stream].scope)
            if key is not None and error.status in (401, 403):
                error.args = (f"{error} (key {key.settings.name})",)
            raise

    def headers(self) -> Mapping[str, str]:
        return {}

    def secret_file_states(self) -> list[object]:
        return self._keyring.secret_file_states()

    async def close(self) -> None:
        await self.client.close()


def build_client(settings: UpstreamSettings, *, clock: Clock) -> HttpClient:
    return HttpClient(
        ClientSettings(
            proxy=settings.proxy,
            ca_file=settings.ca_file,
            timeout_s=settings.timeout,
            compression=settings.compression,
            idempotency_header=settings.idempotency_header,
        ),
        clock=clock,
    )

"""
Whose lake it is: one small object says which installation writes below a prefix.

Who comes first makes it, and nobody changes it. A copy that is restored from a backup has the identity of its original.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import msgspec

from exporters.errors import Misconfigured, Retryable
from exporters.lake.stores import Store
from exporters.probe import OK, Probe

NAME: Final = "_tollhouse.json"
_TRY: Final = "_check.json"  # where the installation has no data yet, and so no identity


class _Owner(msgspec.Struct, frozen=True, kw_only=True):
    """Tollhouse up to 1.0 named no installation: the prefix is everybody's then."""

    lake: int = 1
    installation: str | None = None
    release: str | None = None


_decoder: Final = msgspec.json.Decoder(_Owner)


async def claim(store: Store, installation: str) -> None:
    """Make the prefix that of an installation. Misconfigured if it belongs to another one."""
    if await store.create(NAME, _written(_Owner(installation=installation, release=version("tollhouse")))):
        return
    owner = await _owner_of(store)
    if owner not in (installation, None):
        raise Misconfigured(
            f"the prefix belongs to another installation ({owner}, as {NAME} says): give this destination another "
            "one (docs/lake.md)",
            answered=False,
        )


async def tried(store: Store, installation: str | None) -> Probe:
    """Write one small object, which stays, read it, write it once more and list what is there."""
    if installation is None:
        name, owner = _TRY, await _owner_of(store)
        await store.create(name, _written(_Owner()))
    else:
        name, owner = NAME, None
        await claim(store, installation)
    body = await _read(store, name)
    if body is None:
        raise Retryable(f"{name} is not there after it was written", answered=False)
    refuses = await store.refuses_again(name, body)
    async for _ in store.names("_manifest/"):
        break
    words = [f"{name} is written there, and stays"]
    if not refuses:
        words.append("the store ignores conditions: files are written without")
    if owner is not None:
        words.append(f"the prefix belongs to the installation {owner}, and there is no data of one here yet")
    return Probe(status=OK, words="; ".join(words))


async def _owner_of(store: Store) -> str | None:
    """None if no installation is named."""
    body = await _read(store, NAME)
    if body is None:
        return None
    try:
        return _decoder.decode(body).installation
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{NAME} is not of Tollhouse: {error}", answered=False) from error


async def _read(store: Store, name: str) -> bytes | None:
    """None if there is no such object."""
    size = await store.size(name)
    return None if size is None else await store.end(name, size, size)


def _written(owner: _Owner) -> bytes:
    return msgspec.json.encode(owner) + b"\n"

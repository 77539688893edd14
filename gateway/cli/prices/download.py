"""Download of a price list: over https, without redirects, and with limits of size and time."""

from __future__ import annotations

import asyncio

from exporters.errors import SendError
from gateway.intake.rate_cards.card import CardUnreadable
from spool.clock import SystemClock


def is_url(source: str) -> bool:
    return "://" in source


def download_list(url: str, *, max_bytes: int, timeout_s: float) -> bytes:
    """
    Return the content of an address. Raises CardUnreadable with the reason.

    A redirect is not followed, because it may lead to an address that nobody chose. Link-local addresses and
    services that give a machine its credentials are refused after the name was resolved.
    """
    if not url.startswith("https://"):
        raise CardUnreadable(f"{url}: the address must begin with https://")
    try:
        content = asyncio.run(_fetch_url(url, max_bytes, timeout_s))
    except SendError as error:
        if error.status is not None and 300 <= error.status < 400:
            raise CardUnreadable(
                f"{url}: the address redirects ({error.status}); name the final address"
            ) from error
        raise CardUnreadable(f"{url}: {error}") from error
    if len(content) > max_bytes:
        raise CardUnreadable(f"{url}: the list is larger than prices.max_file_bytes ({max_bytes} bytes)")
    return content


async def _fetch_url(url: str, max_bytes: int, timeout_s: float) -> bytes:
    # imported late, because most commands about prices send no request
    from exporters.http.allowed_addresses import check_address_allowed
    from exporters.http.client import ClientSettings, HttpClient

    settings = ClientSettings(timeout_s=timeout_s, compression="none", check=check_address_allowed)
    async with HttpClient(settings, clock=SystemClock()) as client:
        answer = await client.send(
            url, b"", content_type="application/json", method="GET", max_answer_bytes=max_bytes + 1
        )
    return answer.body

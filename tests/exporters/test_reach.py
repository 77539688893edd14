"""
Allowed addresses for requests, if an account chose the address. The resolver is simulated, and the
sockets are real.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from exporters.errors import Misconfigured
from exporters.http.allowed_addresses import (
    address_check_for,
    check_address_allowed,
    check_loopback_address,
    problems_of_forbidden_url,
)
from exporters.http.client import ClientSettings, HttpClient
from exporters.notifications.catalogue import all_channel_problems, build_channel
from exporters.notifications.channel import NotificationMessage, StoredChannelSettings
from tests.exporters.notifications.examples import NOW, SECRET, notice
from tests.exporters.upstream import FakeUpstream, Reply
from tests.integration.exporters.notifications.receivers import Mailbox, mail_server
from tests.moved_clock import MovedClock

CLOCK = MovedClock(NOW)
METADATA = "169.254.169.254"
SPECIAL = (
    METADATA,
    "169.254.170.2",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "::",
    "fe80::1%eth0",
    "ff02::1",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "2002:a9fe:a9fe::1",
    "64:ff9b::a9fe:a9fe",
)
Resolve = Callable[[str, Sequence[str]], None]


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Make a name resolve to the next address at each lookup. The last address stays."""
    known: dict[str, list[str]] = {}
    real = socket.getaddrinfo

    def looked_up(host: Any, *more: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if name in known:
            host = known[name].pop(0) if len(known[name]) > 1 else known[name][0]
        return real(host, *more, **named)

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    return lambda name, addresses: known.__setitem__(name, [*addresses])


@pytest.mark.parametrize("address", SPECIAL)
def test_no_request_is_sent_to_a_special_address(address: str) -> None:
    with pytest.raises(Misconfigured, match="to which Tollhouse sends nothing"):
        check_address_allowed(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "10.1.2.3", "192.168.0.1", "fd12::1", "1.1.1.1", "2606:4700::1"]
)
def test_this_machine_and_inner_networks_are_ordinary(address: str) -> None:
    """Addresses of private networks are permitted, because receivers of alerts often run there."""
    check_address_allowed(address)


@pytest.mark.parametrize("address", ["10.1.2.3", "1.1.1.1", "fd12::1", METADATA])
def test_plain_http_is_accepted_only_for_loopback_addresses(address: str) -> None:
    check_loopback_address("127.0.0.1")
    check_loopback_address("::1")
    with pytest.raises(Misconfigured, match="is accepted only for loopback addresses"):
        check_loopback_address(address)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (
            "http://hooks.example.com/x",
            "url must begin with https://, because http:// is accepted only for loopback addresses",
        ),
        (
            "http://10.0.0.1/x",
            "url must begin with https://, because http:// is accepted only for loopback addresses",
        ),
        (f"https://{METADATA}/x", f"url: the address leads to {METADATA}, to which Tollhouse sends nothing"),
        ("https://[fe80::1]/x", "url: the address leads to fe80::1, to which Tollhouse sends nothing"),
        ("http://localhost:9093", None),
        ("http://127.0.0.1:9093", None),
        ("http://[::1]:9093", None),
        ("https://hooks.example.com/x", None),
    ],
)
def test_what_an_address_shows_by_itself_is_said_where_it_is_stated(url: str, problem: str | None) -> None:
    assert [problem] * (problem is not None) == list(problems_of_forbidden_url("url", url))


@pytest.mark.proves("An account creates a channel into the network behind Tollhouse, or reads its answers")
@pytest.mark.parametrize(
    "host",
    [
        METADATA, "2852039166", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "0251.0376.0251.0376", "169.254.43518",
        "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]", "0", "0.0.0.0", "[::]", "metadata.example",
    ],
)  # fmt: skip
async def test_no_spelling_of_an_address_gets_through(host: str, resolve: Resolve) -> None:
    """
    A forbidden address gets no connection in any spelling: as a number, in octal, mapped to IPv6 or under a name.
    """
    resolve("metadata.example", [METADATA])
    url = f"https://{host}/latest/meta-data"
    async with HttpClient(ClientSettings(check=address_check_for(url)), clock=CLOCK) as client:
        with pytest.raises(Misconfigured, match=r"to which Tollhouse sends nothing|is not a valid address"):
            await client.send(url, b"", content_type="text/plain")


@pytest.mark.proves("An account creates a channel into the network behind Tollhouse, or reads its answers")
async def test_a_name_that_leads_elsewhere_the_next_time_is_checked_again(resolve: Resolve) -> None:
    """
    The client connects to the address that it checked, so a changed DNS answer does not help an attacker.
    """
    async with FakeUpstream() as receiver:
        port = receiver.url.rpartition(":")[2]
        resolve("rebound.example", ["127.0.0.1", METADATA])
        url = f"http://rebound.example:{port}/hook"
        for _ in range(2):
            client = HttpClient(ClientSettings(check=address_check_for(url)), clock=CLOCK)
            try:
                await client.send(url, b"", content_type="text/plain")
            except Misconfigured as error:
                assert METADATA in str(error)
            await client.close()
    assert 1 == len(receiver.requests)


async def test_a_redirect_leads_nowhere() -> None:
    async with FakeUpstream() as receiver:
        receiver.answers.append(Reply(307, headers={"Location": f"http://{METADATA}/latest"}))
        url = f"{receiver.url}/hook"
        async with HttpClient(ClientSettings(check=address_check_for(url)), clock=CLOCK) as client:
            with pytest.raises(Misconfigured, match="does not follow redirects"):
                await client.send(url, b"", content_type="text/plain")


def kept(type: str, **fields: Any) -> StoredChannelSettings:
    return StoredChannelSettings(name="mine", type=type, group_wait=0.0, **fields)


HOOK = "https://metadata.example/hook"
KEPT = (
    kept("webhook", url=HOOK, secret=SECRET),
    kept("slack", secret=HOOK),
    kept("teams", secret=HOOK),
    kept("pagerduty", url=HOOK, secret="0123456789abcdefABCDEF0123456789"),
    kept("alertmanager", url=HOOK),
    kept("email", server="metadata.example:587", sender="a@example.com", to=("b@example.com",)),
    kept(
        "email", server="metadata.example:465", tls="implicit", sender="a@example.com", to=("b@example.com",)
    ),
)


@pytest.mark.proves("An account creates a channel into the network behind Tollhouse, or reads its answers")
@pytest.mark.parametrize("settings", KEPT, ids=lambda each: f"{each.type}-{each.tls}")
async def test_every_channel_of_an_account_is_checked(
    settings: StoredChannelSettings, resolve: Resolve
) -> None:
    """
    The check applies to every channel that an account configures. The channel's address may look harmless,
    but its name may resolve to a service with credentials.
    """
    resolve("metadata.example", [METADATA])
    assert [] == list(all_channel_problems([settings]))
    channel = build_channel(settings, CLOCK)
    with pytest.raises(Misconfigured, match="to which Tollhouse sends nothing"):
        await channel.send(NotificationMessage(notices=[notice()]))
    assert "to which Tollhouse sends nothing" in str((await channel.probe()).words)
    await channel.close()


async def test_a_mail_server_on_this_machine_is_reached(resolve: Resolve) -> None:
    """A mail server's name is looked up once for the check and the connection, and the mail arrives."""
    resolve("mail.example", ["127.0.0.1"])
    async with mail_server(Mailbox()) as mailbox:
        to = kept(
            "email",
            server=f"mail.example:{mailbox.port}",
            tls="none",
            sender="a@example.com",
            to=("b@example.com",),
        )
        await build_channel(to, CLOCK).send(NotificationMessage(notices=[notice()]))
    assert 1 == len(mailbox.mails)


def test_every_type_has_an_example_here() -> None:
    from exporters.notifications.catalogue import TYPES

    assert set(TYPES) == {each.type for each in KEPT}

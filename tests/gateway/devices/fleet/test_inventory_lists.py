"""Inventory lists of Jamf, Intune and Kandji and other tables: read as a whole, or rejected."""

from __future__ import annotations

import pytest

from gateway.devices.fleet.inventory_lists import read_inventory_list
from spool.errors import Invalid
from spool.registry.tables.inventory import Machine

JAMF = (
    b"Computer Name,Serial Number,Username,Email Address,Department,Operating System,Last Check-in\r\n"
    b"ada-mac,C02XL0GYJGH5,ada,Ada@Example.com,Engineering,macOS 26.1,2026-11-26 at 8:30 AM\r\n"
    b"bob-mac,C02XL0GYJGH6,bob,,Support,macOS 26.1,1795681800000\r\n"
)
INTUNE = (
    "\ufeffDevice ID,Device name,Last check-in,OS,Serial number,Primary user UPN,Category\n"
    "1,DESKTOP-1,2026-11-26 08:30:00.1234567,Windows,PF3ABC,ada@example.com,Engineering\n"
    "2,iPhone,2026-11-26 08:30:00.1234567,iOS,F17,ada@example.com,Engineering\n"
    '3,"DESKTOP-2, spare",,Windows,PF3ABD,,\n'
).encode()
KANDJI = (
    b"Device Name;Serial Number;User Email;Blueprint;Platform;Last Check-In\n"
    b"mia-mac;C02XL0GYJGH7;mia@example.com;Docs;Mac;2026-11-26T08:30:00Z\n\n"
)
AT_HALF_PAST_EIGHT = 1795681800.0


def test_an_export_of_jamf() -> None:
    listed = read_inventory_list("jamf.csv", JAMF)
    assert (
        Machine(
            "C02XL0GYJGH5", "ada-mac", "Ada@Example.com", "Engineering", "macOS 26.1", AT_HALF_PAST_EIGHT
        ),
        Machine("C02XL0GYJGH6", "bob-mac", "bob", "Support", "macOS 26.1", AT_HALF_PAST_EIGHT),
    ) == listed.machines


def test_an_export_of_intune() -> None:
    """
    An Intune export is read with its byte order mark, seven digits of a second, and a quoted comma. A phone in it
    is left out.
    """
    listed = read_inventory_list("intune.csv", INTUNE)
    assert 1 == listed.no_laptops
    assert (
        Machine(
            "PF3ABC", "DESKTOP-1", "ada@example.com", "Engineering", "Windows", AT_HALF_PAST_EIGHT + 0.123456
        ),
        Machine("PF3ABD", "DESKTOP-2, spare", "", "", "Windows", None),
    ) == listed.machines


def test_an_export_of_kandji() -> None:
    """A Kandji export with semicolons and an empty line is read."""
    [machine] = read_inventory_list("kandji.csv", KANDJI).machines
    assert Machine("C02XL0GYJGH7", "mia-mac", "mia@example.com", "Docs", "Mac", AT_HALF_PAST_EIGHT) == machine


def test_repeated_machines_count_once() -> None:
    """
    If a list has a serial number twice, the row with the newest check-in counts. Upper and lower case are the same
    machine.
    """
    content = b"serial,user,last seen\nA1,old,2026-11-01\na1,new,2026-11-26\nA1,none,\nB2,bob,2026-11-26\n"
    listed = read_inventory_list("list.csv", content)
    assert (["new", "bob"], 2) == ([machine.user for machine in listed.machines], listed.repeated)


def test_users_are_stored_as_in_records() -> None:
    [first, second] = read_inventory_list(
        "list.csv", JAMF, to_recorded_user=lambda user: None if "@" in user else user
    ).machines
    assert ("", "bob") == (first.user, second.user)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "no column of serial numbers"),
        (b"user,team\nada,search\n", "no column of serial numbers"),
        (JAMF[:-40], "line 3 has"),  # half a file
        (JAMF + b'"open', "not a CSV file"),
        (b"serial,hostname\nA1,one\n,\n, \n", ""),
        (b"serial,hostname,team\nA1,one,x\n,,x\n", "neither a serial number nor a hostname"),
        (b"serial,last seen\nA1,11/26/2026 8:30:00 AM\n", "last check-in"),
        (b"serial,last seen\nA1,9999-12-31T23:59:59-14:00\n", "last check-in"),
        (b"serial,last seen\nA1,9999999999999\n", "last check-in"),
        (b"serial\n" + b"A" * 257 + b"\n", "more than 256"),
        (b"serial\n\xff\xfe\n", "not text in UTF-8"),
        (b"serial\n" + b"A" * (1024 * 1024 + 1), "more than 1048576 characters"),
        (b"serial\n" + b"".join(b"A%d\n" % n for n in range(100_002)), "more than 100000 rows"),
    ],
)
def test_a_list_that_cannot_be_read_as_a_whole(content: bytes, reason: str) -> None:
    if not reason:
        assert 1 == len(read_inventory_list("list.csv", content).machines)
        return
    with pytest.raises(Invalid, match=reason):
        read_inventory_list("list.csv", content)

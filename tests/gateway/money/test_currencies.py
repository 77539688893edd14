"""
Daily exchange rates: files of the European Central Bank, the operator's own files, the order of precedence,
and rejected files.
"""

from __future__ import annotations

import io
import os
import zipfile
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest

from gateway.configuration.sections import CurrencyRate, CurrencySettings
from gateway.money.currencies import (
    ExchangeRates,
    RatesUnreadable,
    build_rate_table,
    parse_rates_file,
    read_rates_file,
)
from spool.currencies import SCALE

MOST = 1 << 20
HISTORY = b"Date,USD,JPY,CNY,\n2026-11-20,1.0831,168.95,N/A,\n2026-11-19,1.0800,168.00,7.7,\n"
DAILY = b"""<?xml version="1.0" encoding="UTF-8"?>
<gesmes:Envelope xmlns:gesmes="http://www.gesmes.org/xml/2002-08-01" xmlns="http://www.ecb.int/vocabulary/2002-08-01/eurofxref">
<gesmes:subject>Reference rates</gesmes:subject><Cube><Cube time="2026-11-20">
<Cube currency="USD" rate="1.0831"/><Cube currency='JPY' rate='168.95'/><Cube currency="XXX" rate="2"/>
</Cube></Cube></gesmes:Envelope>"""
OWN = b"date,currency,usd\n2026-11-20,EUR,1.09\n"


def day(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def archive(content: bytes, *more: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive_file:
        for number, table in enumerate((content, *more)):
            archive_file.writestr(f"eurofxref-hist{number}.csv", table)
    return file.getvalue()


def section(path: Path | None = None, *rates: CurrencyRate, most: int = MOST) -> CurrencySettings:
    return CurrencySettings(rates_file=path, rate=rates, max_file_bytes=most)


@pytest.mark.parametrize(
    "content", [HISTORY, archive(HISTORY), b"\xef\xbb\xbf" + HISTORY.replace(b"\n", b"\r\n")]
)
def test_the_history_of_the_bank(content: bytes) -> None:
    """
    The bank's history file is read although it has trailing commas, missing quotations, and currencies that
    are quoted only in euros.
    """
    values = {
        (quotation.day, quotation.currency): quotation.usd for quotation in parse_rates_file(content, MOST)
    }
    assert {
        (day("2026-11-20"), "EUR"): Fraction("1.0831"),
        (day("2026-11-20"), "JPY"): Fraction("1.0831") / Fraction("168.95"),
        (day("2026-11-19"), "EUR"): Fraction("1.08"),
        (day("2026-11-19"), "JPY"): Fraction("1.08") / 168,
        (day("2026-11-19"), "CNY"): Fraction("1.08") / Fraction("7.7"),
    } == values


def test_the_daily_file_of_the_bank() -> None:
    """Unknown currency codes in the bank's file are skipped."""
    values = [(quotation.currency, quotation.usd) for quotation in parse_rates_file(DAILY, MOST)]
    assert [("EUR", Fraction("1.0831")), ("JPY", Fraction("1.0831") / Fraction("168.95"))] == values


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "its header must be"),
        (b"<html></html>", "no rates"),
        (b"Date,JPY\n2026-11-20,1\n", "its header must be"),
        (b"Date,USD\nyesterday,1\n", "line 2"),
        (b"Date,USD\n2026-11-20,-1\n", "-1 is not a rate"),
        (b"Date,USD,JPY\n2026-11-20,1\n", "line 2"),
        (b"date,currency,usd\n2026-11-20,USD,1\n", "USD is not the code of a currency other than USD"),
        (b"date,currency,usd\n2026-11-20,EUR,1e99\n", "line 2"),
        (b"date,currency,usd\n2026-11-20,EUR\n", "line 2"),
        (b"\xff\xfe", "UTF-8"),
        (b"PK\x03\x04 and no more", "archive"),
        (archive(HISTORY, HISTORY), "must have one file, but has 2"),
        (b"Date,USD\n" + b"2026-11-20,1\n" * 100_000, "max_file_bytes"),
        (archive(b"Date,USD\n" + b"2026-11-20,1\n" * 100_000), "max_file_bytes"),
    ],
)
def test_invalid_file_of_rates_is_refused_whole(content: bytes, words: str) -> None:
    """
    An invalid file of rates is refused as a whole. The error names the line, or the setting that would
    accept the file.
    """
    with pytest.raises(RatesUnreadable, match=words):
        parse_rates_file(content, MOST)


def test_which_rate_counts() -> None:
    """
    The order is: a configured rate, the own file, the bank's rate, then a rate at most seven days older. A
    later rate is never used.
    """
    settings = section(None, CurrencyRate(currency="JPY", usd=Decimal("0.007"), since="2026-11-20"))
    table = build_rate_table(settings, [*parse_rates_file(HISTORY, MOST), *parse_rates_file(OWN, MOST)])
    currency_days = [("JPY", "2026-11-19"), ("JPY", "2027-05-01"), ("EUR", "2026-11-20"), ("CNY", "2026-11-26"),
             ("CNY", "2026-11-27"), ("EUR", "2026-11-18"), ("USD", "1999-01-01"), ("RUB", "2026-11-20")]  # fmt: skip
    values = [table.value(currency, day(when)) for currency, when in currency_days]
    assert [Fraction("1.08") / 168, Fraction("0.007"), Fraction("1.09"), Fraction("1.08") / Fraction("7.7"),
            None, None, 1, None] == [None if one is None else one.usd for one in values]  # fmt: skip
    assert ["ecb", "configured", "own", "ecb"] == [one.source for one in values if one is not None][:4]


def test_rates_between_any_two_currencies(tmp_path: Path) -> None:
    """
    A rate between two currencies has twelve decimals, rounded half-even. It is computed over dollars without
    rounding in between.
    """
    file = tmp_path / "rates.csv"
    file.write_bytes(HISTORY)
    rates = ExchangeRates(section(file))
    at = day("2026-11-20")
    assert 1_083_100_000_000 == rates("EUR", "USD", at)
    assert 923_275_782_476 == rates("USD", "EUR", at)
    assert 168_950_000_000_000 == rates("EUR", "JPY", at)
    assert SCALE == rates("JPY", "JPY", at)
    assert None is rates("EUR", "GBP", at)


def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    """If a new file of exchange rates is invalid, the earlier rates stay in force."""
    file = tmp_path / "rates.csv"
    rates, at = ExchangeRates(section(file)), day("2026-11-20")
    assert None is rates("EUR", "USD", at)
    assert rates.problem is not None
    for content, expected, is_fine in (
        (HISTORY, "1.0831", True),
        (b"?", "1.0831", False),
        (OWN, "1.09", True),
    ):
        file.write_bytes(content)
        os.utime(file, ns=(len(content), len(content)))
        assert int(Decimal(expected) * SCALE) == rates("EUR", "USD", at)
        assert is_fine == (rates.problem is None)
    with pytest.raises(RatesUnreadable, match="max_file_bytes"):
        read_rates_file(file, 5)

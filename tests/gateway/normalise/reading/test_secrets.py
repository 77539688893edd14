"""
Detection of values that look like credentials. A quick check precedes the regular expression and gives
the same result.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.reading import tags
from gateway.normalise.reading.tags import is_credential

SECRETS = [
    "Bearer abc", "basic abc", "sk-12345678", "rk-12345678", "pcsk-12345678", "gsk-12345678", "xai-12345678",
    "pplx-12345678", "csk-12345678", "sk_0123456789abcdef", "r8_0123456789abcdef", "hf_0123456789abcdef",
    "th_0123456789abcdef", "thd_0123456789abcdef", "ghp_0123456789abcdef", "github_pat_0123456789abcdef",
    "glpat_0123456789abcdef", "AKIA0123456789ab", "ASIA0123456789ab", "AIza0123456789ab", "xoxb-1", "ya29.abc",
    "eyJhbGci.eyJz.sig", "sk-ab...cdef", "...cdef", "ab***cd",
]  # fmt: skip
ALIKE = re.findall("[a-z0-9]", "".join(map(chr, range(0x80, 0x110000))), re.IGNORECASE)


@pytest.mark.parametrize("secret", SECRETS)
def test_credentials_are_known_however_they_begin(secret: str) -> None:
    """
    Credentials are found even in upper case, and with letters that the expression treats as equal to ASCII letters.
    """
    assert is_credential(secret) and is_credential(secret.swapcase())
    for place in (0, 1):
        for letter in ALIKE:
            if re.fullmatch(re.escape(secret[place]), letter, re.IGNORECASE):
                assert is_credential(secret[:place] + letter + secret[place + 1 :])


@given(st.text("bearsikpcgxhtlyo8f-_.*JAz29ıſK 0", max_size=24) | st.text(max_size=12))
def test_the_expression_decides(value: str) -> None:
    masked = "***" in value and len(value.split()) == 1
    assert is_credential(value) == (tags._SECRET.fullmatch(value) is not None or masked)

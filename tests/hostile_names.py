"""Hostile names, such as a user may choose for an attack. Tests try them wherever Tollhouse shows a name."""

from __future__ import annotations

import re

HOSTILE_NAMES = (
    "=?utf-8?q?=0AReply-To:_evil=40evil.example=0A=0AYour_password?=",
    "=?utf-8?b?DQpCY2M6IGV2aWxAZXZpbC5leGFtcGxl?=",
    "==?utf-8?q?_a?= =?utf-8?q?=0D=0A.?=",
    "a\r\nBcc: evil@evil.example\r\n\r\nread this",
    "a\n.\nMAIL FROM:<evil@evil.example>",
    "\x1b[2J\x1b]0;title\x07red\x9b31m",
    "a\x00b\x08c\x7fd",
    "a\u2028b\u2029c\x85d\x0be",
    "invoice\u202egnp.exe \u2066x\u2069",
    "zero\u200bwidth\ufeff",
    "<!channel> <!here> <@U024BE7LH> <https://evil.example|your bank>",
    "@channel @everyone @here",
    "[your bank](https://evil.example) ![x](https://evil.example/x.png)",
    "**bold** _it_ ~out~ `code`",
    "https://evil.example www.evil.example",
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "<at>everyone</at> {{DATE(2030-01-01T00:00:00Z, LONG)}} {{7*7}} ${7*7}",
    '=HYPERLINK("https://evil.example","open")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1:A9)",
    "\t=1+1",
    "\r=1+1",
    "\u200b=1+1",
    "\uff1d1+1",
    '",=1+1',
    'x"} 1\nevil_metric 1',
    "a | b \\| c",
    "# heading",
    "%s %n {0} {name}",
    "../../etc/passwd",
    "=",
    "x" * 290,
)
# No displayed line may contain these characters: controls, line separators, and marks that reverse or hide text.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
FORMULA = re.compile(r"\s*[=+\-@\uff1d]")

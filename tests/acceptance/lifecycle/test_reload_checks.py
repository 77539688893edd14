"""A reload refuses or reports every problem that `tollhouse check` finds: one table of cases for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHANNEL = '[[notify]]\nname = "on-call"\ntype = "{type}"\n{more}\n'
HOOK = 'url = "http://127.0.0.1:9/"\nsecret_file = "{file}"'
KEY = '[[upstream.keys]]\nname = "k"\nuse_cases = ["Send AI Telemetry"]\nsecret_file = "missing"\n'

# per case: additional configuration, whether a reload refuses it, and a part of the error message
CASES = [
    (CHANNEL.format(type="webhook", more=HOOK.format(file="short")), False, "whsec_"),
    (CHANNEL.format(type="webhook", more=HOOK.format(file="missing")), False, "on-call"),
    (CHANNEL.format(type="slack", more='url_file = "missing"'), False, "on-call"),
    (CHANNEL.format(type="alertmanager", more=HOOK.format(file="missing")), False, "on-call"),
    ('[upstream]\nbase_url = "http://127.0.0.1:9"\n' + KEY, False, "upstream.keys[0].secret_file"),
    ('[sources.helicone]\nsigning_secret_file = "missing"\n', True, "signing_secret_file"),
    ('[prices]\nfile = "missing"\n', True, "prices.file"),
]


def test_a_reload_finds_what_check_finds(installations: Any) -> None:
    """
    A reload reports an unusable secret and applies the other changes. A problem in the server's own settings makes
    it refuse all changes.
    """
    tollhouse = installations()
    plain = tollhouse.config.read_text()
    (tollhouse.directory / "short").write_text("no-secret")
    tollhouse.start()
    for added, is_refused, words in CASES:
        tollhouse.config.write_text(plain + added)
        checked = tollhouse.attempt("check")
        assert checked.returncode == 1, (added, checked.stdout)
        assert words in checked.stdout, (added, checked.stdout)
        done = tollhouse.attempt("reload")
        assert done.returncode == (2 if is_refused else 0), (added, done.stderr)
        assert words in done.stderr, (added, done.stderr)
    tollhouse.config.write_text(plain)
    assert "but " not in tollhouse.attempt("reload").stderr


def test_a_secret_is_named_and_not_shown(installations: Any, tmp_path: Path) -> None:
    """A reload names the secret's file with the same message as check."""
    tollhouse = installations()
    (tollhouse.directory / "short").write_text("no-secret")
    tollhouse.start()
    more = CHANNEL.format(type="webhook", more=HOOK.format(file="short"))
    tollhouse.config.write_text(tollhouse.config.read_text() + more)
    output = tollhouse.run("reload", "--json")
    assert "channel on-call cannot send: " in output and "no-secret" not in output

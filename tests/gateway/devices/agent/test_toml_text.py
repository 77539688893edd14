"""Text edits of TOML change only the requested key, or nothing."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.devices.agent import toml_text
from gateway.devices.agent.edits import NotEditable

PATH = ("otel", "exporter")
VALUE = {"otlp-http": {"endpoint": "http://127.0.0.1:4318/v1/logs", "protocol": "binary"}}
PAIR = 'exporter = { otlp-http = { endpoint = "http://127.0.0.1:4318/v1/logs", protocol = "binary" } }'

CODEX = '''# my settings
model   = "gpt-5"   # odd spacing stays
notify = ["python3", "/home/ada/notify.py",
   "# no comment"]

[tui]
  notifications = true

[mcp_servers."my = server"]
command = """npx
[otel]
exporter = 1
"""
args = ['-y', 'x#y']

[[profiles]]
name = "a"
'''


def test_a_table_at_the_end() -> None:
    """A file without `[otel]` gets the table. Text inside a string that looks like a table is ignored."""
    assert f"{CODEX}\n[otel]\n{PAIR}\n" == toml_text.put_value(CODEX, PATH, VALUE)
    assert f"[otel]\n{PAIR}\n" == toml_text.put_value("", PATH, VALUE)
    assert f"a = 1\n\n[otel]\n{PAIR}\n" == toml_text.put_value("a = 1", PATH, VALUE)


def test_into_a_table_that_is_there() -> None:
    """A key that the table lacks is inserted below the table's header and its comment."""
    text = '[otel] # mine\nenvironment = "dev"\n[tui]\nx = 1\n'
    assert f'[otel] # mine\n{PAIR}\nenvironment = "dev"\n[tui]\nx = 1\n' == toml_text.put_value(
        text, PATH, VALUE
    )


def test_a_value_that_is_there() -> None:
    """An existing value is replaced in place, and its comment stays."""
    text = '[otel]\nexporter = "none"   # off\nlog_user_prompt = false\n'
    assert f"[otel]\n{PAIR}   # off\nlog_user_prompt = false\n" == toml_text.put_value(text, PATH, VALUE)


def test_tables_below_the_key_make_room() -> None:
    """A new value replaces the tables of another exporter below its key, and neighbouring keys stay."""
    text = (
        '[otel]\nenvironment = "prod"\n\n[otel.exporter."otlp-http"]\nendpoint = "https://x/v1/logs"\n'
        'protocol = "json"\n\n[otel.exporter."otlp-http".headers]\n"x-key" = "k"\n\n[tui]\nx = 1\n'
    )
    changed = toml_text.put_value(text, PATH, VALUE)
    assert {"otel": {"environment": "prod", "exporter": VALUE}, "tui": {"x": 1}} == tomllib.loads(changed)
    assert changed.startswith(f'[otel]\n{PAIR}\nenvironment = "prod"\n')


def test_dotted_keys() -> None:
    """A file with dotted keys gets another dotted key."""
    changed = toml_text.put_value('otel.environment = "dev"\na = 1\n', PATH, VALUE)
    assert f'otel.environment = "dev"\notel.{PAIR}\na = 1\n' == changed


@pytest.mark.parametrize(
    "text", ["otel = { environment = 'dev' }\n", "otel = 1\n", "a = \n", "[otel\n", "[[otel]]\nx=1\n"]
)
def test_what_is_not_changed_here(text: str) -> None:
    """If the edit cannot be made safely, it raises an error instead of guessing."""
    with pytest.raises(NotEditable):
        toml_text.put_value(text, PATH, VALUE)


def test_there_and_back() -> None:
    for text in (CODEX, CODEX + '[otel]\nenvironment = "dev"\n', CODEX.replace("\n", "\r\n")):
        changed = toml_text.put_value(text, PATH, VALUE)
        assert VALUE == toml_text.get_value(changed, PATH)
        gone = toml_text.remove_value(changed, PATH)
        assert toml_text.parse_settings(text) == {
            name: value for name, value in toml_text.parse_settings(gone).items() if name != "otel" or value
        }


lines = st.sampled_from([
    "", "# note", "a = 1", 'b = "x # y"', "c = [1, # one\n  2]", "[t]", "  d.e = 'f'", "[t.u] # u", '"q=r" = true',
    "s = '''\n[otel]\n'''", "[otel]", 'exporter = "none"', "[otel.x]", "i = { j = 1 }", "[[arr]]", 'm = """\n"""',
    "otel.k = 3", "\tn=1.5", "o = 1979-05-27T07:32:00Z",
])  # fmt: skip


@given(st.lists(lines, max_size=8), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_only_the_key_changes(parts: list[str], newline: str, ended: bool) -> None:
    """An edit gives the tree the new value. Everything else is equal, and every line is preserved."""
    text = newline.join(part.replace("\n", newline) for part in parts) + (newline if ended else "")
    try:
        before = toml_text.parse_settings(text)
        changed = toml_text.put_value(text, PATH, VALUE)
    except NotEditable:
        return
    expected = {**before, "otel": {**before.get("otel", {}), "exporter": VALUE}}
    assert expected == toml_text.parse_settings(changed)
    kept = [line for line in text.splitlines() if "exporter" not in line]
    rest = iter(changed.splitlines())
    assert all(line in rest for line in kept)

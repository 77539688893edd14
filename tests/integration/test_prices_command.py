"""`tollhouse prices`: a list from a file or an address, refused or stored, shown and undone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_server
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gateway.cli import main
from gateway.cli.prices.command import download_list
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards.card import CardUnreadable
from tests.integration.certificates import Certificates

Run = Callable[..., Result]
MODEL = {"litellm_provider": "openai", "mode": "chat"}


def litellm_list(**models: dict[str, float]) -> bytes:
    """Return a list of a thousand models of one seller, and those that are given."""
    others = {
        f"openai/filler-{number}": {**MODEL, "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}
        for number in range(1000)
    }
    return json.dumps({**others, **{name: {**MODEL, **entry} for name, entry in models.items()}}).encode()


CHEAPER = litellm_list(**{"gpt-4o": {"input_cost_per_token": 2e-6, "output_cost_per_token": 8e-6}})


def own_list(price: str, version: str = "our-list-1") -> bytes:
    """Return the packaged list with another version, and with a price of one model."""
    document = json.loads(cards.encode_card(cards.packaged_card()))
    document["version"] = version
    document["providers"]["openai"]["models"][0]["prices"][0]["input"] = price
    return json.dumps(document).encode()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a command on an installation of its own."""
    config = tmp_path / "tollhouse.toml"
    config.write_text("")
    (tmp_path / "tollhouse-data").mkdir()

    def run(*words: str, code: int = 0, settings: str = "") -> Result:
        config.write_text(f'data_dir = "{tmp_path}/tollhouse-data"\n{settings}')
        done = CliRunner().invoke(main, ["prices", *words, "--config", str(config)])
        assert code == done.exit_code, done.output
        return done

    return run


def input_price(run: Run, model: str) -> str:
    shown = json.loads(run("show", model, "--provider", "openai", "--json").stdout)
    rows = [row for row in shown["prices"][0]["rows"] if (row["tier"], row["unit"]) == ("standard", "input")]
    price: str = rows[-1]["price"]
    return price


def test_a_list_is_previewed_stored_and_undone(run: Run, tmp_path: Path) -> None:
    """
    A dry run stores nothing. An update shows each changed price and applies it from its day on, a second update of the
    same list changes nothing, and undo restores the list before.
    """
    source = tmp_path / "list.json"
    source.write_bytes(CHEAPER)
    before = input_price(run, "gpt-4o")
    preview = run("update", "--from", str(source), "--dry-run").stdout
    assert re.search(r"openai +gpt-4o +standard +0 +input +2.5 +2$", preview, re.MULTILINE)
    assert "nothing was stored" in preview
    assert before == input_price(run, "gpt-4o") == "2.5"
    done = json.loads(run("update", "--from", str(source), "--since", "2026-11-01", "--json").stdout)
    assert (True, False) == (done["stored"], done["reloaded"])
    assert "2" == input_price(run, "gpt-4o")
    assert "gpt-4o" in {change["model"] for change in done["changes"]}
    earlier = json.loads(run("show", "gpt-4o", "--provider", "openai", "--at", "2026-10-01", "--json").stdout)
    assert "2.5" == earlier["prices"][0]["rows"][0]["price"]
    again = run("update", "--from", str(source)).stdout
    assert "is the list in use" in again
    undone = run("undo").stdout
    assert cards.packaged_card().version in undone and "applies from the next start" in undone
    assert "2.5" == input_price(run, "gpt-4o")
    assert "no list of `prices update` to undo" in run("undo", code=2).stderr


@pytest.mark.proof
def test_an_update_says_that_estimates_stay(run: Run, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_bytes(CHEAPER)
    assert "tollhouse ledger reprice" in run("update", "--from", str(tmp_path / "list.json")).stdout


def test_a_list_of_our_own_format_replaces_the_list(run: Run, tmp_path: Path) -> None:
    """
    A list in the format of the packaged list can be loaded and replaces the packaged list. `--since` has no meaning
    for it.
    """
    card = cards.packaged_card()
    text = cards.encode_card(card).replace(card.source["date"].encode(), b"2099-01-01", 2)
    (tmp_path / "future.json").write_bytes(text)
    assert "in the future" in run("update", "--from", str(tmp_path / "future.json"), code=2).stderr
    own = tmp_path / "own.json"
    own.write_bytes(cards.encode_card(card).replace(card.version.encode(), b"our-list-1", 1))
    assert "--since is only for" in run("update", "--from", str(own), "--since", "2026-01-01", code=2).stderr
    run("update", "--from", str(own))
    assert "list: our-list-1" in run("show", "gpt-4o").stdout


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html>Sign in</html>", "not JSON"),
        (CHEAPER[: len(CHEAPER) // 2], "not JSON"),
        (litellm_list(**{"gpt-4o": {"input_cost_per_token": 2.0}}), "gpt-4o: input_cost_per_token is 2"),
        (litellm_list(**{"gpt-4o": {"input_cost_per_token": 2e-9, "output_cost_per_token": 8e-9}}), "impossible jumps"),
        (b'{"gpt-4o": {"litellm_provider": "openai", "input_cost_per_token": 2e-6}}', "it may be incomplete"),
        (b"[]", "Expected"),
        (b"[" * 2_000_000, "not JSON"),
        (CHEAPER.replace(b"2e-06", b"NaN"), "NaN is not a number"),
        (CHEAPER.replace(b"2e-06", b"-2e-06"), "which is not a price in dollars"),
        (litellm_list(**{r"\ud800": {"input_cost_per_token": 1e-6}}).replace(b"\\\\", b"\\"), "is not text"),
        (own_list("NaN"), "is NaN, which is not a price"),
        (own_list("-1"), "is -1, which is not a price"),
        (own_list("1E+999999999"), "is 1E+999999999, which is not a price"),
        (own_list("1E-999999999"), "is 1E-999999999, which is not a price"),
        (own_list("0E-999999999"), "which is not a price"),
        (own_list("2.5", version="a\x1b[31m"), "version must be"),
        (own_list("2.5", version="v" * 101), "version must be"),
    ],
)  # fmt: skip
def test_a_faulty_list_changes_nothing(run: Run, tmp_path: Path, content: bytes, words: str) -> None:
    """A list that is damaged, incomplete or impossible is refused with the reason, and the list before applies."""
    (tmp_path / "list.json").write_bytes(content)
    assert words in run("update", "--from", str(tmp_path / "list.json"), code=2).stderr
    assert not (tmp_path / "tollhouse-data" / "prices").exists()
    assert "2.5" == input_price(run, "gpt-4o")


def test_what_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    """A missing file, a too large file and a configured file are refused with the setting or the path."""
    assert "No such file" in run("update", "--from", str(tmp_path / "missing"), code=2).stderr
    (tmp_path / "list.json").write_bytes(CHEAPER)
    small = f"[prices]\nmax_file_bytes = {len(CHEAPER) - 1}\n"
    source = ("update", "--from", str(tmp_path / "list.json"))
    assert "larger than prices.max_file_bytes" in run(*source, code=2, settings=small).stderr
    named = f'[prices]\nfile = "{tmp_path}/list.json"\n'
    assert "prices.file names the price list" in run(*source, code=2, settings=named).stderr


def test_a_misspelt_model_gets_suggestions(run: Run) -> None:
    assert "similar names: gpt-5.6-terra" in run("show", "gpt-5.6-tera", code=2).stderr


class _Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "http://169.254.169.254/latest")
            self.end_headers()
            return
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("Content-Length", str(len(CHEAPER)))
        self.end_headers()
        self.wfile.write(CHEAPER)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep standard error free of requests."""


@contextmanager
def served(certificates: Certificates) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    context = SSLContext(PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path("server.pem"), certificates.path("server.key"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_list_is_downloaded(run: Run, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is fetched over https. Redirects, other answers and too many bytes are refused."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.path("ca.pem")))
    with served(certificates) as url:
        assert "tollhouse ledger reprice" in run("update", "--from", f"{url}/list").stdout
        assert "2" == input_price(run, "gpt-4o")
        assert "the address redirects (302)" in run("update", "--from", f"{url}/moved", code=2).stderr
        assert "404" in run("update", "--from", f"{url}/none", code=2).stderr
        assert CHEAPER == download_list(f"{url}/list", max_bytes=len(CHEAPER), timeout_s=60)
        with pytest.raises(CardUnreadable, match="larger than"):
            download_list(f"{url}/list", max_bytes=len(CHEAPER) - 1, timeout_s=60)


def test_a_slow_download_is_given_up() -> None:
    """A server that accepts the connection and never answers is given up after prices.download_timeout."""
    with create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/list"
        with pytest.raises(CardUnreadable, match="no answer within 1 s"):
            download_list(url, max_bytes=100, timeout_s=1)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1/list", "must begin with https://"),
        ("file:///etc/passwd", "must begin with https://"),
        ("https://169.254.169.254/list", "to which Tollhouse sends nothing"),
        ("https://[fd00:ec2::254]/list", "to which Tollhouse sends nothing"),
        ("https://127.0.0.1:1/list", "no answer"),
    ],
)
def test_addresses_that_are_refused(url: str, words: str) -> None:
    with pytest.raises(CardUnreadable, match=words):
        download_list(url, max_bytes=100, timeout_s=60)

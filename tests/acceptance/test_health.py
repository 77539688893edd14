from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.free_ports import free_port
from tests.integration.certificates import Certificates
from tests.processes.copied import start_process
from tests.rounds import part
from tests.waiting import wait_until

SETTINGS = '[server]\nlisten = "{listen}"\noperator_listen = "{operator}"\ngrpc_listen = ""\n{more}'


def wait_until_alive(one: Tollhouse) -> None:
    """Run `health` again if it fails, because a stalled machine may exceed its limit of ten seconds."""
    wait_until(lambda: one.attempt("health").stdout == "alive\n", "a living server")


@pytest.mark.parametrize("public", part([False, True], every=2))
def test_health_fails_for_hung_and_stopped_servers(installations: Any, public: bool) -> None:
    """
    `health` ends with 0 while the server is alive, even if it listens on all addresses. It ends with 1 while
    the server hangs and after its end.
    """
    operator = f"127.0.0.1:{free_port()}" if public else ""
    listen = f"{'0.0.0.0' if public else '127.0.0.1'}:{free_port()}"
    one = installations(config=SETTINGS.format(listen=listen, operator=operator, more=""))
    assert "does not answer" in one.attempt("health").stderr
    one.start()
    wait_until_alive(one)
    one.process.send_signal(signal.SIGSTOP)
    hung = one.attempt("health")
    assert hung.returncode == 1
    assert "does not answer" in hung.stderr
    one.process.send_signal(signal.SIGCONT)
    one.stop()
    one.run("health", code=1)


def test_health_accepts_a_local_certificate_for_another_host(installations: Any, tmp_path: Path) -> None:
    """A certificate for another host is no reason to report a dead server."""
    (tmp_path / "certificates").mkdir()
    files = Certificates(tmp_path / "certificates")
    more = "".join(f'{name} = "{files.server[name]}"\n' for name in ("tls_cert_file", "tls_key_file"))
    one = installations(config=SETTINGS.format(listen=f"127.0.0.1:{free_port()}", operator="", more=more))
    command = [str(COMMAND), "serve", "--config", str(one.config)]
    process = start_process(command, cwd=tmp_path, is_read=True)
    assert process.stdout is not None and process.stderr is not None
    with process.stdout as printed, process.stderr:
        try:
            assert printed.readline().startswith("listening on https://")
            wait_until_alive(one)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()

"""`tollhouse health`: a health check for environments that run a command instead of an HTTP probe."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

import click

from gateway.cli import config_option, exit_with_message, load_config_or_exit
from gateway.configuration.sections import Config
from gateway.configuration.values import split_address

ANSWER_S = 10.0
# address on which the server listens on all interfaces -> address to connect to
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@click.command()
@config_option
def health(config: Path | None) -> None:
    """
    Check that the running server is alive (/livez). Exit code 1 if it is not, or if it does not answer.

    Pass the server's --config and environment. An orchestrator with HTTP probes can request /livez instead.
    """
    connection = _build_server_connection(load_config_or_exit(config))
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        exit_with_message(f"{connection.host}:{connection.port} does not answer: {error}")
    finally:
        connection.close()
    if status != http.client.OK:
        exit_with_message(f"not alive: /livez answered {status}; the server's log has the reason")
    click.echo("alive")


def _build_server_connection(config: Config) -> http.client.HTTPConnection:
    """
    Connect to the operator listener if it has its own address, because it requires no client certificate.
    """
    from gateway.http.listening.listener import operator_listen_address, uses_tls

    server = config.server
    operator_address = operator_listen_address(server)
    host, port = split_address(operator_address or server.listen)
    host = ANY.get(host, host)
    if uses_tls(server, operator_address) if operator_address else server.tls_cert_file:
        context = ssl.create_default_context()
        # The certificate names the public host, but this connection goes to the local listener.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)
    return http.client.HTTPConnection(host, port, timeout=ANSWER_S)

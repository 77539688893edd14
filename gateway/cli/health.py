"""`tollhouse health`: asks the running server whether it lives, for health checks that are a command."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

import click

from gateway.cli import config_option, configured, fail
from gateway.service.configuration.sections import Config
from gateway.service.configuration.values import split_address

ANSWER_S = 10.0
ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # where to ask a server that listens everywhere


@click.command()
@config_option
def health(config: Path | None) -> None:
    """
    Ask the running server whether it lives (/livez). Exit 1 if it does not, or does not answer.

    It takes the same --config and environment as the server. Orchestrators that can ask over HTTP
    need no command.
    """
    connection = _connection(configured(config))
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        fail(f"{connection.host}:{connection.port} does not answer: {error}")
    finally:
        connection.close()
    if status != http.client.OK:
        fail(f"not alive: /livez answered {status}; the log says why")
    click.echo("alive")


def _connection(config: Config) -> http.client.HTTPConnection:
    """Connect to the operator's side if it has its own address: no client certificate is asked for there."""
    from gateway.http.listening.listener import operator_listen, uses_tls

    server = config.server
    operator_address = operator_listen(server)
    host, port = split_address(operator_address or server.listen)
    host = ANY.get(host, host)
    if uses_tls(server, operator_address) if operator_address else server.tls_cert_file:
        context = ssl.create_default_context()
        context.check_hostname = False  # the certificate names the public host, and this is our own listener
        context.verify_mode = ssl.CERT_NONE
        return http.client.HTTPSConnection(host, port, timeout=ANSWER_S, context=context)
    return http.client.HTTPConnection(host, port, timeout=ANSWER_S)

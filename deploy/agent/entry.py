"""The program of the self-contained agent: `tollhouse agent` and `tollhouse version`, and no gateway."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The packed OpenSSL looks for certificates where the system that built it has them.
CERTIFICATES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


def find_certificates() -> None:
    """Let OpenSSL use the certificates of this system, unless the environment names others."""
    import ssl  # here, because the hook of an assistant needs to start fast

    paths = ssl.get_default_verify_paths()
    is_named = paths.openssl_cafile_env in os.environ or paths.openssl_capath_env in os.environ
    if sys.platform == "win32" or is_named or paths.cafile:  # Python reads the store of Windows by itself
        return
    found = next((path for path in CERTIFICATES if Path(path).exists()), None)
    if found:
        os.environ[paths.openssl_cafile_env] = found


def main() -> None:
    from gateway.__main__ import answer_assistant_hook_and_exit_if_called

    answer_assistant_hook_and_exit_if_called()
    find_certificates()
    from gateway.cli import TollhouseProgram, version
    from gateway.cli.agent import agent

    text = "The Tollhouse agent: forwards the telemetry of this machine's coding assistants to a gateway."
    names = {"help_option_names": ["-h", "--help"]}
    TollhouseProgram("tollhouse", commands=[agent, version], help=text, context_settings=names)(
        prog_name="tollhouse"
    )


if __name__ == "__main__":
    main()

"""`tollhouse agent policy`: makes, checks, applies and removes a bundle of managed settings for assistants."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import click

from exporters.errors import Misconfigured
from exporters.secret_source import SecretSource
from gateway.cli import CONFIG_HELP, CONFIG_VARIABLE, data_option, exit_with_message, find_configuration_file
from gateway.cli.agent_settings import hook_option
from gateway.configuration.values import is_loopback
from gateway.devices.agent.assistants import ASSISTANTS
from gateway.devices.agent.policy.targets import LINUX, MACOS, MANAGED, Destination
from gateway.devices.fleet.heartbeat_facts import MAX_POLICY_NUMBER
from spool.clock import SystemClock
from spool.registry.keys import ENABLED
from spool.registry.scopes import INGEST

# imported late, because they load cryptography, and `agent` loads this module
if TYPE_CHECKING:
    from gateway.configuration.sections import Config
    from gateway.devices.agent.policy.applied import PolicyChanges
    from gateway.devices.agent.policy.signatures import PublicKey, SigningKey

AGENT: Final = "agent"
DIRECT: Final = "direct"
AGENT_ADDRESS: Final = "http://127.0.0.1:4318"
FOREIGN: Final = 3  # exit code if a file that Tollhouse did not write was left unchanged
# characters that need no quotes in JSON, environment files, XML, shells and PowerShell
_PLAIN_KEY: Final = re.compile(r"[\w.~+/=-]+", re.ASCII)
_PLAIN_ADDRESS: Final = re.compile(r"[\w.:/\[\]-]+", re.ASCII)
_VERSION: Final = re.compile(r"[0-9][A-Za-z0-9.+~]{0,63}")
_PLAIN_DEVICE: Final = re.compile(r"[\w.$%{}:-]{1,128}", re.ASCII)

file_type = click.Path(path_type=Path, dir_okay=False)
bundle_argument = click.argument("bundle", type=click.Path(path_type=Path, file_okay=False, exists=True))
public_key_option = click.option(
    "--public-key", required=True, type=file_type, help="File with the public key, as `policy key` prints it."
)
root_option = click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    default=Path("/"),
    help="Directory that counts as the root of the machine; default: /.",
)


def _find_configuration_if_direct(
    ctx: click.Context, param: click.Parameter, named: Path | None
) -> Path | None:
    """Search the gateway's configuration file only in the mode direct, because only this mode needs it."""
    return find_configuration_file(ctx, param, named) if ctx.params.get("mode") == DIRECT else named


@click.group(invoke_without_command=True)
@click.option(
    "--mode",
    is_eager=True,  # read before --config, whose default depends on it
    type=click.Choice((AGENT, DIRECT)),
    help="agent: assistants send to this machine's agent without a key. direct: they send to the gateway.",
)
@click.option(
    "--gateway", metavar="URL", help=f"Address to send to; default for the mode agent: {AGENT_ADDRESS}."
)
@click.option(
    "--key-file",
    type=file_type,
    help="File with the key to send with, for the mode direct. Users can read it.",
)
@click.option(
    "--assistant",
    "names",
    multiple=True,
    type=click.Choice(list(MANAGED)),
    help="Assistant to include; may repeat. Default: all that the mode supports.",
)
@click.option(
    "--environment",
    "has_environment",
    is_flag=True,
    help="Also set environment variables. Every program on the machine then gets the endpoint and the key.",
)
@click.option(
    "--device",
    metavar="TEXT",
    default="",
    help="Device id in the macOS profile, usually a variable of the MDM such as '$SERIALNUMBER'.",
)
@hook_option
@click.option(
    "--deb-version", metavar="VERSION", default="", help="Also write a Debian package with this version."
)
@click.option("--rpm-version", metavar="VERSION", default="", help="Also write an RPM with this version.")
@click.option(
    "--number",
    type=click.IntRange(1, MAX_POLICY_NUMBER),
    help="Number under the signature; machines refuse a bundle with a lower one. Default: the time in seconds.",
)
@click.option("--signing-key", type=file_type, help="File with the private key, as `policy key` creates it.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="New directory for the bundle.")
@data_option
@click.option(
    "--config",
    type=file_type,
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    callback=_find_configuration_if_direct,
    help=CONFIG_HELP,
)
@click.pass_context
def policy(
    context: click.Context,
    mode: str | None,
    gateway: str | None,
    key_file: Path | None,
    names: tuple[str, ...],
    has_environment: bool,
    device: str,
    hook: str,
    deb_version: str,
    rpm_version: str,
    number: int | None,
    signing_key: Path | None,
    out: Path | None,
    data: Path | None,
    config: Path | None,
) -> None:
    """
    Write managed settings of coding assistants, for an MDM.

    The directory gets files for Linux, macOS and Windows, and a signed list of them. The mode direct checks the
    key on the gateway, so run it where the gateway's data directory is.
    """
    if context.invoked_subcommand is not None:
        return
    if mode is None or out is None or signing_key is None:
        exit_with_message("--mode, --signing-key and --out are required", 2)
    if device and not _PLAIN_DEVICE.fullmatch(device):
        exit_with_message("--device may have letters, digits and the characters . $ % { } : _ -", 2)
    for option, version in (("--deb-version", deb_version), ("--rpm-version", rpm_version)):
        if version and not _VERSION.fullmatch(version):
            exit_with_message(
                f"{option} must begin with a digit and may have letters, digits and the characters . + ~", 2
            )
    if mode == DIRECT:
        destination = _direct_gateway_destination_or_exit(gateway, key_file, config, data)
    else:
        if key_file:
            exit_with_message("--key-file is only for --mode direct, because the agent needs no key", 2)
        destination = Destination(endpoint=_check_gateway_url(gateway or AGENT_ADDRESS))
        if not is_loopback(urlsplit(destination.endpoint).hostname or ""):
            exit_with_message(
                "the mode agent sends without a key, so --gateway must be an address of this machine", 2
            )
    if hook and destination.key:
        exit_with_message("--hook is only for --mode agent, because the hook asks the agent", 2)
    destination = replace(destination, device=device, hook=hook)
    left_out = [
        name
        for name in (names or MANAGED)
        if MANAGED[name].needs_environment(destination) and not has_environment
    ]
    for name in left_out:
        message = (
            f"{name} gets its endpoint or key only from environment variables, so it needs --environment"
        )
        if names:
            exit_with_message(message, 2)
        click.echo(f"left out: {message}", err=True)
    chosen = [
        assistant
        for name, assistant in MANAGED.items()
        if (not names or name in names) and name not in left_out
    ]
    if hook and not any(
        ASSISTANTS[assistant.name].hooks for assistant in chosen if assistant.name in ASSISTANTS
    ):
        exit_with_message("--hook needs --assistant claude-code", 2)
    if has_environment:
        what = "the endpoint and the key" if destination.key else "the endpoint"
        click.echo(f"warning: every program on the machine gets {what} from the environment", err=True)
    if device:
        message = (
            "only macOS profiles have --device; on Linux and Windows, calls name no device without an agent"
        )
        click.echo(f"warning: {message}", err=True)
    from gateway.devices.agent.policy.bundle import build_bundle

    try:
        files = build_bundle(
            chosen,
            destination,
            _read_signing_key_or_exit(signing_key),
            bundle_number=number or int(SystemClock().now()),
            has_environment=has_environment,
            deb_version=deb_version,
            rpm_version=rpm_version,
        )
    except ValueError as error:
        exit_with_message(str(error), 2)
    _write_bundle(out, files)
    click.echo(f"{out}: {len(files)} files for {', '.join(assistant.name for assistant in chosen)}")


def _write_bundle(out: Path, files: Mapping[str, bytes]) -> None:
    try:
        if out.exists() and any(out.iterdir()):
            exit_with_message(f"{out} is not empty; name a new directory with --out", 2)
        # private, because files of the mode "direct" contain the key. Below, all may read, as on the machines: users
        # who cannot read a copied policy are without it, and their Codex does not start.
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        out.chmod(0o700)
        for name, content in files.items():
            path = out / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                file.write(content)
        for path in out.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
    except OSError as error:
        exit_with_message(f"{out} cannot be written: {error.strerror}")


def _check_gateway_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or not _PLAIN_ADDRESS.fullmatch(url):
        exit_with_message(f"--gateway {url} is not an address such as https://tollhouse.example.com", 2)
    return url.rstrip("/")


def _direct_gateway_destination_or_exit(
    gateway: str | None, key_file: Path | None, config: Path | None, data: Path | None
) -> Destination:
    from gateway.cli.data_directory import load_config_with_data

    if gateway is None or key_file is None:
        exit_with_message("--mode direct needs --gateway and --key-file", 2)
    endpoint = _check_gateway_url(gateway)
    if endpoint.startswith("http://") and not is_loopback(urlsplit(endpoint).hostname or ""):
        exit_with_message(
            "--gateway must begin with https://, because the key would cross the network unencrypted", 2
        )
    try:
        key = SecretSource("the key", file=key_file).value()
    except Misconfigured as error:
        exit_with_message(str(error), 2)
    if not _PLAIN_KEY.fullmatch(key):
        exit_with_message(f"{key_file} does not have one key without spaces and quotes", 2)
    _require_send_only_key(load_config_with_data(config, data), key, has_file=config is not None)
    return Destination(endpoint=endpoint, key=key)


def _require_send_only_key(settings: Config, key: str, *, has_file: bool) -> None:
    """Exit unless the key can only send AI telemetry, because every user of a machine can read it."""
    from gateway.cli.operator.client import OperatorClient
    from gateway.configuration.local_operator import local_address

    client = OperatorClient(settings, local_address(settings), has_file=has_file)
    answer = client.request("POST", "/keys/identify", body={"secret": key})
    name, granted = answer["key"]["name"], set(answer["granted"])
    if more := sorted(granted - {INGEST}):
        exit_with_message(
            f"the key {name} may do more than send AI telemetry ({', '.join(more)}); create a key that may not",
            2,
        )
    if INGEST not in granted:
        exit_with_message(f"the key {name} may not send AI telemetry", 2)
    if answer["may_chain"]:
        exit_with_message(
            f"server.chain_keys names the key {name}, so it may not be on laptops; create another key", 2
        )
    if (state := answer["key"]["state"]) != ENABLED:
        exit_with_message(f"the key {name} is {state.lower()}", 2)


# -- keys ----------------------------------------------------------------------------------------------------


@policy.command("key")
@click.argument("file", type=file_type)
def ensure_key_and_print_public(file: Path) -> None:
    """
    Print the public key of a private key.

    It checks bundles that were made with the private key in FILE. If FILE does not exist, a private key is
    created. Keep it where only administrators can read it.
    """
    from gateway.devices.agent.identity import write_private_file
    from gateway.devices.agent.policy.signatures import new_private_pem

    try:
        if not file.exists():
            write_private_file(file, new_private_pem().decode())
    except OSError as error:
        exit_with_message(f"{file} cannot be written: {error.strerror}")
    click.echo(_read_signing_key_or_exit(file).public_pem.decode(), nl=False)


def _read_signing_key_or_exit(file: Path) -> SigningKey:
    from gateway.devices.agent.policy.signatures import BadKey, SigningKey

    try:
        return SigningKey(file.read_bytes())
    except (OSError, BadKey) as error:
        exit_with_message(
            f"{file}: {_describe_error(error)}; create a key with `tollhouse agent policy key FILE`", 2
        )


def _read_public_key_or_exit(file: Path) -> PublicKey:
    from gateway.devices.agent.policy.signatures import BadKey, PublicKey

    try:
        return PublicKey(file.read_bytes())
    except (OSError, BadKey) as error:
        exit_with_message(
            f"{file}: {_describe_error(error)}; `tollhouse agent policy key FILE` prints the public key", 2
        )


# -- on the device -------------------------------------------------------------------------------------------


@policy.command("verify")
@bundle_argument
@public_key_option
def verify_bundle_directory(bundle: Path, public_key: Path) -> None:
    """
    Check the signature and the files of BUNDLE.

    Each file must have the hash that was signed, and be well-formed.
    """
    from gateway.devices.agent.policy.applied import BadBundle
    from gateway.devices.agent.policy.applied import verify_bundle as verified

    try:
        checked = verified(bundle, _read_public_key_or_exit(public_key))
    except (BadBundle, OSError) as error:
        exit_with_message(f"{bundle}: {_describe_error(error)}")
    click.echo(f"{bundle}: {len(checked.contents)} files are as signed, number {checked.manifest.number}")


@policy.command("apply")
@bundle_argument
@public_key_option
@root_option
@click.option(
    "--older", is_flag=True, help="Apply the bundle even if a bundle with a larger number was applied."
)
def apply_policy_bundle(bundle: Path, public_key: Path, root: Path, older: bool) -> None:
    """
    Write the settings of BUNDLE on this machine.

    It works on Linux and macOS, as root. A file that Tollhouse did not write is never replaced: the exit code
    is then 3, and the fragment to add is printed. A bundle with a lower number than the last one is refused, and so
    is another bundle with the same number. On Windows, run Set-TollhousePolicy.ps1 of the bundle.
    """
    from gateway.devices.agent.policy import applied

    system = _policy_system_or_exit()
    try:
        checked = applied.verify_bundle(bundle, _read_public_key_or_exit(public_key))
        outcome = applied.apply_bundle(checked, system, root.resolve(), allows_older=older)
    except (applied.BadBundle, OSError) as error:
        exit_with_message(_describe_error(error))
    _show_policy_changes(outcome)
    for target, file in outcome.foreign.items():
        if file is None:
            continue
        click.echo(f"{target} exists, so it was not replaced", err=True)
        # the fragment contains the key, so it must not be printed: MDMs store the output of scripts
        if checked.manifest.mode == DIRECT:
            click.echo(f"add the fragment {bundle / file.path}", err=True)
        else:
            click.echo(f"add this fragment:\n{checked.contents[file.path].decode()}", err=True)
    sys.exit(FOREIGN if outcome.foreign or outcome.hidden else 0)


@policy.command("remove")
@root_option
def remove_applied_policy(root: Path) -> None:
    """
    Delete the settings that `apply` wrote.

    A file that somebody changed since is kept, and the exit code is then 3. The number of the last bundle is kept as
    well. Run it as root.
    """
    from gateway.devices.agent.policy import applied

    try:
        outcome = applied.remove_policy(_policy_system_or_exit(), root.resolve())
    except (applied.BadBundle, OSError) as error:
        exit_with_message(_describe_error(error))
    _show_policy_changes(outcome)
    sys.exit(FOREIGN if outcome.foreign else 0)


def _show_policy_changes(outcome: PolicyChanges) -> None:
    for path in outcome.written:
        click.echo(f"written: {path}")
    for path in outcome.removed:
        click.echo(f"deleted: {path}")
    for path, file in outcome.foreign.items():
        if file is None:
            click.echo(f"{path} was changed after Tollhouse wrote it, so it was not deleted", err=True)
    for name, path in outcome.hidden.items():
        click.echo(
            f"{name}: {path} has settings of the MDM, which hide any file; change the profile", err=True
        )
    if not (outcome.written or outcome.removed or outcome.foreign or outcome.hidden):
        click.echo("nothing to change")


def _policy_system_or_exit() -> str:
    if sys.platform not in ("darwin", "linux"):
        exit_with_message(
            "this command runs on Linux and macOS; on Windows, run Set-TollhousePolicy.ps1 of the bundle", 2
        )
    return MACOS if sys.platform == "darwin" else LINUX


def _describe_error(error: Exception) -> str:
    if not isinstance(error, OSError):
        return str(error)
    hint = "; run the command as root" if isinstance(error, PermissionError) else ""
    return f"{error.filename}: {error.strerror}{hint}"

"""Configuration: file, environment, flags; every problem at once, in the user's own key names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.service.configuration.addresses import split_address
from gateway.service.configuration.reader import load
from gateway.service.configuration.sections import Config, ConfigError
from spool.settings import MIB


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    return path


def problems(path: Path | None = None, **env: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path, env=env)
    return caught.value.problems


def test_everything_has_a_default() -> None:
    """No file, no environment, no flags: the embedded default of the documentation."""
    config = load(env={})
    assert "127.0.0.1:4318" == config.server.listen
    assert config.spool.hold == 10.0
    assert config.spool.retention == 7 * 86400.0
    assert config.spool.duplicate_ids == 10_000_000
    assert Path.cwd() / "tollhouse-data" == config.data_dir


def test_workers_are_bounded_and_have_room_for_the_largest_body(tmp_path: Path) -> None:
    """At the edge it runs; memory counts only where there are workers."""
    largest = '[server]\nmax_body_bytes = "100MiB"\nmax_inflight_bytes = "100MiB"\n'
    assert (
        64
        == load(written(tmp_path, largest + 'workers = 64\nworker_memory = "600MiB"'), env={}).server.workers
    )
    assert 0 == load(written(tmp_path, largest + 'worker_memory = "128MiB"'), env={}).server.workers
    assert [
        "server.worker_memory must be at least 6 times server.max_body_bytes",
        "server.workers must be at most 64",
    ] == problems(written(tmp_path, largest + 'workers = 65\nworker_memory = "599MiB"'))


def test_relative_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    """A service manager's working directory does not matter."""
    config = load(written(tmp_path, 'data_dir = "data"\n[prices]\nfile = "prices.json"'), env={})
    assert config.data_dir == tmp_path / "data"
    assert config.prices.file == tmp_path / "prices.json"


def test_environment_overrides_the_file_and_flags_override_both(tmp_path: Path) -> None:
    """File, then TOLLHOUSE_SECTION__KEY, then flags."""
    path = written(tmp_path, '[server]\nlisten = "127.0.0.1:1"\n[spool]\nhold = "1s"')
    env = {"TOLLHOUSE_SERVER__LISTEN": "127.0.0.1:2", "TOLLHOUSE_SPOOL__HOLD": "2s", "HOME": "/"}
    config = load(path, env=env, flags={"server.listen": "127.0.0.1:3", "data_dir": None})
    assert config.server.listen == "127.0.0.1:3"
    assert config.spool.hold == 2.0


def test_the_data_directory_comes_from_the_environment_too() -> None:
    """TOLLHOUSE_DATA_DIR needs no section; other names without one are not the configuration's."""
    assert "/srv/x" == str(load(env={"TOLLHOUSE_DATA_DIR": "/srv/x", "TOLLHOUSE_KEY": "k"}).data_dir)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"64MiB"', 64 * MIB),
        ('"4 mib"', 4 * MIB),
        ("1048576", MIB),
        ('"1.5GiB"', 1536 * MIB),
        ('"100MB"', 100_000_000),
    ],
)
def test_sizes(tmp_path: Path, text: str, expected: int) -> None:
    """Sizes are bytes, whatever the unit they are written in."""
    assert (
        expected == load(written(tmp_path, f"[upstream]\nbatch_bytes = {text}"), env={}).upstream.batch_bytes
    )


@pytest.mark.parametrize(
    ("text", "seconds"), [('"500ms"', 0.5), ('"10s"', 10.0), ('"5m"', 300.0), ("3", 3.0)]
)
def test_durations(tmp_path: Path, text: str, seconds: float) -> None:
    """Durations are seconds."""
    assert seconds == load(written(tmp_path, f"[spool]\nhold = {text}"), env={}).spool.hold


def test_all_problems_are_reported_together(tmp_path: Path) -> None:
    """One run shows everything that has to be mended."""
    path = written(
        tmp_path,
        """
        data_dr = "x"
        [server]
        listen = "nowhere"
        max_body_bytes = "plenty"
        [upstream]
        compression = "zip"
        [[upstream.keys]]
        name = "telemetry"
        secret_file = "a"
        use_cases = ["Send AI Telemetri"]
        scopes = ["ai-telemetry-ingest:ingest-ai-telemetry"]
        [[destinations]]
        name = "archive"
        type = "ndjson"
        [privacy]
        keep_attributes = ["gen_ai.input.messages"]
        """,
    )
    assert [
        "unknown key data_dr; did you mean data_dir?",
        'server.max_body_bytes must be a size such as "64MiB"',
        "upstream.compression: 'zip' is not known; did you mean 'gzip'?",
        'server.listen must be HOST:PORT, such as "127.0.0.1:4318"',
        "upstream.base_url is required when upstream.keys are given",
        "upstream.keys[0] needs use_cases or scopes, never both",
        "upstream.keys[0].use_cases: 'Send AI Telemetri' is not known; did you mean 'Send AI Telemetry'?",
        "destinations[0].path is required for type 'ndjson'",
        "privacy.keep_attributes: gen_ai.input.messages is message content and can never be kept",
    ] == problems(path)


@pytest.mark.parametrize(
    ("env", "sentence"),
    [
        ({"TOLLHOUSE_SPOOL__LATE_WINDOW": "25h"}, "spool.late_window must be at most 1d"),
        ({"TOLLHOUSE_SPOOL__HOLD": "8d"}, "spool.hold must be shorter than spool.retention"),
        ({"TOLLHOUSE_SPOOL__PENDING_ITEMS": "0"}, "spool.pending_items must be at least 1"),
        ({"TOLLHOUSE_SERVER__TLS_CERT_FILE": "a"}, "go together"),
        ({"TOLLHOUSE_SERVER__ACCEPT_BEARER": "perhaps"}, "server.accept_bearer must be true or false"),
        ({"TOLLHOUSE_DEVICES__POLICY": "maybe"}, "devices.policy"),
        ({"TOLLHOUSE_DATA_DIR__X": "x"}, "data_dir must be a path"),
        ({"TOLLHOUSE_SERVER__MAX_INFLIGHT_BYTES": "1MiB"}, "must not be less than server.max_body_bytes"),
        (
            {"TOLLHOUSE_SOURCES__KONG__SIGNING_SECRET_FILE": "a"},
            "only helicone signs what it sends",
        ),
        ({"TOLLHOUSE_SPOL__HOLD": "1s"}, "unknown key spol; did you mean spool?"),
    ],
)
def test_a_problem_is_a_sentence(env: dict[str, Any], sentence: str) -> None:
    """Each rule has its sentence, wherever the value came from."""
    assert any(sentence in problem for problem in problems(**env))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('url = "http://"', "destinations[0].url must begin with http:// or https://"),
        (
            'headers = { X = "a\\nb" }',
            "destinations[0].headers: 'X' is not a header, or its value is not one line",
        ),
        (
            'headers = { "X y" = "a" }',
            "destinations[0].headers: 'X y' is not a header, or its value is not one line",
        ),
        ("topics = []", "destinations[0].topics must name at least one topic, and each once"),
        (
            'topics = ["ai-telemetry", "ai-telemetry"]',
            "destinations[0].topics must name at least one topic, and each once",
        ),
        ('topics = ["usage-events"]', "destinations[0].topics: type 'otlp' cannot take 'usage-events'"),
        (
            'topics = ["usage-event"]',
            "destinations[0].topics: 'usage-event' is not known; did you mean 'usage-events'?",
        ),
    ],
)
def test_a_destination_that_can_never_work_is_a_problem(tmp_path: Path, line: str, problem: str) -> None:
    """Before it starts, not when its first delivery fails."""
    url = "" if line.startswith("url") else 'url = "http://127.0.0.1:9"'
    text = f'[[destinations]]\nname = "other"\ntype = "otlp"\n{url}\n{line}\n'
    assert [problem] == problems(written(tmp_path, text))


def test_a_file_that_is_no_toml_says_where(tmp_path: Path) -> None:
    """The line and column of the parser reach the user."""
    assert "line 3" in problems(written(tmp_path, "data_dir = [\n\n= 3"))[0]


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    """Not a traceback."""
    assert "No such file" in problems(tmp_path / "none.toml")[0]


def test_secrets_are_named_by_file_only() -> None:
    """No section has a field that would hold a secret, so no log or message can print one."""
    assert not [name for name in vars(Config()) if "secret" in name]


def test_addresses_split() -> None:
    """IPv6 hosts lose their brackets."""
    assert split_address("[::1]:4318") == ("::1", 4318)
    assert split_address("127.0.0.1:0") == ("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("listen", "settings", "is_problem"),
    [
        ("0.0.0.0:4319", "", True),
        ("gateway.example.com:4319", "", True),
        ("127.0.0.1:4319", "", False),
        ("[::1]:4319", "", False),
        ("0.0.0.0:4319", "operator_plaintext = true", False),
        ("0.0.0.0:4319", 'tls_cert_file = "c.pem"\ntls_key_file = "k.pem"', False),
    ],
)
def test_operators_are_not_served_in_the_clear(
    tmp_path: Path, listen: str, settings: str, is_problem: bool
) -> None:
    """A public operator side needs TLS, or the word that something before it encrypts."""
    path = written(tmp_path, f'[server]\noperator_listen = "{listen}"\n{settings}\n')
    if not is_problem:
        assert listen == load(path, env={}).server.operator_listen
        return
    [problem] = problems(path)
    assert "server.operator_plaintext = true" in problem


def test_owners_and_tolerances_that_mean_nothing(tmp_path: Path) -> None:
    """Each says what is missing, by its place."""
    path = written(
        tmp_path,
        """
        [reconciliation]
        tolerance_money = 100.1
        tolerance_tokens = 100
        [[reconciliation.owner]]
        provider = "openai"
        [[reconciliation.owner]]
        provider = "openai"
        billed = "key_1"
        team = "search"
        """,
    )
    assert [
        "reconciliation.tolerance_money must be a percentage from 0 to 100",
        "reconciliation.owner[0] needs provider and billed, as the report names them",
        "reconciliation.owner[0] needs api_key, team or source",
    ] == problems(path)


def test_pulls_that_would_replace_each_other(tmp_path: Path) -> None:
    """Two organizations have an account each, which their days are kept under."""
    pulls = [
        ("a", "openai_costs", ""),
        ("b", "openai_usage", ""),
        ("c", "openai_costs", "x"),
        ("d", "openai_costs", ""),
    ]
    text = "\n".join(
        f'[[reconciliation.pull]]\nname = "{name}"\nsource = "{source}"\naccount = "{account}"\nkey_file = '
        '"/etc/key"'
        for name, source, account in pulls
    )
    assert [
        "reconciliation.pull[3].account must differ from that of reconciliation.pull[0]: "
        "each would replace the days of the other"
    ] == problems(written(tmp_path, text))


def test_pulls_that_cannot_be_asked(tmp_path: Path) -> None:
    """LiteLLM has no address of its own, GitHub asks whose bill it is, and each pull has a key."""
    path = written(
        tmp_path,
        """
        [[reconciliation.pull]]
        name = "logs"
        source = "litellm_spend_logs"
        key_file = "/etc/tollhouse/litellm"
        days = 32
        [[reconciliation.pull]]
        name = "own logs"
        source = "litellm_spend_logs"
        key_file = "/etc/tollhouse/litellm"
        base_url = "https://litellm.example.com?team=own"
        account = "own"
        [[reconciliation.pull]]
        name = "copilot"
        source = "github_copilot"
        """,
    )
    assert [
        "reconciliation.pull[0].base_url is required: the address of your LiteLLM",
        "reconciliation.pull[0].days must be at most 31",
        "reconciliation.pull[1].base_url must be an address alone, without a query or a fragment: the key is "
        "a file",
        "reconciliation.pull[2].key_file is required: the file with an admin key of the provider",
        "reconciliation.pull[2].account is required: the name of your organization at GitHub",
    ] == problems(path)


def test_a_price_of_nodes_is_of_something(tmp_path: Path) -> None:
    """At least one price an hour, each up to a million dollars."""
    path = written(
        tmp_path,
        """
        [[container.price]]
        cpu_hour = 0.03
        [[container.price]]
        cluster = "prod"
        [[container.price]]
        gpu_hour = 1000000
        [[container.price]]
        gpu_hour = "1000000.01"
        """,
    )
    needs = "needs cpu_hour, memory_hour or gpu_hour, in dollars from 0 to 1000000"
    assert [f"container.price[1] {needs}", f"container.price[3] {needs}"] == problems(path)


ADDRESSES = {
    "upstream.base_url": '[upstream]\nbase_url = "{}"',
    "upstream.ai_telemetry_url": '[upstream]\nai_telemetry_url = "{}"',
    "upstream.proxy": '[upstream]\nproxy = "{}"',
    "destinations[0].url": '[[destinations]]\nname = "hook"\ntype = "webhook"\nurl = "{}"',
    "notify[0].url": '[[notify]]\nname = "hook"\ntype = "webhook"\nsecret_file = "s"\nurl = "{}"',
    "notify[0].proxy": '[[notify]]\nname = "chat"\ntype = "slack"\nurl = "https://chat.example"\nproxy = "{}"',
    "oidc.proxy": """
        [oidc]
        issuer = "https://idp.example"
        client_id = "tollhouse"
        console = "https://tollhouse.example/console/"
        proxy = "{}"
        """,
    "agent.gateway": '[agent]\ngateway = "{}"',
    "reconciliation.pull[0].base_url": """
        [[reconciliation.pull]]
        name = "logs"
        source = "litellm_spend_logs"
        key_file = "/etc/key"
        base_url = "{}"
        """,
    "container.upload_url": '[container]\nupload_url = "{}"',
}


@pytest.mark.parametrize("name", ADDRESSES)
@pytest.mark.parametrize("user", ["ann:hunter2", "ann", ""])
def test_no_address_holds_a_user(tmp_path: Path, name: str, user: str) -> None:
    """Not even an empty one; the sentence does not repeat what may be a password."""
    path = written(tmp_path, ADDRESSES[name].format(f"https://{user}@costs.example:8443"))
    assert [f"{name} must not hold a user or a password: take out what stands before the @"] == problems(path)

"""
One run of the probe on this machine. It changes nothing, and opens one connection, to the agent on loopback.

The result has words of fixed lists, versions and times. It has no path, no address and no content of a file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Final

import msgspec

from gateway.devices.agent import jsonc
from gateway.devices.agent.edits import SettingsEditor
from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.link import ENDPOINT, USE
from gateway.devices.agent.policy.targets import MACOS, MANAGED, PREFERENCES, RECORDS, WINDOWS
from gateway.devices.agent.probe.folders import GuardedFolder, UnreadableFile
from gateway.devices.agent.probe.places import (
    ENVIRONMENT_FILES,
    ENVIRONMENT_FOLDER,
    EXTENSIONS,
    NODE_VERSIONS,
    PACKAGE_FOLDERS,
    PLACES,
    PROGRAM_FOLDERS,
    USER_ENVIRONMENT_FILES,
    USER_ENVIRONMENT_FOLDER,
    USER_PACKAGE_FOLDERS,
    USER_PROGRAM_FOLDERS,
    AssistantLocations,
)
from gateway.devices.agent.probe.states import (
    AssistantFacts,
    HomeState,
    SettingsSource,
    evaluate_home,
    worst_home_state,
)
from gateway.devices.agent.probe.telemetry import (
    GRPC,
    LOOPBACK,
    READERS,
    VARIABLES,
    Document,
    MalformedSettings,
    SettingsReader,
    TelemetryLayer,
    TelemetrySwitches,
    combine_settings_layers,
    endpoint_host,
    is_own_endpoint,
    parse_document,
    parse_preferences,
)
from gateway.devices.agent.sessions import PROGRAMS, PROGRAMS_BY_NAME, moved_places, session_key, user_key
from gateway.devices.fleet.heartbeat_facts import (
    MAX_TEXT,
    NOT_INSTALLED,
    SESSIONS_ELSEWHERE,
    SESSIONS_UNREADABLE,
    SEVERAL_USERS,
)
from gateway.devices.fleet.use_slots import DAY_S, SlotCount
from gateway.devices.fleet.uses import RECENT_S, UNSEEN, RememberedAssistantUses, SessionFile
from spool.record import utc_iso

HOUR_S: Final = 3600
_VERSION: Final = re.compile(r"\d+(\.\d+)*[\w.+-]*")
_ASSIGNMENT: Final = re.compile(
    r"""^\s*(?:export\s+)?(\w+)=(?:"([^"\n]*)"|'([^'\n]*)'|([^\s;#]*))""", re.MULTILINE
)

EnvironmentVariables = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserHome:
    """A user's home. `environment` has the variables of a running session that are in no file."""

    folder: GuardedFolder
    user: int | None = None
    environment: EnvironmentVariables = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbedMachine:
    """
    The inputs of the probe. `ours` are the endpoints of the agent and of the gateway, and `only_http` those
    of them that do not speak gRPC. `registry` reads the values of a key below HKEY_LOCAL_MACHINE, and
    `started_at` returns when the oldest process of a program and a user started.
    """

    system: str
    root: GuardedFolder
    homes: Sequence[UserHome]
    ours: Sequence[str]
    only_http: Sequence[str] = ()
    registry: Callable[[str], Mapping[str, object]] = lambda _: {}
    started_at: Callable[[str, int | None], float | None] = lambda program, user: None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentLink:
    """
    The state of the agent. `path` is the reason why calls do not reach it, `forward` why it cannot forward
    them, and `oldest_at` the time of the oldest record that it could not forward. `calls` are the received
    calls by the key of a session or a user (`gateway.devices.agent.sessions`).
    """

    path: str = ""
    forward: str = ""
    oldest_at: float | None = None
    calls: Mapping[str, HeardCalls] = field(default_factory=dict)

    def reason_calls_wait(self, assistant: str) -> str:
        """Return why the newest calls of an assistant wait at the agent, or ""."""
        newest = self.newest_call(assistant)
        is_waiting = newest is not None and self.oldest_at is not None and newest >= self.oldest_at
        return self.forward if is_waiting else ""

    def newest_call(self, assistant: str) -> float | None:
        """Return the end of the newest call of an assistant, by any user of the machine."""
        heard = (self.calls.get(program.name) for program in PROGRAMS if program.assistant == assistant)
        return max((each.ended for each in heard if each is not None), default=None)


def probe_and_remember_states(
    machine: ProbedMachine,
    link: AgentLink,
    allowed_report_words: Sequence[str],
    *,
    now: float,
    remembered_uses: MutableMapping[str, RememberedAssistantUses],
) -> dict[str, Any]:
    """
    Return the states of all assistants, and the applied policy, as heartbeat fields. `remembered_uses` has what
    earlier runs of the probe remembered, by assistant and home. It is changed to what the next run needs.
    """
    policy = _read_applied_policy(machine)
    common = _read_variables(machine.root, ENVIRONMENT_FILES, ENVIRONMENT_FOLDER)
    variables = [
        {
            **common,
            **_read_variables(home.folder, USER_ENVIRONMENT_FILES, USER_ENVIRONMENT_FOLDER),
            **{name: value for name, value in home.environment.items() if name in VARIABLES},
        }
        for home in machine.homes
    ]
    programs: dict[str, list[_ProgramFindings]] = {}
    for name, places in PLACES.items():
        probe = _ProgramProbe(machine, link, policy, name, places, READERS[name], now, remembered_uses)
        findings = probe.evaluate_and_remember_program(
            list(zip(machine.homes, variables, strict=True)), common, looks_at_use=USE in allowed_report_words
        )
        programs.setdefault(PROGRAMS_BY_NAME[name].assistant, []).append(findings)
    found: dict[str, Any] = {
        "assistants": {
            name: _assistant_fields(name, each, link, allowed_report_words, now)
            for name, each in programs.items()
        }
    }
    if policy is not None:
        found["policy"] = policy.heartbeat_fields()
    return found


# -- policy ------------------------------------------------------------------------------------------------------


class _StoredPolicyRecord(msgspec.Struct):
    files: dict[str, list[str]] = msgspec.field(default_factory=dict)
    manifest: str = ""
    number: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AppliedPolicy:
    """
    The applied policy. `record` is what `apply_bundle` wrote, and `lacking` are its files that are missing or
    changed.
    """

    record: _StoredPolicyRecord
    applied_at: float
    lacking: frozenset[str]

    def heartbeat_fields(self) -> dict[str, object]:
        found: dict[str, object] = {"applied_at": utc_iso(int(self.applied_at))}
        if self.record.number:
            found["number"] = self.record.number
        if re.fullmatch(r"[0-9a-f]{64}", self.record.manifest):
            found["sha256"] = self.record.manifest
        error = "file_changed" if self.lacking else self.record.error
        return {**found, **({"error": error[:MAX_TEXT]} if error else {})}


def _read_applied_policy(machine: ProbedMachine) -> _AppliedPolicy | None:
    path = RECORDS.get(machine.system)
    try:
        stored = machine.root.read_file(path.lstrip("/")) if path else None
        if stored is None:
            return None
        content, applied_at = stored
        record = msgspec.json.decode(content, type=_StoredPolicyRecord)
    except (UnreadableFile, msgspec.DecodeError):
        return _AppliedPolicy(
            record=_StoredPolicyRecord(error="record_unreadable"), applied_at=0.0, lacking=frozenset()
        )
    # a record without files and without an error means that the policy was removed
    if not record.files and not record.error:
        return None
    lacking = {
        target for target, digests in record.files.items() if _file_digest(machine, target) not in digests
    }
    return _AppliedPolicy(record=record, applied_at=applied_at, lacking=frozenset(lacking))


def _file_digest(machine: ProbedMachine, target: str) -> str:
    try:
        stored = machine.root.read_file(target.lstrip("/"))
    except UnreadableFile:
        return ""
    return sha256(stored[0]).hexdigest() if stored else ""


# -- one assistant -----------------------------------------------------------------------------------------------


def _slots_by_day(homes: Sequence[HomeState]) -> dict[str, list[int]]:
    """Return the counts of all homes together, as a heartbeat states them."""
    days: dict[str, list[SlotCount]] = {}
    for home in homes:
        for day, count in home.memory.counts.by_day().items():
            days.setdefault(day, []).append(count)
    return {day: [sum(numbers) for numbers in zip(*days[day], strict=True)] for day in sorted(days)}


@dataclass(frozen=True, slots=True)
class _ProgramFindings:
    """What was found about a program of an assistant. `endpoint` is an address that is not Tollhouse's, or ""."""

    homes: Sequence[HomeState]
    is_configured: bool
    version: str
    endpoint: str


def _assistant_fields(
    name: str,
    programs: Sequence[_ProgramFindings],
    link: AgentLink,
    allowed_report_words: Sequence[str],
    now: float,
) -> dict[str, Any]:
    """Return the heartbeat fields of an assistant: the worst state of its installed programs."""
    present = [each for each in programs if each.homes[0].state != NOT_INSTALLED] or programs
    found_homes = [home for each in present for home in each.homes]
    worst = worst_home_state(found_homes, now=now)
    found: dict[str, Any] = {"state": worst.state, "configured": any(each.is_configured for each in present)}
    if worst.cause:
        found["cause"] = worst.cause
    if version := max((each.version for each in present), key=_version_sort_key):
        found["version"] = version
    # a file written before the clock was set back may have a time in the future
    uses = [min(each.used_at, now) for each in found_homes if each.used_at is not None]
    use = worst.memory.use_state(now=now)
    # without this time, an older gateway does not judge uses that this probe cannot judge
    used_at = None if use == UNSEEN else max(uses, default=None)
    if USE in allowed_report_words and worst.state != NOT_INSTALLED:
        memory = worst.memory
        times = {"used_at": used_at, "state_since": memory.since}
        if worst.is_direct:  # only the gateway sees the calls
            found["direct"] = True
        else:
            times |= {"unheard_since": memory.unheard, "heard_at": link.newest_call(name)}
            found["use"] = use
            if slots := _slots_by_day(found_homes):
                found["slots"] = slots
        found |= {name: _format_hour_of_time(at) for name, at in times.items() if at is not None}
    endpoint = next((each.endpoint for each in present if each.endpoint), "")
    if ENDPOINT in allowed_report_words and (host := endpoint_host(endpoint)):
        found["endpoint"] = host[:MAX_TEXT]
    return found


class _ProgramProbe:
    def __init__(
        self,
        machine: ProbedMachine,
        link: AgentLink,
        policy: _AppliedPolicy | None,
        name: str,
        places: AssistantLocations,
        reader: SettingsReader,
        now: float,
        remembered_uses: MutableMapping[str, RememberedAssistantUses],
    ) -> None:
        self._machine = machine
        self._link = link
        self._policy = policy
        self._program = PROGRAMS_BY_NAME[name]
        self._managed = MANAGED[self._program.assistant]
        self._places = places
        self._reader = reader
        self._now = now
        self._memories = remembered_uses
        looked = (
            memory.looked
            for key, memory in remembered_uses.items()
            if key.startswith(self._memory_name_of_user(None))
        )
        self._looked = min(now, max(looked, default=0.0))
        self._looks_at_use = False  # whether agent.report allows to list sessions
        self._endpoint = ""  # last seen address of an endpoint that is not Tollhouse's
        self._is_unreadable = False  # whether the user of the home seen last may not read the policy

    def evaluate_and_remember_program(
        self,
        homes: Sequence[tuple[UserHome, EnvironmentVariables]],
        common: EnvironmentVariables,
        *,
        looks_at_use: bool,
    ) -> _ProgramFindings:
        self._looks_at_use = looks_at_use
        own = [(home, variables) for home, variables in homes if self._is_installed_in(home.folder)]
        version = self._newest_version([home for home, _ in homes])
        facts = [
            (home.user, self._program_facts(home, variables, version, looks_at_use=looks_at_use))
            for home, variables in own
        ]
        if not facts:
            nobody = UserHome(folder=GuardedFolder(self._machine.root.path / "nonexistent"))
            alone = self._program_facts(nobody, common, version, looks_at_use=False)
            facts = [(None, replace(alone, is_installed=self._is_installed_for_all()))]
        found_homes = [
            self._evaluate_and_remember_home(user, each) for user, each in self._facts_with_calls(facts)
        ]
        return _ProgramFindings(
            found_homes, any(each.is_configured for _, each in facts), version, self._endpoint
        )

    def _facts_with_calls(
        self, homes: Sequence[tuple[int | None, AssistantFacts]]
    ) -> Iterator[tuple[int | None, AssistantFacts]]:
        """
        Yield the facts about each home, with the calls that belong to it: those of its sessions, and of the calls that
        name no session, those of its user. Where the users of calls are unknown, these calls belong to the only home
        that uses the assistant. If several use it, they belong to none, and a home that needs them cannot be judged.
        """
        program, calls = self._program, self._link.calls
        knows_users = any(key.startswith(f"{program.name} ") for key in calls)
        in_use = [
            user for user, each in homes if each.used_at is not None and self._now - each.used_at <= RECENT_S
        ]
        for user, facts in homes:
            by_user = knows_users and user is not None
            is_only = not in_use or in_use == [user]
            of_home = calls.get(user_key(program.name, user if by_user else None))
            shared = [of_home] if of_home is not None and (by_user or is_only) else []
            own = [calls[session] for session in facts.sessions if session in calls]
            of_user = shared if program.is_database or not facts.sessions else []
            ended = max((each.ended for each in (*own, *of_user)), default=None)
            unseen = facts.unseen
            if not unseen and user in in_use and not (by_user or is_only):
                anonymous = calls.get(user_key(program.name, None))
                needs_users = program.is_database or (anonymous is not None and anonymous.slots)
                unseen = SEVERAL_USERS if needs_users else ""
            elif (
                self._looks_at_use
                and program.shapes
                and not unseen
                and by_user
                and ended is not None
                and self._now - ended <= RECENT_S
            ):
                is_elsewhere = facts.used_at is None or facts.used_at < ended - DAY_S
                unseen = SESSIONS_ELSEWHERE if is_elsewhere and shared and not own else ""
            yield user, replace(facts, unseen=unseen, newest_call=ended, calls=calls, calls_of_user=shared)

    def _evaluate_and_remember_home(self, user: int | None, facts: AssistantFacts) -> HomeState:
        home = evaluate_home(facts, self._remembered_uses_of_home(user), now=self._now, user=user)
        self._memories[self._memory_name_of_user(user)] = home.memory
        return home

    def _remembered_uses_of_home(self, user: int | None) -> RememberedAssistantUses:
        memory = self._memories.get(self._memory_name_of_user(user))
        # in a home directory that is new since the last look, all use counts as later than that look
        return (
            RememberedAssistantUses(looked=self._looked)
            if memory is None or memory.setting == NOT_INSTALLED
            else memory
        )

    def _memory_name_of_user(self, user: int | None) -> str:
        return f"{self._program.name} {'' if user is None else user}"

    def _is_installed_for_all(self) -> bool:
        system, root = self._machine.system, self._machine.root
        if not self._places.package:
            return False
        suffixes = (".exe", ".cmd") if system == WINDOWS else ("",)
        programs = [
            f"{folder}/{self._places.program}{end}" for folder in PROGRAM_FOLDERS[system] for end in suffixes
        ]
        packages = [f"{folder}/{self._places.package}" for folder in PACKAGE_FOLDERS[system]]
        return any(map(root.exists, programs + packages))

    def _is_installed_in(self, home: GuardedFolder) -> bool:
        names = [*self._places.folders]
        if self._places.package:
            names += [f"{folder}/{self._places.program}" for folder in USER_PROGRAM_FOLDERS]
            names += [f"{folder}/{self._places.package}" for folder in USER_PACKAGE_FOLDERS]
        return any(map(home.exists, names)) or bool(self._extension_folders(home))

    def _extension_folders(self, home: GuardedFolder) -> list[str]:
        prefix = self._places.extension
        return (
            [name for folder in EXTENSIONS for name in home.names_in_folder(folder, prefix)] if prefix else []
        )

    # -- version

    def _newest_version(self, homes: Sequence[UserHome]) -> str:
        found = list(self._installed_versions(homes))
        return max(found, key=_version_sort_key, default="")

    def _installed_versions(self, homes: Sequence[UserHome]) -> Iterator[str]:
        for folder in PACKAGE_FOLDERS[self._machine.system]:
            yield from self._versions_of_package(self._machine.root, folder)
        for home in homes:
            folders = [*USER_PACKAGE_FOLDERS]
            folders += [
                f"{NODE_VERSIONS}/{name}/lib/node_modules"
                for name in home.folder.names_in_folder(NODE_VERSIONS)
            ]
            for folder in folders:
                yield from self._versions_of_package(home.folder, folder)
            names = home.folder.names_in_folder(self._places.versions) if self._places.versions else []
            prefix = self._places.extension
            names += [name.removeprefix(prefix) for name in self._extension_folders(home.folder)]
            yield from (name for name in names if _is_version_number(name))

    def _versions_of_package(self, place: GuardedFolder, folder: str) -> Iterator[str]:
        try:
            path = f"{folder}/{self._places.package}/package.json"
            stored = place.read_file(path) if self._places.package else None
            document = parse_document(jsonc, stored[0]) if stored else {}
        except (UnreadableFile, MalformedSettings):
            return
        version = document.get("version")
        if isinstance(version, str) and _is_version_number(version):
            yield version

    # -- settings

    def _program_facts(
        self, home: UserHome, variables: EnvironmentVariables, version: str, *, looks_at_use: bool
    ) -> AssistantFacts:
        variables = {**self._variables_in_home_file(home.folder), **variables}
        common = AssistantFacts(
            waits=self._link.reason_calls_wait(self._program.assistant), program=self._program
        )
        if looks_at_use and self._program.shapes:
            common = self._with_sessions(common, home.folder, variables)
        try:
            layers = list(self._settings_layers(home, variables))
        except UnreadableFile:
            return replace(common, problem="no_permission")
        except MalformedSettings:
            return replace(common, problem="malformed")
        applied, hides = self._effective_layers_and_hiding_source(layers, variables)
        ordered = sorted(applied, key=lambda layer: self._reader.order.index(layer.source))
        found = combine_settings_layers(ordered, needs_exporter=self._reader.needs_exporter)
        endpoint, endpoint_by = found.address, found.endpoint
        is_ours = None if endpoint is None else is_own_endpoint(endpoint, self._machine.ours)
        if endpoint is not None and not is_ours:
            self._endpoint = endpoint
        protocol = found.protocol or self._reader.default_protocol
        if is_ours and protocol == GRPC and is_own_endpoint(endpoint or "", self._machine.only_http):
            is_ours, endpoint_by = False, found.protocol_by or endpoint_by
        by_policy = found.endpoint is not None and found.endpoint.source.is_policy
        is_old = (
            found.endpoint is not None
            and found.endpoint.source is SettingsSource.FILE
            and self._is_older_than_supported(version)
        )
        target = self._managed.files.get(self._machine.system)
        return replace(
            common,
            problem="version" if is_old else "",
            is_enabled=found.is_enabled,
            enabled_by=found.enabled.source if found.enabled else None,
            is_ours=is_ours,
            endpoint_by=endpoint_by.source if endpoint_by else None,
            hides=hides,
            lacks_policy=self._is_unreadable or (self._policy is not None and target in self._policy.lacking),
            changed_at=found.endpoint.changed_at if found.endpoint and by_policy else None,
            running_since=self._machine.started_at(self._places.program, home.user) if by_policy else None,
            is_direct=bool(is_ours) and endpoint_host(endpoint or "") != LOOPBACK,
            path=self._problem_reaching_local_agent(endpoint, variables),
        )

    def _problem_reaching_local_agent(self, endpoint: str | None, variables: EnvironmentVariables) -> str:
        if endpoint_host(endpoint or "") != LOOPBACK:
            return ""
        return self._link.path or ("proxy" if _uses_proxy_for_loopback(variables) else "")

    def _with_sessions(
        self, facts: AssistantFacts, home: GuardedFolder, variables: EnvironmentVariables
    ) -> AssistantFacts:
        """Add the files of the sessions. A home whose sessions are not all seen cannot be judged."""
        program = self._program
        sessions: dict[str, SessionFile] = {}
        try:
            for place in moved_places(program, program.folder, variables):
                if place is None:
                    raise UnreadableFile(program.folder)
                files = home.session_files(place, program.shapes).items()
                sessions |= {session_key(program.name, id): file for id, file in files}
        except UnreadableFile:
            return replace(facts, unseen=SESSIONS_UNREADABLE)
        return replace(facts, sessions=sessions)

    def _is_older_than_supported(self, version: str) -> bool:
        return bool(version) and _version_sort_key(version) < _version_sort_key(
            self._places.since or self._managed.since
        )

    def _settings_layers(self, home: UserHome, variables: EnvironmentVariables) -> Iterator[TelemetryLayer]:
        """
        Yield the telemetry settings from each source. Raises UnreadableFile or MalformedSettings for a source
        that cannot be read.
        """
        reader, places, system = self._reader, self._places, self._machine.system
        editor = self._managed.editor
        if places.server:
            yield from _settings_layer_of_file(
                home.folder, places.server, editor, SettingsSource.SERVER, reader.managed
            )
        yield from self._layers_of_managed_preferences(editor)
        self._is_unreadable = False
        for path in self._policy_file_paths():
            layers = list(
                _settings_layer_of_file(self._machine.root, path, editor, SettingsSource.FILE, reader.managed)
            )
            if layers and not _can_read(self._machine.root.as_read_by_owner_of_home(home.folder), path):
                self._is_unreadable = True
            else:
                yield from layers
        for path in filter(None, (*places.stronger, places.settings.get(system))):
            for place in moved_places(self._program, path, variables):
                if place is not None:
                    name = place.rpartition("/")
                    folder = home.folder.at_path(name[0]) if place.startswith("/") else home.folder
                    yield from _settings_layer_of_file(
                        folder,
                        name[2] if place.startswith("/") else place,
                        editor,
                        SettingsSource.USER,
                        reader.user,
                    )
        if reader.environment is not None:
            yield TelemetryLayer(SettingsSource.ENVIRONMENT, reader.environment(variables))

    def _variables_in_home_file(self, home: GuardedFolder) -> Mapping[str, str]:
        file = next(filter(home.exists, self._places.variables), None)
        return {} if file is None else _read_variables(home, [file])

    def _policy_file_paths(self) -> Iterator[str]:
        system = self._machine.system
        if folder := self._places.more_managed.get(system):
            below = f"{folder}/managed-settings.d"
            names = self._machine.root.names_in_folder(below)
            yield from (f"{below}/{name}" for name in names if name.endswith(".json"))
            yield f"{folder}/managed-settings.json"
        elif system in self._managed.files:
            yield self._managed.files[system].removeprefix("C:").replace("\\", "/").lstrip("/")

    def _layers_of_managed_preferences(self, editor: SettingsEditor) -> Iterator[TelemetryLayer]:
        values: Mapping[str, object] = {}
        if self._machine.system == MACOS and self._managed.domain:
            import plistlib  # imported here, because it takes a tenth of the probe's time
            from xml.parsers.expat import ExpatError

            stored = self._machine.root.read_file(f"{PREFERENCES.lstrip('/')}/{self._managed.domain}.plist")
            try:
                values = plistlib.loads(stored[0]) if stored else {}
            except (plistlib.InvalidFileException, ExpatError, ValueError) as error:
                raise MalformedSettings from error
        elif self._machine.system == WINDOWS and self._managed.registry:
            values = self._machine.registry(self._managed.registry)
        if values:
            yield TelemetryLayer(SettingsSource.MDM, self._reader.managed(parse_preferences(editor, values)))

    def _effective_layers_and_hiding_source(
        self, layers: Sequence[TelemetryLayer], variables: EnvironmentVariables
    ) -> tuple[list[TelemetryLayer], SettingsSource | None]:
        strongest = next((layer.source for layer in layers if layer.source.is_policy), None)
        if variables.get(self._places.moved):
            by, hidden = SettingsSource.ENVIRONMENT, [SettingsSource.FILE]
        elif self._reader.has_one_policy and strongest not in (None, SettingsSource.FILE):
            by = strongest
            hidden = [each for each in SettingsSource if each.is_policy and each is not strongest]
        else:
            return list(layers), None
        has_ours = any(
            is_own_endpoint(layer.switches.endpoint or "", self._machine.ours)
            for layer in layers
            if layer.source in hidden
        )
        return [layer for layer in layers if layer.source not in hidden], by if has_ours else None


def _can_read(folder: GuardedFolder, path: str) -> bool:
    try:
        return folder.read_file(path) is not None
    except UnreadableFile:
        return False


def _settings_layer_of_file(
    folder: GuardedFolder,
    path: str,
    editor: SettingsEditor,
    source: SettingsSource,
    read: Callable[[Document], TelemetrySwitches],
) -> Iterator[TelemetryLayer]:
    stored = folder.read_file(path)
    if stored is not None:
        content, changed_at = stored
        if document := parse_document(editor, content):
            yield TelemetryLayer(source, read(document), changed_at)


def _format_hour_of_time(moment: float) -> str | None:
    return utc_iso(moment // HOUR_S * HOUR_S)


def _is_version_number(text: str) -> bool:
    return len(text) <= MAX_TEXT and bool(_VERSION.fullmatch(text))


def _version_sort_key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:4])


# -- environment -------------------------------------------------------------------------------------------------


def _read_variables(place: GuardedFolder, files: Sequence[str], folder: str = "") -> dict[str, str]:
    """Return the known variables that files of a shell or of systemd set. A file that cannot be read sets none."""
    found: dict[str, str] = {}
    names = (
        [f"{folder}/{name}" for name in place.names_in_folder(folder) if name.endswith(".conf")]
        if folder
        else []
    )
    for name in (*files, *sorted(names)):
        try:
            stored = place.read_file(name)
        except UnreadableFile:
            continue
        if stored is None:
            continue
        for match in _ASSIGNMENT.finditer(stored[0].decode(errors="replace")):
            if match[1] in VARIABLES:
                found[match[1]] = match[2] or match[3] or match[4] or ""
    return found


def _uses_proxy_for_loopback(variables: EnvironmentVariables) -> bool:
    if not any(variables.get(name) for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")):
        return False
    exceptions = (
        ",".join(variables.get(name, "") for name in ("NO_PROXY", "no_proxy")).replace(" ", "").split(",")
    )
    return not {"*", "127.0.0.1", "localhost", "127.0.0.0/8"} & set(exceptions)

/** Devices and clusters that report, the files of clusters, device names that records use without an enrolment, and enrolment tokens. */
import {ageLinks} from "../lib/ages.mjs";
import {send} from "../lib/api.mjs";
import {html} from "../lib/html.mjs";
import {ago, exactCount} from "../lib/format.mjs";
import {asText, labelsField, labelsIn} from "../lib/shared_fields.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Copy, State, may} from "../lib/parts.mjs";
import {DeviceFacts, FleetTabs} from "./fleet_parts.mjs";

const PATH = "/devices";
const act = (verb) => (row) => send("POST", `/devices/${encodeURIComponent(row.id)}/${verb}`, {}).then(() => null);

/** Convert the typed labels to a change of the earlier ones. A removed label becomes null. */
const changed = (before, text) => ({...Object.fromEntries(Object.keys(before).map((name) => [name, null])), ...labelsIn(text)});

const DEVICES = {
  path: "/devices", root: "devices", at: PATH, caption: "devices", what: ["devices"], Ages: ageLinks("no_report_for", "No report for"),
  identity: (row) => row.id,
  show: (id) => `/devices/${encodeURIComponent(id)}`, one: (answer) => answer.device,
  Details: ({row}) => html`<${Columns} of=${DEVICES.columns} row=${row} /><${DeviceFacts} device=${row} />`,
  columns: [
    {title: "Device", value: (row) => row.id, sort: "id"},
    {title: "State", value: (row) => html`<${State} word=${row.state} />`, sort: "state"},
    {title: "Link", wide: true, value: (row) => html`<${State} word=${row.link} />`},
    {title: "Host name", wide: true, value: (row) => row.hostname || "unknown", sort: "hostname"},
    {title: "User", wide: true, value: (row) => row.user || "unknown", sort: "user"},
    {title: "Platform", wide: true, value: (row) => row.platform || "unknown", sort: "platform"},
    {title: "Agent", wide: true, value: (row) => row.agent_version || "unknown", sort: "agent_version"},
    {title: "Last seen", value: (row) => ago(row.last_seen), exact: (row) => row.last_seen, sort: "last_seen"},
    {title: "Enrolled", wide: true, value: (row) => ago(row.enrolled), exact: (row) => row.enrolled, sort: "enrolled"},
    {title: "Labels", wide: true, value: (row) => asText(row.labels).replaceAll("\n", ", ")},
  ],
  actions: [
    {title: "Approve", needs: "operate_spool", when: (row) => ["pending", "revoked", "copied"].includes(row.state), run: act("approve"),
      text: (row) => `${row.id} may send from now on.`},
    {title: "Label", needs: "operate_spool", fields: (row) => [labelsField(row.labels)],
      run: (row, {labels}) => send("PATCH", `/devices/${encodeURIComponent(row.id)}`, {labels: changed(row.labels, labels)}).then(() => null)},
    {title: "Reset", needs: "operate_spool", danger: true, exact: (row) => row.id, run: act("reset"),
      text: (row) => `Tollhouse deletes the fingerprint and the key of ${row.id}. The device must enrol again.`},
    {title: "Revoke", needs: "operate_spool", danger: true, when: (row) => row.state !== "revoked", exact: (row) => row.id, run: act("revoke"),
      text: (row) => `From now on, Tollhouse refuses everything that ${row.id} sends. You can approve it again.`},
    {title: "Delete", needs: "operate_spool", danger: true, exact: (row) => row.id,
      run: (row) => send("DELETE", `/devices/${encodeURIComponent(row.id)}?confirm=${encodeURIComponent(row.id)}`).then(() => null),
      text: (row) => `Tollhouse deletes ${row.id} and its key. The device may enrol again. To block it, revoke it instead.`},
  ],
  create: {title: "Admit a device", needs: "operate_spool", fields: () => [{name: "id", label: "Device", required: true}],
    run: (_, {id}) => send("POST", "/devices", {id}).then(() => null)},
  empty: html`<h2>No devices yet</h2><p>Run <code>tollhouse agent</code> on each laptop to see which devices report
    and which are offline. The agent enrols with a key: <code>tollhouse keys create --name laptops --scope ai-control-plane:enroll-device</code></p>`,
};

const UNENROLLED = {
  path: "/unenrolled", root: "unenrolled", at: PATH, caption: "device names without an enrolment", what: ["devices"],
  identity: (row) => row.name,
  columns: [
    {title: "Name", value: (row) => row.name, sort: "name"},
    {title: "API key", wide: true, value: (row) => row.key},
    {title: "Records", kind: "number", value: (row) => exactCount(row.count), sort: "count"},
    {title: "First seen", wide: true, value: (row) => ago(row.first_seen), exact: (row) => row.first_seen},
    {title: "Last seen", value: (row) => ago(row.last_seen), exact: (row) => row.last_seen, sort: "last_seen"},
  ],
  actions: [{title: "Admit", needs: "operate_spool", run: (row) => send("POST", "/devices", {id: row.name}).then(() => null)}],
  empty: html`<p>Every device named in records is enrolled.</p>`,
};

const FILE_STATES = {uploaded: "wait", announced: "wait", damaged: "bad", discarded: "bad", expired: "bad"};

const cluster = (id) => `/clusters/${encodeURIComponent(id)}`;
const isConfigured = (row) => row.display_name || row.config_version || Object.keys(row.labels).length > 0;
const change = (row, changes) => send("PATCH", cluster(row.id), changes).then(() => null);

const CLUSTERS = {
  path: "/clusters", root: "clusters", at: PATH, caption: "clusters", what: ["devices"],
  identity: (row) => row.id, heading: (row) => row.display_name || row.name,
  show: cluster, one: (answer) => answer.cluster, file: (row) => isConfigured(row) && ["clusters", row.id],
  columns: [
    {title: "Cluster", value: (row) => row.display_name || row.name, sort: "name"},
    {title: "State", value: (row) => html`<${State} word=${row.enabled ? row.silent ? "silent" : row.state : "disabled"} />`},
    {title: "Account", wide: true, value: (row) => row.account || "unknown"},
    {title: "Region", wide: true, value: (row) => row.region || "unknown"},
    {title: "Agent", wide: true, value: (row) => row.agent_version || "unknown"},
    {title: "Kubernetes", wide: true, value: (row) => row.k8s_version || "unknown"},
    {title: "Failed checks", wide: true, kind: "number", value: (row) => exactCount(row.checks.filter((each) => !each.passing).length)},
    {title: "Last seen", value: (row) => ago(row.last_seen), exact: (row) => row.last_seen, sort: "last_seen"},
  ],
  actions: [
    {title: "Edit", needs: "operate_spool",
      fields: (row) => [{name: "display_name", label: "Display name", value: row.display_name}, labelsField(row.labels)],
      run: (row, {display_name, labels}) => change(row, {display_name, labels: changed(row.labels, labels)})},
    {title: "Enable", needs: "operate_spool", when: (row) => !row.enabled, run: (row) => change(row, {enabled: true})},
    {title: "Disable", needs: "operate_spool", when: (row) => row.enabled, run: (row) => change(row, {enabled: false}),
      text: (row) => `Tollhouse refuses data from the agent of ${row.name}. The agent stores it until you enable the cluster.`},
    {title: "Delete", needs: "operate_spool", danger: true, exact: (row) => row.name,
      run: (row) => send("DELETE", `${cluster(row.id)}?confirm=${encodeURIComponent(row.id)}`).then(() => null),
      text: (row) => `Tollhouse deletes ${row.name} of account ${row.account || "unknown"} in ${row.region || "unknown"} until it reports again.`},
  ],
  empty: html`<h2>No clusters yet</h2><p>A cluster appears when its agent sends container metrics, or when a device enrols
    with the label <code>kind=cluster</code>.</p>`,
};

const FILES = {
  path: "/container-files", root: "container_files", at: PATH, caption: "container files", what: ["container_files"],
  identity: (row) => row.id, heading: (row) => row.reference,
  columns: [
    {title: "File", value: (row) => row.reference},
    {title: "State", value: (row) => html`<${State} word=${row.state} kind=${FILE_STATES[row.state]} />`, sort: "state"},
    {title: "Kind", wide: true, value: (row) => row.kind},
    {title: "Cluster", wide: true, value: (row) => row.cluster || "unknown"},
    {title: "Bytes", wide: true, kind: "number", value: (row) => exactCount(row.size), sort: "size"},
    {title: "Announced", wide: true, value: (row) => ago(row.announced), exact: (row) => row.announced, sort: "announced"},
    {title: "Uploaded", value: (row) => ago(row.uploaded), exact: (row) => row.uploaded, sort: "uploaded"},
    {title: "Problem", wide: true, value: (row) => row.problem ?? ""},
  ],
  actions: [{title: "Discard", needs: "operate_spool", danger: true, when: (row) => row.state === "uploaded", exact: (row) => row.reference,
    run: (row) => send("POST", `/container-files/${encodeURIComponent(row.id)}/discard`, {confirm: row.reference}).then(() => null),
    text: () => "Tollhouse deletes the file's content and never sends it to your cost service."}],
  empty: html`<h2>No container files yet</h2><p>A cluster's agent announces its files at${" "}
    <code>/v1/container-metrics</code> and uploads them. This list shows the state of each file.</p>`,
};

const TOKENS = "/fleet/tokens";
const DEFAULT_LIFE_MS = 14 * 86_400_000;
const dayOf = (epochMs) => new Date(epochMs).toISOString().slice(0, 10);

function foundToken({tokens}) {
  if (tokens.length) return tokens[0];
  throw Object.assign(new Error("No token has this id. A token is deleted 90 days after its end."), {status: 404});
}

async function createToken(_, {name, uses, per_hour, expires_at, labels}) {
  const {tokens: [{secret}]} = await send("POST", TOKENS, {name, uses: Number(uses), per_hour: per_hour === "" ? undefined : Number(per_hour), expires_at, labels: labelsIn(labels)});
  return html`<p>This is the token. Tollhouse shows it only once, so copy it now.</p>
    <${Copy} label="the token" text=${secret} />
    <p class="faint">Store it in a file on each machine, and name the file in <code>agent.enrolment_token_file</code>.</p>`;
}

async function revokeToken(row, {devices}) {
  const {revoked} = await send("POST", `${TOKENS}/${row.id}/revoke`, {devices: devices === "revoke"});
  return devices === "revoke" && html`<p role="status">Tollhouse revoked the token and ${exactCount(revoked.devices)} of its devices.</p>`;
}

const TOKEN_COLUMNS = [
  {title: "Name", value: (row) => row.name, sort: "name"},
  {title: "State", value: (row) => html`<${State} word=${row.state} />`, sort: "state"},
  {title: "Uses", kind: "number", value: (row) => `${exactCount(row.used)} of ${exactCount(row.uses)}`, sort: "used", order: "desc"},
  {title: "Expires", value: (row) => dayOf(Date.parse(row.expires_at) - 1), exact: (row) => row.expires_at, sort: "expires_at"}, // midnight ends the day before
  {title: "Serial number", wide: 3, value: (row) => row.serial ?? "any"},
  {title: "Labels", wide: 2, value: (row) => asText(row.labels).replaceAll("\n", ", ")},
  {title: "Created", wide: 1, value: (row) => ago(row.created), exact: (row) => row.created, sort: "created", order: "desc"},
  {title: "Created by", wide: 3, value: (row) => row.created_by},
];

const LIVE = ["active", "used_up"];

/** The list of tokens. Only people who may change devices can revoke the devices of a token. */
const tokensFor = (session) => ({
  path: TOKENS, root: "tokens", at: PATH, caption: "enrolment tokens", what: ["devices", "keys"],
  file: (row) => LIVE.includes(row.state) && ["enrolment-tokens", row.id],
  identity: (row) => row.id, heading: (row) => row.name,
  show: (id) => `${TOKENS}?id=${encodeURIComponent(id)}`, one: foundToken,
  columns: TOKEN_COLUMNS,
  create: {title: "Create a token", needs: "api_key_management", run: createToken, fields: () => [
    {name: "name", label: "Name", required: true, note: "at least 3 characters"},
    {name: "uses", label: "Uses", type: "number", value: "1", required: true, note: "number of devices that it may enrol"},
    {name: "per_hour", label: "Per hour", type: "number", note: "number of devices that it may enrol within an hour; 0: no limit. Leave empty for the default."},
    {name: "expires_at", label: "Expires", type: "date", required: true, note: "at the end of this day in UTC, at most 366 days from now",
      value: dayOf(Date.now() + DEFAULT_LIFE_MS)},
    {...labelsField({}), note: "one name=value per line; its devices get them"}]},
  actions: [{title: "Revoke", needs: "api_key_management", danger: true, when: (row) => row.state !== "revoked", run: revokeToken,
    text: (row) => `From now on, no device can enrol with ${row.name}. You cannot undo this.`,
    fields: (row) => (row.used > 0 && may(session, "operate_spool")
      ? [{name: "devices", label: "Devices that it enrolled", type: "select", options: [["keep", "Keep them"], ["revoke", "Revoke them as well"]]}] : [])}],
  empty: html`<h2>No enrolment tokens yet</h2><p>A token enrols a bounded number of devices, and can do nothing else. For one token per serial
    number, run <code>tollhouse devices tokens create --name NAME --for machines.csv</code></p>`,
});

const LISTS = {devices: DEVICES, clusters: CLUSTERS, files: FILES, unenrolled: UNENROLLED};

export function Page(given) {
  const tab = given.query.get("tab");
  return html`<${FleetTabs} now=${tab ?? "devices"} />
    <${ListPage} key=${tab} list=${tab === "tokens" ? tokensFor(given.session) : LISTS[tab] ?? DEVICES} ...${given} />`;
}

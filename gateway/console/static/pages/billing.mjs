/** Billing connections, and the hourly files of one connection. The address's tab is the connection's id. */
import {to} from "../lib/address.mjs";
import {addressOf, send} from "../lib/api.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Fields, State, Tabs} from "../lib/parts.mjs";

const PATH = "/billing";
const needs = "modify_billing";
const KINDS = {Disabled: "bad", "Pending Data": "wait"};

const at = (id) => `/connections/${encodeURIComponent(id)}`;
const change = (row, changes) => send("PATCH", at(row.id), changes).then(() => null);
const required = (name, label, value, note) => ({name, label, value, note, required: true});
const optional = (name, label, value, note) => ({name, label, value, note});

const BUCKET = [["bucket_name", "Bucket", "where the provider stores its files; leave empty if there is none"],
  ["bucket_path", "Path in the bucket"], ["cloud_account_id", "Account of the bucket", "12 digits"]];

/** Build the form fields of a connection, or of a new one. */
const fields = (row) => [
  required("name", "Name", row?.name),
  required("cloud_provider", "Provider", row?.cloud_provider, "such as MongoDB"),
  optional("upstream_connection_id", "Id in your cost service", row?.upstream_connection_id === row?.id ? "" : row.upstream_connection_id,
    "leave empty to use the same id"),
  ...BUCKET.map(([name, label, note]) => optional(name, label, row?.s3_bucket_info?.[name], note)),
];

/** Convert the form values to the API's fields. If all bucket fields are empty, the connection has no bucket. */
function typed({bucket_name, bucket_path, cloud_account_id, ...given}) {
  const bucket = {bucket_name, bucket_path, cloud_account_id};
  return {...given, s3_bucket_info: Object.values(bucket).some(Boolean) ? bucket : null};
}

const column = (title, name, sort = name) => ({title, sort, value: (row) => row[name]});
const shared = {at: PATH, what: ["connections"]};

const CONNECTIONS = {
  ...shared, path: "/connections", root: "connections", caption: "connections", file: (row) => ["connections", row.id],
  identity: (row) => row.id, heading: (row) => row.name, show: at, one: (answer) => answer.connection,
  columns: [
    column("Name", "name"),
    {title: "State", value: (row) => html`<${State} word=${row.state} kind=${KINDS[row.state] ?? "good"} />`},
    column("Provider", "cloud_provider"),
    column("Id", "id", null),
  ],
  Details: ({row}) => html`<p><a href=${to(PATH, {tab: row.id})}>Show hourly files and months</a></p><${Fields}
    of=${{id: row.id, provider: row.cloud_provider, id_in_your_cost_service: row.upstream_connection_id, bucket: row.s3_bucket_info}} />`,
  create: {title: "Create a connection", needs,
    fields: () => [...fields(), optional("id", "Id", "", "that senders use; leave empty for a new id")],
    run: (_, {id, ...given}) => send("POST", "/connections", {...typed(given), connection_id: id || null}).then(() => null)},
  actions: [
    {title: "Edit", needs, fields, run: (row, given) => change(row, typed(given))},
    {title: "Enable", needs, when: (row) => !row.is_enabled, run: (row) => change(row, {is_enabled: true})},
    {title: "Disable", needs, when: (row) => row.is_enabled, run: (row) => change(row, {is_enabled: false}),
      text: () => "From now on, Tollhouse refuses files for this connection."},
    {title: "Delete", needs, danger: true, exact: (row) => row.id,
      run: (row) => send("DELETE", `${at(row.id)}?confirm=${encodeURIComponent(row.id)}`).then(() => null),
      text: () => "The rows of the connection are deleted as well. Hourly files that wait for delivery are still sent."},
  ],
  empty: html`<p>No billing connection yet. Create one to receive or send hourly cost files.</p>`,
};

const drops = (id) => ({
  ...shared, path: `${at(id)}/drops`, root: "billing_drops", caption: "hourly files", identity: (row) => row.drop_id, heading: (row) => `Hourly file ${row.drop_id}`,
  columns: [
    column("File", "drop_id", null),
    {title: "Month (all rows)", value: ({month}) => html`<a href=${addressOf(`${at(id)}/drops/${month}`)}>${month}</a>`, sort: "month"},
    {...column("Rows", "row_count"), kind: "number"},
  ],
});

export function Page(given) {
  const id = given.query.get("tab");
  return html`${id && html`<${Tabs} path=${PATH} query=${given.query} tabs=${[["", "Connections"], [id, `Hourly files of ${id}`]]} />`}
    <${ListPage} key=${id} list=${id ? drops(id) : CONNECTIONS} ...${given} />`;
}

/** The organization's API keys, with their permissions. */
import {ageLinks} from "../lib/ages.mjs";
import {go, to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {nameOf} from "../lib/chart.mjs";
import {html, useState} from "../lib/html.mjs";
import {ago, counted, exactCount, money} from "../lib/format.mjs";
import {asText, labelsField, labelsIn} from "../lib/shared_fields.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Copy, Problem, State, may} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {day, daysBefore, span} from "../lib/range.mjs";

const PATH = "/keys";
const at = (name) => `/keys/${encodeURIComponent(name)}`;
const used = (text) => (/^\d/.test(text) ? ago(text) : text);
const expires = (text) => text?.slice(0, 10) ?? "never";
const KINDS = {Enabled: "good", Disabled: "bad", Expired: "bad"};
const act = (verb) => (row) => send("POST", `${at(row.name)}/${verb}`, {}).then(() => null);
const isScope = (name) => name.includes(":");

/** Convert the form values to the API's fields. A key has use cases or scopes, never both. */
const asked = ({name, description, access, labels, expires_at: expiry}) => ({name, description, labels: labelsIn(labels),
  expires_at: expiry[0] || null, [access.some(isScope) ? "scopes" : "use_cases"]: access});

function Access({name, label, value, options}) {
  const [isFixed, setFixed] = useState(value.some(isScope));
  const [find, setFind] = useState("");
  const offered = options.filter((each) => isScope(each) === isFixed).sort((one, other) => value.includes(other) - value.includes(one));
  const kind = (is, text) => html`<label class="check"><input type="radio" name="kind" checked=${isFixed === is}
    onChange=${() => setFixed(is)} /> ${text}</label>`;
  return html`<fieldset><legend>${label}</legend>
    ${kind(false, "By use case (an upgrade may add permissions)")}
    ${kind(true, "Exact permissions (an upgrade never changes them)")}
    ${isFixed && html`<label>Filter scopes <input type="search" value=${find} onInput=${(event) => setFind(event.target.value)} /></label>`}
    <div key=${isFixed} class="checks">${offered.map((each) => html`<label key=${each} class="check" hidden=${!each.includes(find)}>
      <input type="checkbox" name=${name} value=${each} defaultChecked=${value.includes(each)} /> ${each}</label>`)}</div></fieldset>`;
}

const DAYS = [1, 7, 30, 90];

/** The end of a key: a text, and buttons for usual days. */
const Expires = ({name, label, value, note}) => html`<label>${label} <span class="faint">${note}</span>
    <input name=${name} defaultValue=${value} autocomplete="off" /></label>
  <p class="bar">${DAYS.map((days) => html`<button key=${days} type="button" onClick=${({target}) => {
    target.form.elements[name].value = day(daysBefore(new Date(), -days));
  }}>in ${counted(days, "day")}</button>`)}</p>`;

function fields(row, answer) {
  const valid = (field) => answer.filtering.available.find((each) => each.field === field).valid_values;
  return [
    {name: "name", label: "Name", value: row?.name, required: true, note: "at least 3 characters, and unique"},
    {name: "description", label: "Description", value: row?.description},
    {name: "access", label: "What it may do", type: Access, value: row ? [...row.use_cases, ...row.scopes] : [],
      options: [...valid("use_case"), ...valid("scope")]},
    labelsField(row?.labels ?? {}),
    {name: "expires_at", label: "Expires", type: Expires, value: row?.expires_at ?? "",
      note: "a day, at whose end the key expires (2026-12-31), or a UTC time (2026-12-31T18:00Z). Leave empty for no expiry."},
  ];
}

const shownOnce = ({secret}) => html`<p>This is the secret. Tollhouse shows it only once, so copy it now.</p>
  <${Copy} label="the secret" text=${secret} />
  <p class="faint">Senders use it as the whole value of the <code>Authorization</code> header.</p>`;

const SINCE = "now-90d";
/** Return the link to what a key sent: Costs, or Calls for people who may not see costs. */
const sentWith = (name, session) => (may(session, "view_costs") ? to("/costs", {sender: name, by: "source", from: SINCE})
  : to("/calls", {sender: name}));

/** The details of a key, and a summary of the calls that were sent with it. */
function Details({row, session}) {
  return html`${may(session, "view_costs") && html`<${Sent} name=${row.name} session=${session} />`}
    <h3>The key</h3><${Columns} of=${KEYS.columns} row=${row} />
    ${row.previous_secret_until && html`<p>Its earlier secret works until ${row.previous_secret_until}.</p>`}`;
}

function Sent({name, session}) {
  const asked = {...span(new URLSearchParams({from: SINCE})), name: null, asked: null, where: `sender=${name}`, show: ["cost", "calls"]};
  const found = useQuery(() => Promise.all(["source", "team"].map((by) => get("/report", {...asked, by, top: 5})).concat(get("/report", {...asked, per: "daily"}))),
    [name], ["ledger"]);
  const [sources, teams, days] = found.data ?? [];
  const named = (answer, field) => [...answer.rows].sort((one, other) => other.calls - one.calls)
    .map((each) => `${nameOf(each[field])} (${exactCount(each.calls)})`).join(", ");
  const when = days?.rows.map((each) => each.period.slice(0, 10)).sort();
  return html`<h3>Sent with this key, last 90 days</h3>
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    ${!found.data && !found.error && html`<p role="status">Loading ...</p>`}
    ${found.data && (days.total.calls === 0 ? html`<p>No call was sent with ${name}. Very old calls may not have the name of their key.</p>`
      : html`<dl class="fields"><div><dt>calls</dt><dd>${exactCount(days.total.calls)}</dd></div><div><dt>cost</dt><dd>${money(days.total.cost)}</dd></div>
        <div><dt>sources</dt><dd>${named(sources, "source")}</dd></div><div><dt>teams</dt><dd>${named(teams, "team")}</dd></div>
        <div><dt>first</dt><dd>${when[0]}</dd></div><div><dt>last</dt><dd>${when.at(-1)}</dd></div></dl>
        <p><a href=${sentWith(name, session)}>Show these calls</a></p>`)}`;
}

const KEYS = {
  path: PATH, root: "keys", at: PATH, file: (row) => ["keys", row.name], caption: "API keys", what: ["keys"], Ages: ageLinks("unused_for", "Unused for"),
  identity: (row) => row.name, Details,
  show: at, one: (answer) => ({...answer.key, previous_secret_until: answer.previous_secret_until}),
  columns: [
    {title: "Name", value: (row) => row.name, sort: "name"},
    {title: "State", value: (row) => html`<${State} word=${row.state} kind=${KINDS[row.state]} />`, sort: "state"},
    {title: "Access", wide: true, value: (row) => row.use_cases.join(", ") || "fixed scopes"},
    {title: "Scopes", wide: true, kind: "number", value: (row) => row.scope_count, exact: (row) => row.scopes.join("\n"), sort: "scope_count"},
    {title: "Last used", value: (row) => used(row.last_accessed), exact: (row) => row.last_accessed, sort: "last_accessed"},
    {title: "Last record", value: (row) => (row.last_record ? ago(row.last_record) : "none"), exact: (row) => row.last_record},
    {title: "Last test", wide: true, value: (row) => (row.last_test ? ago(row.last_test) : ""), exact: (row) => row.last_test},
    {title: "Expires", wide: true, value: (row) => expires(row.expires_at), exact: (row) => row.expires_at, sort: "expires_at"},
    {title: "Refused since expiry", wide: true, kind: "number", value: (row) => (row.refused_since_expiry ? exactCount(row.refused_since_expiry) : ""),
      exact: (row) => row.last_refused},
    {title: "Last modified", wide: true, value: (row) => ago(row.last_modified), exact: (row) => row.last_modified, sort: "last_modified"},
    {title: "Created by", wide: true, value: (row) => row.created_by, sort: "created_by"},
    {title: "Updated by", wide: true, value: (row) => row.updated_by, sort: "updated_by"},
    {title: "Description", wide: true, value: (row) => row.description, sort: "description"},
    {title: "Labels", wide: true, value: (row) => asText(row.labels).replaceAll("\n", ", ")},
  ],
  create: {title: "Create a key", needs: "api_key_management", fields,
    run: (_, values) => send("POST", PATH, asked(values)).then(shownOnce)},
  actions: [
    {title: "Edit", needs: "api_key_management", fields,
      run: (row, values) => send("PATCH", at(row.name), {...asked(values), version: row.version}).then(() => null)},
    {title: "Disable and show its calls", needs: "api_key_management", isDirect: true, when: (row) => row.status === "Enabled",
      run: (row, _, session) => act("disable")(row).then(() => go(sentWith(row.name, session)))},
    {title: "Disable", needs: "api_key_management", when: (row) => row.status === "Enabled", run: act("disable"),
      text: (row) => `Tollhouse refuses requests with ${row.name} until you enable the key again.`},
    {title: "Enable", needs: "api_key_management", when: (row) => row.status === "Disabled", run: act("enable"),
      text: (row) => `${row.name} may send again from now on.`},
    {title: "Rotate", needs: "api_key_management", text: (row) => `${row.name} gets a new secret.`,
      fields: () => [{name: "hours", label: "Hours for which the old secret stays valid", type: "number", value: "24", required: true,
        note: "0 disables the old secret at once"}],
      run: (row, {hours}) => send("POST", `${at(row.name)}/rotate`, {overlap_s: Number(hours) * 3600}).then(shownOnce)},
    {title: "Delete", needs: "api_key_management", danger: true, exact: (row) => row.name,
      run: (row) => send("DELETE", `${at(row.name)}?confirm=${encodeURIComponent(row.name)}`).then(() => null),
      text: (row) => `Every service that uses ${row.name} loses access at once. You cannot undo this.`},
  ],
  empty: html`<h2>No API keys yet</h2><p>Every sender needs a key. Create it here, or with${" "}
    <code>tollhouse keys create --name laptop --use-case "Send AI Telemetry"</code></p>`,
};

export const Page = (given) => html`<${ListPage} list=${KEYS} ...${given} />`;

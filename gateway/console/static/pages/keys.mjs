/** The organization's API keys: who may send, and with which scopes. */
import {send} from "../lib/api.mjs";
import {html, useState} from "../lib/html.mjs";
import {ago} from "../lib/format.mjs";
import {asText, labelsField, labelsIn} from "../lib/labels.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Copy, State} from "../lib/parts.mjs";

const PATH = "/keys";
const at = (name) => `/keys/${encodeURIComponent(name)}`;
const used = (text) => (/^\d/.test(text) ? ago(text) : text);
const act = (verb) => (row) => send("POST", `${at(row.name)}/${verb}`, {}).then(() => null);
const isOurs = (row) => row.name !== "Legacy API Key"; // that one is changed where the deployment gives it
const isScope = (name) => name.includes(":");

/** The form as the request has it; a key has use cases or scopes, never both. */
const asked = ({name, description, access, labels}) => ({name, description, labels: labelsIn(labels),
  [access.some(isScope) ? "scopes" : "use_cases"]: access});

function Access({name, label, value, options}) {
  const [isFixed, setFixed] = useState(value.some(isScope));
  const [find, setFind] = useState("");
  const offered = options.filter((each) => isScope(each) === isFixed).sort((one, other) => value.includes(other) - value.includes(one));
  const kind = (is, text) => html`<label class="check"><input type="radio" name="kind" checked=${isFixed === is}
    onChange=${() => setFixed(is)} /> ${text}</label>`;
  return html`<fieldset><legend>${label}</legend>
    ${kind(false, "Use cases: Tollhouse keeps their scopes current")}
    ${kind(true, "Fixed scopes: these and no others, also when there are new ones")}
    ${isFixed && html`<label>Find a scope <input type="search" value=${find} onInput=${(event) => setFind(event.target.value)} /></label>`}
    <div key=${isFixed} class="checks">${offered.map((each) => html`<label key=${each} class="check" hidden=${!each.includes(find)}>
      <input type="checkbox" name=${name} value=${each} defaultChecked=${value.includes(each)} /> ${each}</label>`)}</div></fieldset>`;
}

function fields(row, answer) {
  const valid = (field) => answer.filtering.available.find((each) => each.field === field).valid_values;
  return [
    {name: "name", label: "Name", value: row?.name, required: true, note: "at least 3 characters, and no other key's"},
    {name: "description", label: "Description", value: row?.description},
    {name: "access", label: "What it may do", type: Access, value: row ? [...row.use_cases, ...row.scopes] : [],
      options: [...valid("use_case"), ...valid("scope")]},
    labelsField(row?.labels ?? {}),
  ];
}

const shownOnce = ({secret}) => html`<p>This is the secret. It is shown now and never again: copy it to where it is used.</p>
  <${Copy} label="the secret" text=${secret} />
  <p class="faint">A sender gives it as the whole value of the <code>Authorization</code> header.</p>`;

const KEYS = {
  path: PATH, root: "keys", at: PATH, caption: "API keys", what: ["keys"],
  identity: (row) => row.name,
  show: at, one: (answer) => ({...answer.key, previous_secret_until: answer.previous_secret_until}),
  columns: [
    {title: "Name", value: (row) => row.name, sort: "name"},
    {title: "Status", value: (row) => html`<${State} word=${row.status} kind=${row.status === "Enabled" ? "good" : "bad"} />`, sort: "status"},
    {title: "Access", value: (row) => row.use_cases.join(", ") || "fixed scopes"},
    {title: "Scopes", kind: "number", value: (row) => row.scope_count, exact: (row) => row.scopes.join("\n"), sort: "scope_count"},
    {title: "Last accessed", value: (row) => used(row.last_accessed), exact: (row) => row.last_accessed, sort: "last_accessed"},
    {title: "Last modified", value: (row) => ago(row.last_modified), exact: (row) => row.last_modified, sort: "last_modified"},
    {title: "Created by", value: (row) => row.created_by, sort: "created_by"},
    {title: "Updated by", value: (row) => row.updated_by, sort: "updated_by"},
    {title: "Description", value: (row) => row.description, sort: "description"},
    {title: "Labels", value: (row) => asText(row.labels).replaceAll("\n", ", ")},
  ],
  create: {title: "Create a key", needs: "api_key_management", fields,
    run: (_, values) => send("POST", PATH, asked(values)).then(shownOnce)},
  actions: [
    {title: "Edit", needs: "api_key_management", when: isOurs, fields,
      run: (row, values) => send("PATCH", at(row.name), {...asked(values), version: row.version}).then(() => null)},
    {title: "Disable", needs: "api_key_management", when: (row) => isOurs(row) && row.status === "Enabled", run: act("disable"),
      text: (row) => `What is sent with ${row.name} is refused until the key is enabled again.`},
    {title: "Enable", needs: "api_key_management", when: (row) => isOurs(row) && row.status === "Disabled", run: act("enable"),
      text: (row) => `${row.name} opens again from now on.`},
    {title: "Rotate", needs: "api_key_management", when: isOurs, text: (row) => `${row.name} gets a new secret.`,
      fields: () => [{name: "hours", label: "Hours for which the present secret opens too", type: "number", value: "24", required: true,
        note: "0 ends it at once"}],
      run: (row, {hours}) => send("POST", `${at(row.name)}/rotate`, {overlap_s: Number(hours) * 3600}).then(shownOnce)},
    {title: "Delete", needs: "api_key_management", danger: true, when: isOurs, exact: (row) => row.name,
      run: (row) => send("DELETE", `${at(row.name)}?confirm=${encodeURIComponent(row.name)}`).then(() => null),
      text: (row) => `Every service that uses ${row.name} loses access at once. This cannot be undone.`},
  ],
  empty: html`<h2>There is no API key</h2><p>Whoever sends needs one. Create it here, or with${" "}
    <code>tollhouse keys create --name laptop --use-case "Send AI Telemetry"</code></p>`,
};

export const Page = (given) => html`<${ListPage} list=${KEYS} ...${given} />`;

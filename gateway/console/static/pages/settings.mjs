/** The configuration in effect, operator accounts and sessions, and the audit list. */
import {ROLES, roleName} from "../lib/words.mjs";
import {go, here, to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {ago, exactCount} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Fields, State, Tabs, may} from "../lib/parts.mjs";
import {Thing} from "../lib/things.mjs";

const PATH = "/settings";
const USUAL = "usual";
const ROLE = {name: "role", label: "Role", type: "select", options: ROLES,
  note: "Member: reads. Operator: also works on deliveries and insights. Admin: also keys, accounts and settings. none: only what roles give."};
const role = {title: "Role", sort: "role", value: (row) => roleName(row.role)};
const PASSWORD = {name: "password", label: "Password", type: "password", required: true};
const operator = (row) => `/operators/${encodeURIComponent(row.email)}`;
const moment = (title, name, sort) => ({title, value: (row) => ago(row[name]), exact: (row) => row[name], sort: sort && name});
const plain = (title, name, sort, wide) => ({title, wide, value: (row) => row[name] ?? "none", sort: sort && name});

const written = (value) => (value === null || value === "" || (typeof value === "object" && !Object.keys(value).length)
  ? html`<span class="faint">none</span>` : typeof value === "object" ? JSON.stringify(value) : String(value));

const CONFIGURATION = {
  path: "/configuration", root: "configuration", at: PATH, caption: "settings", what: ["routes"],
  identity: (row) => row.name,
  sort: ["source", "asc"], // defaults last
  columns: [plain("Setting", "name", true), {title: "Value", value: (row) => html`<code>${written(row.value)}</code>`},
    plain("From", "source", true, true)],
  Before: ({answer, query}) => html`<p class="faint">Settings come from the file, the environment and command options; later ones win. After a change of the file, run${" "}
    <code>tollhouse reload</code>. Secrets are not shown.</p><${Sections} ...${{answer, query}} />`,
};

/** A choice of the sections of the configuration, because one page of the list does not have all settings. */
function Sections({answer, query}) {
  const {valid_values: sections = []} = answer?.filtering.available.find(({field}) => field === "section") ?? {};
  const all = "all sections";
  return html`<p class="bar"><label>Section <select value=${query.get("section") ?? all} onChange=${({target}) => go(here({section: target.value === all ? null : target.value}))}>
    ${[all, ...sections].map((each) => html`<option key=${each} value=${each}>${each || "top"}</option>`)}</select></label></p>`;
}

const stateOf = (row) => html`<${State} word=${row.status.toLowerCase()} />`;

const OPERATORS = {
  path: "/operators", root: "operators", at: PATH, caption: "operators", what: ["keys"],
  identity: (row) => row.email,
  Details: ({row}) => html`<${Columns} of=${OPERATORS.columns} row=${row} /><p><a href=${to("/roles", {tab: "person", person: row.email})}>Show what this person may do and see</a></p>`,
  columns: [plain("E-mail", "email", true), role, {title: "State", value: stateOf}, plain("Created by", "created_by", false, true),
    {...moment("Created", "created", true), wide: true}, {...moment("Last modified", "last_modified", true), wide: true}],
  create: {title: "Add an operator", needs: "organization_administration", fields: () => [{name: "email", label: "E-mail", type: "email", required: true},
      {...ROLE, options: [[USUAL, "Member, or none if any role restricts access"], ...ROLES], value: USUAL}, PASSWORD],
    run: (_, {role, ...values}) => send("POST", "/operators", role === USUAL ? values : {...values, role}).then(() => null)},
  actions: [
    {title: "Set role", needs: "organization_administration", fields: (row) => [{...ROLE, value: row.role}],
      run: (row, values) => send("PATCH", operator(row), values).then(() => null)},
    {title: "Set password", needs: "organization_administration", fields: () => [PASSWORD], text: (row) => `All sessions of ${row.email} end.`,
      run: (row, values) => send("PATCH", operator(row), values).then(() => null)},
    {title: "Disable", needs: "organization_administration", when: (row) => row.status === "Enabled",
      text: (row) => `${row.email} is signed out at once, and cannot sign in until the account is enabled again.`,
      run: (row) => send("PATCH", operator(row), {status: "Disabled"}).then(() => null)},
    {title: "Enable", needs: "organization_administration", when: (row) => row.status === "Disabled",
      run: (row) => send("PATCH", operator(row), {status: "Enabled"}).then(() => null)},
    {title: "Remove", needs: "organization_administration", danger: true, exact: (row) => row.email,
      text: (row) => `${row.email} is signed out at once and cannot sign in again.`,
      run: (row) => send("DELETE", operator(row)).then(() => null)},
  ],
  empty: html`<h2>No operator accounts yet</h2><p>On the gateway's machine, <code>tollhouse console link</code> prints a link that signs you in.
    Add an account for everybody else.</p>`,
};

const SESSIONS = {
  path: "/sessions", root: "sessions", at: PATH, caption: "sessions", what: ["keys"],
  identity: (row) => row.id, heading: (row) => `Session of ${row.actor}`,
  columns: [plain("Who", "actor", true), {...role, sort: false}, plain("Signed in with", "began_with", false, true),
    plain("Address", "address", false, true), {...moment("Created", "created", true), wide: true}, moment("Last seen", "last_seen", true)],
  actions: [{title: "End", needs: "organization_administration", danger: true, text: (row) => `This session of ${row.actor} is signed out at once.`,
    run: (row) => send("DELETE", `/sessions/${encodeURIComponent(row.id)}`).then(() => null)}],
};

/** The object of a change. Routes and devices are stored elsewhere, so their link exists unless the action deleted them. */
const ELSEWHERE = /^(route|device)[.](?!drop|delete|forget)/;
const target = (row) => html`<${Thing} kind=${row.action.split(".")[0]} id=${row.target} name=${row.target_name}
  exists=${row.target_exists || ELSEWHERE.test(row.action)} />`;

const AUDIT = {
  path: "/audit", root: "audit", at: PATH, caption: "changes", what: ["keys"],
  identity: (row) => row.id, heading: (row) => `${row.actor}: ${row.action}`,
  columns: [{...plain("Number", "id", true), kind: "short"}, moment("When", "at", true), plain("Who", "actor", true), plain("Action", "action", true),
    {title: "Object", kind: "words", sort: "target", exact: (row) => row.target, value: target}, plain("IP address", "address", false, true)],
  Details: ({row}) => html`<${Columns} of=${AUDIT.columns} row=${row} />${[["Before", row.before], ["After", row.after]].map(([title, of]) => of && html`<h3>${title}</h3><${Fields} of=${of} />`)}`,
};

const TOOLS = {
  path: "/assistant-tools", root: "assistant_tools", at: PATH, caption: "tools", what: ["keys"],
  identity: (row) => row.name, file: (row) => row.updated_by && ["assistant-tools", row.name],
  columns: [plain("Tool", "name", true), plain("What it does", "title", false, true), {title: "Writes", value: (row) => (row.writes ? "yes" : "no")},
    {title: "State", value: (row) => html`<${State} word=${row.enabled ? "enabled" : "disabled"} />`}, plain("Decided by", "updated_by", false, true),
    {...moment("Decided", "last_updated", true), wide: true}],
  Before: () => html`<p class="faint">Assistants can use these tools with a key that has the scope <code>ai-hub:mcp</code>, or on behalf of a person.</p>`,
  actions: [
    {title: "Disable", needs: "organization_administration", when: (row) => row.enabled, text: (row) => `No assistant can use ${row.name} from now on.`,
      run: (row) => send("PATCH", `/assistant-tools/${row.name}`, {enabled: false}).then(() => null)},
    {title: "Enable", needs: "organization_administration", when: (row) => !row.enabled, text: (row) => `Assistants can use ${row.name} from now on.`,
      run: (row) => send("PATCH", `/assistant-tools/${row.name}`, {enabled: true}).then(() => null)},
  ],
};

/** Parse lines of `email; account, name` into the API's fields. */
const typedPeople = (text) => text.split("\n").map((line) => line.split(",")).filter(([users]) => users.trim())
  .map(([users, ...name]) => ({users: users.split(";").map((each) => each.trim()).filter(Boolean), name: name.join(",").trim()}));

const PEOPLE = {
  path: "/people", root: "people", at: PATH, caption: "people", what: ["keys"],
  identity: (row) => row.user,
  columns: [plain("Name", "name", true), {title: "Names in records", sort: "user", value: (row) => html`<code>${row.names.join("; ")}</code>`},
    {title: "From", value: (row) => (row.origin === "account" ? "an account" : "entered here")}],
  Before: () => html`<p class="faint">Records store a code instead of an e-mail address (<code>privacy.emails = "hash"</code>). For people with the permission set View
    Names of People, tables show these names instead. Exports always contain the codes. Reports show one line for each person, whatever name a
    sender states.</p>`,
  create: {title: "Add names", needs: "organization_administration", fields: () => [{name: "names", label: "Names", type: "area", required: true,
    note: "one person per line: an e-mail address or a code, a comma, and the name. Separate several names of a person in records by semicolons. Addresses are not stored."}],
    run: (_, {names}) => send("POST", "/people", {people: typedPeople(names)}).then(() => null)},
  actions: [{title: "Delete", needs: "organization_administration", danger: true, when: (row) => row.origin !== "account",
    text: (row) => `Tables show ${row.user} again, and each name in records is a person of its own.`,
    run: (row) => send("POST", "/people/forget", {users: [row.user]}).then(() => null)}],
  empty: html`<h2>No names yet</h2><p>Add names by hand or paste lines of a CSV file. People with an account get their name from it.</p>`,
};

const plainNumber = (title, name, wide) => ({title, kind: "number", wide, sort: name === "calls" && name, order: "desc", value: (row) => exactCount(row[name])});

const STATED = {
  path: "/people/stated", root: "stated_names", at: PATH, caption: "pairs", what: ["keys"],
  identity: (row) => `${row.user} ${row.address}`, heading: (row) => `${row.user} and ${row.address}`,
  columns: [plain("Account", "user", true), {title: "Address", value: (row) => row.address}, {title: "State", value: (row) => html`<${State} word=${row.state} kind=${row.state === "conflict" ? "bad" : "plain"} />`},
    plainNumber("Calls with both", "calls"), plainNumber("Calls of the account", "calls_of_user", true), plainNumber("Calls of the address", "calls_of_address", true),
    {title: "Why", wide: 2, value: (row) => row.reason ?? ""}],
  Before: () => html`<p class="faint">Accounts with the addresses that their calls of the last 92 days state. A sender can state a false address, so look before you link.</p>`,
  actions: [
    {title: "Link", needs: "organization_administration", when: (row) => row.state !== "linked", text: (row) => `Reports show ${row.user} as ${row.address}. This may widen what people with roles see.`,
      run: (row) => send("POST", "/people", {people: [{users: [row.address, row.user]}]}).then(() => null)},
    {title: "Split", needs: "organization_administration", when: (row) => row.state === "linked", text: (row) => `Reports show ${row.user} as a person of its own again.`,
      run: (row) => send("POST", "/people/split", {user: row.user}).then(() => null)},
  ],
};

const decide = (accept) => (row) => send("POST", "/people/conflicts/decide", {ids: [row.id], accept}).then(() => null);

const CONFLICTS = {
  path: "/people/conflicts", root: "name_conflicts", at: PATH, caption: "conflicts", what: ["keys"],
  identity: (row) => row.id, heading: (row) => row.names.join(" and ") || `Hash key of ${row.sender}`,
  columns: [{title: "What", value: (row) => (row.kind === "names" ? "two people as one" : "a further hash key")}, plain("Sender", "sender", true),
    {title: "Names in records", value: (row) => html`<code>${row.names.join("; ")}</code>`}, {title: "State", value: (row) => html`<${State} word=${row.state} kind="plain" />`},
    moment("Reported", "reported", true)],
  Before: () => html`<p class="faint">Agents and gateways report e-mail addresses, so that each person has one line. What would join two people, or uses a further key, waits for your decision.</p>`,
  actions: [
    {title: "Accept", needs: "organization_administration", run: decide(true),
      text: (row) => (row.kind === "names" ? "The two names become one person. This may widen what people with roles see." : `${row.sender} may use this key from its next report on.`)},
    {title: "Keep apart", needs: "organization_administration", when: (row) => row.state === "open", run: decide(false), text: () => "Further reports change nothing."},
  ],
  empty: html`<h2>No conflicts</h2><p>No agent or gateway reported two people as one.</p>`,
};

const PARTS = [["configuration", "Configuration", CONFIGURATION, "operate_spool"], ["operators", "Operators", OPERATORS, "organization_administration"],
  ["sessions", "Sessions", SESSIONS, "organization_administration"], ["assistants", "Assistants", TOOLS, "organization_administration"],
  ["names", "Names of people", PEOPLE, "view_names"], ["stated", "Stated names", STATED, "organization_administration"],
  ["conflicts", "Conflicts of names", CONFLICTS, "organization_administration"],
  ["audit", "Audit", AUDIT, "organization_administration"]];

export function Page(given) {
  const parts = PARTS.filter(([, , , needed]) => may(given.session, needed));
  if (!parts.length) return html`<p>Settings need the permission set Operate the Spool. Accounts, sessions and the audit list need Organization Administration. An Admin
    can give you a role.</p>`;
  const [name, , list] = parts.find(([each]) => each === given.query.get("tab")) ?? parts[0];
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${parts} />
    <${ListPage} key=${name} list=${list} ...${given} />`;
}

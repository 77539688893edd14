/** Roles: what people may do and which calls they see, with a preview before saving. */
import {ROLES, builtinName, roleName} from "../lib/words.mjs";
import {go, to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {NONE, knownDimensions, titleOf} from "../lib/dimensions.mjs";
import {ago, count, exactCount, money} from "../lib/format.mjs";
import {html, useEffect, useRef, useState} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Fields, Problem, State, Table, Tabs, isOpen} from "../lib/parts.mjs";
import {usePreview} from "../lib/preview.mjs";
import {useQuery} from "../lib/query.mjs";
import {filterIn} from "../lib/view_fields.mjs";
import {PAGES} from "./list.mjs";

const PATH = "/roles";
const needs = "organization_administration";
const ACCESS = {full: "all calls", limited: "only calls that match all filters", none: "no calls"};
const SHOWN = 3; // number of members in the list

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const wider = (role) => `${at(role.id)}/wider-operators`;
const inLines = (text) => text.split(/[\n,]/).map((each) => each.trim()).filter(Boolean);
const seen = (seconds) => (seconds === null ? "–" : ago(new Date(Number(seconds) * 1000)));
const groupsOf = (row) => row.groups.map((each) => `the group ${each}`);

/** Write filters as lines of NAME=VALUE or NAME!=VALUE. */
const asLines = (filters, titles) => filters.flatMap(({dimension, values, mode}) => values.map((value) => (
  `${titleOf(titles, dimension)}${mode === "except" ? "!" : ""}=${value ?? ""}`)));

/** Parse such lines into filters. An unchanged text returns the role's own filters, because lines cannot express two filters on one dimension. */
function typedFilters(row, text) {
  if (row && text.trim() === asLines(row.filters).join("\n")) return row.filters;
  return Object.entries(filterIn(text)).map(([name, values]) => (name.startsWith("!")
    ? {dimension: name.slice(1), values, mode: "except"} : {dimension: name, values, mode: "is"}));
}

/** Convert the form values to the API's fields. */
const typed = (row, {name, description, access, filters, cost_types, permission_sets, members, groups}) => ({
  name: name.trim(), description, permission_sets, data_access: Object.keys(ACCESS).find((each) => ACCESS[each] === access),
  filters: typedFilters(row, filters), cost_types, members: inLines(members), groups: inLines(groups),
});

const preview = async (asked) => (await send("POST", `${PATH}/preview`, asked)).preview;

/** The kinds of cost to which a role can be limited. */
const MONEY = Object.entries({real_cost: "Counted cost: reported, otherwise estimated.", reported_cost: "Cost reported by sources.", estimated_cost: "Cost at list prices.",
  on_demand_cost: "Cost at list prices, the same as estimated_cost.", saved_cost: "Cost that a gateway's cache saved.", billed_cost: "Cost billed by providers.", discounted_cost: "Billed cost, with discounts spread over usage.",
  amortized_cost: "Billed, fees spread over the usage they cover.", discounted_amortized_cost: "Billed cost, with discounts and fees spread over usage.",
  invoiced_amortized_cost: "Billed cost of closed days, with discounts and fees spread over usage."})
  .map(([id, description]) => ({id, name: id, description, includes: []}));

/** A checkbox for each choice. */
function Sets({name, label, value, options}) {
  const titles = Object.fromEntries(options.map(({id, name: title}) => [id, title]));
  return html`<fieldset><legend>${label}</legend>${options.map(({id, description, includes}) => html`<label key=${id} class="check">
    <input type="checkbox" name=${name} value=${id} defaultChecked=${value.includes(id)} /> ${titles[id]} <span class="faint">${description}
      ${includes.length > 0 && ` Includes ${includes.map((each) => titles[each]).join(", ")}.`}</span></label>`)}</fieldset>`;
}

/** A preview of the typed role. It disappears when the form changes. */
function Tried({name, label, value: row, options: titles}) {
  const {box, look, found, error} = usePreview(async (form) => {
    const given = {...Object.fromEntries(form), permission_sets: form.getAll("permission_sets"), cost_types: form.getAll("cost_types")};
    return preview({person: given[name].trim() || null, role: typed(row, given), replaces: row?.id ?? null});
  });
  return html`<fieldset ref=${box}><legend>${label}</legend>
    <label>Combine with the other roles of <span class="faint">e-mail of an account; leave empty to preview only this role</span><input name=${name} type="email" autocomplete="off" /></label>
    <p><button type="button" onClick=${look}>Preview</button></p>
    ${error && html`<p role="alert" class="wrong">${error.message}</p>`}
    <div role="status">${found && html`<${Seen} ...${{found, titles}} />`}</div></fieldset>`;
}

/** List the pages that these rights open. */
const pagesOf = ({permission_sets: sets, data_access: access}) => PAGES.filter((each) => isOpen(
  {permission_sets: sets.map(({id}) => id), is_limited: access !== "full"}, each)).map((each) => each.title);

/** The permissions and the visible costs of a person. */
function Seen({found, titles}) {
  const {total, filters} = found;
  const part = (each) => asLines(each, titles).join(", ");
  return html`<p>${found.person ?? "A member"} ${found.roles.length ? `has ${found.roles.map(builtinName).join(", ")}` : "has no role"}${" "}
      and sees ${ACCESS[found.data_access === "limited" && !filters.length ? "full" : found.data_access]}${found.cost_types.length < MONEY.length && found.cost_types.length > 0 && ` in ${found.cost_types.join(", ")}`}${filters.length > 0 && `: ${filters.map(part).join("; or ")}`}.</p>
    <dl class="numbers"><div><dt>Visible cost</dt><dd title=${`$${total.cost}`}>${money(total.cost)}</dd><dd class="faint">last 30 days</dd></div>
      <div><dt>Visible calls</dt><dd title=${exactCount(total.calls)}>${count(total.calls)}</dd></div></dl>
    <${Fields} of=${{permission_sets: found.permission_sets.map((each) => each.name), pages: pagesOf(found).join(", ")}} />
    ${found.dimensions.map(({dimension, values, left_out: left}) => html`<div key=${dimension}><h3>By ${titleOf(titles, dimension)}</h3>
      ${values.length ? html`<${Table} caption=${`Visible by ${titleOf(titles, dimension)}`} rows=${values} identity=${(each) => String(each.value)} columns=${VALUES} />`
        : html`<p class="faint">No visible cost.</p>`}
      ${left > 0 && html`<p class="faint">And ${left} more.</p>`}</div>`)}`;
}

const VALUES = [
  {title: "Value", value: (each) => each.value ?? "unknown"},
  {title: "Cost", kind: "number", money: (each) => each.cost},
  {title: "Calls", kind: "number", value: (each) => count(each.calls), exact: (each) => exactCount(each.calls)},
];

const fields = (row, {sets, dimensions}) => [
  {name: "name", label: "Name", value: row?.name, required: true},
  {name: "description", label: "Description", value: row?.description},
  {name: "access", label: "Shows", type: "select", options: Object.values(ACCESS), value: ACCESS[row?.data_access ?? "limited"]},
  {name: "filters", label: "Filters", type: "area", rows: 4, value: asLines(row?.filters ?? []).join("\n"),
    note: `one per line: team=search, team!=search, or team= for calls without a team. Dimensions: ${dimensions.names.join(", ")}`},
  {name: "cost_types", label: "Kinds of cost (leave all unchecked for all)", type: Sets, value: row?.cost_types ?? [], options: MONEY},
  {name: "permission_sets", label: "Permission sets", type: Sets, value: row?.permission_sets ?? [], options: sets},
  {name: "members", label: "Members", type: "area", rows: 3, value: (row?.members ?? []).join("\n"), note: "e-mail addresses, one per line"},
  {name: "groups", label: "Groups", type: "area", rows: 2, value: (row?.groups ?? []).join("\n"), note: "of the OpenID provider, one per line"},
  {name: "as", label: "Preview before saving", type: Tried, value: row, options: dimensions.titles},
];

const isNarrow = (role) => role.data_access === "limited" || role.cost_types.length > 0;

/** Members whose account role still shows all calls, each with a button that removes it. */
function Wider({role}) {
  const {data, error, at: time, reload} = useQuery(() => get(wider(role), {limit: 1000}), [role.id, role.version], ["keys"]);
  const [problem, setProblem] = useState(null);
  const toNone = async ({email}) => {
    try {
      await send("PATCH", `/operators/${encodeURIComponent(email)}`, {role: "none"});
      setProblem(null);
      reload();
    } catch (refused) {
      setProblem(refused);
    }
  };
  return html`<${Problem} error=${error} at=${time} retry=${reload} />
    ${problem && html`<p role="alert" class="wrong">${problem.message}</p>`}
    <div role="status">${data?.operators.map((each) => html`<p key=${each.email}>${each.email} has the account role ${roleName(each.role)} and therefore sees everything.${" "}
      <button type="button" onClick=${() => toNone(each)}>Set account role to none</button></p>`)}</div>`;
}

/** After saving: a list of members whose account shows more than the role, or null. */
const afterSave = async ({role}) => {
  const {operators} = isNarrow(role) ? await get(wider(role), {limit: 1000}) : {operators: []};
  return operators.length ? html`<${Wider} role=${role} />` : null;
};

function Details({row, known: {sets, dimensions}}) {
  const title = (id) => sets.find((each) => each.id === id)?.name ?? id;
  return html`<p>${row.description}</p>
    ${row.broken && html`<p class="wrong">${row.broken}</p>`}
    <${Fields} of=${{shows: ACCESS[row.data_access], filters: asLines(row.filters, dimensions.titles), money: row.cost_types,
      allows: row.permission_sets.map(title), groups: row.groups, last_updated: seen(row.last_updated), updated_by: row.last_updated_by, id: row.id}} />
    ${isNarrow(row) && html`<${Wider} role=${row} />`}
    <h3>Members</h3>${row.members.length ? html`<ul>${row.members.map((each) => html`<li key=${each}>
      <a href=${to(PATH, {tab: "person", person: each})}>${each}</a></li>`)}</ul>` : html`<p class="faint">${row.is_builtin ? "Accounts with this account role have it." : "No members."}</p>`}`;
}

function holders(row) {
  const all = [...row.members, ...groupsOf(row)];
  return all.length ? `${all.slice(0, SHOWN).join(", ")}${all.length > SHOWN ? ` and ${all.length - SHOWN} more` : ""}` : "–";
}

const isOwn = (row) => !row.is_builtin;
const list = (known) => ({
  path: PATH, root: "roles", at: PATH, file: (row) => !row.is_builtin && ["roles", row.id], caption: "roles", what: ["keys"], show: at, one: (answer) => answer.role,
  identity: (row) => row.id, heading: (row) => builtinName(row.name),
  Details: ({row}) => html`<${Details} row=${row} known=${known} />`,
  columns: [
    {title: "Name", value: (row) => builtinName(row.name), sort: "name"},
    {title: "Kind", wide: true, value: (row) => html`<${State} word=${row.is_builtin ? "built in" : row.broken ? "broken" : "custom"} kind=${row.broken ? "bad" : "plain"} />`},
    {title: "Shows", value: (row) => (row.data_access === "limited" ? asLines(row.filters, known.dimensions.titles).join(", ") : ACCESS[row.data_access])},
    {title: "Permission sets", wide: true, kind: "number", value: (row) => row.permission_sets.length, exact: (row) => row.permission_sets.join("\n")},
    {title: "Members", value: holders, exact: (row) => [...row.members, ...groupsOf(row)].join("\n")},
    {title: "Last updated", wide: true, value: (row) => seen(row.last_updated), sort: "last_updated"},
  ],
  create: {title: "Create a role", needs, fields: () => fields(null, known), run: (_, given) => send("POST", PATH, typed(null, given)).then(afterSave)},
  actions: [
    {title: "Edit", needs, when: isOwn, fields: (row) => fields(row, known), run: (row, given) => send("PATCH", at(row.id), {...typed(row, given), version: row.version}).then(afterSave)},
    {title: "Delete", needs, when: isOwn, danger: true, exact: (row) => row.name, run: (row) => send("DELETE", at(row.id)).then(() => null),
      text: (row) => (holders(row) === "–" ? "The role has no members." : `These members have the role: ${[...row.members, ...groupsOf(row)].join(", ")}. Remove them before you delete the role.`)},
  ],
});

const SETS = {
  path: "/permission-sets", root: "permission_sets", at: PATH, caption: "permission sets", identity: (row) => row.id, heading: (row) => row.name,
  columns: [{title: "Name", kind: "words", value: (row) => row.name, sort: "name"}, {title: "Allows", kind: "words", value: (row) => row.description},
    {title: "Includes", kind: "words", wide: true, value: (row) => row.includes.join(", ").replaceAll("_", " ") || "–"}],
};

/** What the person named in the address may do and see now. */
function Person({query, titles}) {
  const [person, groups, account] = ["person", "groups", "account"].map((name) => query.get(name) ?? "");
  const isAsked = Boolean(person || groups);
  const {data, error, at: time, reload} = useQuery(() => isAsked && preview({person: person || null, groups: inLines(groups), account_role: account || null}),
    [person, groups, account], ["keys"]);
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const chosen = form.get("account");
    go(to(PATH, {tab: "person", person: form.get("person").trim(), groups: inLines(form.get("groups")).join(","), account: chosen}));
  };
  return html`<form class="bar" onSubmit=${submit}>
      <label>E-mail <input name="person" type="email" defaultValue=${person} autocomplete="off" /></label>
      <label>Groups <input name="groups" defaultValue=${groups} autocomplete="off" placeholder="separated by commas" /></label>
      <label>Account <select name="account">${[["", "the account's own role"], ...ROLES].map(([word, title]) => html`<option key=${word} value=${word} selected=${word === account}>${title}</option>`)}</select></label>
      <button type="submit" class="main">Show</button></form>
    <${Problem} error=${error} at=${time} retry=${reload} />
    ${data ? html`<section aria-label="What this person may do and see"><${Seen} found=${data} titles=${titles} /></section>`
      : !error && html`<p class="faint">Enter an e-mail address or groups of the OpenID provider. The page then shows the rights of the account and all roles together.</p>`}`;
}

/** A form for a role that shows one person only the part of the costs that the address names, with a preview below. */
function Limit({query, titles}) {
  const only = query.getAll("only");
  const [person, setPerson] = useState("");
  const [{problem, made}, setState] = useState({});
  const email = useRef(null);
  useEffect(() => email.current?.focus(), []);
  const draft = (name, members) => typed(null, {name, members, description: "", access: ACCESS.limited, filters: only.join("\n"), cost_types: [], permission_sets: ["view_costs"], groups: ""});
  const usual = `Only ${only.join(", ")}`;
  const {data: people} = useQuery(() => get("/operators", {limit: 1000}).then(({operators}) => operators).catch(() => []), []); // without names, people type the e-mail
  const found = useQuery(async () => preview({person: person || null, role: draft(made?.name ?? usual, ""), replaces: made?.id ?? null}),
    [person, usual, made?.id]);
  const submit = async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget));
    try {
      setState({made: (await send("POST", PATH, draft(given.name, given.person))).role});
    } catch (refused) {
      setState({problem: refused});
    }
  };
  if (!only.length) return html`<p>Choose a row on <a href=${to("/costs")}>Costs</a> or a <a href=${to("/views")}>view</a> first.</p>`;
  return html`<section><h2>Restrict access to ${only.join(", ")}</h2>
    <form class="bar" onSubmit=${submit}>
      <label>E-mail <input ref=${email} name="person" type="email" list="people" required autocomplete="off"
        onChange=${({target}) => target.validity.valid && setPerson(target.value.trim())} /></label>
      <datalist id="people">${people?.map(({email}) => html`<option key=${email} value=${email} />`)}</datalist>
      <label>Name of the role <input name="name" required defaultValue=${usual} autocomplete="off" /></label>
      <button type="submit" class="main">Create</button></form>
    ${problem && html`<p role="alert" class="wrong">${problem.message}</p>`}
    ${made && html`<p role="status">Created <a href=${to(PATH, {tab: "", open: made.id})}>${made.name}</a>.</p><${Wider} role=${made} />`}
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} /></section>
    ${found.data && html`<section aria-label="What this person may do and see"><${Seen} found=${found.data} titles=${titles} /></section>`}`;
}

const TABS = [["", "Roles"], ["person", "What a person sees"], ["sets", "Permission sets"]];
const NOTHING = {sets: [], dimensions: NONE};

export function Page(given) {
  const tab = given.query.get("tab") ?? "";
  const known = useQuery(async () => {
    const [{permission_sets: sets}, dimensions] = await Promise.all([get("/permission-sets", {limit: 1000}), knownDimensions()]);
    return {sets, dimensions};
  }, [], ["views"]);
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${TABS} />
    <${Problem} error=${known.error} retry=${known.reload} />
    ${tab === "person" ? html`<${Person} query=${given.query} titles=${(known.data ?? NOTHING).dimensions.titles} />`
      : tab === "limit" ? html`<${Limit} query=${given.query} titles=${(known.data ?? NOTHING).dimensions.titles} />`
      : html`<${ListPage} key=${tab} list=${tab === "sets" ? SETS : {...list(known.data ?? NOTHING), isLoading: !known.data}} ...${given} />`}`;
}

/** Allocation: the definition of each namespace with a preview of its changes, and lists of versions, namespaces and publish jobs. */
import {go, to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {ago, money} from "../lib/format.mjs";
import {html, useEffect, useState} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Problem, State, Table, Tabs, may} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {DimensionForm} from "./allocation_form.mjs";

const PATH = "/allocation";
const needs = "modify_dimension_definitions";
const DEFAULT = "default";
const NOTHING = "Dimensions:\n";
const PREVIEW_DELAY_MS = 400; // between the last change of the form and the request for the preview

const shown = (namespace) => namespace || DEFAULT;
const version = ({version, namespace}) => `/allocation/versions/${version}?namespace=${encodeURIComponent(namespace ?? "")}`;
const namespace = (id) => `/allocation/namespaces/${encodeURIComponent(id)}`;
const job = (id) => `/allocation/jobs/${encodeURIComponent(id)}`;
const moment = (title, name, sort = name) => ({title, sort, value: (row) => ago(new Date(row[name] * 1000).toISOString())});
const keys = (names) => names.map((each) => each.replace("User:Defined:", "")).join(", ") || "none";
const cost = (spend) => (spend ? money(spend.cost) : "none");

const ELEMENTS = [
  {title: "Element", value: (row) => row.element ?? "unknown"},
  {title: "Before", kind: "number", value: (row) => cost(row.before), exact: (row) => row.before?.cost},
  {title: "After", kind: "number", value: (row) => cost(row.after), exact: (row) => row.after?.cost},
];

function Difference({of}) {
  const {kept_since, tags} = of.diff.border;
  return html`<section aria-label="What would change"><h2>Effect on ${of.diff.from.slice(0, 7)}</h2>
    <p class="faint">${kept_since ? `Totals begin ${ago(kept_since)}.` : "There are no totals yet."}
      ${Object.entries(tags).map(([tag, since]) => ` ${since ? `Calls have ${tag} since ${ago(since)}` : `No call has ${tag} yet`}.`)}
      ${" "}The total stays ${cost(of.total)}.</p>
    ${of.dimensions.map((each) => html`<h3 key=${each.id}>${each.name} <${State} word=${each.state} kind="plain" /></h3>
      <${Table} caption=${each.name} columns=${ELEMENTS} rows=${each.elements} identity=${(row) => row.element ?? ""} />`)}</section>`;
}

function Faults({error}) {
  return html`<div class="problem" role="alert"><p><strong>The definition is not valid.</strong> ${!error.faults && error.message}</p>
    ${error.faults && html`<ul>${error.faults.map((each) => html`<li><code>${each.path.join(".") || "definition"}</code>: ${each.error}
      ${each.value && html` (<code>${each.value}</code>)`}</li>`)}</ul>`}</div>`;
}

/** The editor of a namespace's definition, as a form or as YAML. Publishing is possible after the preview. */
function Definition({session, query}) {
  const owner = query.get("namespace") ?? "";
  const known = useQuery(async () => {
    const [{namespaces}, {versions: [newest]}] = await Promise.all([get("/allocation/namespaces", {limit: 1000}),
      get("/allocation/versions", {namespace: owner, sort_key: "version", sort_order: "desc", limit: 1})]);
    return {namespaces, newest, owner, text: newest ? (await get(version(newest))).version.definition : NOTHING};
  }, [owner]);
  const {data} = known;
  if (data?.owner !== owner) return html`<${Problem} error=${known.error} retry=${known.reload} />
    ${!known.error && html`<p role="status">Loading ...</p>`}`;
  return html`<div class="bar"><label>Namespace <select value=${owner} onChange=${(event) => go(to(PATH, {namespace: event.target.value}))}>
      <option value="">${DEFAULT}</option>${data.namespaces.map(({id}) => html`<option key=${id}>${id}</option>`)}</select></label>
      <span class="faint">${data.newest ? `Version ${data.newest.version}, published by ${data.newest.last_updated_by}` : "Nothing has been published yet"}</span></div>
    <${Editor} key=${`${owner} ${data.newest?.version}`} ...${{session, owner, data}} reload=${known.reload} />`;
}

function Editor({session, owner, data, reload}) {
  const [text, setText] = useState(data.text);
  const [asked, setAsked] = useState(null); // the text to preview
  const [tried, setTried] = useState(null); // {text} with its preview or its error
  useEffect(() => {
    if (asked === null) return undefined;
    let isLatest = true;
    const tell = (found) => isLatest && setTried({text: asked, ...found});
    const timer = setTimeout(() => send("POST", "/allocation/diff", {definition: asked, namespace: owner})
      .then((difference) => tell({difference}), (error) => tell({error})), PREVIEW_DELAY_MS);
    return () => {
      isLatest = false;
      clearTimeout(timer);
    };
  }, [asked]);
  const change = (next) => {
    setText(next);
    setTried(null);
  };
  const publish = async () => {
    try {
      await send("POST", "/allocation/publish", {definition: text, namespace: owner, base: Number(data.newest?.version ?? 0)});
      await reload();
    } catch (error) {
      setTried({text, error});
    }
  };
  const now = tried?.text === text ? tried : null;
  const attempt = (event) => {
    event.preventDefault();
    setAsked(null); // so that an unchanged text is requested again
    setTimeout(() => setAsked(text));
  };
  return html`<form onSubmit=${attempt}>
      <${DimensionForm} text=${text} change=${(next) => {
        change(next);
        setAsked(next);
      }} />
      <details><summary>Advanced: the definition as YAML</summary><label>Definition <textarea name="definition" rows="18" required spellcheck=${false}
        value=${text} onInput=${(event) => {
          setAsked(null);
          change(event.target.value);
        }}></textarea></label></details>
      <div class="bar"><button type="submit" class=${now?.difference ? undefined : "main"}>Show what would change</button>
        ${may(session, needs) && html`<button type="button" class=${now?.difference ? "main" : undefined} disabled=${!now?.difference || text === data.text} onClick=${publish}>Publish</button>
          <span class="faint">The definition applies at once to all past and future costs. The overall total stays the same.</span>`}</div>
    </form>
    ${now?.error && html`<${Faults} error=${now.error} />`}
    ${now?.difference && html`<${Difference} of=${now.difference} />`}`;
}

const shared = {at: PATH, what: ["views"]};

const VERSIONS = {
  ...shared, path: "/allocation/versions", root: "versions", caption: "versions", file: (row) => row.is_in_force && row.dimensions.length > 0 && ["allocation", row.namespace ?? "default"],
  identity: (row) => `${row.namespace ?? ""}/${row.version}`,
  show: (id) => version({namespace: id.split("/")[0], version: id.split("/")[1]}), one: (answer) => answer.version,
  heading: (row) => `Version ${row.version} of ${shown(row.namespace)}`,
  columns: [
    {title: "Version", value: (row) => `${shown(row.namespace)} ${row.version}`, sort: "version"},
    {title: "State", value: (row) => html`<${State} word=${row.is_in_force ? "in force" : "earlier"} kind=${row.is_in_force ? "good" : "plain"} />`},
    {title: "Dimensions", value: (row) => keys(row.dimensions)},
    {title: "Published by", value: (row) => row.last_updated_by, sort: "last_updated_by"},
    moment("Published", "last_updated"),
  ],
  Details: ({row}) => html`<pre tabindex="0" aria-label="Definition"><code>${row.definition}</code></pre>`,
};

const named = (row) => [{name: "name", label: "Name", value: row?.name, required: true},
  {name: "description", label: "Description", value: row?.description}];

const NAMESPACES = {
  ...shared, path: "/allocation/namespaces", root: "namespaces", caption: "namespaces", file: (row) => ["namespaces", row.id],
  identity: (row) => row.id, heading: (row) => row.name, show: namespace, one: (answer) => answer.namespace,
  columns: [
    {title: "Id", value: (row) => row.id, sort: "id"}, {title: "Name", value: (row) => row.name, sort: "name"},
    {title: "Version", value: (row) => row.version ?? "none"}, {title: "Dimensions", value: (row) => keys(row.dimensions)},
  ],
  Details: ({row}) => html`<p><a href=${to(PATH, {namespace: row.id})}>Show the definition</a></p>
    ${row.broken && html`<p class="wrong">${row.broken}</p>`}
    <${Columns} of=${NAMESPACES.columns} row=${row} />`,
  create: {title: "Create a namespace", needs,
    fields: () => [{name: "id", label: "Id", required: true, note: "lower-case letters, digits, _ and -"}, ...named()],
    run: (_, given) => send("POST", "/allocation/namespaces", given).then(() => null)},
  actions: [
    {title: "Edit", needs, fields: named, run: (row, given) => send("PATCH", namespace(row.id), given).then(() => null)},
    {title: "Delete", needs, danger: true, exact: (row) => row.id, run: (row) => send("DELETE", namespace(row.id)).then(() => null),
      text: () => "A namespace can be deleted only if it defines no dimension. Its versions are deleted as well."},
  ],
  empty: html`<p>Only the default namespace exists. Create a namespace to let a team publish its own dimensions.</p>`,
};

const KINDS = {done: "good", failed: "bad", cancelled: "plain"};

const JOBS = {
  ...shared, path: "/allocation/jobs", root: "publish_jobs", caption: "publish jobs",
  identity: (row) => row.id, heading: (row) => `Publish job of ${shown(row.namespace)}`, show: job, one: (answer) => answer.publish_job,
  columns: [
    {title: "Namespace", value: (row) => shown(row.namespace), sort: "namespace"},
    {title: "State", value: (row) => html`<${State} word=${row.state} kind=${KINDS[row.state] ?? "wait"} />`, sort: "state"},
    {title: "Version", value: (row) => row.version ?? "none"},
    {title: "Submitted by", value: (row) => row.submitted_by},
    moment("Submitted", "submitted"),
  ],
  actions: [{title: "Cancel the job", needs, when: (row) => row.state === "queued" || row.state === "validating",
    run: (row) => send("POST", `${job(row.id)}/cancel`).then(() => null)}],
};

const PARTS = [["", "Definition", null], ["versions", "Versions", VERSIONS], ["namespaces", "Namespaces", NAMESPACES], ["jobs", "Publish jobs", JOBS]];

export function Page(given) {
  const [name, , list] = PARTS.find(([each]) => each === given.query.get("tab")) ?? PARTS[0];
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${PARTS} />
    ${list ? html`<${ListPage} key=${name} list=${list} ...${given} />` : html`<${Definition} ...${given} />`}`;
}

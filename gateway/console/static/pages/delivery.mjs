/** What leaves Tollhouse: routes and what stops them, requests in progress, and what upstreams refused. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {html, useState} from "../lib/html.mjs";
import {ago, duration, exactCount} from "../lib/format.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Confirm, Copy, Fields, State, Tabs, may} from "../lib/parts.mjs";
import {troubleOf} from "../lib/route_trouble.mjs";

const PATH = "/delivery";
const byRoute = (tab, route) => to(PATH, {tab, route});
const toUnknown = (route) => to("/streams", {tab: "unknown", route});
const pathOf = (row) => `/routes/${row.route.split("/").map(encodeURIComponent).join("/")}`;
const [TRIES, LOOK_MS] = [20, 250];
const records = (row) => exactCount(row.last - row.first + 1);
const span = (row) => `${row.first} to ${row.last}`;

/** Returns how the route stands after it tried. A refused try changes nothing that can be seen, so it is looked at for a while. */
async function tryNow({route}) {
  await send("POST", `${pathOf({route})}/try`, {});
  let now = null;
  for (let asked = 0; asked < TRIES && now?.state !== "running"; asked++) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    now = (await get("/routes", {route})).routes.find((each) => each.route === route);
  }
  return now?.state === "running" ? `${route} runs again.` : now && `${troubleOf(now)}, after another try.`;
}

const FIXES = {
  parked: html`Mend the key's secret or the address in the configuration; <code>tollhouse check --config FILE</code> tries it. Tollhouse tries again
    every minute, at once when a secret changes, and with <b>Try now</b>. What was delivered needs no replay.`,
  refusing: html`Tollhouse tries one record at a time and sets none aside. Check the destination's address, its version and its schema.`,
  orphaned: html`Put the destination back into the configuration, or drop the route.`,
};

const ROUTES = {
  path: "/routes", root: "routes", at: PATH, caption: "routes", what: ["routes"],
  identity: (row) => row.route,
  columns: [
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "State", value: (row) => html`<${State} word=${row.state} />`, sort: "state"},
    {title: "Records waiting", kind: "number", value: (row) => exactCount(row.queued), sort: "queued"},
    {title: "Waiting for", wide: true, kind: "number", value: (row) => (row.queued ? duration(row.oldest_age_s * 1000) : "–"), sort: "oldest_age_s"},
    {title: "Unconfirmed", wide: true, kind: "number", value: (row) => exactCount(row.unknown), sort: "unknown"},
    {title: "Rejected in 24 h", wide: true, kind: "number", value: (row) => exactCount(row.refused_24h), sort: "refused_24h"},
    {title: "Since", wide: true, value: (row) => (row.since ? ago(row.since) : "–"), exact: (row) => row.since},
    {title: "Reason", wide: true, value: (row) => row.reason ?? ""},
  ],
  Details: ({row}) => html`<p><${State} word=${row.state} /> ${FIXES[row.state] ? `${troubleOf(row)}.` : row.reason}</p>
    ${FIXES[row.state] && html`<p>${FIXES[row.state]}</p>`}<${Fields} of=${{
      since: row.since && `${row.since} (${ago(row.since)})`, records_waiting: row.queued, the_oldest_waits_for: row.queued ? duration(row.oldest_age_s * 1000) : null, last_answer: row.reason,
      sent_again_without_a_clear_answer: row.ambiguous, unconfirmed: row.unknown,
      rejected_in_24_hours: row.refused_24h, newest_rejection: row.refusal}} />
    <p class="bar"><a href=${byRoute("sending", row.route)}>What is in progress</a>
      <a href=${byRoute("dead", row.route)}>Dead letters</a> <a href=${byRoute("refusals", row.route)}>What was partly refused</a>
      ${row.unknown > 0 && html`<a href=${toUnknown(row.route)}>Settle what is unconfirmed</a>`}</p>`,
  actions: [
    {title: "Try now", needs: "operate_spool", when: (row) => row.route.includes("/") && row.state !== "orphaned" && row.queued > 0,
      isDirect: true, run: tryNow},
    {title: "Replay", needs: "operate_spool", isRare: true, when: (row) => row.route.includes("/") && row.state !== "orphaned",
      text: () => "Tollhouse sends records again that it delivered before. You see their number first.",
      fields: () => [{name: "since", label: "Committed since", note: "such as 2026-01-31T12:00:00Z", required: true},
        {name: "until", label: "until", note: "empty: now"}],
      run: async (row, given) => {
        const wanted = {route: row.route, since: given.since, ...(given.until && {until: given.until})};
        const {replay} = await send("POST", "/replay", {...wanted, dry_run: true});
        return html`<${Replay} wanted=${{...wanted, until: replay.until}} count=${replay.records} />`;
      }},
    {title: "Drop the route", needs: "operate_spool", danger: true, when: (row) => row.state === "orphaned", exact: (row) => row.route,
      text: (row) => `Tollhouse never sends the ${exactCount(row.queued)} records that wait for ${row.route}. They stay in reports.`,
      run: (row) => send("DELETE", pathOf(row)).then(() => null)},
  ],
  empty: html`<h2>Nothing leaves this Tollhouse</h2><p>That is fine: records are kept, counted and shown here.${" "}
    <a href=${to(PATH, {tab: "forward"})}>Forward</a> has the settings that send them on.</p>`,
};

const destination = (type, name, ...lines) => ["[[destinations]]", `name = "${name}"`, `type = "${type}"`, ...lines].join("\n");

/** [what receives, what it gets, the lines of the configuration] of each kind of receiver. */
const FORWARDS = [
  ["Your cost service", "Everything, under a key that may do nothing else.", ["[upstream]", 'base_url = "https://cost.example.com"',
    "[[upstream.keys]]", 'name = "telemetry"', 'secret_file = "keys/telemetry.key"', 'use_cases = ["Send AI Telemetry"]'].join("\n")],
  ["An OpenTelemetry collector, or another Tollhouse", "Calls as spans, over HTTP.", destination("otlp", "collector", 'url = "https://collector.example.com:4318"',
    'secret_file = "keys/collector.key"')],
  ["A webhook", "Records as JSON; the secret signs each request.", destination("webhook", "hook", 'url = "https://hook.example.com/records"',
    'secret_file = "keys/hook.key"')],
  ["A file of records", "One JSON record a line.", destination("ndjson", "archive", 'path = "archive/records.ndjson"')],
  ["A file for FinOps tools", "FOCUS rows as CSV.", destination("focus", "focus", 'path = "focus/costs.csv"')],
];

/** The settings that forward records, to copy: secrets and addresses stay out of the console. */
const Forward = () => html`<p>Put one of these into the configuration, with your address and a file that holds the key. Then${" "}
    <code>tollhouse check</code> tries address and key, and <code>tollhouse reload</code> takes it over. Tollhouse sends what it kept so far, too.</p>
  ${FORWARDS.map(([title, what, text]) => html`<section key=${title}><h2>${title}</h2><p>${what}</p><${Copy} label=${`settings: ${title}`} text=${text} /></section>`)}`;

function Replay({wanted, count}) {
  const [done, setDone] = useState("");
  const start = () => send("POST", "/replay", wanted).then(({replay}) => setDone(`Tollhouse sends ${exactCount(replay.records)} records again.`),
    (error) => setDone(error.message));
  return html`<p role="status">${done || `Tollhouse would send ${exactCount(count)} records of ${wanted.route} from ${wanted.since} to ${wanted.until}
    again. An upstream that does not know them as repeats counts them twice.`}</p>
    ${!done && count > 0 && html`<button type="button" class="main danger" onClick=${start}>Send ${exactCount(count)} again</button>`}`;
}

const SENDING = {
  path: "/deliveries", root: "deliveries", at: PATH, caption: "requests that are not settled", what: ["routes"],
  identity: (row) => String(row.id),
  columns: [
    {title: "Delivery", kind: "short", value: (row) => row.id, sort: "id"},
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "State", value: (row) => html`<${State} word=${row.state === "unknown" ? "unconfirmed" : "in progress"} kind="wait" />`},
    {title: "Records", wide: true, kind: "number", value: records, exact: span, sort: "first"},
    {title: "Attempts", wide: true, kind: "number", value: (row) => row.attempts, sort: "attempts"},
    {title: "Next at", wide: true, value: (row) => row.not_before ?? "–", sort: "not_before"},
    {title: "Last error", wide: true, value: (row) => row.last_error ?? ""},
  ],
  Details: ({row}) => html`<${Fields} of=${row} />
    ${row.state === "unknown" && html`<p><a href=${toUnknown(row.route)}>Say whether it arrived</a></p>`}`,
  empty: html`<p>None: upstreams answered every request.</p>`,
};

const letters = (verb) => (row) => send("POST", `/dead/${verb}`, {ids: [row.id]}).then(() => null);

const DEAD = {
  path: "/dead", root: "dead", at: PATH, caption: "dead letters", what: ["dead"],
  identity: (row) => String(row.id), show: (id) => `/dead/${id}`, one: (answer) => answer.dead,
  columns: [
    {title: "Dead letter", kind: "short", value: (row) => row.id, sort: "id"},
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "Refused", wide: true, value: (row) => ago(row.at), exact: (row) => row.at, sort: "at"},
    {title: "Status", wide: true, value: (row) => row.status, sort: "status"},
    {title: "What the upstream said", value: (row) => row.error},
  ],
  Details: ({row}) => html`<p>${row.route} refused this record ${ago(row.at)} while it took others: <strong>${row.status}</strong>
      ${" "}${row.error}</p>
    <p><a href=${to("/calls", {open: row.record_id})}>The record's history</a></p>
    <${Copy} label="the record" text=${JSON.stringify(row.record, null, 2)} />`,
  actions: [
    {title: "Retry", needs: "operate_spool", run: letters("retry"), text: (row) => `Tollhouse sends the record to ${row.route} again.`},
    {title: "Edit and retry", needs: "operate_spool", when: (row) => row.record?.kind !== "unit_cost",
      text: () => "Change what the upstream refused; Tollhouse sends the changed record. The ledger keeps what it counted.",
      fields: (row) => [{name: "record", label: "Record (JSON)", type: "area", value: JSON.stringify(row.record, null, 2), required: true}],
      run: (row, given) => send("PATCH", `/dead/${row.id}`, {record: JSON.parse(given.record)}).then(() => null)},
    {title: "Discard", needs: "operate_spool", danger: true, run: letters("discard"),
      text: (row) => `Tollhouse never sends the record to ${row.route}, and counts it as discarded. It stays in reports.`},
  ],
  Before: Every,
  empty: html`<p>None: no upstream refused a record for good.</p>`,
};

/** Retries or discards every dead letter that matches the filters, not only those of this page. */
function Every({answer, session, reload}) {
  const [verb, setVerb] = useState(null);
  const total = answer.pagination.total_count;
  if (total < 2 || !may(session, "operate_spool")) return null;
  const run = async () => {
    const ids = [];
    for (let asked = {...answer.filtering.current, limit: 1000}; asked.cursor !== null;) {
      const {dead, pagination} = await get("/dead", asked);
      ids.push(...dead.map((each) => each.id));
      asked = {cursor: pagination.cursor.next_cursor};
    }
    await send("POST", `/dead/${verb}`, {ids});
    reload();
  };
  return html`<p class="bar"><button type="button" onClick=${() => setVerb("retry")}>Retry all ${total}</button>
    <button type="button" class="danger" onClick=${() => setVerb("discard")}>Discard all ${total}</button></p>
    ${verb && html`<${Confirm} title=${`${verb === "retry" ? "Retry" : "Discard"} all that match`} run=${run} close=${() => setVerb(null)}
      danger=${verb === "discard"} exact=${verb === "discard" ? "discard" : undefined}
      text=${verb === "retry" ? `Tollhouse sends ${total} records again.` : `Tollhouse never sends these ${total} records.`} />`}`;
}

const REFUSALS = {
  path: "/partial-refusals", root: "partial_refusals", at: PATH, caption: "partly refused requests", what: ["routes"],
  identity: (row) => `${row.route} ${row.first} ${row.at}`,
  columns: [
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "Refused", kind: "number", value: (row) => exactCount(row.count), sort: "count"},
    {title: "Of records", wide: true, value: span},
    {title: "When", value: (row) => ago(row.at), exact: (row) => row.at, sort: "at"},
    {title: "What the upstream said", value: (row) => row.words ?? ""},
  ],
  empty: html`<p>None: no upstream took only a part of a request.</p>`,
};

const TABS = [["routes", "Routes", ROUTES], ["sending", "In progress", SENDING], ["dead", "Dead letters", DEAD],
  ["refusals", "Partly refused", REFUSALS], ["forward", "Forward", null]];

export function Page(given) {
  const [name, , list] = TABS.find(([each]) => each === given.query.get("tab")) ?? TABS[0];
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${TABS} />${
    list ? html`<${ListPage} key=${name} list=${list} ...${given} />` : html`<${Forward} />`}`;
}

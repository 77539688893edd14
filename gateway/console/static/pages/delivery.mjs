/** Deliveries to your cost service and other destinations: routes and their problems, requests in progress, and rejected records. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {html, useState} from "../lib/html.mjs";
import {ago, duration, exactCount} from "../lib/format.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Confirm, Copy, Fields, State, Tabs, may} from "../lib/parts.mjs";

const PATH = "/delivery";
const byRoute = (tab, route) => to(PATH, {tab, route});
const toUnknown = (route) => to("/streams", {tab: "unknown", route});
const pathOf = (row) => `/routes/${row.route.split("/").map(encodeURIComponent).join("/")}`;
const [TRIES, LOOK_MS] = [20, 250];
const records = (row) => exactCount(row.last - row.first + 1);
const span = (row) => `${row.first} to ${row.last}`;

/** Retry a route and return its state. A refused retry changes nothing visible, so this checks the state for up to five seconds. */
async function tryNow({route}) {
  await send("POST", `${pathOf({route})}/try`, {});
  let now = null;
  for (let asked = 0; asked < TRIES && now?.state !== "running"; asked++) {
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    now = (await get("/routes", {route})).routes.find((each) => each.route === route);
  }
  return now?.state === "running" ? `${route} is running again.` : now && `${now.trouble} Another attempt did not change this.`;
}

const FIXES = {
  parked: html`Correct the key's secret or the address in the configuration, then test it with <code>tollhouse check --config FILE</code>. Tollhouse
    retries every minute, when a secret changes, and when you press <b>Try now</b>. Delivered records need no replay.`,
  refusing: html`Tollhouse retries one record at a time and sets no record aside. Check the destination's address, version and schema.`,
  orphaned: html`Add the destination to the configuration again, or drop the route.`,
};

const ROUTES = {
  path: "/routes", root: "routes", at: PATH, caption: "routes", what: ["routes"],
  identity: (row) => row.route,
  columns: [
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "State", value: (row) => html`<${State} word=${row.state} />`, sort: "state"},
    {title: "Records waiting", kind: "number", value: (row) => exactCount(row.queued), sort: "queued"},
    {title: "Waiting for", wide: true, kind: "number", value: (row) => (row.queued ? duration(row.oldest_age_s * 1000) : "–"), sort: "oldest_age_s"},
    {title: "Sent, no answer", wide: true, kind: "number", value: (row) => exactCount(row.unknown), sort: "unknown"},
    {title: "Partly rejected in 24 h", wide: true, kind: "number", value: (row) => exactCount(row.refused_24h), sort: "refused_24h"},
    {title: "Since", wide: true, value: (row) => (row.since ? ago(row.since) : "–"), exact: (row) => row.since},
    {title: "Reason", wide: true, value: (row) => row.reason ?? ""},
  ],
  Details: ({row}) => html`<p><${State} word=${row.state} /> ${row.trouble ?? row.reason}</p>
    ${FIXES[row.state] && html`<p>${FIXES[row.state]}</p>`}<${Fields} of=${{
      since: row.since && `${row.since} (${ago(row.since)})`, records_waiting: row.queued, oldest_record_waits_for: row.queued ? duration(row.oldest_age_s * 1000) : null, last_answer: row.reason,
      sent_again_without_an_answer: row.ambiguous, sent_no_answer: row.unknown,
      rejected_in_24_hours: row.refused_24h, newest_rejection: row.refusal}} />
    <p class="bar"><a href=${byRoute("sending", row.route)}>Requests in progress</a>
      <a href=${byRoute("dead", row.route)}>Rejected records</a> <a href=${byRoute("refusals", row.route)}>Partly rejected requests</a>
      ${row.unknown > 0 && html`<a href=${toUnknown(row.route)}>Resolve unanswered deliveries</a>`}</p>`,
  actions: [
    {title: "Try now", needs: "operate_spool", when: (row) => row.route.includes("/") && row.state !== "orphaned" && row.queued > 0,
      isDirect: true, run: tryNow},
    {title: "Replay", needs: "operate_spool", isRare: true, when: (row) => row.route.includes("/") && row.state !== "orphaned",
      text: () => "Tollhouse sends delivered records again. You see their number before you confirm.",
      fields: () => [{name: "since", label: "Received since", note: "such as 2026-01-31T12:00:00Z", required: true},
        {name: "until", label: "Received until", note: "leave empty for the current time"}],
      run: async (row, given) => {
        const wanted = {route: row.route, since: given.since, ...(given.until && {until: given.until})};
        const {replay} = await send("POST", "/replay", {...wanted, dry_run: true});
        return html`<${Replay} wanted=${{...wanted, until: replay.until}} count=${replay.records} />`;
      }},
    {title: "Drop the route", needs: "operate_spool", danger: true, when: (row) => row.state === "orphaned", exact: (row) => row.route,
      text: (row) => `Tollhouse will never send the ${exactCount(row.queued)} records that wait for ${row.route}. They stay in reports.`,
      run: (row) => send("DELETE", pathOf(row)).then(() => null)},
  ],
  empty: html`<h2>No routes</h2><p>Nothing is forwarded. Tollhouse stores, counts and shows records without a route.${" "}
    <a href=${to(PATH, {tab: "forward"})}>Forward</a> has the settings that send them to another service.</p>`,
};

const destination = (type, name, ...lines) => ["[[destinations]]", `name = "${name}"`, `type = "${type}"`, ...lines].join("\n");

/** [receiver, description, configuration lines] of each kind of receiver. */
const FORWARDS = [
  ["Your cost service", "All records, sent with a key that can only write telemetry.", ["[upstream]", 'base_url = "https://cost.example.com"',
    "[[upstream.keys]]", 'name = "telemetry"', 'secret_file = "keys/telemetry.key"', 'use_cases = ["Send AI Telemetry"]'].join("\n")],
  ["An OpenTelemetry collector, or another Tollhouse", "Calls as spans, over HTTP.", destination("otlp", "collector", 'url = "https://collector.example.com:4318"',
    'secret_file = "keys/collector.key"')],
  ["A webhook", "Records as JSON. The secret signs each request.", destination("webhook", "hook", 'url = "https://hook.example.com/records"',
    'secret_file = "keys/hook.key"')],
  ["A file of records", "One JSON record per line.", destination("ndjson", "archive", 'path = "archive/records.ndjson"')],
  ["A file for FinOps tools", "FOCUS rows as CSV.", destination("focus", "focus", 'path = "focus/costs.csv"')],
];

const KINDS = [["upstream", FORWARDS[0], "keys/telemetry.key"], ["otlp", FORWARDS[1], "keys/collector.key"]];
const VERDICTS = {ok: ["good", "The receiver accepts records with this key."], refused: ["bad", "The receiver refuses this address or key."],
  unavailable: ["bad", "The receiver does not respond."], unverified: ["wait", "The receiver responds, but no request can test the key."]};

/** Test an address and a key, then show the exact lines for the configuration. The key is not stored and not shown. */
function FirstReceiver() {
  const [{isBusy, problem, done}, setState] = useState({});
  const [applied, setApplied] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    const {type, url, secret} = Object.fromEntries(new FormData(event.currentTarget));
    setState({isBusy: true});
    setApplied(null);
    try {
      const {forwarding_test: found} = await send("POST", "/forwarding-tests", {type, url, secret});
      setState({done: {...found, type, url: url.trim()}});
    } catch (error) {
      setState({problem: error.message});
    }
  };
  const told = ({changed, needs_restart, problems}) => [...changed.map((name) => `Changed: ${name}.`), ...needs_restart.map((name) => `Needs a restart: ${name}.`), ...problems].join(" ");
  const apply = () => send("POST", "/reload", {}).then(({reload}) => setApplied(told(reload) || "The file has no changes."), (error) => setApplied(error.message));
  const [, [, , text], file] = KINDS.find(([type]) => type === done?.type) ?? KINDS[0];
  const [kind, words] = VERDICTS[done?.status] ?? [];
  return html`<section aria-label="First receiver"><h2>Test a receiver</h2>
    <p>Tollhouse sends an empty export with this key, and shows the lines for the configuration. It stores neither the address nor the key.</p>
    <form class="bar" onSubmit=${submit}>
      <label>Kind <select name="type">${KINDS.map(([type, [title]]) => html`<option key=${type} value=${type}>${title}</option>`)}</select></label>
      <label>Address <input name="url" type="url" required placeholder="https://" autocomplete="off" /></label>
      <label>Key <input name="secret" type="password" autocomplete="off" /></label>
      <button type="submit" class="main" disabled=${isBusy}>Test</button></form>
    ${problem && html`<p role="alert" class="wrong">${problem}</p>`}
    ${done && html`<p role="status"><${State} word=${done.status} kind=${kind} /> ${words} ${done.words}</p>
      <p>Add these lines to the gateway's configuration. The key is in a file:</p>
      <${Copy} label="lines for the configuration" text=${text.replace(/https:[^"]+/, () => done.url)} />
      <${Copy} label="commands" text=${`umask 077 && mkdir -p keys && cat > ${file}  # paste the key, then press Ctrl+D\ntollhouse check`} />
      <p class="bar"><button type="button" onClick=${apply}>Reload the configuration</button> ${applied && html`<span role="status">${applied}</span>`}</p>`}</section>`;
}

/** Settings that forward records, to copy. The console never shows real secrets and addresses. */
const Forward = ({session}) => html`${may(session, "installation_administration") && html`<${FirstReceiver} />`}<p>Copy one of these into the configuration, with your address and a file that contains the key. Then${" "}
    <code>tollhouse check</code> tests address and key, and <code>tollhouse reload</code> applies the change. Tollhouse also sends the records that it has stored so far.</p>
  ${FORWARDS.map(([title, what, text]) => html`<section key=${title}><h2>${title}</h2><p>${what}</p><${Copy} label=${`settings: ${title}`} text=${text} /></section>`)}`;

function Replay({wanted, count}) {
  const [done, setDone] = useState("");
  const start = () => send("POST", "/replay", wanted).then(({replay}) => setDone(`Tollhouse sends ${exactCount(replay.records)} records again.`),
    (error) => setDone(error.message));
  return html`<p role="status">${done || `Tollhouse would send ${exactCount(count)} records of ${wanted.route} from ${wanted.since} to ${wanted.until}
    again. A receiver that does not recognize repeated records counts them twice.`}</p>
    ${!done && count > 0 && html`<button type="button" class="main danger" onClick=${start}>Send ${exactCount(count)} again</button>`}`;
}

const SENDING = {
  path: "/deliveries", root: "deliveries", at: PATH, caption: "unacknowledged requests", what: ["routes"],
  identity: (row) => String(row.id), heading: (row) => `Request ${row.id} to ${row.route}`,
  columns: [
    {title: "Delivery", kind: "short", value: (row) => row.id, sort: "id"},
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "State", value: (row) => html`<${State} word=${row.state === "unknown" ? "sent, no answer" : "in progress"} kind="wait" />`},
    {title: "Records", wide: true, kind: "number", value: records, exact: span, sort: "first"},
    {title: "Attempts", wide: true, kind: "number", value: (row) => row.attempts, sort: "attempts"},
    {title: "Next attempt", wide: true, value: (row) => row.not_before ?? "–", sort: "not_before"},
    {title: "Last error", wide: true, value: (row) => row.last_error ?? ""},
  ],
  Details: ({row}) => html`<${Columns} of=${SENDING.columns} row=${row} />
    ${row.state === "unknown" && html`<p><a href=${toUnknown(row.route)}>Report whether it arrived</a></p>`}`,
  empty: html`<p>No requests in progress. Receivers have acknowledged every request.</p>`,
};

const letters = (verb) => (row) => send("POST", `/dead/${verb}`, {ids: [row.id]}).then(() => null);

const DEAD = {
  path: "/dead", root: "dead", at: PATH, caption: "rejected records", what: ["dead"],
  identity: (row) => String(row.id), heading: (row) => `Rejected record ${row.id}`, show: (id) => `/dead/${id}`, one: (answer) => answer.dead,
  columns: [
    {title: "Number", kind: "short", value: (row) => row.id, sort: "id"},
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "Rejected", wide: true, value: (row) => ago(row.at), exact: (row) => row.at, sort: "at"},
    {title: "Status", wide: true, value: (row) => row.status, sort: "status"},
    {title: "Error from the receiver", kind: "words", value: (row) => row.error},
  ],
  Details: ({row}) => html`<p>${row.route} rejected this record ${ago(row.at)}, but accepted other records: <strong>${row.status}</strong>
      ${" "}${row.error}</p>
    <p><a href=${to("/calls", {open: row.record_id})}>Show the record's history</a></p>
    <${Copy} label="the record" text=${JSON.stringify(row.record, null, 2)} />`,
  actions: [
    {title: "Retry", needs: "operate_spool", run: letters("retry"), text: (row) => `Tollhouse sends the record to ${row.route} again.`},
    {title: "Edit and retry", needs: "operate_spool", when: (row) => row.record?.kind !== "unit_cost",
      text: () => "Correct the record. Tollhouse sends the changed record, and totals do not change.",
      fields: (row) => [{name: "record", label: "Record (JSON)", type: "area", value: JSON.stringify(row.record, null, 2), required: true}],
      run: (row, given) => send("PATCH", `/dead/${row.id}`, {record: JSON.parse(given.record)}).then(() => null)},
    {title: "Discard", needs: "operate_spool", danger: true, run: letters("discard"),
      text: (row) => `Tollhouse will never send the record to ${row.route}, and counts it as discarded. It stays in reports.`},
  ],
  Before: Every,
  empty: html`<p>No rejected records.</p>`,
};

/** Buttons that retry or discard every rejected record that matches the filters, also those on later pages. */
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
      text=${verb === "retry" ? `Tollhouse sends ${total} records again.` : `Tollhouse will never send these ${total} records.`} />`}`;
}

const REFUSALS = {
  path: "/partial-refusals", root: "partial_refusals", at: PATH, caption: "partly rejected requests", what: ["routes"],
  identity: (row) => `${row.route} ${row.first} ${row.at}`, heading: (row) => `Partly rejected by ${row.route}`,
  columns: [
    {title: "Route", value: (row) => row.route, sort: "route"},
    {title: "Rejected", kind: "number", value: (row) => exactCount(row.count), sort: "count"},
    {title: "Records", wide: true, value: span},
    {title: "When", value: (row) => ago(row.at), exact: (row) => row.at, sort: "at"},
    {title: "Error from the receiver", value: (row) => row.words ?? ""},
  ],
  empty: html`<p>No partly rejected requests.</p>`,
};

const TABS = [["routes", "Routes", ROUTES], ["sending", "In progress", SENDING], ["dead", "Rejected records", DEAD],
  ["refusals", "Partly rejected", REFUSALS], ["forward", "Forward", null]];

export function Page(given) {
  const [name, , list] = TABS.find(([each]) => each === given.query.get("tab")) ?? TABS[0];
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${TABS} />${
    list ? html`<${ListPage} key=${name} list=${list} ...${given} />` : html`<${Forward} session=${given.session} />`}`;
}

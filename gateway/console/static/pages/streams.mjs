/** Usage events and their types, unit-cost streams, and deliveries that were sent without an answer. */
import {to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {html} from "../lib/html.mjs";
import {ago, exactCount} from "../lib/format.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Columns, Copy, State, Tabs, may} from "../lib/parts.mjs";
import {Thing} from "../lib/things.mjs";

const PATH = "/streams";

const amount = {title: "Amount", kind: "number", value: (row) => (row.amount === null ? "–" : exactCount(row.amount))};
const mapping = (type) => `[upstream.events.${JSON.stringify(type)}]\nstream = "NAME"`;

const STREAM = /^unit-cost stream /; // sent_as of a mapped type

const TYPES = {
  path: "/event-types", root: "event_types", at: PATH, caption: "types of usage events", what: ["streams"],
  identity: (row) => row.type,
  columns: [
    {title: "Type", value: (row) => row.type, sort: "type"},
    {title: "Sent as", value: (row) => (row.sent_as ? html`<${State} word=${row.sent_as} kind="good" />`
      : html`<${State} word="stored, not forwarded" kind="wait" />`)},
    {title: "Events", kind: "number", value: (row) => exactCount(row.count), sort: "count"},
    amount,
    {title: "Last seen", value: (row) => ago(row.last_seen), exact: (row) => row.last_seen, sort: "last_seen"},
  ],
  Details: ({row}) => html`<p>${exactCount(row.count)} events, the last at ${row.last_seen}.</p>
    ${!row.sent_as ? html`<p>Tollhouse stores these events and does not forward them. To forward them, map the type to a stream in the configuration:</p>
        <${Copy} label="the mapping" text=${mapping(row.type)} />`
      : STREAM.test(row.sent_as) ? html`<p>Tollhouse forwards them as the unit-cost stream <a href=${to(PATH, {tab: "streams", open: row.sent_as.replace(STREAM, "")})}>${row.sent_as.replace(STREAM, "")}</a>.</p>`
        : html`<p>Tollhouse forwards them as events.</p>`}
    <p><a href=${to(PATH, {tab: "newest", type: row.type})}>Show the newest events</a></p>`,
  empty: html`<h2>No usage events yet</h2><p>Senders post them to <code>/v1/events</code> as JSON or CloudEvents, one or several per request.
    This list shows each event type.</p>`,
};

const EVENTS = {
  path: "/events", root: "events", at: PATH, caption: "usage events", what: ["streams"], most: 200,
  identity: (row) => row.id, heading: (row) => row.event_type,
  columns: [
    {title: "Arrived", value: (row) => ago(row.committed_at), exact: (row) => row.committed_at, sort: "number"},
    {title: "Type", value: (row) => row.event_type},
    {title: "Subject", wide: true, value: (row) => row.subject ?? "unknown"},
    amount,
    {title: "Source", wide: true, value: (row) => row.source},
    {title: "Happened", wide: true, value: (row) => (row.start_time ? ago(row.start_time) : "unknown"), exact: (row) => row.start_time, sort: "start_time"},
  ],
  Before: ({answer}) => answer.looked_through.records > 0 && html`<p class="faint">Tollhouse searched the newest ${exactCount(answer.looked_through.records)} stored events.</p>`,
  empty: TYPES.empty,
};

const STREAMS = {
  path: "/streams", root: "streams", at: PATH, caption: "streams", what: ["streams"],
  identity: (row) => row.name,
  Details: ({row, session}) => html`${row.type === "metric" && may(session, "view_costs") && html`<p><a href=${to("/costs", {measure: `unit:stream:${row.name}`})}>Cost per unit</a></p>`}<${Columns} of=${STREAMS.columns} row=${row} />`,
  columns: [
    {title: "Stream", value: (row) => row.name, sort: "name"},
    {title: "Type", value: (row) => row.type, sort: "type"},
    {title: "Granularity", wide: true, value: (row) => row.granularity},
    {title: "Dimensions", wide: true, value: (row) => row.dimensions?.join(", ") ?? "unknown"},
  ],
  empty: html`<h2>No unit-cost streams yet</h2><p>The first record sent to${" "}
    <code>/unit-cost/v1/telemetry/allocation/NAME/sum</code> creates a stream.</p>`,
};

const resolve = (sent) => (row) => send("POST", `/unknown/${row.id}/resolve`, {sent}).then(() => null);
const span = (row) => `${exactCount(row.last - row.first + 1)} records (${row.first} to ${row.last}) of ${row.route}`;

const UNKNOWN = {
  path: "/unknown", root: "unknown", at: PATH, caption: "deliveries without an answer", what: ["routes"],
  identity: (row) => String(row.id), heading: (row) => `Unanswered delivery ${row.id}`,
  columns: [
    {title: "Delivery", kind: "short", value: (row) => row.id, sort: "id"},
    {title: "Route", value: (row) => html`<${Thing} kind="route" id=${row.route} />`},
    {title: "Records", wide: true, kind: "number", value: (row) => exactCount(row.last - row.first + 1), exact: (row) => `${row.first} to ${row.last}`},
    {title: "Why", value: (row) => row.reason ?? "unknown"},
  ],
  Details: ({row}) => html`<p>${span(row)} were sent, but the receiver gave no clear answer: ${row.reason ?? "no reason is known"}. The receiver adds up
      what it gets, so Tollhouse does not send the records again by itself. Look for these records at the receiver, then choose below.</p>
    <${Copy} label="the records" text=${JSON.stringify(row.records, null, 2)} />
    ${row.records.length <= row.last - row.first && html`<p class="faint">These are the first ${row.records.length} records.</p>`}`,
  actions: [
    {title: "Mark as arrived", needs: "operate_spool", run: resolve(true), text: (row) => `${span(row)} count as delivered and are not sent again.`},
    {title: "Mark as not arrived", needs: "operate_spool", danger: true, run: resolve(false),
      text: (row) => `${span(row)} are sent again. If they did arrive, the receiver counts them twice.`},
  ],
  empty: html`<p>No deliveries without an answer.</p>`,
};

const TABS = [["events", "Usage events", TYPES], ["newest", "Newest events", EVENTS],
  ["streams", "Unit-cost streams", STREAMS], ["unknown", "Sent, no answer", UNKNOWN]];

export function Page(given) {
  const [name, , list] = TABS.find(([each]) => each === given.query.get("tab")) ?? TABS[0];
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${TABS} /><${ListPage} key=${name} list=${list} ...${given} />`;
}

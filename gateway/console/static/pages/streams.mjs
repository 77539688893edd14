/** Usage events and their types, unit-cost streams, and deliveries that were sent without an answer. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {html} from "../lib/html.mjs";
import {ago, exactCount} from "../lib/format.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {mappingFields, typedMapping} from "../lib/mapping_fields.mjs";
import {Columns, Copy, Problem, State, Tabs, may} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {Thing} from "../lib/things.mjs";

const PATH = "/streams";

const amount = {title: "Amount", kind: "number", value: (row) => (row.amount === null ? "–" : exactCount(row.amount))};
const place = ({id}) => `${MAPPINGS}/${id}`;
const mapping = (type) => `[upstream.events.${JSON.stringify(type)}]\nstream = "NAME"`;

const STREAM = /^unit-cost stream /; // sent_as of a mapped type
const makes = "installation_administration";
const MAPPINGS = "/event-mappings";
const Sent = ({since}) => html`<p role="status">${since} Tollhouse sends events of this type from now on. <b>Replay</b> of the route
  <a href=${to("/delivery", {open: "upstream/usage-events"})}>upstream/usage-events</a> sends earlier ones.</p>`;

const types = (mappings) => ({
  path: "/event-types", root: "event_types", at: PATH, caption: "types of usage events", what: ["streams"],
  identity: (row) => row.type, file: (row) => mappings.has(row.type) && ["event-mappings", mappings.get(row.type).id],
  columns: [
    {title: "Type", value: (row) => row.type, sort: "type"},
    {title: "Sent as", value: (row) => (row.sent_as ? html`<${State} word=${row.sent_as} kind="good" />`
      : html`<${State} word="stored, not forwarded" kind="wait" />`)},
    {title: "Events", kind: "number", value: (row) => exactCount(row.count), sort: "count"},
    amount,
    {title: "Last seen", value: (row) => ago(row.last_seen), exact: (row) => row.last_seen, sort: "last_seen"},
  ],
  Details: ({row, session}) => html`<p>${exactCount(row.count)} events, the last at ${row.last_seen}.</p>
    ${!row.sent_as ? html`<p>Tollhouse stores these events and does not forward them. To forward them, map the type to a stream${may(session, makes) ? "." : " in the configuration:"}</p>
        ${!may(session, makes) && html`<${Copy} label="the mapping" text=${mapping(row.type)} />`}`
      : STREAM.test(row.sent_as) ? html`<p>Tollhouse forwards them as the unit-cost stream <a href=${to(PATH, {tab: "streams", open: row.sent_as.replace(STREAM, "")})}>${row.sent_as.replace(STREAM, "")}</a>.
        ${!mappings.has(row.type) && " The configuration maps this type."}</p>`
        : html`<p>Tollhouse forwards them as events.</p>`}
    <p><a href=${to(PATH, {tab: "newest", type: row.type})}>Show the newest events</a></p>`,
  actions: [
    {title: "Map to a stream", needs: makes, when: (row) => !row.sent_as && !mappings.has(row.type), fields: (row) => mappingFields({event_type: row.type}),
      run: (_, given) => send("POST", MAPPINGS, typedMapping(given)).then(() => html`<${Sent} since="The mapping is set." />`)},
    {title: "Edit the mapping", needs: makes, when: (row) => mappings.has(row.type), fields: (row) => mappingFields(mappings.get(row.type)),
      run: (row, given) => send("PATCH", place(mappings.get(row.type)), typedMapping(given)).then(() => html`<${Sent} since="The mapping is changed." />`)},
    {title: "Delete the mapping", needs: makes, danger: true, when: (row) => mappings.has(row.type), text: (row) => `Your cost service receives no more events of the type ${row.type}.`,
      run: (row) => send("DELETE", place(mappings.get(row.type))).then(() => null)},
  ],
  empty: html`<h2>No usage events yet</h2><p>Senders post them to <code>/v1/events</code> as JSON or CloudEvents, one or several per request.
    This list shows each event type.</p>`,
});
const EMPTY = types(new Map()).empty;

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
  empty: EMPTY,
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

const TABS = [["events", "Usage events", null], ["newest", "Newest events", EVENTS],
  ["streams", "Unit-cost streams", STREAMS], ["unknown", "Sent, no answer", UNKNOWN]];

export function Page(given) {
  const [name, , list] = TABS.find(([each]) => each === given.query.get("tab")) ?? TABS[0];
  const {data, error, reload} = useQuery(() => (list ? Promise.resolve([]) : get(MAPPINGS, {limit: 1000}).then((answer) => answer.event_mappings)), [name], ["streams"]);
  const mappings = new Map((data ?? []).map((each) => [each.event_type, each]));
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${TABS} /><${Problem} error=${error} retry=${reload} />
    <${ListPage} key=${name} list=${list ?? types(mappings)} ...${given} />`;
}

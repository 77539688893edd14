/** Limits that gateways and providers enforce, with their counters and our sums. */
import {get, send} from "../lib/api.mjs";
import {ago, counted, money, timeText} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {Columns, Problem, State} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";

const KINDS = {agrees: "good", differs: "bad", not_compared: "plain"};

const price = (text, {currency}) => (text === null ? "–" : currency === "USD" ? money(text) : `${text} ${currency}`);
const amount = (title, name) => ({title, kind: "number", value: (row) => price(row[name], row), exact: (row) => row[name]});
const time = (title, name) => ({title, value: (row) => (row[name] ? timeText(row[name]) : "unknown"), exact: (row) => row[name]});

function ours({ours_at_least: low, ours_at_most: high}) {
  if (low === null) return "–";
  const [least, most] = [money(low), money(high)];
  return least === most ? least : `${least} to ${most}`;
}

const COLUMNS = [
  {title: "Name", value: (row) => row.name, sort: "name"},
  {title: "Enforcer", value: (row) => row.enforcer, sort: "enforcer"},
  {title: "Kind", wide: true, value: (row) => row.kind},
  {title: "Window", wide: true, value: (row) => row.window ?? "unknown"},
  amount("Limit", "limit"),
  amount("Counter", "spent"),
  {title: "Our sum", kind: "number", value: ours, exact: (row) => row.ours_at_least && `${row.ours_at_least} to ${row.ours_at_most}`},
  {title: "State", value: ({state}) => html`<${State} word=${state} kind=${KINDS[state]} />`},
];
const PANEL = [...COLUMNS, time("Window began", "starts_at"), time("Resets", "resets_at"), time("Read", "read_at"), time("Compared as of", "compared_at")];

const Details = ({row}) => html`${row.faults.map((fault) => html`<p key=${fault} class="wrong">${fault}.</p>`)}
  ${row.reason && html`<p class="faint">Not compared: ${row.reason}.</p>`}
  <${Columns} of=${PANEL} row=${row} />`;

/** The enforcers whose last reading failed. */
function Unread({answer}) {
  const {data, error, reload} = useQuery(() => get("/enforcers", {limit: 1000}), [answer]);
  const failed = (data?.enforcers ?? []).filter(({reason}) => reason);
  return html`<${Problem} error=${error} retry=${reload} />${failed.map(({name, reason, last_success: last}) => html`<p key=${name} class="wrong">
    ${name} cannot be read: ${reason}. Last success: ${ago(last)}.</p>`)}`;
}

async function read() {
  const {enforcers} = await send("POST", "/enforcers/read", {});
  return html`<p>${enforcers.filter(({reason}) => !reason).length} of ${counted(enforcers.length, "enforcer")} read.</p>`;
}

/** The list for a ListPage at `at`. */
export const elsewhere = (at) => ({
  path: "/enforcer-limits", root: "enforcer_limits", at, caption: "limits", what: ["insights"], columns: COLUMNS,
  identity: (row) => row.id, heading: (row) => row.name, Before: Unread, Details,
  create: {title: "Read limits", needs: "modify_billing", isWhole: true, look: "second", run: read,
    text: () => "Tollhouse requests the limits of each enforcer. It changes nothing there."},
  empty: html`<h2>No limits yet</h2><p>Gateways and providers refuse calls by counters of their own. To compare these counters with your costs, add
    <code>[[enforcers]]</code> to the configuration. An insight opens if a counter is wrong.</p>`,
});

/** Reports that people get each week or month by mail or chat, and what each would say now. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {ago} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Problem, State} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {WEEKDAYS, reportFields, typedReport} from "../lib/report_fields.mjs";
import {Thing} from "../lib/things.mjs";

const REPORTS = "/scheduled-reports";
const changes = "modify_views_and_budgets";
const place = (row, more = "") => `${REPORTS}/${encodeURIComponent(row.id)}${more}`;
const when = (row) => `${row.every === "week" ? `every ${WEEKDAYS[row.day - 1]}` : `every month, on day ${row.day}`} at ${row.at} (${row.time_zone})`;

/** What the report would say now, as the person who looks may see it. */
function Preview({row}) {
  const {data, error, reload} = useQuery(() => get(place(row, "/preview")), [row.id, row.version], ["ledger"]);
  return html`<h3>What it says of the last whole ${row.every}</h3><${Problem} error=${error} retry=${reload} />
    ${data ? html`<p><strong>${data.preview.title}</strong></p><p class="text">${data.preview.text}</p>`
    : !error && html`<p role="status" class="waits">Writing it ...</p>`}`;
}

const reportList = ({views, channels}) => {
  const fields = (row) => reportFields(row, views, channels, Intl.DateTimeFormat().resolvedOptions().timeZone);
  return {
    at: "/reports", what: ["views", "notifications"], path: REPORTS, root: "scheduled_reports", caption: "scheduled reports", identity: (row) => row.id, heading: (row) => row.name,
    show: (id) => place({id}), one: (answer) => answer.scheduled_report,
    columns: [
      {title: "Name", sort: "name", value: (row) => row.name},
      {title: "Costs of", wide: true, value: (row) => (row.view_name ? html`<${Thing} kind="view" id=${row.view} name=${row.view_name} />` : "a view that is gone")},
      {title: "When", value: when},
      {title: "Sent to", wide: true, value: (row) => [...row.channels, ...row.people].join(", ")},
      {title: "Next", sort: "next", value: (row) => html`<span title=${row.next}>${row.next.slice(0, 16).replace("T", " ")} UTC</span>`},
      {title: "State", value: (row) => (row.problem ? html`<${State} word="not sent to all" kind="bad" />` : html`<${State} word=${row.last ? "sent" : "waits"} kind=${row.last ? "good" : "plain"} />`)},
    ],
    Details: ({row}) => html`<p>${when(row)}, to ${[...row.channels, ...row.people].join(", ")}. ${row.owner ? `Cut to what ${row.owner} may see.` : "With all calls."}
      ${row.last && html` Sent last ${ago(row.last)}.`}</p>
      ${row.problem && html`<p class="wrong">${row.problem}</p>`}<${Preview} row=${row} />`,
    create: {title: "Schedule a report", needs: changes, fields: () => fields({}), run: (_, given) => send("POST", REPORTS, typedReport(given)).then(() => null)},
    actions: [
      {title: "Send one now", needs: changes, text: (row) => `To ${[...row.channels, ...row.people].join(", ")}. The schedule stays as it is.`,
        run: (row) => send("POST", place(row, "/send"), {}).then(({notifications, problem}) => html`<p role="status">It is on its way.
          <a href=${to("/notifications", {open: notifications[0]})}>See whether it arrived</a>${problem && ` ${problem}.`}</p>`)},
      {title: "Edit", needs: changes, fields, run: (row, given) => send("PATCH", place(row), {...typedReport(given), version: row.version}).then(() => null)},
      {title: "Delete", needs: changes, danger: true, text: () => "It is not sent any more.", run: (row) => send("DELETE", place(row)).then(() => null)},
    ],
    empty: html`<h2>No report is scheduled</h2><p>A report sends the costs of a <a href=${to("/views")}>view</a> by mail or chat, such as every Monday at 8:00: the sum,
      why it changed, a chart, the largest five, budgets and open insights. Each person gets the calls that this person may see.</p>`,
  };
};

export function Page(given) {
  const known = useQuery(async () => {
    const [{views}, {channel_names: channels}] = await Promise.all([get("/views", {limit: 1000}), get("/channel-names")]);
    return {views, channels: channels.filter((each) => each.takes_reports).map((each) => each.name)};
  }, [], ["views"]);
  return html`<${Problem} error=${known.error} retry=${known.reload} />
    <${ListPage} list=${reportList(known.data ?? {views: [], channels: []})} ...${given} />`;
}

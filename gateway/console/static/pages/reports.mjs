/** Reports sent weekly or monthly by mail or chat, with a preview. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {ago} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Problem, State} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {WEEKDAYS, reportFields, typedReport} from "../lib/report_fields.mjs";
import {ChannelProblems} from "../lib/shared_fields.mjs";
import {Thing} from "../lib/things.mjs";

const REPORTS = "/scheduled-reports";
const changes = "modify_views_and_budgets";
const place = (row, more = "") => `${REPORTS}/${encodeURIComponent(row.id)}${more}`;
const when = (row) => `${row.every === "week" ? `every ${WEEKDAYS[row.day - 1]}` : `every month, on day ${row.day}`} at ${row.at} (${row.time_zone})`;

/** A preview of the report, with the calls that the current person may see. */
function Preview({row}) {
  const {data, error, reload} = useQuery(() => get(place(row, "/preview")), [row.id, row.version], ["ledger"]);
  return html`<h3>Preview for the last full ${row.every}</h3><${Problem} error=${error} retry=${reload} />
    ${data ? html`<p><strong>${data.preview.title}</strong></p><p class="text">${data.preview.text}</p>`
    : !error && html`<p role="status" class="waits">Creating the preview ...</p>`}`;
}

const reportList = ({views, channels}) => {
  const fields = (row) => reportFields(row, views, channels, Intl.DateTimeFormat().resolvedOptions().timeZone);
  return {
    at: "/reports", what: ["views", "notifications"], path: REPORTS, root: "scheduled_reports", file: (row) => ["scheduled-reports", row.id], caption: "scheduled reports", identity: (row) => row.id, heading: (row) => row.name,
    show: (id) => place({id}), one: (answer) => answer.scheduled_report,
    columns: [
      {title: "Name", sort: "name", value: (row) => row.name},
      {title: "Costs of", wide: true, value: (row) => (row.view_name ? html`<${Thing} kind="view" id=${row.view} name=${row.view_name} />` : "a deleted view")},
      {title: "When", value: when},
      {title: "Sent to", wide: true, value: (row) => [...row.channels, ...row.people].join(", ")},
      {title: "Next", sort: "next", value: (row) => html`<span title=${row.next}>${row.next.slice(0, 16).replace("T", " ")} UTC</span>`},
      {title: "State", value: (row) => (row.problem ? html`<${State} word="not sent to all" kind="bad" />` : html`<${State} word=${row.last ? "sent" : "not sent yet"} kind=${row.last ? "good" : "plain"} />`)},
    ],
    Details: ({row}) => html`<p>${when(row)}, to ${[...row.channels, ...row.people].join(", ")}. ${row.owner ? `The report contains only the calls that ${row.owner} may see.` : "The report contains all calls."}
      ${row.last && html` Last sent ${ago(row.last)}.`}</p>
      ${row.problem && html`<p class="wrong">${row.problem}</p>`}<${Preview} row=${row} />`,
    create: {title: "Schedule a report", needs: changes, fields: () => fields({}), run: (_, given) => send("POST", REPORTS, typedReport(given)).then(() => null)},
    actions: [
      {title: "Send now", needs: changes, text: (row) => `Tollhouse sends the report to ${[...row.channels, ...row.people].join(", ")}. The schedule does not change.`,
        run: (row) => send("POST", place(row, "/send"), {}).then(({notifications, problem}) => html`<p role="status">The report is being sent.
          <a href=${to("/notifications", {open: notifications[0]})}>See whether it arrived</a>${problem && ` ${problem}.`}</p>`)},
      {title: "Edit", needs: changes, fields, run: (row, given) => send("PATCH", place(row), {...typedReport(given), version: row.version}).then(() => null)},
      {title: "Delete", needs: changes, danger: true, text: () => "The report is no longer sent.", run: (row) => send("DELETE", place(row)).then(() => null)},
    ],
    empty: html`<h2>No scheduled reports yet</h2><p>A report sends the costs of a <a href=${to("/views")}>view</a> by mail or chat, for example every Monday at 8:00. It has the total,
      the reasons for changes, a chart, the five largest items, budgets and open insights. Each person gets only the calls that they may see.</p>`,
  };
};

export function Page(given) {
  const known = useQuery(async () => {
    const [{views}, {channel_names: channels}] = await Promise.all([get("/views", {limit: 1000}), get("/channel-names")]);
    return {views, channels: channels.filter((each) => each.takes_reports)};
  }, [], ["views", "notifications"]);
  return html`<${Problem} error=${known.error} retry=${known.reload} />
    ${known.data && html`<${ChannelProblems} channels=${known.data.channels} session=${given.session} />`}
    <${ListPage} list=${{...reportList({views: known.data?.views ?? [], channels: (known.data?.channels ?? []).map(({name}) => name)}), isLoading: !known.data}} ...${given} />`;
}

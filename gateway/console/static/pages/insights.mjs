/** Insights, the open ones first, by severity and cost impact, with their status and comments. */
import {to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {FAMILY} from "../lib/dimensions.mjs";
import {ago, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {State, commented, withCode} from "../lib/parts.mjs";

const PATH = "/insights";
const OPEN = ["new", "in_progress", "on_hold"];
const WEEK_S = 7 * 86400;
const PAGES = {delivery: ["/delivery", "Delivery"], keys: ["/keys", "API Keys"], prices: ["/prices", "Set a price"]}; // the page of a category, if it is not Costs
const VIEWS = { // the Costs page of a category; the default is by model
  spend: {by: ["team", FAMILY]}, prices: {by: ["model", "cost_source"]}, attribution: {by: "api_key"}, caching: {measure: "cache_read_tokens"},
  reliability: {measure: "errors"}, duplicates: {by: "source", measure: "calls"}, "model choice": {by: ["user", FAMILY]},
};
const DONE = {addressed: "good", on_hold: "plain"};
const SEVERITIES = {critical: "bad", warning: "wait", info: "plain"};
const SNOOZED = ["on_hold"];
const VIEWS_OF_LIST = [["Open", {status: ["new", "in_progress"]}], ["Snoozed", {status: SNOOZED}], ["Done", {status: ["addressed", "ignored"]}],
  ["Money", {status: OPEN, about: "money"}], ["Operations", {status: OPEN, about: "operation"}]];

const isChosen = (query, {about, status}) => query.get("about") === (about ?? null) && query.getAll("status").join() === status.join();
/** Sort rows by state (open, snoozed, done) and severity. Rows of the same state and severity keep their order. */
const rank = (row) => (SNOOZED.includes(row.status) ? 1 : OPEN.includes(row.status) ? 0 : 2) * 10 + Object.keys(SEVERITIES).indexOf(row.severity);
const at = (id) => `/insights/${encodeURIComponent(id)}`;
const time = (seconds) => new Date(Number(seconds) * 1000);
const day = (seconds) => time(seconds).toISOString().slice(0, 10);
const seen = (seconds) => html`<span title=${time(seconds).toISOString()}>${ago(time(seconds))}</span>`;
/** Write the cost impact of an insight. Money of an operation insight is marked as affected, because its delay neither loses nor saves it. */
const impact = (row) => (!/[1-9]/.test(row.cost_impact) ? "not stated" : row.about === "operation"
  ? html`${money(row.cost_impact)} <span class="faint">affected</span>` : money(row.cost_impact));
const valid = (answer, field) => answer.filtering.available.find((each) => each.field === field).valid_values;

function Details({row}) {
  const [path, title] = PAGES[row.category] ?? [];
  const costs = to("/costs", {from: day(row.created - WEEK_S), to: day(row.last_updated), by: FAMILY, ...VIEWS[row.category]});
  return html`<p><${State} word=${row.status} kind=${DONE[row.status]} /> · ${impact(row)} · effort ${row.effort.replace("_", " ")} · ${row.category}${" "}
      · found ${seen(row.created)}</p>
    ${row.gone && html`<p class="faint">Tollhouse no longer detects this problem.</p>`}
    <p class="text">${withCode(row.description)}</p>
    <p class="bar"><a href=${costs}>Show costs of that time</a>${path && html`<a href=${to(path)}>${title}</a>`}
      ${row.link && html`<a href=${row.link} rel="noreferrer">${row.link}</a>`}</p>
    ${row.comments.length > 0 && html`<h3>Comments</h3>`}
    ${row.comments.map((each) => html`<p key=${each.id} class="text"><strong>${each.author}</strong>${" "}
      <span class="faint">${seen(each.created)}</span><br />${each.message}</p>`)}`;
}

const INSIGHTS = {
  path: PATH, root: "insights", at: PATH, caption: "insights", what: ["insights"], page: 1000,
  sort: ["cost_impact", "desc"], ordered: (rows) => [...rows].sort((one, other) => rank(one) - rank(other)),
  identity: (row) => row.id, show: at, one: ({insight, comments}) => ({...insight, comments}), heading: (row) => row.title,
  columns: [
    {title: "Insight", value: (row) => row.title, sort: "title"},
    {title: "Severity", value: (row) => html`<${State} word=${row.severity} kind=${SEVERITIES[row.severity]} />`},
    {title: "Status", value: (row) => html`<${State} word=${row.status} kind=${DONE[row.status]} />`, sort: "status"},
    {title: "Cost impact", kind: "number", value: impact, exact: (row) => `$${row.cost_impact}`, sort: "cost_impact"},
    {title: "Effort", wide: true, value: (row) => row.effort.replace("_", " "), sort: "effort"},
    {title: "Category", wide: true, value: (row) => row.category, sort: "category"},
    {title: "Last updated", wide: true, value: (row) => seen(row.last_updated), sort: "last_updated"},
  ],
  Details,
  Before: ({query}) => html`<p class="bar">${VIEWS_OF_LIST.map(([title, asked]) => html`<a key=${title} class="chip" href=${to(PATH, asked)}
    aria-current=${isChosen(query, asked) ? "true" : undefined}>${title}</a>`)}</p>`,
  create: {title: "Check now", needs: "work_on_insights", isWhole: true, text: () => "Tollhouse checks the newest records and this week's costs. It also does this every ten minutes.",
    run: () => send("POST", `${PATH}/run`, {}).then(({inspection: found}) => html`<p role="status">${found.new} new,${" "}
      ${found.reopened} reopened, ${found.again} unchanged, ${found.gone} no longer detected.
      ${found.failed.length > 0 && html` These checks failed: ${found.failed.join(", ")}. The log says why.`}</p>`)},
  actions: [
    {title: "Set status", needs: "work_on_insights",
      fields: (row, answer) => [{name: "status", label: "Status", type: "select", value: row.status, options: valid(answer, "status")}],
      run: (row, {status}) => send("PATCH", at(row.id), {status}).then(() => null)},
    {title: "Comment", needs: "work_on_insights", fields: () => [{name: "message", label: "Comment", type: "area", rows: 4, required: true}],
      run: (row, {message}) => send("POST", `${at(row.id)}/comments`, {message}).then(() => null)},
    {title: "Delete a comment", needs: "work_on_insights", danger: true, when: (row) => row.comments?.length > 0, fields: commented,
      run: (row, {comment}) => send("DELETE", `${at(row.id)}/comments/${comment}`).then(() => null)},
  ],
  empty: html`<h2>No insights</h2><p>Every ten minutes, Tollhouse checks for sudden cost increases, models without a price, calls that are
    reported twice or repeated, calls without an owner, stuck routes, and unused keys.</p>`,
};

export const Page = (given) => html`<${ListPage} list=${INSIGHTS} ...${given} />`;

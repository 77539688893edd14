/** Insights, the open ones first, by severity and cost impact, with their status and comments. */
import {to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {FAMILY} from "../lib/dimensions.mjs";
import {Causes} from "../lib/attention.mjs";
import {ago, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {State, commented, withCode} from "../lib/parts.mjs";
import {stateName} from "../lib/words.mjs";

const PATH = "/insights";
const OPEN = ["new", "in_progress"];
const WEEK_S = 7 * 86400;
const PAGES = { // the page of a command in the advice, or else of a category
  reconcile: ["/reconciliation", "Reconciliation"], agent: ["/fleet", "Fleet"], fleet: ["/fleet", "Fleet"], devices: ["/fleet", "Fleet"], delivery: ["/delivery", "Delivery"], keys: ["/keys", "API Keys"], prices: ["/prices", "Set a price"],
  budget: ["/budgets", "Budgets"],
};
const VIEWS = { // the Costs page of a category; the default is by model
  spend: {by: ["team", FAMILY]}, prices: {by: ["model", "cost_source"]}, attribution: {by: "api_key"}, caching: {measure: "cache_read_tokens"},
  reliability: {measure: "errors"}, duplicates: {by: "source", measure: "calls"}, "model choice": {by: ["user", FAMILY]},
};
const DONE = {addressed: "good", on_hold: "plain"};
const SEVERITIES = {critical: "bad", warning: "wait", info: "plain"};
const CRITICAL = {status: OPEN, severity: "critical"};
const TABS = { // by the name of their number in the answer
  critical: ["Critical", CRITICAL], open: ["Open", {status: OPEN}], snoozed: ["On hold", {status: ["on_hold"]}], done: ["Done", {status: ["addressed", "ignored"]}],
  money: ["Money", {status: OPEN, about: "money"}], operation: ["Operations", {status: OPEN, about: "operation"}],
};

const isChosen = (query, asked) => ["status", "about", "severity"].every((name) => query.getAll(name).join() === [asked[name] ?? []].flat().join());
const at = (id) => `/insights/${encodeURIComponent(id)}`;
const time = (seconds) => new Date(Number(seconds) * 1000);
const day = (seconds) => time(seconds).toISOString().slice(0, 10);
const seen = (seconds) => html`<span title=${time(seconds).toISOString()}>${ago(time(seconds))}</span>`;
/** Write the cost impact of an insight. Money of an operation insight is marked as affected, because its delay neither loses nor saves it. */
const impact = (row) => (!/[1-9]/.test(row.cost_impact) ? html`<span class="faint">not stated</span>` : row.about === "operation"
  ? html`${money(row.cost_impact)} <span class="faint">affected</span>` : money(row.cost_impact));
const effort = (row) => row.effort !== "not_set" && `${row.effort} effort`;
const valid = (answer, field) => answer.filtering.available.find((each) => each.field === field).valid_values;

function Details({row}) {
  const [path, title] = PAGES[row.description.match(/tollhouse (\w+)/)?.[1]] ?? PAGES[row.category] ?? [];
  const costs = to("/costs", {from: day(row.created - WEEK_S), to: day(row.last_updated), by: FAMILY, ...VIEWS[row.category]});
  return html`<p><${State} word=${row.status} kind=${DONE[row.status]} /> · ${impact(row)}${effort(row) && ` · ${effort(row)}`} · ${row.category}${" "}
      · found ${seen(row.created)}</p>
    ${row.gone && html`<p class="faint">Tollhouse no longer detects this problem.</p>`}
    <p class="text">${withCode(row.description)}</p>
    <p class="bar"><a href=${costs}>Show costs of that time</a>${path && html`<a href=${to(path)}>${title}</a>`}
      ${row.link && html`<a href=${row.link} rel="noreferrer">${row.link}</a>`}</p>
    ${row.comments.length > 0 && html`<h3>Comments</h3>`}
    ${row.comments.map((each) => html`<p key=${each.id} class="text"><strong>${each.author}</strong>${" "}
      <span class="faint">${seen(each.created)}</span><br />${each.message}</p>`)}`;
}

/** Tabs with their numbers, and under Critical the problems that have no insight. */
function Before({answer, query, attention}) {
  const counts = {critical: attention.data?.count, ...answer.counts};
  const others = isChosen(query, CRITICAL) ? (attention.data?.causes ?? []).filter(({severity, insight}) => severity === "critical" && !insight) : [];
  return html`<p class="bar">${Object.entries(TABS).map(([name, [title, asked]]) => html`<a key=${name} class="chip" href=${to(PATH, asked)}
    aria-current=${isChosen(query, asked) ? "true" : undefined}>${title} ${counts[name]}</a>`)}</p>
    ${others.length > 0 && html`<section class="attention"><h2>Problems without an insight</h2><${Causes} causes=${others} /></section>`}`;
}

const INSIGHTS = {
  path: PATH, root: "insights", at: PATH, caption: "insights", what: ["insights"],
  identity: (row) => row.id, show: at, one: ({insight, comments}) => ({...insight, comments}), heading: (row) => row.title,
  columns: [
    {title: "Insight", value: (row) => row.title, sort: "title", mark: (row) => html`<span class=${`edge ${SEVERITIES[row.severity]}`} aria-hidden="true"></span>`,
      facts: (row) => [html`<${State} word=${row.severity} kind=${SEVERITIES[row.severity]} />`, row.status !== "new" && stateName(row.status),
        seen(row.created), effort(row)]},
    {title: "Cost impact", kind: "number", value: impact, exact: (row) => `$${row.cost_impact}`, sort: "cost_impact", order: "desc"},
  ],
  isTwoLines: true,
  Details,
  Before,
  create: {title: "Check now", look: "plain", needs: "work_on_insights", isWhole: true, text: () => "Tollhouse also checks every ten minutes.",
    run: () => send("POST", `${PATH}/run`, {}).then(({inspection: found}) => html`<p role="status">${found.new} new,${" "}
      ${found.reopened} reopened, ${found.again} unchanged, ${found.gone} no longer detected.
      ${found.failed.length > 0 && html` These checks failed: ${found.failed.join(", ")}. The log says why.`}</p>`)},
  actions: [
    {title: "Set status", needs: "work_on_insights",
      fields: (row, answer) => [{name: "status", label: "Status", type: "select", value: row.status, options: valid(answer, "status").map((each) => [each, stateName(each)])}],
      run: (row, {status}) => send("PATCH", at(row.id), {status}).then(() => null)},
    {title: "Comment", needs: "work_on_insights", fields: () => [{name: "message", label: "Comment", type: "area", rows: 4, required: true}],
      run: (row, {message}) => send("POST", `${at(row.id)}/comments`, {message}).then(() => null)},
    {title: "Delete a comment", needs: "work_on_insights", danger: true, when: (row) => row.comments?.length > 0, fields: commented,
      run: (row, {comment}) => send("DELETE", `${at(row.id)}/comments/${comment}`).then(() => null)},
  ],
  empty: html`<h2>No insights</h2><p>Tollhouse checks every ten minutes for waste, missing data and unusual spend.</p>`,
};

export const Page = (given) => html`<${ListPage} list=${INSIGHTS} ...${given} />`;

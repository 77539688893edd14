/** Views: saved filters. The view chosen in the menu applies to every page with costs or calls. */
import {to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {NONE, choices, knownDimensions, titleOf} from "../lib/dimensions.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {COUNTED, KINDS, PLAN_KINDS} from "../lib/measures.mjs";
import {Fields, Problem, State, isOpen} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {fromOf, rangeName} from "../lib/range.mjs";
import {asLines, typedView, viewFields} from "../lib/view_fields.mjs";

const PATH = "/views";
const needs = "modify_views_and_budgets";

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const filtersOf = (row, titles) => asLines(row.filter, titles).split("\n").filter(Boolean);
const costs = (row) => to("/costs", {view: row.id, from: fromOf(row.range), bin: row.granularity === "total" ? "" : row.granularity,
  by: row.group_by.length ? row.group_by : row.principal_dimension, cost_type: (KINDS[row.cost_type] || PLAN_KINDS[row.cost_type]) && row.cost_type !== COUNTED ? row.cost_type : ""});

function anomalies({enabled, threshold_type, threshold_value}) {
  if (!enabled) return "off";
  return threshold_type === "Percent" ? `${threshold_value} % more than the day before` : "twice the usual cost";
}

function Details({row, titles, session}) {
  const mayNarrow = isOpen(session, {needs: "organization_administration", isWhole: true}) && !row.broken && Object.keys(row.filter).length > 0;
  return html`<p class="bar"><a href=${costs(row)}>Show costs</a><a href=${to("/calls", {view: row.id})}>Show calls</a>
    <a href=${to("/", {view: row.id})}>Show overview</a>
    ${mayNarrow && html`<a href=${to("/roles", {tab: "limit", only: asLines(row.filter).split("\n")})}>Restrict access to this view's calls</a>`}</p>
    ${row.broken && html`<p class="wrong">${row.broken}</p>`}
    <${Fields} of=${{filter: filtersOf(row, titles), main_dimension: titleOf(titles, row.principal_dimension), group_by: row.group_by.map((each) => titleOf(titles, each)), time_range: rangeName(row.range),
      periods: row.granularity, kind_of_cost: row.cost_type, alert_on_unusual_days: anomalies(row.anomalies), channels: row.connections.notify,
      slack: row.connections.slack.map((each) => each.name), email: row.connections.email.addresses, id: row.id}} />`;
}

const list = (known) => ({
  path: PATH, root: "views", at: PATH, file: (row) => ["views", row.id], caption: "views", what: ["views"],
  Details: ({row, session}) => html`<${Details} ...${{row, session, titles: known.titles}} />`,
  identity: (row) => row.id, heading: (row) => row.name, show: at, one: (answer) => answer.view,
  columns: [
    {title: "Name", value: (row) => row.name, sort: "name"},
    {title: "Filter", value: (row) => filtersOf(row, known.titles).join(", ") || "everything"},
    {title: "Main dimension", wide: true, value: (row) => titleOf(known.titles, row.principal_dimension)},
    {title: "Time range", wide: true, value: (row) => rangeName(row.range)},
    {title: "State", value: (row) => html`<${State} word=${row.broken ? "broken" : "usable"} kind=${row.broken ? "bad" : "good"} />`},
  ],
  create: {title: "Create a view", needs, fields: () => viewFields({}, choices(known)),
    run: (_, given) => send("POST", PATH, typedView({}, given)).then(() => null)},
  actions: [
    {title: "Edit", needs, fields: (row) => viewFields(row, choices(known)),
      run: (row, given) => send("PATCH", at(row.id), {...typedView(row, given), version: row.version}).then(() => null)},
    {title: "Delete", needs, danger: true, exact: (row) => row.name, run: (row) => send("DELETE", at(row.id)).then(() => null),
      text: () => "Records and costs are not deleted. Links to the view no longer work."},
  ],
  empty: html`<h2>No views yet</h2><p>A view is a saved filter, such as “costs of the search team”. Set filters on the page
    Costs and save them there, or create a view here. Then choose it in the menu to apply it to every page with costs or calls.</p>`,
});

export function Page(given) {
  const known = useQuery(knownDimensions, [], ["views"]);
  return html`<${Problem} error=${known.error} retry=${known.reload} /><${ListPage} list=${{...list(known.data ?? NONE), isLoading: !known.data}} ...${given} />`;
}

/** Plans of assistants: their seats, and the cost of a month. The amounts paid, included and extra are never added together. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {amounts, exactCount, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Cut, Fields, Loading, MonthChoice, Problem, Table, amount, chosenMonth} from "../lib/parts.mjs";
import {planFields, typedPlan} from "../lib/plan_fields.mjs";
import {useQuery} from "../lib/query.mjs";

const PATH = "/plans";
const needs = "modify_views_and_budgets";
const SOURCES = {plan: "calculated from the plan", statement: "from the provider bill"};
const UNITS = {usd: "at list prices", calls: "calls", credits: "credits"};

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const quantity = (text, unit) => (!text ? "everything" : unit === "usd" ? money(text) : exactCount(Number(text).toFixed(2).replace(/\.?0+$/, "")));
const included = ({included: text, unit}) => [quantity(text, unit), text && UNITS[unit]].filter(Boolean).join(" ");
const price = (amount, {currency}) => (currency === "USD" ? money(amount) : `${amount} ${currency}`);
const SUMS = [amount("Paid", "paid"), amount("Fees", "fees"), amount("Extra usage", "overage"), amount("Included usage", "included_value")];

const PLAN_COLUMNS = [
  {title: "Plan", value: (row) => row.name},
  {title: "Seats", kind: "number", value: (row) => exactCount(row.seats)},
  ...SUMS,
  {title: "Used", wide: true, value: (row) => `${quantity(row.used, row.unit)} of ${quantity(row.included, row.unit)} ${UNITS[row.unit]}`},
  {title: "Source of the amount paid", wide: true, value: (row) => SOURCES[row.source]},
];
const SEAT_COLUMNS = [
  {title: "User", value: (row) => row.user},
  {title: "Plan", value: (row) => row.plan},
  {title: "Team", wide: true, value: (row) => row.team ?? "none"},
  {title: "Since", wide: true, value: (row) => row.since},
  {title: "Until", wide: true, value: (row) => row.until ?? ""},
  ...SUMS,
  {title: "Calls", kind: "number", value: (row) => exactCount(row.calls)},
];
const IDLE_COLUMNS = [
  {title: "User", value: (row) => row.user},
  {title: "Plan", value: (row) => row.plan},
  {title: "Team", wide: true, value: (row) => row.team ?? "none"},
  amount("Fee", "fee"),
  {title: "First day without calls", value: (row) => row.first_day},
  {title: "Last day", value: (row) => row.last_day},
];
const DIFFERENCE_COLUMNS = [
  {title: "Provider", value: (row) => row.provider},
  {title: "Difference in", value: (row) => row.cause.replaceAll("_", " ")},
  amount("Billed", "billed"), amount("Calculated", "counted"), amount("Difference", "difference"),
  {title: "Seats", value: (row) => (row.billed_seats === null ? "" : `${row.billed_seats} billed, ${row.counted_seats} here`)},
];

/** The three amounts of a month: paid, included usage, and extra usage. */
const Sums = ({total}) => html`<dl class="numbers">
  <div><dt>Paid</dt><dd title=${`$${total.paid}`}>${money(total.paid)}</dd>
    <dd class="faint">${money(total.fees)} fees, ${money(total.overage)} extra usage, ${money(total.metered)} for calls without a plan, ${money(total.contracts)} contracts</dd>
    ${Object.keys(total.unconverted).length > 0 && html`<dd class="faint">not included, because no exchange rate is known: ${amounts(total.unconverted)}</dd>`}</div>
  <div><dt>Included usage</dt><dd title=${`$${total.included_value}`}>${money(total.included_value)}</dd>
    <dd class="faint">value at list prices; covered by the fees</dd></div>
  <div><dt>Extra usage</dt><dd title=${`$${total.overage}`}>${money(total.overage)}</dd><dd class="faint">part of the amount paid</dd></div></dl>`;

function Month({query}) {
  const month = chosenMonth(query);
  const found = useQuery(() => get("/plan-costs", {month}), [month], ["plans", "ledger", "statements"]);
  const {data, error, at: when, reload} = found;
  return html`<p class="bar"><${MonthChoice} path=${PATH} month=${month} /></p>
    <${Problem} error=${error} at=${when} retry=${reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${data && html`<${Sums} total=${data.total} />
      ${data.plans.length > 0 && html`<${Table} caption=${`Plans in ${month}`} rows=${data.plans} columns=${PLAN_COLUMNS} identity=${(row) => row.id}
        href=${(row) => to(PATH, {month, open: row.id})} />`}
      ${data.plans.filter((row) => row.unmet).map((row) => html`<p key=${row.id} class="wrong">${row.name}: ${row.unmet}.</p>`)}
      ${data.idle_seats.length > 0 && html`<h2>Unused seats</h2><${Table} caption="Unused seats" rows=${data.idle_seats} columns=${IDLE_COLUMNS}
        identity=${(row) => `${row.plan} ${row.user} ${row.first_day}`} />`}
      ${data.differences.length > 0 && html`<h2>Differences from provider bills</h2><${Table} caption="Differences from provider bills" rows=${data.differences}
        columns=${DIFFERENCE_COLUMNS} identity=${(row) => `${row.provider} ${row.cause}`} />`}
      ${data.rows.length > 0 && html`<details><summary>${exactCount(data.plan_costs.row_count)} seats</summary>
        ${data.plan_costs.truncated && html`<${Cut} shown=${data.rows.length} of=${data.plan_costs.row_count} />`}
        <${Table} caption="Seats" rows=${data.rows} columns=${SEAT_COLUMNS} identity=${(row) => `${row.plan} ${row.user} ${row.since}`} /></details>`}`}<//>`;
}

const HELD = [
  {title: "User", value: (seat) => seat.user}, {title: "Since", value: (seat) => seat.since},
  {title: "Until", value: (seat) => seat.until}, {title: "Team", value: (seat) => seat.team},
];

const list = (views) => ({
  path: PATH, root: "plans", at: PATH, file: (row) => ["plans", row.id], caption: "plans", what: ["plans", "views"], show: at, one: (answer) => answer.plan,
  identity: (row) => row.id, heading: (row) => row.name,
  columns: [
    {title: "Name", sort: "name", value: (row) => row.name},
    {title: "Calls of", wide: true, value: (row) => row.view_name ?? "a deleted view"},
    {title: "Fee", kind: "number", value: (row) => price(row.fee, row)},
    {title: "Includes", wide: true, value: (row) => `${included(row)}${row.is_pooled ? ", shared" : ""}`},
    {title: "Seats", kind: "number", value: (row) => exactCount(row.seats.length)},
  ],
  Details: ({row}) => html`<p class="bar"><a href=${to("/costs", {view: row.view, by: "user"})}>Show costs of its view</a></p>
    <${Fields} of=${{fee: price(row.fee, row), includes: included(row), shared: row.is_pooled ? "yes" : "no",
      cycle_day: row.cycle_day,
      extra_usage_price: price(row.overage_price, row), credit_value: row.credit_value || null, billed_by: row.billed_by || null, id: row.id}} />
    ${row.seats.length > 0 && html`<h3>Seats</h3><${Table} caption="Seats" rows=${row.seats} columns=${HELD} identity=${(seat) => `${seat.user} ${seat.since}`} />`}`,
  create: {title: "Create a plan", needs, fields: () => planFields({}, views), run: (_, given) => send("POST", PATH, typedPlan(given)).then(() => null)},
  actions: [
    {title: "Edit", needs, fields: (row) => planFields(row, views), run: (row, given) => send("PATCH", at(row.id), {...typedPlan(given), version: row.version}).then(() => null)},
    {title: "Delete", needs, danger: true, text: () => "The calls of the plan count as pay-as-you-go again, also in past months.",
      run: (row) => send("DELETE", at(row.id)).then(() => null)},
  ],
  empty: html`<h2>No plans yet</h2><p>A plan says what a seat of an assistant costs and includes, and who has a seat. Without a plan, the assistant's calls count as pay-as-you-go. First create a <a href=${to("/views")}>view</a> of
    the assistant's calls.</p>`,
});

export function Page(given) {
  const {session} = given;
  const views = useQuery(async () => (await get("/views", {limit: 1000})).views, [], ["views"]);
  return html`<${Problem} error=${views.error} retry=${views.reload} /><${Month} ...${given} />
    ${!session.is_limited && html`<h2>All plans</h2><${ListPage} list=${{...list(views.data ?? []), isLoading: !views.data}} ...${given} />`}`;
}

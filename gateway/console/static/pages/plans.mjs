/** Plans of assistants: who has a seat, and what a month came to. Paid, included and beyond are three sums that are never added. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {amounts, exactCount, money} from "../lib/format.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Cut, Fields, Loading, Problem, Table, amount} from "../lib/parts.mjs";
import {planFields, typedPlan} from "../lib/plan_fields.mjs";
import {useQuery} from "../lib/query.mjs";
import {months} from "../lib/range.mjs";

const PATH = "/plans";
const needs = "modify_views_and_budgets";
const SOURCES = {plan: "calculated from the plan", statement: "from the statement"};
const UNITS = {usd: "dollars at list prices", calls: "calls", credits: "credits"};

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const spaced = (text) => text.replaceAll("_", " ");
const quantity = (text) => (text === null ? "everything" : exactCount(Number(text).toFixed(2).replace(/\.?0+$/, "")));
const SUMS = [amount("Paid", "paid"), amount("Fees", "fees"), amount("Beyond", "overage"), amount("Value included", "included_value")];

const PLAN_COLUMNS = [
  {title: "Plan", value: (row) => row.name},
  {title: "Seats", kind: "number", value: (row) => exactCount(row.seats)},
  ...SUMS,
  {title: "Used", wide: true, value: (row) => `${quantity(row.used)} of ${quantity(row.included)} ${UNITS[row.unit]}`},
  {title: "Paid is", wide: true, value: (row) => SOURCES[row.source]},
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
  {title: "No call from", value: (row) => row.first_day},
  {title: "To", value: (row) => row.last_day},
];
const DIFFERENCE_COLUMNS = [
  {title: "Provider", value: (row) => row.provider},
  {title: "What is apart", value: (row) => spaced(row.cause)},
  amount("Billed", "billed"), amount("Calculated", "counted"), amount("Difference", "difference"),
  {title: "Seats", value: (row) => (row.billed_seats === null ? "" : `${row.billed_seats} billed, ${row.counted_seats} here`)},
];

/** The three sums of a month, side by side: what was paid, and what nobody paid. */
const Sums = ({total}) => html`<dl class="numbers">
  <div><dt>Paid</dt><dd title=${`$${total.paid}`}>${money(total.paid)}</dd>
    <dd class="faint">${money(total.fees)} of fees, ${money(total.overage)} beyond, ${money(total.metered)} for calls of no plan</dd>
    ${Object.keys(total.unconverted).length > 0 && html`<dd class="faint">without a rate: ${amounts(total.unconverted)}</dd>`}</div>
  <div><dt>Value included</dt><dd title=${`$${total.included_value}`}>${money(total.included_value)}</dd>
    <dd class="faint">at list prices; nobody paid it</dd></div>
  <div><dt>Beyond</dt><dd title=${`$${total.overage}`}>${money(total.overage)}</dd><dd class="faint">a part of what was paid</dd></div></dl>`;

function Month({query}) {
  const month = query.get("month") ?? months()[0];
  const found = useQuery(() => get("/plan-costs", {month}), [month], ["plans", "ledger", "statements"]);
  const {data, error, at: when, reload} = found;
  return html`<nav class="bar" aria-label="Month">${months().map((name) => html`<a key=${name} class="chip" href=${to(PATH, {month: name})}
      aria-current=${name === month ? "true" : undefined}>${name}</a>`)}</nav>
    <${Problem} error=${error} at=${when} retry=${reload} />
    <${Loading} of=${found} blocks=${["tiles", "table"]}>${data && html`<${Sums} total=${data.total} />
      ${data.plans.length > 0 && html`<${Table} caption=${`Plans in ${month}`} rows=${data.plans} columns=${PLAN_COLUMNS} identity=${(row) => row.id}
        href=${(row) => to(PATH, {month, open: row.id})} />`}
      ${data.idle_seats.length > 0 && html`<h2>Seats without use</h2><${Table} caption="Seats without use" rows=${data.idle_seats} columns=${IDLE_COLUMNS}
        identity=${(row) => `${row.plan} ${row.user} ${row.first_day}`} />`}
      ${data.differences.length > 0 && html`<h2>Statements tell something else</h2><${Table} caption="Statements tell something else" rows=${data.differences}
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
  path: PATH, root: "plans", at: PATH, caption: "plans", what: ["plans", "views"], show: at, one: (answer) => answer.plan,
  identity: (row) => row.id, heading: (row) => row.name,
  columns: [
    {title: "Name", sort: "name", value: (row) => row.name},
    {title: "Calls of", wide: true, value: (row) => row.view_name ?? "a view that is gone"},
    {title: "Fee", kind: "number", value: (row) => `${row.fee} ${row.currency}`},
    {title: "Includes", wide: true, value: (row) => `${row.included || "everything"}${row.included && ` ${UNITS[row.unit]}`}${row.is_pooled ? ", shared" : ""}`},
    {title: "Seats", kind: "number", value: (row) => exactCount(row.seats.length)},
  ],
  Details: ({row}) => html`<p class="bar"><a href=${to("/costs", {view: row.view, by: "user"})}>Costs of its view</a></p>
    <${Fields} of=${{fee: `${row.fee} ${row.currency}`, includes: row.included ? `${row.included} ${UNITS[row.unit]}` : "everything", shared: row.is_pooled ? "yes" : "no",
      cycle_day: row.cycle_day,
      price_beyond: `${row.overage_price} ${row.currency}`, credit_value: row.credit_value || null, statements_of: row.billed_by || null, id: row.id}} />
    ${row.seats.length > 0 && html`<h3>Who has a seat</h3><${Table} caption="Who has a seat" rows=${row.seats} columns=${HELD} identity=${(seat) => `${seat.user} ${seat.since}`} />`}`,
  create: {title: "Create a plan", needs, fields: () => planFields({}, views), run: (_, given) => send("POST", PATH, typedPlan(given)).then(() => null)},
  actions: [
    {title: "Edit", needs, fields: (row) => planFields(row, views), run: (row, given) => send("PATCH", at(row.id), {...typedPlan(given), version: row.version}).then(() => null)},
    {title: "Delete", needs, danger: true, text: () => "Its calls count as paid by the call again, also in months that are over.",
      run: (row) => send("DELETE", at(row.id)).then(() => null)},
  ],
  empty: html`<h2>There is no plan yet</h2><p>A plan says what a seat of an assistant costs and includes, and who has one. Without one, its calls count as money spent. First make a <a href=${to("/views")}>view</a> of
    the assistant's calls.</p>`,
});

export function Page(given) {
  const {session} = given;
  const views = useQuery(async () => (await get("/views", {limit: 1000})).views, [], ["views"]);
  return html`<${Problem} error=${views.error} retry=${views.reload} /><${Month} ...${given} />
    ${!session.is_limited && html`<h2>All plans</h2><${ListPage} list=${list(views.data ?? [])} ...${given} />`}`;
}

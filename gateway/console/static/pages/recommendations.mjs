/** Recommendations for lower costs, sorted by savings, with their formula and status. */
import {to} from "../lib/address.mjs";
import {send} from "../lib/api.mjs";
import {ago, money} from "../lib/format.mjs";
import {html, useState} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Confirm, Fields, State, Tabs, amount, commented, isOpen, withCode} from "../lib/parts.mjs";
import {stateName} from "../lib/words.mjs";

const PATH = "/recommendations";
const TYPES_PATH = "/recommendation-types";
const needs = "work_on_insights";
const DONE = {addressed: "good", on_hold: "plain", ignored: "plain"};
const STATUSES = ["new", "in_progress", "on_hold", "addressed", "ignored"];
const SAME = "unchanged";

const at = (id) => `${PATH}/${encodeURIComponent(id)}`;
const time = (seconds) => new Date(Number(seconds) * 1000);
const seen = (seconds) => html`<span title=${time(seconds).toISOString()}>${ago(time(seconds))}</span>`;
const TYPES = {cache_write_unread: "cache paid for, never used"};
const typeOf = ({type}) => TYPES[type] ?? stateName(type);
const statusOf = (row) => html`<${State} word=${row.open ? row.status : `${row.status}, closed`} kind=${DONE[row.status] ?? (row.open ? undefined : "plain")} />`;
const processing = ({model, provider, mode}) => [model, provider && `of ${provider}`, mode].filter(Boolean).join(" ") || undefined;

/** Write the amounts of a formula in cents. */
const inCents = (formula) => formula.replace(/\$(\d+\.\d{3,})/g, (_, digits) => money(digits)).replaceAll(" - ", " − ");

/** A link to the costs of the calls that a recommendation is about. A seat without use has no calls, so its link leads to the plans. */
const costs = ({type, dimensions, evidence}) => (type === "idle_seat" ? html`<a href=${to("/plans")}>Show plans</a>`
  : html`<a href=${to("/costs", {from: evidence.first_day, to: evidence.last_day, by: "team", ...dimensions})}>Show costs of these calls</a>`);

function Details({row}) {
  return html`<p>${statusOf(row)} · <strong title=${`$${row.monthly_savings}`}>${money(row.monthly_savings)}</strong> a month${" "}
      · ${stateName(row.confidence)} · effort ${stateName(row.effort)}${row.assignee && ` · ${row.assignee}`} · found ${seen(row.created)}</p>
    <p class="text">${withCode(row.description)}</p>
    <p class="bar">${costs(row)}</p>
    <h3>How Tollhouse calculated this</h3><p><code title=${row.formula}>${inCents(row.formula)}</code></p>
    ${row.assumptions.map((each) => html`<p key=${each} class="faint">Assumes: ${each}</p>`)}
    <${Fields} of=${{now: processing(row.current), instead: processing(row.recommended), spent: money(row.spent), savings_alone: money(row.gross_savings),
      savings_together_with_other_recommendations: money(row.monthly_savings), days: `${row.evidence.first_day} to ${row.evidence.last_day}`, of: row.dimensions,
      price_list: row.price_book, id: row.id}} />
    ${row.promised_savings !== null && html`<h3>Result</h3><p>Expected savings: ${money(row.promised_savings)} a month. ${row.realized_savings
      ? html`Actual savings: <strong>${money(row.realized_savings.amount)}</strong> from ${row.realized_savings.since} to ${row.realized_savings.until}.`
      : "The actual savings are known after 14 full days. For seats, the fees show them."}</p>`}
    ${row.comments.length > 0 && html`<h3>Comments</h3>`}
    ${row.comments.map((each) => html`<p key=${each.id} class="text"><strong>${each.author}</strong>${" "}
      <span class="faint">${seen(each.created)}</span><br />${each.message}</p>`)}`;
}

/** A checkbox for each recommendation. */
const Several = ({name, label, options}) => html`<fieldset><legend>${label}</legend>${options.map(({id, title, monthly_savings}) => html`<label key=${id}
  class="check"><input type="checkbox" name=${name} value=${id} defaultChecked /> ${title} <span class="faint">${money(monthly_savings)}</span></label>`)}</fieldset>`;

const set = async (ids, changes) => {
  const wrong = (await send("PATCH", PATH, {ids, ...changes})).recommendations.filter((each) => each.error);
  return wrong.length ? html`<p class="wrong">${wrong.length} of ${ids.length} recommendations no longer exist.</p>` : null;
};
const decided = (row) => [
  {name: "status", label: "Status", type: "select", value: row?.status ?? SAME, options: row ? STATUSES : [SAME, ...STATUSES]},
  {name: "assignee", label: "Assignee", value: row?.assignee, note: row ? "leave empty for nobody" : "leave empty to keep"},
];

const UNDECIDED = ["new", "in_progress", "on_hold"];

function Before({session, query, reload}) {
  const [looks, setLooks] = useState(false);
  const look = async () => {
    const {look: found} = await send("POST", `${PATH}/run`, {});
    reload();
    return html`<p role="status">${found.new} new, ${found.reopened} reopened, ${found.again} unchanged, ${found.gone} no longer found.
      ${found.failed.length > 0 && html` These checks failed: ${found.failed.join(", ")}. The log says why.`}</p>`;
  };
  return html`<p class="bar"><a class="chip" aria-current=${String(query.getAll("status")) === String(UNDECIDED) ? "true" : undefined} href=${to(PATH, {status: UNDECIDED})}>Undecided</a>
    <a class="chip" aria-current=${query.has("status") ? undefined : "true"} href=${to(PATH)}>All</a>
    ${isOpen(session, {needs, isWhole: true}) && html`<button type="button" onClick=${() => setLooks(true)}>Check now</button>`}
    ${looks && html`<${Confirm} title="Check now" text="Tollhouse also checks once an hour." run=${look}
      close=${() => setLooks(false)} />`}</p>`;
}

const LIST = {
  path: PATH, root: "recommendations", at: PATH, caption: "recommendations", what: ["recommendations"], Details, Before,
  identity: (row) => row.id, heading: (row) => row.title, show: at, one: ({recommendation, comments}) => ({...recommendation, comments}),
  columns: [
    {title: "Recommendation", kind: "words", value: (row) => row.title},
    amount("Savings per month", "monthly_savings", "savings"),
    {...amount("Spent", "spent"), wide: true},
    {title: "Status", value: statusOf, sort: "status"},
    {title: "Confidence", wide: true, value: (row) => stateName(row.confidence)},
    {title: "Effort", wide: true, value: (row) => stateName(row.effort), sort: "effort"},
    {title: "Type", wide: true, value: typeOf, sort: "type"},
    {title: "Assignee", wide: true, value: (row) => row.assignee || "–"},
  ],
  create: {title: "Decide on several", needs,
    fields: (_, {recommendations}) => [{name: "ids", label: "Recommendations of this page", type: Several, options: recommendations}, ...decided()],
    run: (_, {ids, status, assignee}) => {
      if (!ids.length) throw new Error("Check at least one.");
      return set(ids, {status: status === SAME ? null : status, assignee: assignee.trim() || null});
    }},
  actions: [
    {title: "Decide", needs, fields: decided, run: (row, given) => set([row.id], given)},
    {title: "Comment", needs, fields: () => [{name: "message", label: "Comment", type: "area", rows: 4, required: true}],
      run: (row, {message}) => send("POST", `${at(row.id)}/comments`, {message}).then(() => null)},
    {title: "Delete a comment", needs, danger: true, when: (row) => row.comments?.length > 0, fields: commented,
      run: (row, {comment}) => send("DELETE", `${at(row.id)}/comments/${comment}`).then(() => null)},
  ],
  empty: html`<h2>No recommendations</h2><p>Every hour, Tollhouse checks the last 30 days for unused caches and seats, faster tiers, and other savings. It shows a recommendation only if the savings reach both minimums of its type.</p>`,
};

const switched = (row, enabled) => send("PATCH", `${TYPES_PATH}/${row.type}`, {enabled}).then(() => null);

const TYPE_LIST = {
  path: TYPES_PATH, root: "recommendation_types", at: PATH, caption: "types", what: ["recommendations"],
  identity: (row) => row.type, heading: (row) => row.title, file: (row) => ["recommendation-types", row.type],
  columns: [
    {title: "Type", value: typeOf, sort: "type"},
    {title: "State", value: (row) => html`<${State} word=${row.enabled ? "enabled" : "disabled"} kind=${row.enabled ? "good" : "plain"} />`},
    {title: "Confidence", wide: true, value: (row) => stateName(row.confidence), sort: "confidence"},
    {title: "Effort", wide: true, value: (row) => stateName(row.effort), sort: "effort"},
    {title: "Minimum per month", kind: "number", money: (row) => row.thresholds.least_savings},
    {title: "Minimum share of spend", wide: true, kind: "number", value: (row) => `${row.thresholds.least_share} %`},
  ],
  Details: ({row}) => html`<p><code>${row.formula}</code></p><${Fields} of=${{assumes: row.assumptions, ...row.thresholds, confidence: stateName(row.confidence), effort: row.effort}} />`,
  actions: [
    {title: "Set minimums", needs, isWhole: true, fields: ({thresholds}) => [
      {name: "least_savings", label: "Dollars per month", value: thresholds.least_savings, required: true},
      {name: "least_share", label: "Percent of total spend", value: thresholds.least_share, required: true}],
      run: (row, thresholds) => send("PATCH", `${TYPES_PATH}/${row.type}`, {thresholds}).then(() => null)},
    {title: "Enable", needs, isWhole: true, when: (row) => !row.enabled, run: (row) => switched(row, true)},
    {title: "Disable", needs, isWhole: true, when: (row) => row.enabled, run: (row) => switched(row, false), text: () => "This closes the open recommendations of this type."},
  ],
};

export function Page(given) {
  const isTypes = given.query.get("tab") === "types";
  return html`<${Tabs} path=${PATH} query=${given.query} tabs=${[["", "Recommendations"], ["types", "Types"]]} />
    <${ListPage} key=${isTypes} list=${isTypes ? TYPE_LIST : LIST} ...${given} />`;
}

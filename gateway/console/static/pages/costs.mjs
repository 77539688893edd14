/** Costs by one or two dimensions: a chart over time, a table that compares with the earlier period, and the reasons for changes. */
import {html, useEffect, useRef, useState} from "../lib/html.mjs";
import {go, grouped, here, to} from "../lib/address.mjs";
import {addressOf, get} from "../lib/api.mjs";
import {BEFORE, Lines, OTHER, Spark, StackedBars, Switch, UNKNOWN, folded, nameOf, ofNames, painted, ranked} from "../lib/chart.mjs";
import {FAMILY, WORK, WRITTEN, fitsView, hasWork, titleOf, setUp, toUnit} from "../lib/dimensions.mjs";
import {ago, amounts, bounds, change, counted, exactCount, percent, shortMoney, sum} from "../lib/format.mjs";
import {AddFilter, Chips, Elsewhere} from "../lib/filters.mjs";
import {BILLED_DIMENSIONS, COUNTED, KINDS, MEASURES, PAID_DIMENSIONS, PLAN_KINDS, measureOf, needed, unitChoices, unitOf, valueOf, writerOf} from "../lib/measures.mjs";
import {LostCalls} from "../lib/lost_calls.mjs";
import {Marks, useMarks, wordsByBin} from "../lib/marks.mjs";
import {menuColumn} from "../lib/menu.mjs";
import {Confirm, Copy, Cut, Dialog, Loading, Problem, Table, isOpen, may} from "../lib/parts.mjs";
import {NOTHING, NoPast, PASTS, PastPicker, Uncompared, WhatIfPicker, Why, pastOf} from "../lib/past.mjs";
import {useQuery} from "../lib/query.mjs";
import {RangePicker, ZONES, ZonePicker, day, daysBefore, inAddress, rangeOf, span, zoneOf} from "../lib/range.mjs";

const PATH = "/costs";
const PAGE = 50;
const [IN_CHART, WITH_COURSE, IN_TABLE] = [5, 20, 200]; // groups shown
const BINS = {hourly: 31, daily: 731, weekly: 3660, monthly: Infinity}; // the longest range in days for each bin size
const BIN_TITLES = {hourly: "hour", daily: "day", weekly: "week", monthly: "month"};
const NO_FILTERS = ["from", "to", "tz", "view", "by", "bin", "measure", "sort", "order", "against", "parts", "hide", "asif", "cost_type", "missing"];
const DRILL = [FAMILY, "team", "user", "api_key", "source", "sender"]; // what a click on a row groups by, in this order
const SHOWN = ["cost", "calls", "input_tokens", "output_tokens", "unpriced"]; // for the columns next to the measure

/** The dimensions that only some kinds of cost have, and the function that returns those of one kind. */
const SPECIAL = [...BILLED_DIMENSIONS, ...PAID_DIMENSIONS];
const isOfBills = (kind) => kind !== COUNTED && !PLAN_KINDS[kind];
const specialOf = (kind) => (isOfBills(kind) ? BILLED_DIMENSIONS : kind === "paid_cost" ? PAID_DIMENSIONS : []);

/**
 * Return a range as parameters of the API. Billed costs need whole days, so the running day is included whole. Then the
 * earlier period splits no day either.
 */
const times = ({asked: from, ...days}, isBilled) => (rangeOf(from) && !isBilled ? {range: rangeOf(from)}
  : {from: days.from, to: days.to ?? (isBilled ? day(new Date()) : undefined)});

/** Read the query and the display options from the address. */
function asked(query, shown) {
  const range = span(query);
  const byDefaultKind = Object.keys(KINDS).find((each) => shown.includes(each)) ?? COUNTED;
  const kind = {...KINDS, ...PLAN_KINDS}[query.get("cost_type")] ? query.get("cost_type") : byDefaultKind;
  const [isBilled, isPlain] = [isOfBills(kind), kind === COUNTED];
  const filters = [...query].filter(([name]) => !NO_FILTERS.includes(name));
  const where = filters.flatMap(([name, value]) => (value === UNKNOWN ? [`${name}=`, `${name}=${UNKNOWN}`] : [`${name}=${value}`]));
  const many = (Date.parse(range.to ?? new Date().toISOString()) - Date.parse(range.from)) / 86400000;
  const by = query.getAll("by").slice(0, 2);
  const names = filters.map(([name]) => name);
  const ofWork = hasWork([...by, ...names]);
  const bins = Object.keys(BINS).filter((each) => many <= BINS[each] && !(isBilled && each === "hourly"));
  const byDefault = bins.find((each) => many < 2 || (each !== "hourly" && many < BINS[each] / 7)) ?? "monthly";
  const past = pastOf(query, range);
  return {
    range, filters, kind, isBilled, isPlain, ofWork, isForView: fitsView(names) && !hasWork(by), zone: zoneOf(query), by: by.length ? by : [FAMILY],
    bins, bin: bins.includes(query.get("bin")) ? query.get("bin") : byDefault, past, compare: past === NOTHING ? undefined : past,
    measure: !isBilled && measureOf(query.get("measure")) ? query.get("measure") : "cost",
    span: {...times(range, isBilled), cost_type: isPlain ? undefined : kind, missing: (isBilled && query.get("missing")) || undefined, tz: zoneOf(query) === "UTC" ? undefined : zoneOf(query), view: query.get("view")},
    where, hidden: query.getAll("hide"),
  };
}

/** Return the queries of the table, of the chart, and of the full export. */
function questions({by, bin, compare, isBilled, measure, span: when, where}) {
  const largest = measureOf(measure).adds && !measureOf(measure).parts ? {top_by: measure} : {};
  const table = {...when, where, by, unit: unitOf(measure), show: [...new Set([...needed([measure]), ...(isBilled ? [] : SHOWN)])], compare};
  const bars = {...when, where, by: by[0], per: bin, unit: unitOf(measure), show: needed([measure, "cost"]), ...(measureOf(measure).adds && {compare}), ...largest,
    colours: measureOf(measure).parts ? undefined : "names", top: hasCourses(measure) ? WITH_COURSE : IN_CHART};
  return [{...table, ...largest, top: IN_TABLE}, bars, table];
}

/** Return whether rows get a small chart of their own. Sums can be added up for the main chart; averages cannot. */
const hasCourses = (measure) => measureOf(measure).adds && !measureOf(measure).parts;

async function load(at) {
  const [table, bars] = await Promise.all(questions(at).slice(0, 2).map((each) => get("/report", each)));
  return {at, table, bars};
}

export function Page({query, session}) {
  const at = asked(query, session.cost_types);
  const found = useQuery(() => load(at), [String(query)], ["ledger"]);
  const [choices, setChoices] = useState({});
  const [saves, setSaves] = useState(null);
  const [limits, setLimits] = useState(null); // the row for which somebody creates a budget
  const mayLimit = at.isPlain && may(session, "modify_views_and_budgets") && at.by.length === 1 && !at.filters.length && !at.span.view;
  const actions = () => import("../lib/costs_actions.mjs");
  const limit = async (value) => setLimits({...(await (await actions()).budget()), value});
  const mayNarrow = isOpen(session, {needs: "organization_administration", isWhole: true}) && at.isPlain && at.by.length === 1;
  const narrow = async (value) => { // open the form of a role that shows only this row
    const only = await (await actions()).filterOf(at, value);
    if (only) go(to("/roles", {tab: "limit", only}));
    else found.reload(); // the view has changed and no longer contains the row
  };
  const [link, setLink] = useState("");
  /** Copy an address with fixed days, so that it shows the same days to others and later. */
  const copy = async (row, report) => {
    const text = new URL((await actions()).fixed(row, at, report), location.href).href;
    await navigator.clipboard.writeText(text).catch(() => setLink(text));
  };
  const {data} = found;
  const ofBill = at.filters.map(([name]) => name).filter((name) => SPECIAL.includes(name.replace(/!$/, "")));
  const unset = Object.fromEntries(["measure", "sort", "order", "hide", "against", "parts", "asif", "missing", ...ofBill].map((name) => [name, ""]));
  /** Return the address changes for another kind of cost, without parameters that it does not support. */
  const inMoney = (chosen) => ({...unset, cost_type: chosen === COUNTED ? "" : chosen,
    by: at.by.filter((each) => !SPECIAL.includes(each) || specialOf(chosen).includes(each)), ...(isOfBills(chosen) && {tz: "", bin: "", ...(/^now-\d+h$/.test(query.get("from")) && {from: ""})})});
  const pick = (label, name, value, options, set = (chosen) => ({[name]: chosen}), word = (title) => title) => html`<label><span>${label}</span> <select value=${value}
    onChange=${(event) => go(here(set(event.target.value)))}>${options.map((each) => {
      const [value, title] = [each].flat();
      return html`<option key=${value} value=${value}>${word(title ?? value)}</option>`;
    })}</select></label>`;
  const fields = data ? [...data.table.report.dimensions, ...(at.isPlain || at.kind === "paid_cost" ? WORK : [])] : at.by;
  const titled = (field) => [field, titleOf(data?.table.report.names, field)];
  const chose = async (field) => {
    if (!field) return;
    const answer = await get("/report", {...at.span, by: field, show: "cost", top: IN_TABLE}).catch(() => ({rows: []}));
    const ranked = answer.rows.sort((a, b) => Number(b.cost) - Number(a.cost)).map((row) => nameOf(row[field]));
    setChoices({...choices, [field]: ranked.includes(OTHER) ? [] : [...new Set(ranked)]}); // with too many values, people type the value
  };
  const titleIn = (field) => titled(field)[1];
  const available = fields.map((field) => ({field, title: titleIn(field), valid_values: choices[field] ?? []}));
  const [first, second] = at.by;
  const streams = data?.table.report.streams ?? [];
  const hasPlans = data?.table.report.has_plans && session.cost_types.includes(COUNTED);
  const kinds = Object.entries({...KINDS, ...PLAN_KINDS}).filter(([kind]) => kind === at.kind || (PLAN_KINDS[kind] ? hasPlans : session.cost_types.includes(kind)));
  const set = [query.get("against"), second, query.get("cost_type"), query.get("missing"), query.get("bin"), query.get("tz"), query.get("asif"), at.filters.length].filter(Boolean).length;
  return html`
    <div class="bar tools"><${RangePicker} query=${query} isAlone=${true} />
      ${pick("Group by", "by", first, fields.map(titled), (chosen) => ({by: [chosen, second !== chosen && second].filter(Boolean), hide: ""}), (title) => `By ${title}`)}
      ${!at.isBilled && pick("Measure", "measure", at.measure, [...Object.entries(MEASURES).map(([name, {title}]) => [name, title]), ...unitChoices(fields, streams)], (chosen) => ({measure: chosen, hide: ""}))}
      <${More} set=${set}>
        <${PastPicker} query=${query} range=${at.range} />
        ${pick("Then by", "by", second ?? "", [["", "nothing"], ...fields.filter((each) => each !== first).map(titled)], (chosen) => ({by: [first, chosen]}))}
        ${pick("Money", "cost_type", at.kind, kinds, inMoney)}
        ${at.isBilled && session.cost_types.includes(COUNTED) && pick("Days without a bill", "missing", at.span.missing ?? "", [["", "leave out"], ["counted", "use counted costs"]])}
        ${pick("Per", "bin", at.bin, at.bins.map((each) => [each, BIN_TITLES[each]]))}
        ${ZONES.length > 1 && !at.isBilled && html`<label>Time zone <${ZonePicker} query=${query} /></label>`}
        <div class="field"><span>Filter</span><div class="filters"><${AddFilter} ...${{available, chose, filters: at.filters, at: here, titleOf: titleIn}} /></div></div>
        ${at.isPlain && html`<${WhatIfPicker} query=${query} models=${choices.model ?? []} load=${() => choices.model || chose("model")} />`}
      <//>
      ${may(session, "modify_views_and_budgets") && html`<button type="button" class="broad" disabled=${!data?.table.rows.length || !at.isForView} onClick=${async () => setSaves(await (await actions()).draft(at, fields.map(titled)))}>Save as view</button>`}</div>
    ${link && html`<${Dialog} title="Copy link" close=${() => setLink("")}><${Copy} label="the link" text=${link} /><//>`}
    ${saves && html`<${Confirm} title="Save as view" ...${saves} close=${() => setSaves(null)} />`}
    ${limits && html`<${limits.QuickBudget} ...${limits} session=${session} field=${first} title=${titleIn(first)} close=${() => setLimits(null)} />`}
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    ${!data && at.filters.length > 0 && html`<p class="filters"><${Chips} filters=${at.filters} at=${here} titleOf=${titleIn} /></p>`}
    ${at.isPlain && query.get("asif") && html`<${Asked} part="WhatIf" model=${query.get("asif")} parameters=${{...at.span, where: at.where, by: at.by}} names=${data?.table.report.names}
      href=${(row) => deeper(row, at)} />`}
    <${Loading} of=${found} blocks=${["line", "chart", "table"]}>${data && html`<${Answer} ...${{...data, session, query, copy, titleIn, limit: mayLimit && fitsView(at.by) && limit, narrow: mayNarrow && !at.ofWork && narrow}} />`}<//>
    ${at.isPlain && at.compare && query.get("parts") && html`<${Asked} part="WhatChanged" against=${at.compare} parameters=${{...at.span, where: at.where, by: at.by}} href=${(row) => deeper(row, at)} />`}`;
}

/** A section about a question that somebody asked. Its file is loaded then. */
function Asked({part, ...given}) {
  const [found, setFound] = useState(null);
  useEffect(() => {
    import("../lib/cost_questions.mjs").then(setFound).catch(() => location.reload()); // the file belongs to another release
  }, []);
  return found && html`<${found[part]} ...${given} />`;
}

/** The rarer choices of the toolbar. `set`: the number of them that differ from their defaults. */
function More({set, children}) {
  const box = useRef(null);
  useEffect(() => {
    const outside = ({target}) => box.current.contains(target) || (box.current.open = false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, []);
  const closes = (event) => {
    if (event.key !== "Escape") return;
    box.current.open = false;
    box.current.firstElementChild.focus();
  };
  return html`<details class="more" ref=${box} onKeyDown=${closes} onSubmit=${() => (box.current.open = false)}><summary class="button">More${set > 0 && ` · ${set} set`}</summary><div class="sheet">${children}</div></details>`;
}

/** The total, the change since the earlier time with its dates, and the filters. */
function Head({table, at, write, titleIn}) {
  const [now, before] = [table.total, table.total.previous].map((row) => valueOf(at.measure, row));
  const {compared} = table.report;
  const previous = table.total?.previous && compared.before;
  const changed = previous && change(now, before, write, measureOf(at.measure).short === shortMoney ? 1 : 0);
  const name = at.past.includes("..") ? "" : ` (${PASTS[at.past] ?? at.past.replaceAll("_", " ")})`;
  const rise = changed && [changed.amount, !["–", "new"].includes(changed.percent) && `(${changed.percent})`].filter(Boolean).join(" ");
  return html`<section class="head" aria-label="Total"><p class="figure" title=${measureOf(at.measure).exact?.(now)}>${write(now, table.total)}</p>
    <p><${NoPast} past=${table.report.past} isBilled=${at.isBilled} />
      ${previous && html`<b>${rise}</b> <span class="faint">${compared.now.text} against ${previous.text}${name}, ${before === null ? "–" : write(before, table.total.previous)}.</span>${at.measure === "cost" && html`<${Uncompared} compared=${compared} write=${write} />`}`}</p>
    ${compared && at.measure === "cost" && at.isPlain && html`<${Why} parameters=${{...at.span, where: at.where, by: at.by[0]}} against=${at.compare} write=${write} href=${(value) => deeper({[at.by[0]]: value}, {...at, by: at.by.slice(0, 1)})} />`}
    ${at.filters.length > 0 && html`<p class="filters"><${Chips} filters=${at.filters} at=${here} titleOf=${titleIn} /></p>`}</section>`;
}

function Answer({table, bars, at, session, query, copy, titleIn, limit, narrow}) {
  const {by, isBilled, range, measure: name, zone} = at;
  const measure = measureOf(name);
  const {unconverted, currency} = table.report;
  const previous = table.total?.previous;
  const lacking = amounts(unconverted);
  const isWholeCost = at.isPlain && name === "cost" && currency === "USD" && !at.filters.length && !at.span.view;
  if (!table.rows.length) {
    return html`<section><p>${isBilled ? "No provider bills" : "No calls"}: ${range.name}${at.span.view && ", in this view"}${at.filters.length > 0 && ", with these filters"}.
      ${at.filters.length > 0 && html`<${Chips} filters=${at.filters} at=${here} titleOf=${titleIn} /> <a href=${to(PATH, {from: query.get("from"), to: query.get("to"), by, cost_type: query.get("cost_type")})}>Remove the filters</a>`}
      ${!isBilled && !at.filters.length && !at.span.view && html`<a href=${to("/connect")}>Connect a sender</a>`}</p></section>`;
  }
  const whole = {...table.total, of: table.rows.length};
  const [now, before] = [(row) => valueOf(name, row), (row) => valueOf(name, row.previous)];
  const isEstimated = name.startsWith("latency"); // percentiles are estimated from ranges, so their differences are not reliable
  const isMoney = measure.short === shortMoney;
  const write = writerOf(name, now(whole));
  const least = isMoney && Math.abs(Number(before(whole))) < 1 ? Infinity : 0; // the total decides for every row
  const changeOf = (row) => change(now(row), before(row), write, least);
  const amountOf = (row) => {
    const {percent: part, amount} = changeOf(row);
    return part === "new" ? `+${write(now(row), row)}` : amount || "–";
  };
  const column = (each, more) => {
    const writes = writerOf(each, valueOf(each, whole));
    return {title: measureOf(each).title, kind: "number", sort: each, of: (row) => valueOf(each, row), value: (row) => writes(valueOf(each, row), row),
      exact: (row) => measureOf(each).exact?.(valueOf(each, row)), ...more};
  };
  const isHidden = (row) => !measure.parts && at.hidden.includes(nameOf(row[by[0]]));
  const hidden = table.rows.filter(isHidden).length;
  const totalOf = `Total of ${table.rows.length}${hidden ? `, including ${hidden} hidden` : ""}`;
  const chart = charted(bars, at);
  const paint = measure.parts ? null : painted(ranked(chart.cells, measure.adds), chart.colours);
  const listed = paint && by.length === 1 ? table.rows.map((row) => nameOf(row[by[0]])) : [];
  const hide = (each) => go(here({hide: at.hidden.includes(each) ? at.hidden.filter((one) => one !== each) : [...at.hidden, each]}));
  const switchOf = (each) => ({title: each, paint: paint.get(each) ?? "s9", isHidden: at.hidden.includes(each), toggle: listed.length > 0 && paint.has(each) && (each !== UNKNOWN || listed.length === 1) && (() => hide(each))});
  const drawn = hasCourses(name) && by.length === 1 ? courses(bars, by[0], name) : null;
  const course = drawn?.size && [...drawn.values()][0].length > 1 && table.rows.every((row) => drawn.has(nameOf(row[by[0]]))) ? drawn : null;
  const isNamed = (row) => nameOf(row[by[0]]) !== UNKNOWN;
  const named = measure.adds ? sum(["0", ...table.rows.filter(isNamed).map((row) => now(row) ?? "0")]) : "0";
  const facts = (row) => [previous && !isEstimated && amountOf(row), !isBilled && name !== "calls" && counted(row.calls, "call")];
  const lastSeen = (row) => (row.of ? undefined : table.last_records[nameOf(row[by[0]])]);
  const columns = [
    ...by.map((field, place) => ({title: titleOf(table.report.names, field), kind: "text", sort: field, of: (row) => nameOf(row[field]), facts: !place && facts,
      mark: paint && !place && ((row) => !row.of && html`<${Switch} ...${switchOf(nameOf(row[field]))} />`),
      value: (row) => (row.of ? !place && totalOf : `${nameOf(row[field])}${!place && isHidden(row) ? " (hidden)" : ""}${row.continues ? " (continues)" : ""}`)})),
    column(name, {onPhone: "amount"}),
    unitOf(name) && {title: "Units", kind: "number", value: (row) => (row.units === null ? "–" : exactCount(row.units))},
    measure.adds && {title: "Share", kind: "number", wide: 3, value: (row) => (row.of ? "" : isNamed(row) ? percent(now(row), named) : "–")},
    previous && {title: "Before", kind: "number", wide: 2, sort: "before", of: before, value: (row) => (before(row) === null ? "–" : write(before(row), row.previous)),
      exact: (row) => measure.exact?.(before(row))},
    previous && !isEstimated && {title: "Change", kind: "number", wide: 1, sort: "change", value: amountOf, of: (row) => Number(now(row) ?? 0) - Number(before(row) ?? 0)},
    previous && !isEstimated && {title: "in %", kind: "number", wide: 2, value: (row) => changeOf(row).percent},
    ...Object.entries({cost: 1, calls: 1, tokens: 3, cost_per_call: 2}).filter(([each]) => !isBilled && each !== name).map(([each, wide]) =>
      column(each, {wide, ...(each === "cost_per_call" && {title: "Per call"})})),
    course && {title: `By ${BIN_TITLES[at.bin]}`, kind: "text", wide: 3, value: (row) => !row.of && html`<${Spark}
      values=${course.get(nameOf(row[by[0]]))} title=${`By ${BIN_TITLES[at.bin]}: ${nameOf(row[by[0]])}`} />`},
    table.last_records && {title: "Last seen", kind: "text", wide: 2, value: (row) => (lastSeen(row) ? ago(lastSeen(row)) : "–"), exact: lastSeen},
    menuColumn((row) => (row.of ? "all rows" : by.map((field) => nameOf(row[field])).join(", ")), (row) => {
      const isGroup = !row.of && ![OTHER, UNKNOWN].includes(nameOf(row[by[0]]));
      const isKnown = row.of || !by.some((field) => row[field] === OTHER);
      return [
        at.isPlain && isKnown && {title: "Top calls", href: topCalls(row, at)},
        at.isPlain && isKnown && by[0] !== "session" && {title: "Top sessions", href: here({...grouped(ownOf(row, by)), by: "session", sort: "", order: "", hide: ""})},
        !isBilled && isGroup && WRITTEN[by[0]] && by.length === 1 && {title: "Variants", href: here({[by[0]]: row[by[0]], by: WRITTEN[by[0]], sort: "", order: "", hide: ""})},
        limit && isGroup && {title: "Set a budget", act: () => limit(row[by[0]])},
        narrow && isGroup && {title: "Restrict access", act: () => narrow(row[by[0]])},
        isKnown && {title: "Copy link", act: () => copy(row, table.report)},
      ];
    }),
  ].filter(Boolean);
  const [key, order] = [query.get("sort") ?? name, query.get("order") ?? "desc"];
  const sort = {key, order, by: (next) => go(here({sort: next, order: next === key && order === "desc" ? "asc" : "desc"}))};
  const rows = sorted(table.rows, columns.find((each) => each.sort === key) ?? columns[by.length], order, by[0]);
  const everything = questions(at)[2];
  return html`
    <${Head} ...${{table, at, write, titleIn}} />
    ${isWholeCost && html`<${LostCalls} session=${session} from=${table.report.from} until=${table.report.to} total=${table.total.cost} />`}
    <${Picture} ...${{bars, at, session, write, listed, ...chart}} />
    ${[table, bars].filter(({report}) => report.truncated).map(({report, rows: found}) => html`<${Cut} key=${report.per} of=${report.row_count}
      shown=${found.filter((row) => !report.by.some((field) => row[field] === OTHER)).length} />`)}
    <${Rows} ...${{rows, columns, sort}} foot=${whole} identity=${(row) => JSON.stringify(by.map((field) => row[field]))} caption=${`${measure.title} by ${by.map((field) => titleOf(table.report.names, field)).join(" and ")}`}
      href=${(row) => deeper(row, at)} />
    ${WORK.includes(by[0]) && table.rows.every((row) => row[by[0]] === null) && html`<p role="note">No call of this time states its ${titleIn(by[0])}. <a href=${to("/work")}>How calls get units of work</a></p>`}
    ${lacking && html`<p role="note">These totals do not include ${lacking}, because no exchange rate to ${currency} is known. <a href=${to("/insights", {})}>Insights</a> say what to do.</p>`}
    <p class="faint">${range.name} (${zone}). ${!isBilled && "Estimates use list prices. "}${at.isPlain ? html`<a href=${topCalls({}, at)}>Show the calls</a>` : html`<${Asked} part="OfMoney" kind=${at.kind} ...${table.billed} />`}</p>
    <${Elsewhere} path="/report" parameters=${everything} csv=${{top: "all"}}>
      ${at.isPlain && !at.filters.length && !at.span.view && html`<${Focus} ...${range} />`}<//>`;
}

/** A FOCUS file of the days of the page, and the form of its options, which is loaded when somebody opens it. */
function Focus({from: first, to: last = day(new Date())}) {
  const [{FocusOptions}, setFound] = useState({});
  const days = {from: first.slice(0, 10), to: last};
  return html`<a class="button" href=${addressOf("/focus", days)}>FOCUS</a> <button type="button" onClick=${async () => setFound(await import("../lib/focus_options.mjs"))}>FOCUS options</button>
    ${FocusOptions && html`<${FocusOptions} ...${days} close=${() => setFound({})} />`}`;
}

/** Map each group to its values per bin, as numbers. */
function courses({rows}, field, measure) {
  const periods = [...new Set(rows.map(({period}) => period))].sort();
  const found = new Map();
  for (const row of rows) {
    const group = nameOf(row[field]);
    if (!found.has(group)) found.set(group, periods.map(() => 0));
    found.get(group)[periods.indexOf(row.period)] = Number(valueOf(measure, row) ?? 0);
  }
  return found;
}

/** Return the filters of a row. The total has none. */
const ownOf = (row, by) => by.filter((field) => field in row).map((field) => [field, nameOf(row[field])]);

/** Return the link to a row's most expensive calls, or its longest or largest ones if the page shows that measure. */
function topCalls(row, {by, filters, measure, range, span: {tz}}, when) {
  const sort = measure.startsWith("latency") ? "duration" : /tokens$/.test(measure) && measureOf(measure).adds ? "tokens" : "cost";
  return to("/calls", {...grouped(filters), ...grouped(ownOf(row, by)), ...inAddress(range), tz, ...when, sort, order: "desc"});
}

/**
 * Return the link of a row: its filters grouped by the next dimension, or its calls if no dimension is left. A unit of work has a page
 * of its own. Null for (other).
 */
function deeper(row, at, when = {}) {
  const filters = ownOf(row, at.by);
  if (filters.some(([, value]) => value === OTHER)) return null;
  if (WORK.includes(at.by[0]) && !at.by[1] && filters[0][1] !== UNKNOWN) return toUnit(...filters[0], {...inAddress(at.range), ...when});
  const set = [...at.filters, ...filters].map(([name]) => (name === WRITTEN[FAMILY] ? FAMILY : name));
  const next = DRILL.find((field) => !set.includes(field));
  if (!next && !at.isPlain) return null;
  return next ? here({...Object.fromEntries(filters), ...when, by: next, sort: "", order: "", hide: ""}) : topCalls(row, at, when);
}

function sorted(rows, {of}, order, by) {
  const compared = (a, b) => (Number.isNaN(Number(a)) || Number.isNaN(Number(b)) ? String(a).localeCompare(String(b)) : Number(a) - Number(b));
  const last = (row) => [UNKNOWN, OTHER].indexOf(nameOf(row[by])); // no name sorts a row
  return [...rows].sort((a, b) => last(a) - last(b) || (order === "asc" ? 1 : -1) * compared(of(a) ?? -1, of(b) ?? -1));
}

function Rows({rows, ...table}) {
  const [many, setMany] = useState(PAGE);
  return html`<p role="status" class="unseen">${rows.length} rows</p>
    <${Table} ...${table} rows=${rows.slice(0, many)} />
    ${rows.length > many && html`<p><button type="button" onClick=${() => setMany(many + PAGE)}>More</button> ${" "}
      <span class="faint">${many} of ${rows.length} rows; the total includes all.</span></p>`}`;
}

const labelled = ({bin}, period) => period.slice(0, bin === "hourly" ? 16 : 10).replace("T", " ");

/** Return the cells of the chart, those of the earlier period, and the colours of their groups. */
function charted(bars, at) {
  const measure = measureOf(at.measure);
  const cellsOf = (row) => {
    const parts = measure.parts ? Object.entries(measure.parts).map(([part, of]) => [part, String(of(row))]) : [[nameOf(row[at.by[0]]), valueOf(at.measure, row)]];
    return parts.map(([group, amount]) => ({bin: labelled(at, row.period), group, amount, weight: row.cost}));
  };
  const every = bars.rows.flatMap(cellsOf);
  const cells = hasCourses(at.measure) ? folded(every, IN_CHART) : every;
  const names = new Set(cells.map(({group}) => group));
  const before = measure.adds && bars.total?.previous && bars.rows.flatMap((row) => cellsOf({...row, ...row.previous}));
  return {
    cells, before: before && before.map((cell) => (names.has(cell.group) ? cell : {...cell, group: OTHER})),
    colours: measure.parts ? Object.fromEntries(Object.keys(measure.parts).map((part, place) => [part, place + 1])) : bars.colours,
  };
}

function Picture({bars, at, session, write, listed, cells, before, colours}) {
  const [field, measure] = [at.by[0], measureOf(at.measure)];
  const shown = measure.parts ? "category" : titleOf(bars.report.names, field);
  const ahead = useForecast(at); // for all groups together
  const marks = useMarks(session.cost_types.includes(COUNTED) ? spanOfMarks(at) : null);
  const {unknown, ...drawn} = measure.adds && !measure.parts ? ofNames(cells, before) : {cells, before, unknown: "0"};
  const bins = [...new Set([...allBins(bars, at.bin, (period) => labelled(at, period)), ...ahead.map(({bin}) => bin)])];
  const lead = measure.parts ? null : (group, when) => deeper({[field]: group}, at, when);
  const end = ahead.at(-1);
  const range = end && bounds({total: end.total, low: end.least, high: end.most}, write);
  return html`<${measure.adds ? StackedBars : Lines} ...${{title: `${measure.title} by ${shown}, per ${BIN_TITLES[at.bin]}`, bins, ...drawn, colours, ahead, listed, format: write,
    short: measure.short, marks: wordsByBin(marks.data?.marks ?? [], bins), zone: at.zone, isDaily: at.bin === "daily", hidden: at.hidden, hide: (hide) => go(here({hide}))}}
    pastTotal=${before && !Number(unknown) ? valueOf(at.measure, bars.total.previous) : undefined} isOpen=${!at.range.to} href=${lead}
    pastShift=${before && at.bin === "daily" && Date.parse(bars.report.from) - Date.parse(bars.report.compared.before.from)}
    toBin=${at.bin !== "hourly" && ((bin) => go(here(within(bin, at.bin))))}
    toSegment=${lead && at.bin !== "hourly" && ((bin, group) => go(lead(group, within(bin, at.bin))))}>
    ${Number(unknown) > 0 && html`<p class="faint">${write(unknown)} of ${write(valueOf(at.measure, bars.total))} has no ${shown}.${" "}
      ${isOpen(session, {isWhole: true}) && html`<a href=${to(setUp(field)[1])}>${setUp(field)[0]}</a>`}</p>`}
    ${end && html`<p class="faint">Forecast: ${write(end.total)} by the end of ${end.name}${range && `, ${range}`}.</p>`}
    <${Marks} of=${marks} session=${session} on=${at.range.from === at.range.to ? at.range.to : null} view=${at.span.view} /><//>`;
}

/** Return the query of the chart's notes. Notes are about counted calls, even if the chart shows billed costs. */
const spanOfMarks = ({span: {from, to: until, range, tz, view}, where}) => ({from, to: until, range, tz, view,
  where: where.filter((each) => ![...SPECIAL, ...WORK].includes(each.split(/!?=/)[0]))});

const MONTH = {month: "long", timeZone: "UTC"};
const WITH_FORECAST = {"now-30d": "monthly", "this-month": "monthly", "this-quarter": "quarterly"};

/** Return the forecast of the running month or quarter, from today on, as {bin, amount, low, high}. The last day has the total. Empty unless bars are days. */
function useForecast({range, bin, isPlain, ofWork, measure, span: {view, tz}, where, hidden}) {
  const per = measure === "cost" && isPlain && !ofWork && bin === "daily" && hidden.every((group) => group === BEFORE) ? WITH_FORECAST[range.asked] : undefined;
  const asked = {view, tz, where, per};
  const {data} = useQuery(() => (per ? get("/forecast", asked) : Promise.resolve(null)), [JSON.stringify(asked)], ["ledger"]);
  if (!per || !data?.forecast.total || data.forecast.per !== per) return [];
  const {days, from, total, low, high} = data.forecast;
  const middle = new Date(Date.parse(from) + 15 * 86400000); // in the middle of the first month in every time zone
  const name = per === "monthly" ? middle.toLocaleString("en", MONTH) : `Q${1 + Math.floor(middle.getUTCMonth() / 3)}`;
  const shown = days.map(({day: first, ...bounds}) => ({bin: first, ...bounds}));
  return [...shown.slice(0, -1), {...shown.at(-1), total, least: low, most: high, name}];
}

/** List every bin of the range, also bins without calls. */
function allBins({report: {from, to: until}, rows}, bin, labelled) {
  const found = new Set(rows.map((row) => labelled(row.period)));
  const step = {hourly: 3600000, daily: 86400000}[bin];
  const [start, end] = [from, until].map((time) => Date.parse(`${time.slice(0, 19)}Z`)); // local hours, counted as if they were UTC
  for (let time = start; step && time < end; time += step) found.add(labelled(new Date(time).toISOString()));
  return [...found].sort();
}

/** Return the address changes that select the range of one bar. */
function within(bin, kind) {
  const first = new Date(bin);
  const month = new Date(Date.UTC(first.getUTCFullYear(), first.getUTCMonth() + 1, 0));
  return {from: bin, to: day({daily: first, weekly: daysBefore(first, -6), monthly: month}[kind]), bin: ""};
}

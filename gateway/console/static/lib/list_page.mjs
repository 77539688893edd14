/** A page over one list of the operator API. What it shows is the address: filters, sort, and the row that is open. */
import {go, grouped, here, to} from "./address.mjs";
import {get} from "./api.mjs";
import {Elsewhere, Filters} from "./filters.mjs";
import {exactCount} from "./format.mjs";
import {html, useEffect, useRef, useState} from "./html.mjs";
import {Confirm, Dialog, Fields, Problem, Table, isOpen} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const PAGE = 50;
const MOST = 1000;
const OURS = ["tab", "open", "from", "to", "range", "tz", "month", "view", "expand", "sort", "order"]; // no filters

/**
 * `list`:
 *   path ("/devices"), root ("devices"), at ("/devices", the page's own path), caption, what (["devices"], of the stream)
 *   columns: {name, title, value(row), kind, exact(row), sort (its sort key), order (the one to begin with)}; the first is the row's link
 *   inView: whether the list takes a view; ask: parameters that it always gets, or a function of the address that gives them;
 *   asked(pairs): filters as they are asked for; hints, titles: what is typed for a filter, and how it is called, by its name. most: rows of one answer, where it is fewer than 1,000; page: rows that are shown at
 *     first and that More adds, where it is not 50
 *   identity(row), and show (id => path of one row) with one(answer), the row in it; else the row is shown itself
 *   Details({row, reload, session, query}): the open row; without it all its fields. heading(row): instead of its identity
 *   actions: {title, needs, isWhole, when(row), text(row), exact(row), fields(row, answer), danger, run(row, values)}; `run` may
 *     return what is shown when it is done; isDirect: it is run by the click, as run(row, {}, session), and
 *     leads elsewhere or returns the words that are shown; isRare: it is one more click away
 *   create: one such action without a row; Above({query}), Before({answer, session, query, reload}): above the table; empty: what to do first
 */
export function ListPage({list, session, query}) {
  const filters = [...query].filter(([name]) => !OURS.includes(name));
  const [key, order] = [query.get("sort"), query.get("order")];
  const view = list.inView ? query.get("view") : null;
  const parameters = {...(typeof list.ask === "function" ? list.ask(query) : list.ask), ...grouped(list.asked?.(filters) ?? filters), view, sort_key: key, sort_order: order};
  const size = list.page ?? PAGE;
  const loaded = useRef(size);
  const [more, setMore] = useState(null);
  const found = useQuery(async () => {
    const answer = await get(list.path, {...parameters, limit: Math.min(loaded.current, list.most ?? MOST)});
    setMore(null);
    return answer;
  }, [list.path, JSON.stringify(parameters)], list.what);
  useEffect(() => {
    loaded.current = size;
  }, [list.path, JSON.stringify(parameters)]);
  const [chosen, setAction] = useState(null);
  // As the list has it now: what its fields offer may have been loaded since.
  const action = chosen && {...[list.create, ...(list.actions ?? [])].find((each) => each?.title === chosen.title), row: chosen.row};
  const {data} = found;
  const rows = data ? [...data[list.root], ...(more?.rows ?? [])] : [];
  const cursor = more ? more.cursor : data?.pagination.cursor;
  const next = async () => {
    const answer = await get(list.path, {cursor: cursor.next_cursor, limit: size});
    const all = [...(more?.rows ?? []), ...answer[list.root]];
    loaded.current = data[list.root].length + all.length;
    setMore({rows: all, cursor: answer.pagination.cursor});
  };
  const sorting = data?.sorting.current[0];
  const sort = sorting && {
    key: sorting.sort_key,
    order: sorting.sort_order,
    by: (name) => go(here({sort: name, order: name !== sorting.sort_key
      ? list.columns.find((each) => each.sort === name).order ?? "asc" : sorting.sort_order === "asc" ? "desc" : "asc"})),
  };
  const id = query.get("open");
  const total = data?.pagination.total_count;
  return html`
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    ${list.Above && html`<${list.Above} query=${query} />`}
    ${list.Before && data && html`<${list.Before} answer=${data} session=${session} query=${query} reload=${found.reload} />`}
    <div class="bar">
      ${data && html`<${Filters} available=${data.filtering.available.filter(({field}) => !OURS.includes(field))} hints=${list.hints} titles=${list.titles} filters=${filters} at=${here} />`}
      <span role="status" class="faint">${data ? `${exactCount(rows.length)} of ${exactCount(total)} ${list.caption}` : found.error ? "" : "Loading ..."}</span>
      ${list.create && isOpen(session, list.create) && html`<button type="button" class="main"
        onClick=${() => setAction({...list.create, row: null})}>${list.create.title}</button>`}
    </div>
    ${data && rows.length === 0 && (filters.length || view
      ? html`<p>No ${list.caption} match. <a href=${to(list.at, {tab: query.get("tab"), view: null})}>Remove the filters</a></p>`
      : html`<section>${list.empty ?? html`<p>There are no ${list.caption}.</p>`}</section>`)}
    ${!data && !found.error && html`<div class="skeleton table" aria-hidden="true"></div>`}
    <div class=${found.isOld ? "old" : undefined}>${rows.length > 0 && html`<${Table} caption=${list.caption} columns=${list.columns} rows=${rows} identity=${list.identity}
      href=${(row) => here({open: list.identity(row)})} sort=${sort} />`}</div>
    ${cursor?.has_next && html`<button type="button" onClick=${next}>More</button>`}
    ${rows.length > 0 && html`<${Elsewhere} path=${list.path} parameters=${parameters} csv=${() => asCsv(rows)} name=${list.root} />`}
    ${id !== null && !action && html`<${Opened} key=${id} id=${id} list=${list} rows=${rows} session=${session} query=${query}
      act=${setAction} close=${() => go(here({open: null}))} reload=${found.reload} />`}
    ${action && html`<${Confirm} title=${action.title} text=${action.text?.(action.row)} exact=${action.exact?.(action.row)}
      fields=${action.fields?.(action.row, data)} danger=${action.danger} close=${() => setAction(null)}
      run=${async (values) => {
        const shown = await action.run(action.row, values);
        found.reload();
        if (!shown) go(here({open: null}), {replaces: true}); // the row may be gone
        return shown;
      }} />`}`;
}

function Opened({id, list, rows, session, query, act, close, reload}) {
  const inList = rows.find((row) => String(list.identity(row)) === id);
  const one = useQuery(async () => {
    const answer = list.show ? await get(list.show(id)) : null;
    return list.one ? list.one(answer) : answer;
  }, [id], list.what);
  const [problem, setProblem] = useState(null);
  const [said, setSaid] = useState(null);
  const direct = (action) => action.run(row, {}, session).then((words) => {
    setSaid(words);
    if (words) reload();
  }, setProblem);
  const row = one.data ?? (list.show ? null : inList);
  const offered = (list.actions ?? []).filter((each) => row && isOpen(session, each) && (each.when?.(row) ?? true));
  const rare = offered.filter((each) => each.isRare);
  const button = (each) => html`<button key=${each.title} type="button" class=${each.danger && "danger"}
    onClick=${() => (each.isDirect ? direct(each) : act({...each, row}))}>${each.title}</button>`;
  return html`<${Dialog} title=${(row && list.heading?.(row)) || id} close=${close}>
    <${Problem} error=${one.error} at=${one.at} retry=${one.reload} />
    ${row && (list.Details ? html`<${list.Details} row=${row} session=${session} query=${query} reload=${() => {
      one.reload();
      reload();
    }} />` : html`<${Fields} of=${row} />`)}
    ${!row && !one.error && html`<p role="status">${list.show ? "Loading ..." : "It is not among the rows of this page."}</p>`}
    <${Problem} error=${problem} />
    ${said && html`<p role="status">${said}</p>`}
    ${offered.length > 0 && html`<div class="bar">${offered.filter((each) => !each.isRare).map(button)}
      ${rare.length > 0 && html`<details><summary>More</summary>${rare.map(button)}</details>`}</div>`}
  <//>`;
}

// As in spool/printable.py: no cell holds a control character or a separator of lines, and no text begins like a formula.
const CONTROL = /[\u0000-\u001f\u007f-\u009f\u2028\u2029]/g;
const FORMULA = /^[\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]*[=+\-@＝＋－＠﹦﹢﹣﹫−]/;
const NUMBER = /^[+-]?[0-9]+(\.[0-9]+)?$/;

/** Rows as CSV; a text that a spreadsheet would run as a formula gets an apostrophe before it. */
function asCsv(rows) {
  const names = Object.keys(rows[0]);
  const text = (value) => {
    const plain = value !== null && typeof value === "object" ? JSON.stringify(value) : String(value ?? "");
    const clean = plain.replace(CONTROL, " ");
    const isFormula = typeof value === "string" && FORMULA.test(clean) && !NUMBER.test(clean);
    return `"${(isFormula ? `'${clean}` : clean).replaceAll('"', '""')}"`;
  };
  return [names, ...rows.map((row) => names.map((name) => row[name]))].map((row) => row.map(text).join(",")).join("\r\n");
}

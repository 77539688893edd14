/** A page that shows one list of the operator API. The address holds its filters, its sort order and the open row. */
import {go, grouped, here, to} from "./address.mjs";
import {get} from "./api.mjs";
import {AsFile} from "./as_file.mjs";
import {Elsewhere, Filters} from "./filters.mjs";
import {exactCount} from "./format.mjs";
import {html, useEffect, useRef, useState} from "./html.mjs";
import {Columns, Confirm, Dialog, Fields, Problem, Table, isOpen} from "./parts.mjs";
import {useQuery} from "./query.mjs";

const PAGE = 50;
const MOST = 1000;
const NO_FILTERS = ["new", "form", "of", "tab", "open", "from", "to", "range", "tz", "month", "view", "expand", "sort", "order"]; // parameters of the page

/**
 * `list`:
 *   path: API path, such as "/devices"; root: the list's key in the response, such as "devices"; at: the page's own path
 *   caption: the name of the rows in the plural; what: the changes in the live stream that reload the page, such as ["devices"]
 *   columns: {name, title, value(row), kind, exact(row), sort: its sort key, order: its first sort order}; the first links to the row
 *   sort: [sort key, order] if the address names none and the server's default is not wanted
 *   isTwoLines: whether the facts of a row are always a second line, as on a phone
 *   inView: whether the chosen view filters the list; ask: parameters of every request, or a function of the address
 *   asked(pairs): converts the filters of the address for the request; hints, titles: placeholder and label of a filter, by its name
 *   Ages({filters, at}): links for the ages of a filter, see ages.mjs
 *   most: maximum rows per response, if it is not 1,000; page: rows shown first and added by "More", if it is not 50
 *   identity(row): its id; show(id): API path of one row; one(answer): the row in that response. Without `show`, the list's own row is shown
 *   Details({row, reload, session, query}): the open row; without it, the columns of the list, or `panel` if the panel has other columns
 *   heading(row): title of the panel; by default the id. fields(row): what *All fields* shows; by default the row of the response, nothing if null
 *   file(row): the kind of its file and its id there, such as ["views", row.id]; nothing if no file can have it
 *   actions: {title, needs, isWhole, when(row), text(row), exact(row), fields(row, answer), danger, run(row, values)}. `run` may
 *     return an element to show when it is done. isDirect: one click runs it without a dialog, as run(row, {}, session), which
 *     returns a message or opens another page. isRare: the button is under "More"
 *   isLoading: whether choices of the forms are still loading; until then, no form opens
 *   opens: whether the page opens the form of `create` at once; by default, if the address has `form`; closed(): called after a form was closed; create: an action without a row (look: the class of its button, if another one is the filled button of the page); Above({query}), Before({answer, session, query, reload, attention}): elements above the table
 *   empty: shown while the list has no rows
 */
export function ListPage({list, session, query, attention}) {
  const filters = [...query].filter(([name]) => !NO_FILTERS.includes(name));
  const [key, order] = query.get("sort") === null ? list.sort ?? [null, null] : [query.get("sort"), query.get("order")];
  const view = list.inView ? query.get("view") : null;
  const parameters = {...(typeof list.ask === "function" ? list.ask(query) : list.ask), ...grouped(list.asked?.(filters) ?? filters), view, sort_key: key, sort_order: order};
  const size = list.page ?? PAGE;
  const loaded = useRef(size);
  const [added, setAdded] = useState(null); // the rows of "More", and the response that they continue
  const found = useQuery(() => get(list.path, {...parameters, limit: Math.min(loaded.current, list.most ?? MOST)}),
    [list.path, JSON.stringify(parameters)], list.what);
  useEffect(() => {
    loaded.current = size;
  }, [list.path, JSON.stringify(parameters)]);
  const [chosen, setAction] = useState((list.opens ?? query.has("form")) && isOpen(session, list.create) ? {title: list.create.title, row: null} : null);
  const {data} = found;
  const more = added?.of === data ? added : null;
  const clicked = chosen && {...[list.create, ...(list.actions ?? [])].find((each) => each?.title === chosen.title), row: chosen.row};
  // A form opens when its choices have loaded. Before, it would show and save none of them.
  const action = clicked?.fields && (!data || list.isLoading) ? null : clicked;
  const rows = data ? [...data[list.root], ...(more?.rows ?? [])] : [];
  const cursor = more ? more.cursor : data?.pagination.cursor;
  const next = async () => {
    const answer = await get(list.path, {cursor: cursor.next_cursor, limit: size});
    const all = [...(more?.rows ?? []), ...answer[list.root]];
    loaded.current = data[list.root].length + all.length;
    setAdded({of: data, rows: all, cursor: answer.pagination.cursor});
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
  const search = data?.looked_through; // records that are searched only up to a limit
  const csv = data && {title: `CSV of ${search?.records >= search?.most ? "the newest " : ""}${exactCount(total)} ${list.caption}`};
  return html`
    <${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    ${list.Above && html`<${list.Above} query=${query} />`}
    ${list.Before && data && html`<${list.Before} answer=${data} ...${{session, query, attention}} reload=${found.reload} />`}
    ${list.Ages && html`<${list.Ages} filters=${filters} at=${here} />`}
    <div class="bar">
      ${data && html`<${Filters} available=${data.filtering.available.filter(({field}) => !NO_FILTERS.includes(field))} hints=${list.hints} titles=${list.titles} filters=${filters} at=${here} />`}
      <span role="status" class="faint">${data ? `${exactCount(rows.length)} of ${exactCount(total)} ${list.caption}` : found.error ? "" : "Loading ..."}</span>
      ${list.create && isOpen(session, list.create) && html`<button type="button" class=${list.create.look ?? "main"}
        onClick=${() => setAction({...list.create, row: null})}>${list.create.title}</button>`}
    </div>
    ${data && rows.length === 0 && (filters.length || view
      ? html`<p>No ${list.caption} match. <a href=${to(list.at, {tab: query.get("tab"), view: null})}>Remove the filters</a></p>`
      : html`<section>${list.empty ?? html`<p>No ${list.caption} yet.</p>`}</section>`)}
    ${!data && !found.error && html`<div class="skeleton table" aria-hidden="true"></div>`}
    <div class=${found.isOld ? "old" : undefined}>${rows.length > 0 && html`<${Table} caption=${list.caption} columns=${list.columns} rows=${rows} identity=${list.identity}
      href=${(row) => here({open: list.identity(row)})} sort=${sort} isTwoLines=${list.isTwoLines} isChosen=${(row) => String(list.identity(row)) === id} />`}</div>
    ${cursor?.has_next && html`<button type="button" onClick=${next}>More</button>`}
    ${rows.length > 0 && html`<${Elsewhere} path=${list.path} parameters=${parameters} csv=${csv} />`}
    ${id !== null && !action && html`<${Opened} key=${id} id=${id} list=${list} rows=${rows} session=${session} query=${query}
      act=${setAction} close=${() => go(here({open: null}))} reload=${found.reload} />`}
    ${action && html`<${Confirm} title=${action.title} text=${action.text?.(action.row)} exact=${action.exact?.(action.row)}
      fields=${action.fields?.(action.row, data)} danger=${action.danger} close=${() => {
        setAction(null);
        list.closed?.();
      }}
      run=${async (values) => {
        const shown = await action.run(action.row, values);
        found.reload();
        if (!shown) go(here({open: null}), {replaces: true}); // the action may have deleted the row
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
  const [message, setMessage] = useState(null);
  const [isOpened, setOpen] = useState(false); // All fields
  const runAtOnce = (action) => action.run(row, {}, session).then((result) => {
    setMessage(result);
    if (result) reload();
  }, setProblem);
  const row = one.data ?? (list.show ? null : inList);
  const offered = (list.actions ?? []).filter((each) => row && isOpen(session, each) && (each.when?.(row) ?? true));
  const rare = offered.filter((each) => each.isRare);
  const button = (each) => html`<button key=${each.title} type="button" class=${each.danger && "danger"}
    onClick=${() => (each.isDirect ? runAtOnce(each) : act({...each, row}))}>${each.title}</button>`;
  const all = row && (list.fields ? list.fields(row) : row);
  const [kind, idInFile] = (row && list.file?.(row)) || [];
  const place = rows.indexOf(inList);
  const step = (by) => rows[place + by] && inList && go(here({open: list.identity(rows[place + by])}), {replaces: true});
  const pressed = (event) => {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!by || event.target.closest("input, select, textarea, pre")) return;
    event.preventDefault();
    step(by);
  };
  const opener = () => {
    const link = document.querySelector("tr.chosen a");
    link?.scrollIntoView({block: "nearest"});
    return link;
  };
  /** A click next to the panel opens the row under it, or closes the panel. */
  const clicked = ({target, currentTarget, clientX: x, clientY: y}) => {
    const isIn = (element) => {
      const {left, right, top, bottom} = element.getBoundingClientRect();
      return x >= left && x <= right && y >= top && y <= bottom;
    };
    if (target !== currentTarget || isIn(currentTarget)) return;
    const link = [...document.querySelectorAll("tr.leads")].find(isIn)?.querySelector("a");
    if (link) link.click();
    else close();
  };
  return html`<${Dialog} title=${(row && list.heading?.(row)) || id} close=${close} name="panel" ...${{opener, pressed, clicked}}>
    ${inList && rows.length > 1 && html`<p class="bar">${[["Previous row", "↑", -1], ["Next row", "↓", 1]].map(([name, icon, by]) => html`<button key=${name}
      type="button" aria-label=${name} disabled=${!rows[place + by]} onClick=${() => step(by)}>${icon}</button>`)} <span class="faint">${place + 1} of ${rows.length}</span></p>`}
    <${Problem} error=${one.error} at=${one.at} retry=${one.reload} />
    ${row && (list.Details ? html`<${list.Details} row=${row} session=${session} query=${query} reload=${() => {
      one.reload();
      reload();
    }} />` : html`<${Columns} of=${list.panel ?? list.columns} row=${row} />`)}
    ${!row && !one.error && html`<p role="status">${list.show ? "Loading ..." : "This page does not have the row. Remove the filters to find it."}</p>`}
    <${Problem} error=${problem} />
    ${message && html`<p role="status">${message}</p>`}
    ${offered.length > 0 && html`<div class="bar">${offered.filter((each) => !each.isRare).map(button)}
      ${rare.length > 0 && html`<details><summary>More</summary>${rare.map(button)}</details>`}</div>`}
    ${kind && html`<${AsFile} kind=${kind} id=${idInFile} what=${list.what} />`}
    ${all && html`<details onToggle=${(event) => setOpen(event.target.open)}><summary>All fields</summary>${isOpened && html`<${Fields} of=${all}
      leads=${(name, value) => list.leads?.(name, value, row, session)} />`}</details>`}
  <//>`;
}

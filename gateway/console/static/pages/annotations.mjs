/** Annotations: short texts about a day, shown in charts on that day. */
import {to} from "../lib/address.mjs";
import {get, send} from "../lib/api.mjs";
import {annotationFields} from "../lib/shared_fields.mjs";
import {html} from "../lib/html.mjs";
import {ListPage} from "../lib/list_page.mjs";
import {Fields, Problem} from "../lib/parts.mjs";
import {useQuery} from "../lib/query.mjs";
import {day, daysBefore} from "../lib/range.mjs";
import {Thing} from "../lib/things.mjs";

const PATH = "/annotations";
const needs = "modify_views_and_budgets";
const AROUND = 14; // days of costs on each side

const place = (id) => `${PATH}/${encodeURIComponent(id)}`;
const viewOf = (row) => (row.view_name ? html`<${Thing} kind="view" id=${row.view} name=${row.view_name} />` : row.view ? "a deleted view" : "all calls");
const around = (row) => to("/costs", {from: day(daysBefore(new Date(row.day), AROUND)), to: day(daysBefore(new Date(row.day), -AROUND)), view: row.view_name ? row.view : null});

/** The fields that the sentence of the panel does not name. */
const others = ({id, day, text, view, view_name, author, created, last_updated, version, ...rest}) => rest;

const list = (views, session) => ({
  path: PATH, root: "annotations", at: PATH, caption: "annotations", what: ["annotations", "views"], hints: {day: "2026-11-20"},
  identity: (row) => row.id, heading: (row) => row.text, show: place, one: (answer) => answer.annotation,
  columns: [
    {title: "What happened", sort: "text", value: (row) => row.text},
    {title: "Day", sort: "day", order: "desc", value: (row) => row.day},
    {title: "Shown in charts of", wide: true, value: viewOf},
    {title: "Written by", wide: true, sort: "author", value: (row) => row.author},
  ],
  Details: ({row}) => html`<p>${row.day}, shown in charts of ${viewOf(row)}. Written by ${row.author}.</p>
    <${Fields} of=${others(row)} /><p><a href=${around(row)}>Costs of these weeks</a></p>`,
  create: {title: "Annotate a day", needs, fields: () => annotationFields({day: day(new Date())}, views, session),
    run: (_, given) => send("POST", PATH, given).then(() => null)},
  actions: [
    {title: "Edit", needs, fields: (row) => annotationFields(row, views, session),
      run: (row, given) => send("PATCH", place(row.id), {...given, version: row.version}).then(() => null)},
    {title: "Delete", needs, danger: true, text: () => "Charts no longer show it.", run: (row) => send("DELETE", place(row.id)).then(() => null)},
  ],
  empty: html`<h2>No annotations yet</h2><p>An annotation says what happened on a day, such as a release, an incident or a contract. Charts mark the day
    with a line. On <a href=${to("/costs")}>Costs</a>, Tollhouse marks list price changes and new models by itself.</p>`,
});

export function Page(given) {
  const views = useQuery(async () => (await get("/views", {limit: 1000})).views, [], ["views"]);
  return html`<${Problem} error=${views.error} retry=${views.reload} /><${ListPage} list=${{...list(views.data ?? [], given.session), isLoading: !views.data}} ...${given} />`;
}

/** What charts mark on a day: annotations, changed list prices and new models. */
import {to} from "./address.mjs";
import {get, send} from "./api.mjs";
import {html, useState} from "./html.mjs";
import {Confirm, Problem, may} from "./parts.mjs";
import {useQuery} from "./query.mjs";
import {day} from "./range.mjs";

/** The marks of a span, as a report is asked for it; nothing is asked for null. */
export const useMarks = (asked) => useQuery(() => (asked ? get("/marks", asked) : Promise.resolve(null)), [JSON.stringify(asked)], ["ledger", "annotations"]);

/** The words of each bin that has a mark, by its place: the first bin of the day, else the last one that begins before it. */
export function wordsByBin(marks, bins) {
  const found = new Map();
  for (const mark of marks) {
    const first = bins.findIndex((bin) => bin.startsWith(mark.day));
    const place = first >= 0 ? first : bins.findLastIndex((bin) => bin < mark.day);
    if (place >= 0) found.set(place, [...(found.get(place) ?? []), mark.text]);
  }
  return found;
}

/** The same marks as a list, and a button that adds one. `on`: the day that is proposed, in `view`. */
export function Marks({of: {data, error, reload}, session, on, view}) {
  const [adds, setAdds] = useState(null);
  const add = async () => {
    const [{annotationFields}, {views}] = await Promise.all([import("./annotation_fields.mjs"), get("/views", {limit: 1000})]);
    setAdds(annotationFields({day: on ?? day(new Date()), view}, views, session));
  };
  return html`<${Problem} error=${error} retry=${reload} />
    <div class="bar marks"><details><summary>Marks${data && ` (${data.marks.length}${data.truncated ? " newest" : ""})`}</summary>
      ${data?.marks.length === 0 && html`<p class="faint">Annotations, changed list prices and new models of these days stand here.</p>`}
      <ul>${data?.marks.map(({day: at, text, id}) => html`<li key=${`${at} ${id ?? text}`}>${at} ${id ? html`<a href=${to("/annotations", {open: id})}>${text}</a>` : text}</li>`)}</ul></details>
      ${may(session, "modify_views_and_budgets") && html`<button type="button" onClick=${add}>Annotate a day</button>`}</div>
    ${adds && html`<${Confirm} title="Annotate a day" fields=${adds} close=${() => setAdds(null)}
      run=${(given) => send("POST", "/annotations", given).then(() => void reload())} />`}`;
}

/** Notes that charts mark on a day: annotations, changed list prices and new models. */
import {to} from "./address.mjs";
import {get, send} from "./api.mjs";
import {html, useState} from "./html.mjs";
import {Confirm, Problem, may} from "./parts.mjs";
import {useQuery} from "./query.mjs";
import {day} from "./range.mjs";
import {annotationFields} from "./shared_fields.mjs";

/** Fetch the notes of a time range. `parameters` are the parameters of a report. If they are null, nothing is fetched. */
export const useMarks = (parameters) => useQuery(() => (parameters ? get("/marks", parameters) : Promise.resolve(null)), [JSON.stringify(parameters)], ["ledger", "annotations"]);

/** Map bin indexes to their notes. A note belongs to the first bin of its day. If no bin begins on its day, it belongs to the last bin that begins earlier. */
export function wordsByBin(marks, bins) {
  const found = new Map();
  for (const mark of marks) {
    const first = bins.findIndex((bin) => bin.startsWith(mark.day));
    const place = first >= 0 ? first : bins.findLastIndex((bin) => bin < mark.day);
    if (place >= 0) found.set(place, [...(found.get(place) ?? []), mark.text]);
  }
  return found;
}

/** A list of the notes, and a button that adds an annotation. `on` and `view` are the proposed day and view. */
export function Marks({of: {data, error, reload}, session, on, view, children}) {
  const [adds, setAdds] = useState(null);
  const add = async () => {
    const {views} = await get("/views", {limit: 1000});
    setAdds(annotationFields({day: on ?? day(new Date()), view}, views, session));
  };
  return html`<${Problem} error=${error} retry=${reload} />
    <div class="bar marks"><details><summary>Notes${data && ` (${data.marks.length}${data.truncated ? " newest" : ""})`}</summary>
      ${data?.marks.length === 0 && html`<p class="faint">No notes for these days. Annotations, list price changes and new models appear here.</p>`}
      <ul>${data?.marks.map(({day: at, text, id}) => html`<li key=${`${at} ${id ?? text}`}>${at} ${id ? html`<a href=${to("/annotations", {open: id})}>${text}</a>` : text}</li>`)}</ul></details>
      ${may(session, "modify_views_and_budgets") && html`<button type="button" class="plain" onClick=${add}>Annotate a day</button>`}${children}</div>
    ${adds && html`<${Confirm} title="Annotate a day" fields=${adds} close=${() => setAdds(null)}
      run=${(given) => send("POST", "/annotations", given).then(() => void reload())} />`}`;
}

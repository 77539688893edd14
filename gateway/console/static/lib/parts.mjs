/** Small parts that every page uses. */
import {html, useState} from "./html.mjs";
import {clockTime} from "./format.mjs";

/** What the server said, beside the last good data and its age. */
export function Problem({error, at, retry}) {
  if (!error) return null;
  return html`<div class="problem" role="alert">
    <p><strong>${error.status ? "This could not be loaded." : "No connection."}</strong> ${error.message}
      ${at && html` Shown is what was known at ${clockTime(at)}.`}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}

/** Text in a box with a button that copies it; where the browser forbids that, the text is selected instead. */
export function Copy({text, label}) {
  const [done, setDone] = useState("");
  const copy = async (event) => {
    const box = event.currentTarget.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(text);
      setDone("Copied");
    } catch {
      getSelection().selectAllChildren(box);
      setDone("Selected: press Ctrl+C");
    }
    setTimeout(() => setDone(""), 2500);
  };
  return html`<div class="copy">
    <pre tabindex="0" aria-label=${label}><code>${text}</code></pre>
    <button type="button" onClick=${copy} aria-label=${`Copy ${label}`}>Copy</button>
    <span role="status">${done}</span>
  </div>`;
}

/**
 * A table. `columns`: {name, title, value(row), kind: "number" | "text", exact(row)}; `exact` is the figure with all its
 * digits.
 */
export function Table({caption, columns, rows, identity}) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map((each) => html`<th scope="col" class=${each.kind}>${each.title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${identity(row)}>
      ${columns.map((each, place) => cell(each, row, place === 0))}
    </tr>`)}</tbody>
  </table></div>`;
}

function cell(column, row, isFirst) {
  const shown = column.value(row);
  const title = column.exact?.(row);
  return isFirst
    ? html`<th scope="row" class=${column.kind} title=${title}>${shown}</th>`
    : html`<td class=${column.kind} title=${title}>${shown}</td>`;
}

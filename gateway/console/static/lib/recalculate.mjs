/** The offer to recalculate the estimates of earlier calls. */
import {send} from "./api.mjs";
import {money} from "./format.mjs";
import {html, useState} from "./html.mjs";
import {day, daysBefore} from "./range.mjs";

/** The result of a changed price or contract, and the recalculation of earlier calls, which keep their estimates until then. */
export function Recalculate({text, since}) {
  const [{found, error, isBusy}, setTried] = useState({});
  const submit = (event) => {
    event.preventDefault();
    const from = new FormData(event.currentTarget).get("since");
    setTried({isBusy: true});
    send("POST", "/ledger/reprice", {since: from}).then(({reprice}) => setTried({found: reprice}), (failed) => setTried({error: failed}));
  };
  return html`<p role="status">${text} New calls use it at once. Earlier calls keep their estimates until you recalculate them.</p>
    <form onSubmit=${submit}>
      <label>Recalculate from <input type="date" name="since" required value=${since || day(daysBefore(new Date(), 29))} /></label>
      <p><button type="submit" class="main" disabled=${isBusy}>Recalculate</button></p></form>
    ${error && html`<p role="alert" class="wrong">${error.message}</p>`}
    ${found && html`<p role="status">${Number(found.rows) ? `Recalculated all models: ${money(found.before)} before, ${money(found.after)} after.` : "No estimate changed."}</p>`}`;
}

/** Channels that are picked by their names: a field of a dialog. */
import {to} from "./address.mjs";
import {html} from "./html.mjs";

/** Boxes to check, one for each channel; one that is chosen and gone is listed, too, so that it can be taken out. */
export function ChannelBoxes({name, label, note, value, options}) {
  const names = [...new Set([...options, ...value])];
  return html`<fieldset><legend>${label} ${note && html`<span class="faint">${note}</span>`}</legend>${names.length ? names.map((each) => html`<label key=${each} class="check">
    <input type="checkbox" name=${name} value=${each} defaultChecked=${value.includes(each)} /> ${each}</label>`)
    : html`<p class="faint">There is no channel yet: see <a href=${to("/notifications", {tab: "channels"})}>Channels</a>.</p>`}</fieldset>`;
}

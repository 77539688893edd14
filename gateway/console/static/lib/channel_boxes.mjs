/** A form field that picks notification channels by name. */
import {to} from "./address.mjs";
import {html} from "./html.mjs";

/** A checkbox for each channel. A chosen channel that no longer exists is listed as well, so that people can deselect it. */
export function ChannelBoxes({name, label, note, value, options}) {
  const names = [...new Set([...options, ...value])];
  return html`<fieldset><legend>${label} ${note && html`<span class="faint">${note}</span>`}</legend>${names.length ? names.map((each) => html`<label key=${each} class="check">
    <input type="checkbox" name=${name} value=${each} defaultChecked=${value.includes(each)} /> ${each}</label>`)
    : html`<p class="faint">No channels yet. <a href=${to("/notifications", {tab: "channels"})}>Add a channel</a> first.</p>`}</fieldset>`;
}

/** Links for the ages of a filter, such as "No report for 1d 3d". */
import {AGES, valuesOf} from "./filters.mjs";
import {html} from "./html.mjs";

/** The links of one filter, for `Ages` of a list. */
export const ageLinks = (field, title) => ({filters, at}) => html`<nav class="bar" aria-label=${title}><span class="faint">${title}</span>${AGES.map((age) => html`<a key=${age}
  class="chip" href=${at({[field]: age})} aria-current=${valuesOf(filters, field).includes(age) ? "true" : undefined}>${age}</a>`)}</nav>`;

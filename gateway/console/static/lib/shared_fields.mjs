/** Form fields that several pages share: channels, annotations, labels as lines of name=value, and all other fields of a resource. */
import {to} from "./address.mjs";
import {html} from "./html.mjs";
import {isOpen, titleOf} from "./parts.mjs";
import {FIELDS} from "./resource_fields.mjs";

/** A link to the page where channels are added, for people who may open it. */
export const addChannel = (session) => (isOpen(session, {needs: "view_operation", isWhole: true})
  ? html`<a href=${to("/notifications", {tab: "channels"})}>Add Slack, Teams or mail</a>` : "Ask an Admin to add one.");

const CANNOT = {parked: "is paused, so it sends nothing", failing: "cannot send at the moment, and Tollhouse tries again"};

/** A warning that no channel exists, or the channels that do not send, each with the next step. `channels`: the rows of /channel-names. */
export function ChannelProblems({channels, session}) {
  if (!channels.length) return html`<p role="status" class="wrong">Nobody will be notified: there is no channel. ${addChannel(session)}</p>`;
  return channels.filter(({state}) => CANNOT[state]).map(({name, state}) => html`<p key=${name} role="status" class="wrong">The channel ${name} ${CANNOT[state]}.
    ${isOpen(session, {needs: "view_operation", isWhole: true}) && html` <a href=${to("/notifications", {tab: "channels", open: name})}>Show why</a>`}</p>`);
}

/** A checkbox for each channel. A chosen channel that no longer exists is listed as well, so that people can deselect it. */
export function ChannelBoxes({name, label, note, value, options}) {
  const names = [...new Set([...options, ...value])];
  return html`<fieldset><legend>${label} ${note && html`<span class="faint">${note}</span>`}</legend>${names.length ? names.map((each) => html`<label key=${each} class="check">
    <input type="checkbox" name=${name} value=${each} defaultChecked=${value.includes(each)} /> ${each}</label>`)
    : html`<p role="status" class="wrong">Nobody will be notified: there is no channel.</p>`}</fieldset>`;
}

/**
 * Add the fields of a resource that a form does not list, each in a box of its own. An entry of the form that is named otherwise
 * has the name of its field as `of`.
 */
export function withAllFields(noun, row, listed) {
  const names = listed.map(({name, of}) => of ?? name);
  const others = FIELDS[noun].filter(({name}) => !names.includes(name));
  return [...listed, ...others.map((each) => ({...each, label: titleOf(each.name), value: row[each.name] ?? ""}))];
}

/** Convert the values of such fields to the API's types. An empty box of a number is null. */
export const typedOthers = (noun, values) => Object.fromEntries(Object.entries(values).map(([name, value]) => {
  const isNumber = FIELDS[noun].find((each) => each.name === name).type === "number";
  return [name, isNumber ? (value === "" ? null : Number(value)) : value];
}));

/** The form fields of an annotation, named as in the API. */
export const annotationFields = (row, views, session) => withAllFields("annotation", row, [
  {name: "day", label: "Day", type: "date", value: row.day, required: true},
  {name: "text", label: "What happened", value: row.text, required: true, note: "such as a release, an incident or a contract"},
  {name: "view", label: "Shown in charts of", type: "select", value: row.view ?? "", note: "people who may not see all of these calls do not see the annotation",
    options: [...(session.is_limited ? [] : [["", "all calls"]]), ...views.map(({id, name}) => [id, name])]},
]);

export const asText = (labels) => Object.entries(labels).map(([name, value]) => `${name}=${value}`).join("\n");

export const labelsField = (labels) => ({name: "labels", label: "Labels", type: "area", value: asText(labels),
  note: "one name=value per line", rows: 3});

/** Parse lines of name=value into labels. Throws an error that names the first wrong line. */
export function labelsIn(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const wrong = lines.find((line) => !/^[^=]+=/.test(line));
  if (wrong) throw new Error(`"${wrong}" is not a label. Write name=value.`);
  return Object.fromEntries(lines.map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1).trim()]));
}

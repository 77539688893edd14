/** Charts over time, as bars or lines, with a legend, a tooltip and a table of the same figures. */
import {html, useRef, useState} from "./html.mjs";
import {bounds, money, shortMoney, sum, timeText} from "./format.mjs";
import {Menu} from "./menu.mjs";
import {Table} from "./parts.mjs";
import {Plot, Square, named, weekday} from "./plot.mjs";

export const OTHER = "(other)"; // a report's name for all groups beyond the largest
export const UNKNOWN = "unknown";
const NOON_MS = 432e5; // keeps the day although a day of summer time has 23 or 25 hours
export const BEFORE = "(before)"; // the name of the earlier period in the list of hidden groups
/**
 * Return the CSS classes of each group as a Map. `groups` are sorted largest to smallest. `colours` are the server's, from 1 to 8; groups without
 * one are grey, and "unknown" is hollow. If two groups share a colour, the smaller one is hatched.
 */
export function painted(groups, colours) {
  const used = new Set();
  return new Map(groups.map((group) => {
    const colour = Object.hasOwn(colours, group) && colours[group];
    const paint = group === UNKNOWN ? "s0" : !colour ? "s9" : `s${colour}${used.has(colour) ? " hatched" : ""}`;
    if (colour) used.add(colour);
    return [group, paint];
  }));
}

/** Return the label of a dimension's value. */
export const nameOf = (value) => value ?? UNKNOWN;

/**
 * Return the groups of cells, sorted from largest to smallest with "unknown" and "(other)" last. `cells` are {bin, group, amount,
 * weight}. If amounts cannot be added, `weight` decides the order.
 */
export function ranked(cells, adds) {
  const totals = new Map();
  for (const {group, amount, weight} of cells) totals.set(group, (totals.get(group) ?? 0) + Number(adds ? amount : weight));
  const last = (group) => [UNKNOWN, OTHER].indexOf(group);
  return [...totals.keys()].sort((a, b) => last(a) - last(b) || totals.get(b) - totals.get(a) || a.localeCompare(b));
}

/**
 * Split the cells of sums into those with a name, and the amount of the others. Without any name, all cells are drawn. `before` are the
 * cells of the earlier period.
 */
export function ofNames(cells, before) {
  const isNamed = ({group}) => group !== UNKNOWN;
  if (!cells.some(isNamed)) return {cells, before, unknown: "0"};
  const unknown = sum(["0", ...cells.filter((each) => !isNamed(each)).map(({amount}) => amount)]);
  return {cells: cells.filter(isNamed), before: before?.filter(isNamed), unknown};
}

/** Return the ranked `groups`, and `values` per group and bin. */
function arranged(bins, cells, adds) {
  const groups = ranked(cells, adds);
  const place = new Map(bins.map((bin, index) => [bin, index]));
  const values = Object.fromEntries(groups.map((group) => [group, bins.map(() => (adds ? "0" : null))]));
  for (const {bin, group, amount} of cells) {
    const row = values[group];
    row[place.get(bin)] = adds ? sum([row[place.get(bin)], amount]) : amount;
  }
  return {groups, values};
}

/** Keep the `most` largest groups and "unknown", and rename all other groups to OTHER. */
export function folded(cells, most) {
  const kept = new Set([UNKNOWN, ...ranked(cells, true).filter((group) => ![UNKNOWN, OTHER].includes(group)).slice(0, most)]);
  return cells.map((cell) => (kept.has(cell.group) ? cell : {...cell, group: OTHER}));
}

/**
 * Stacked bars. `bins` are texts in time order. `colours`: the colour of each group, from 1 to 8. `isOpen`: the last bin is not complete yet.
 * `isDaily`: bins are days, labelled with their weekday. `href(group)`, `toBin(bin)` and `toSegment(bin, group)`: the links of a name,
 * a bar and a part of a bar. `hidden`: groups that are not drawn; `hide(groups)` replaces that list. `before`: cells of the earlier
 * period, moved to the bins of this one; `pastShift`: by how many milliseconds, if the tooltip names the earlier day. `marks`: a Map from a bin's index to its notes. `ahead`: the forecast as {bin, amount, low,
 * high}, starting with the running bin; future bins are the last of `bins`. `listed`: the names that a list shows with their squares; the legend
 * has only the others. `picker` stands in the head instead of a note about
 * the last bin, and `children` below the legend.
 */
export const StackedBars = ({cells, ...rest}) => html`<${Chart} ...${arranged(rest.bins, cells, true)} isStacked=${true} ...${rest} />`;

/** Lines for values that cannot be added, such as averages. A null is a gap. */
export const Lines = ({cells, ...rest}) => html`<${Chart} ...${arranged(rest.bins, cells, false)} isStacked=${false} ...${rest} />`;

function Chart({title, bins, groups, values, listed = [], picker, children, before, pastTotal, pastShift, ahead = [], marks = new Map(), hidden = [], hide, isStacked, isDaily, colours, isOpen, href, toBin, toSegment, zone,
  format = money, short = shortMoney}) {
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState(null);
  const [pointed, setPart] = useState(null); // the group whose segment is under the pointer
  const box = useRef(null);
  const paint = painted(groups, colours);
  const unlisted = groups.filter((group) => !listed.includes(group));
  const drawn = groups.filter((group) => !hidden.includes(group));
  const part = drawn.includes(pointed) ? pointed : null; // after a change of filters the group may be missing
  const absent = groups.filter((group) => hidden.includes(group));
  const ghost = before && !hidden.includes(BEFORE) ? added(bins, before.filter(({group}) => !hidden.includes(group))) : null;
  const shown = at !== null && at < bins.length ? at : null;
  const totals = isStacked && bins.map((_, bin) => sum(["0", ...drawn.map((group) => values[group][bin])]));
  const begun = bins.length - Math.max(0, ahead.length - 1); // the number of bins that are not in the future
  const follow = (bin, group) => (group && toSegment && group !== OTHER ? toSegment(bins[bin], group) : toBin?.(bins[bin]));
  const moved = (event) => {
    if (event.key === "Enter" && shown !== null) follow(shown, part);
    const [by, up] = [{ArrowLeft: -1, ArrowRight: 1}[event.key], {ArrowUp: 1, ArrowDown: -1}[event.key]];
    if (!by && !(up && isStacked && shown !== null)) return;
    event.preventDefault();
    if (by) setAt(Math.max(0, Math.min(bins.length - 1, (at ?? (by > 0 ? -1 : begun)) + by)));
    else setPart(drawn[drawn.indexOf(part) + up] ?? null);
  };
  const figure = (group) => (shown === null ? isStacked && format(sum(values[group])) : format(values[group][shown]));
  const inBin = shown !== null && `${named(bins[shown], isDaily)}${isStacked ? `: ${part ? `${part} ${format(values[part][shown])} of ` : ""}${format(totals[shown])}` : ""}`;
  const words = (shown !== null && marks.get(shown)) || [];
  const said = (inBin && [inBin, ...words].join(". ")) || (isOpen && !picker && `The last ${isStacked ? "bar" : "point"} is not complete.`);
  const toggle = (name) => hide(hidden.includes(name) ? hidden.filter((each) => each !== name) : [...hidden, name]);
  const tip = shown !== null && [
    ...(isStacked ? [["", "Total", format(totals[shown])]] : []),
    ...[...drawn].reverse().filter((group) => Number(values[group][shown])).map((group) => [paint.get(group), group, format(values[group][shown]), group === part]),
    ...(ghost ? [["", `earlier period${pastShift ? `, ${named(new Date(Date.parse(bins[shown]) + NOON_MS - pastShift).toISOString(), true)}` : ""}`, format(ghost[shown])]] : []),
    ...ahead.filter(({bin}) => bin === bins[shown]).map(({amount, ...of}) => {
      const range = bounds({total: amount, ...of}, format);
      return ["", "forecast", `${format(amount)}${range && ` (${range})`}`];
    }),
    ...words.map((text) => ["", text]),
  ];
  const drawing = {title, bins, begun, groups: drawn, absent, values, totals, ghost, ahead, marks, isStacked, isDaily, isOpen, paint, format, zone};
  const save = () => import("./chart_file.mjs").then((file) => file.save(box.current, drawing), () => location.reload()); // the file belongs to another release
  return html`<figure class="chart" ref=${box}>
    <figcaption><h2>${title}</h2>
      <span class="faint" role="status">${!asTable && said}</span>${picker}
      <button type="button" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>Show as table</button>
      ${!asTable && html`<${Menu} label="Actions for the chart" items=${[{title: "Save as SVG", act: save}]} />`}
    </figcaption>
    ${asTable ? html`<${Twin} ...${{...drawing, bins: bins.slice(0, begun)}} />` : html`
      <${Plot} ...${{summary: isStacked ? summed(title, bins.slice(0, begun), totals.slice(0, begun), format) : title, short, tip, shown, part, setAt, setPart, moved, follow: toBin && follow}} ...${drawing} />
      ${(before || unlisted.length > 0) && html`<ul class="legend">${unlisted.map((group) => html`<${Entry} key=${group} ...${{group, paint: paint.get(group), isHidden: hidden.includes(group), href, figure: figure(group)}}
        toggle=${hide && toggle} />`)}
        ${before && html`<${Entry} group=${BEFORE} title="earlier period" isHidden=${hidden.includes(BEFORE)} toggle=${hide && toggle}
          figure=${ghost && format(shown !== null ? ghost[shown] : hidden.length ? sum(ghost) : pastTotal ?? sum(ghost))} />`}</ul>`}`}
    ${absent.length > 0 && html`<p class="faint">Hidden: ${absent.join(", ")}${isStacked && ` (${format(sum(absent.flatMap((group) => values[group])))})`}.
      ${" "}<button type="button" onClick=${() => hide(hidden.filter((each) => each === BEFORE))}>Show all</button></p>`}
    ${children}
  </figure>`;
}

/** A series in the legend. Its square hides the series; its name is a link. */
function Entry({group, title = group, paint, isHidden, href, figure, toggle}) {
  return html`<li class=${isHidden ? "hidden" : undefined}><${Switch} ...${{title, paint, isHidden}} toggle=${toggle && (() => toggle(group))} />
    ${href?.(group) ? html`<a href=${href(group)}>${title}</a>` : html`<span>${title}</span>`}
    <span class="faint">${figure}</span></li>`;
}

/** The square of a series. If it has a `toggle`, it is a button that hides the series. Without a paint it is the line of the earlier period. */
export function Switch({title, paint, isHidden, toggle}) {
  const square = paint ? html`<${Square} paint=${paint} />` : html`<svg class="key" width="12" height="12" aria-hidden="true"><path class="past" d="M0 6H12" /></svg>`;
  return toggle ? html`<button type="button" class="square" aria-pressed=${isHidden} aria-label=${`Hide ${title}`} title=${isHidden ? "Show" : "Hide"}
    onClick=${toggle}>${square}</button>` : square;
}

/** Add up the cells of each bin. */
function added(bins, cells) {
  const found = new Map(bins.map((bin) => [bin, ["0"]]));
  for (const {bin, amount} of cells) found.get(bin)?.push(amount);
  return bins.map((bin) => sum(found.get(bin)));
}

/** Describe the chart in one sentence, for screen readers. */
function summed(title, bins, totals, format) {
  const most = totals.reduce((best, value, bin) => (Number(value) > Number(totals[best]) ? bin : best), 0);
  return `${title}: ${format(sum(["0", ...totals]))} from ${timeText(bins[0])} to ${timeText(bins.at(-1))}, most on ${timeText(bins[most])} with ${format(totals[most])}`;
}

function Twin({title, bins, groups, values, ghost, totals, format, isDaily, zone = "UTC", absent}) {
  const columns = [
    {title: `Time (${zone})`, value: (row) => (isDaily ? `${row.bin} ${weekday(row.bin)}` : row.bin), kind: "text"},
    ...groups.map((group) => ({title: group, kind: "number", wide: true, value: (row) => (values[group][row.index] === null ? "–" : format(values[group][row.index]))})),
    ghost && {title: "Earlier period", kind: "number", value: (row) => format(ghost[row.index])},
    totals && {title: absent.length ? `Total, without ${absent.join(", ")}` : "Total", kind: "number", value: (row) => format(totals[row.index])},
  ].filter(Boolean);
  const rows = bins.map((bin, index) => ({bin, index})).reverse();
  return html`<${Table} caption=${title} columns=${columns} rows=${rows} identity=${(row) => row.bin} />`;
}

/** A small line chart without axes that shows the values of a table row over time. `values` are numbers. */
export function Spark({values, title}) {
  const most = Math.max(0, ...values);
  const y = (value) => (most ? 19 - (18 * value) / most : 19);
  const line = values.map((value, place) => `${place ? "L" : "M"}${place} ${y(value)}`).join("");
  return html`<svg class="spark" role="img" aria-label=${title} viewBox=${`0 0 ${Math.max(1, values.length - 1)} 20`} preserveAspectRatio="none"><path d=${line} /></svg>`;
}

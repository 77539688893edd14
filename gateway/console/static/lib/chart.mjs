/** Bars and lines over time, each with a legend, a tooltip and a table of the same figures. */
import {html, useState} from "./html.mjs";
import {money, shortMoney, sum} from "./format.mjs";
import {Table} from "./parts.mjs";
import {Plot, named} from "./plot.mjs";

export const OTHER = "(other)"; // what a report calls the groups beyond the largest
export const UNKNOWN = "unknown";
export const BEFORE = "(before)"; // what the bars of the period before are called where they are hidden
/** For light and dark; distinct for the colour-blind, at least 3:1 against the page. */
const COLOURS = {
  light: ["#1990f3", "#e57422", "#3b5eb1", "#590000", "#8a523e", "#0f0073"],
  dark: ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7"],
};
const GREYS = {light: {[OTHER]: "#868686", [UNKNOWN]: "#5c6066"}, dark: {[OTHER]: "#6b6b6b", [UNKNOWN]: "#b5b5b5"}};
const kept = new Map(); // the place in the palette that a value has got

/** A value keeps its colour while the console is open, whatever else is shown; "other" and "unknown" are grey. */
function colours(field, groups, isDark) {
  const theme = isDark ? "dark" : "light";
  const palette = COLOURS[theme];
  const taken = new Set();
  return groups.map((group) => {
    if ([OTHER, UNKNOWN].includes(group)) return GREYS[theme][group];
    const name = `${field}=${group}`;
    let place = kept.get(name) ?? [...name].reduce((hash, letter) => (hash * 31 + letter.codePointAt(0)) >>> 0, 7) % palette.length;
    while (taken.has(place) && taken.size < palette.length) place = (place + 1) % palette.length;
    taken.add(place);
    if (!kept.has(name)) kept.set(name, place);
    return palette[place];
  });
}

/** How a value of a dimension is called. */
export const nameOf = (value) => value ?? UNKNOWN;

/**
 * Groups, the largest first, with "unknown" and "other" last, and `values` by group for each bin. `cells` are {bin, group,
 * amount, weight}: `weight` decides the order where amounts do not add.
 */
export function arranged(bins, cells, adds) {
  const totals = new Map();
  for (const {group, amount, weight} of cells) totals.set(group, (totals.get(group) ?? 0) + Number(adds ? amount : weight));
  const last = (group) => [UNKNOWN, OTHER].indexOf(group);
  const groups = [...totals.keys()].sort((a, b) => last(a) - last(b) || totals.get(b) - totals.get(a) || a.localeCompare(b));
  const place = new Map(bins.map((bin, index) => [bin, index]));
  const values = Object.fromEntries(groups.map((group) => [group, bins.map(() => (adds ? "0" : null))]));
  for (const {bin, group, amount} of cells) {
    const row = values[group];
    row[place.get(bin)] = adds ? sum([row[place.get(bin)], amount]) : amount;
  }
  return {groups, values};
}

/** The largest `most` groups of cells that add up; all others are OTHER, the unknown one stays. */
export function folded(cells, most) {
  const {groups} = arranged([...new Set(cells.map(({bin}) => bin))], cells, true);
  const kept = new Set([UNKNOWN, ...groups.filter((group) => ![UNKNOWN, OTHER].includes(group)).slice(0, most)]);
  return cells.map((cell) => (kept.has(cell.group) ? cell : {...cell, group: OTHER}));
}

/**
 * Stacked bars. `bins` are texts in the order of time. `field`: what the groups are. `isOpen`: the last bin goes on. `isDaily`: bins are days, so
 * they are named with their weekday. `href(group)`, `toBin(bin)` and `toSegment(bin, group)`: where a name, a bar and a part of it lead.
 * `hidden`: groups that are not drawn; `hide(groups)` makes others so. `before`: cells of the period before, by the bins of this one.
 * `marks`: the words of each bin that is marked, a Map by its place. `ahead`: {bin, amount, low, high} of what is expected, the bin that goes on first; those after it are the last of `bins`.
 */
export const StackedBars = ({cells, ...rest}) => html`<${Chart} ...${arranged(rest.bins, cells, true)} isStacked=${true} ...${rest} />`;

/** Lines of what cannot be added, such as averages; a null is a gap. */
export const Lines = ({cells, ...rest}) => html`<${Chart} ...${arranged(rest.bins, cells, false)} isStacked=${false} ...${rest} />`;

function Chart({title, bins, groups, values, before, ahead = [], marks = new Map(), hidden = [], hide, isStacked, isDaily, isDark, field, isOpen, href, toBin, toSegment, zone,
  format = money, short = shortMoney}) {
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState(null);
  const [pointed, setPart] = useState(null); // the group whose segment is pointed at
  const paint = Object.fromEntries(colours(field, groups, isDark).map((colour, rank) => [groups[rank], colour]));
  const drawn = groups.filter((group) => !hidden.includes(group));
  const part = drawn.includes(pointed) ? pointed : null; // another question may have other groups
  const absent = groups.filter((group) => hidden.includes(group));
  const ghost = before && !hidden.includes(BEFORE) ? added(bins, before.filter(({group}) => !hidden.includes(group))) : null;
  const shown = at !== null && at < bins.length ? at : null;
  const totals = isStacked && bins.map((_, bin) => sum(["0", ...drawn.map((group) => values[group][bin])]));
  const begun = bins.length - Math.max(0, ahead.length - 1); // bins that are not to come
  const follow = () => (part && toSegment && part !== OTHER ? toSegment(bins[shown], part) : toBin?.(bins[shown]));
  const moved = (event) => {
    if (event.key === "Enter" && shown !== null) follow();
    const [by, up] = [{ArrowLeft: -1, ArrowRight: 1}[event.key], {ArrowUp: 1, ArrowDown: -1}[event.key]];
    if (!by && !(up && isStacked && shown !== null)) return;
    event.preventDefault();
    if (by) setAt(Math.max(0, Math.min(bins.length - 1, (at ?? (by > 0 ? -1 : begun)) + by)));
    else setPart(drawn[drawn.indexOf(part) + up] ?? null);
  };
  const figure = (group) => (shown === null ? isStacked && format(sum(values[group])) : format(values[group][shown]));
  const inBin = shown !== null && `${named(bins[shown], isDaily)}${isStacked ? `: ${part ? `${part} ${format(values[part][shown])} of ` : ""}${format(totals[shown])}` : ""}`;
  const words = (shown !== null && marks.get(shown)) || [];
  const said = (inBin && [inBin, ...words].join(". ")) || (isOpen && `The last ${isStacked ? "bar" : "point"} is not complete.`);
  const toggle = (name) => hide(hidden.includes(name) ? hidden.filter((each) => each !== name) : [...hidden, name]);
  const tip = shown !== null && [
    ...(isStacked ? [["", "Total", format(totals[shown])]] : []),
    ...[...drawn].reverse().filter((group) => Number(values[group][shown])).map((group) => [paint[group], group, format(values[group][shown]), group === part]),
    ...(ghost ? [["", "the period before", format(ghost[shown])]] : []),
    ...ahead.filter(({bin}) => bin === bins[shown]).map(({amount, low, high}) => ["", "forecast", `${format(amount)} (${format(low)} to ${format(high)})`]),
    ...words.map((text) => ["", text]),
  ];
  return html`<figure class="chart">
    <figcaption><h2>${title}</h2>
      <span class="faint" role="status">${!asTable && said}</span>
      <button type="button" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>Show as table</button>
    </figcaption>
    ${asTable ? html`<${Twin} ...${{title, bins: bins.slice(0, begun), groups: drawn, values, ghost, totals, format, isDaily, zone, absent}} />` : html`
      <${Plot} ...${{summary: isStacked ? summed(title, bins.slice(0, begun), totals.slice(0, begun), format) : title, bins, groups: drawn, values, ghost, ahead, marks, isStacked, isDaily, isOpen, paint, short, tip,
        shown, part, setAt, setPart, moved, follow: toBin && (() => shown !== null && follow())}} />
      <ul class="legend">${groups.map((group) => html`<${Entry} key=${group} ...${{group, colour: paint[group], isHidden: hidden.includes(group), href, figure: figure(group)}}
        toggle=${hide && toggle} />`)}
        ${before && html`<${Entry} group=${BEFORE} title="the period before" isHidden=${hidden.includes(BEFORE)} toggle=${hide && toggle}
          figure=${ghost && format(shown === null ? sum(ghost) : ghost[shown])} />`}</ul>`}
    ${absent.length > 0 && html`<p class="faint">Not in the picture: ${absent.join(", ")}${isStacked && ` (${format(sum(absent.flatMap((group) => values[group])))})`}.
      ${" "}<button type="button" onClick=${() => hide(hidden.filter((each) => each === BEFORE))}>Show all</button></p>`}
  </figure>`;
}

/** One series of the legend: its square hides it, its name leads on. */
function Entry({group, title = group, colour, isHidden, href, figure, toggle}) {
  const square = html`<svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2" class=${colour ? undefined : "ghost"} fill=${colour}
    fill-opacity=${isHidden ? 0.15 : 1} /></svg>`;
  return html`<li class=${isHidden ? "hidden" : undefined}>
    ${toggle ? html`<button type="button" class="square" aria-pressed=${isHidden} aria-label=${`Hide ${title}`} title=${isHidden ? "Show" : "Hide"}
      onClick=${() => toggle(group)}>${square}</button>` : square}
    ${href?.(group) ? html`<a href=${href(group)}>${title}</a>` : html`<span>${title}</span>`}
    <span class="faint">${figure}</span></li>`;
}

/** What cells come to in each bin. */
function added(bins, cells) {
  const found = new Map(bins.map((bin) => [bin, ["0"]]));
  for (const {bin, amount} of cells) found.get(bin)?.push(amount);
  return bins.map((bin) => sum(found.get(bin)));
}

/** What the picture shows, in a sentence. */
function summed(title, bins, totals, format) {
  const most = totals.reduce((best, value, bin) => (Number(value) > Number(totals[best]) ? bin : best), 0);
  return `${title}: ${format(sum(["0", ...totals]))} from ${bins[0]} to ${bins.at(-1)}, most on ${bins[most]} with ${format(totals[most])}`;
}

function Twin({title, bins, groups, values, ghost, totals, format, isDaily, zone = "UTC", absent}) {
  const columns = [
    {title: `Time (${zone})`, value: (row) => named(row.bin, isDaily), kind: "text"},
    ...groups.map((group) => ({title: group, kind: "number", value: (row) => format(values[group][row.index])})),
    ghost && {title: "The period before", kind: "number", value: (row) => format(ghost[row.index])},
    totals && {title: absent.length ? `Total without ${absent.join(", ")}` : "Total", kind: "number", value: (row) => format(totals[row.index])},
  ].filter(Boolean);
  const rows = bins.map((bin, index) => ({bin, index})).reverse();
  return html`<${Table} caption=${title} columns=${columns} rows=${rows} identity=${(row) => row.bin} />`;
}

/** The course of a row, as a line without axes. `values` are numbers. */
export function Spark({values, title}) {
  const most = Math.max(0, ...values);
  const y = (value) => (most ? 19 - (18 * value) / most : 19);
  const line = values.map((value, place) => `${place ? "L" : "M"}${place} ${y(value)}`).join("");
  return html`<svg class="spark" role="img" aria-label=${title} viewBox=${`0 0 ${Math.max(1, values.length - 1)} 20`} preserveAspectRatio="none"><path d=${line} /></svg>`;
}

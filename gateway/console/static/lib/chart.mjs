/** Bars and lines over time as SVG, each with a table of the same figures. */
import {html, useState} from "./html.mjs";
import {money, shortMoney, sum} from "./format.mjs";
import {Table} from "./parts.mjs";

export const OTHER = "(other)"; // what a report calls the groups beyond the largest
export const UNKNOWN = "unknown";
const HEIGHT = 1000; // of the drawing, which is stretched to its place
/** For light and dark; distinct for the colour-blind, at least 3:1 against the page. */
const COLOURS = {
  light: ["#1990f3", "#e57422", "#3b5eb1", "#61012c", "#8a523e", "#391173"],
  dark: ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7"],
};
const GREY = {other: "#868686", light: "#5c6066", dark: "#b5b5b5"};
const kept = new Map(); // the place in the palette that a value has got

/** A value keeps its colour while the console is open, whatever else is shown; "other" and "unknown" are grey. */
function colours(field, groups, isDark) {
  const palette = COLOURS[isDark ? "dark" : "light"];
  const taken = new Set();
  return groups.map((group) => {
    if (group === OTHER) return GREY.other;
    if (group === UNKNOWN) return GREY[isDark ? "dark" : "light"];
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

/**
 * Stacked bars. `bins` are texts in the order of time. `field`: what the groups are. `isOpen`: the last bin goes on. `href(group)` and `toBin(bin)`: where a group and a bar lead.
 */
export const StackedBars = ({cells, ...rest}) => html`<${Chart} ...${arranged(rest.bins, cells, true)} isStacked=${true} ...${rest} />`;

/** Lines of what cannot be added, such as averages; a null is a gap. */
export const Lines = ({cells, ...rest}) => html`<${Chart} ...${arranged(rest.bins, cells, false)} isStacked=${false} ...${rest} />`;

function Chart({title, bins, groups, values, isStacked, isDark, field, isOpen, href, toBin, zone, format = money, short = shortMoney}) {
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState(null);
  const paint = colours(field, groups, isDark);
  const moved = (event) => {
    if (event.key === "Enter" && toBin && shown !== null) toBin(bins[shown]);
    const by = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!by) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(bins.length - 1, (at ?? (by > 0 ? -1 : bins.length)) + by)));
  };
  const shown = at !== null && at < bins.length ? at : null;
  const figure = (group) => (shown === null ? isStacked && format(sum(values[group])) : format(values[group][shown]));
  const said = shown === null ? isOpen && `The last ${isStacked ? "bar" : "point"} is not complete.`
    : `${bins[shown]}${isStacked ? `: ${format(sum(groups.map((group) => values[group][shown])))}` : ""}`;
  return html`<figure class="chart">
    <figcaption><h2>${title}</h2>
      <span class="faint" role="status">${!asTable && said}</span>
      <button type="button" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>Show as table</button>
    </figcaption>
    ${asTable ? html`<${Twin} ...${{title, bins, groups, values, format, isStacked, zone}} />` : html`
      <${Plot} ...${{summary: isStacked ? summed(title, bins, groups, values, format) : title, bins, groups, values, isStacked, isOpen, paint, short, toBin, shown, setAt, moved}} />
      <ul class="legend">${groups.map((group, rank) => html`<li key=${group}>
        <svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2" fill=${paint[rank]} /></svg>
        ${href?.(group) ? html`<a href=${href(group)}>${group}</a>` : html`<span>${group}</span>`}
        <span class="faint">${figure(group)}</span></li>`)}</ul>`}
  </figure>`;
}

function Plot({summary, bins, groups, values, isStacked, isOpen, paint, short, toBin, shown, setAt, moved}) {
  const numbers = groups.map((group) => values[group].map((value) => (value === null ? null : Number(value))));
  const heights = isStacked ? bins.map((_, bin) => numbers.reduce((all, row) => all + row[bin], 0)) : numbers.flat();
  const [step, steps] = scale(Math.max(0, ...heights));
  const y = (value) => HEIGHT - (HEIGHT * value) / (step * steps);
  const over = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setAt(Math.max(0, Math.min(bins.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bins.length))));
  };
  const every = Math.ceil(bins.length / 5);
  const isOneDay = bins[0]?.slice(0, 10) === bins.at(-1)?.slice(0, 10);
  const marks = bins.map((_, bin) => bin).filter((bin) => (bins.length - 1 - bin) % every === 0);
  const drawn = isStacked ? bins.map((_, bin) => {
    let below = 0;
    return groups.map((group, rank) => {
      const [from, value] = [below, numbers[rank][bin]];
      below += value;
      return value > 0 && html`<rect x=${bin + 0.15} width="0.7" y=${y(from + value)} height=${y(from) - y(from + value)} fill=${paint[rank]}
        fill-opacity=${isOpen && bin === bins.length - 1 ? 0.55 : 1} />`;
    });
  }) : groups.map((group, rank) => html`<path d=${line(numbers[rank], y)} stroke=${paint[rank]} />`);
  return html`<div class="plot">
    <div class="axis" aria-hidden="true">${Array.from({length: steps + 1}, (_, place) => html`<span>${short(step * (steps - place))}</span>`)}</div>
    <svg role="img" aria-label=${summary} tabindex="0" viewBox=${`0 0 ${bins.length} ${HEIGHT}`} preserveAspectRatio="none"
      class=${toBin && "leads"} onKeyDown=${moved} onPointerMove=${over} onPointerLeave=${() => setAt(null)} onBlur=${() => setAt(null)}
      onClick=${toBin && (() => shown !== null && toBin(bins[shown]))}>
      ${Array.from({length: steps + 1}, (_, place) => html`<path class="grid" d=${`M0 ${y(step * place)}H${bins.length}`} />`)}
      ${shown !== null && html`<rect class="at" x=${shown} width="1" height=${HEIGHT} />`}${drawn}</svg>
    <svg class="days" aria-hidden="true">${marks.map((bin) => html`<text y="14" x=${`${(100 * (bin + 0.5)) / bins.length}%`}
      text-anchor="middle">${bins[bin].slice(...(isOneDay ? [-5] : [5, 10]))}</text>`)}</svg>
  </div>`;
}

/** What the picture shows, in a sentence. */
function summed(title, bins, groups, values, format) {
  const all = bins.map((_, bin) => sum(["0", ...groups.map((group) => values[group][bin])]));
  const most = all.reduce((best, value, bin) => (Number(value) > Number(all[best]) ? bin : best), 0);
  return `${title}: ${format(sum(["0", ...all]))} from ${bins[0]} to ${bins.at(-1)}, most on ${bins[most]} with ${format(all[most])}`;
}

/** A step of 1, 2 or 5 times a power of ten, and how many of them reach over `most`. */
function scale(most) {
  if (!(most > 0)) return [1, 1];
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each * 5 >= most);
  return [step, Math.ceil(most / step)];
}

/** Through the middle of each bin; broken where there is no value, and a dot's width where its neighbours have none. */
function line(values, y) {
  return values.map((value, bin) => {
    if (value === null) return "";
    return (values[bin - 1] ?? null) === null ? `M${bin + 0.45} ${y(value)}L${bin + 0.5} ${y(value)}` : `L${bin + 0.5} ${y(value)}`;
  }).join("");
}

function Twin({title, bins, groups, values, format, isStacked, zone = "UTC"}) {
  const columns = [
    {title: `Time (${zone})`, value: (row) => row.bin, kind: "text"},
    ...groups.map((group) => ({title: group, kind: "number", value: (row) => format(values[group][row.index])})),
    isStacked && {title: "Total", kind: "number", value: (row) => format(sum(groups.map((group) => values[group][row.index])))},
  ].filter(Boolean);
  const rows = bins.map((bin, index) => ({bin, index})).reverse();
  return html`<${Table} caption=${title} columns=${columns} rows=${rows} identity=${(row) => row.bin} />`;
}

/** Stacked bars by day, with a table of the same figures. */
import {html, useEffect, useRef, useState} from "./html.mjs";
import {money, shortMoney, sum} from "./format.mjs";
import {Table} from "./parts.mjs";

const OTHER = "other";
const MOST_GROUPS = 6;
/** For light and dark; distinct for the colour-blind, at least 3:1 against the page. */
const COLOURS = {
  light: ["#1990f3", "#e57422", "#3b5eb1", "#61012c", "#8a523e", "#391173"],
  dark: ["#0072b2", "#e69f00", "#009e73", "#56b4e9", "#d55e00", "#cc79a7"],
};
const GREY = "#868686";

/**
 * The largest groups over all bins, the rest as "other": {groups, values}, `values` by group a decimal text for each
 * bin. `cells` are {bin, group, amount}.
 */
export function stacked(bins, cells) {
  const totals = new Map();
  for (const {group, amount} of cells) totals.set(group, sum([totals.get(group) ?? "0", amount]));
  const ranked = [...totals].sort(([a, x], [b, y]) => Number(y) - Number(x) || a.localeCompare(b)).map(([name]) => name);
  const shown = ranked.length > MOST_GROUPS ? ranked.slice(0, MOST_GROUPS - 1) : ranked;
  const groups = ranked.length > shown.length ? [...shown, OTHER] : shown;
  const place = new Map(bins.map((bin, index) => [bin, index]));
  const values = Object.fromEntries(groups.map((group) => [group, bins.map(() => "0")]));
  for (const {bin, group, amount} of cells) {
    const row = values[shown.includes(group) ? group : OTHER];
    row[place.get(bin)] = sum([row[place.get(bin)], amount]);
  }
  return {groups, values};
}

/** `bins` are ISO days. `summary` says in a sentence what the picture shows. */
export function StackedBars({title, summary, bins, cells, isDark}) {
  const place = useRef(null);
  const [asTable, setAsTable] = useState(false);
  const {groups, values} = stacked(bins, cells);
  const colours = groups.map((group, rank) => (group === OTHER ? GREY : COLOURS[isDark ? "dark" : "light"][rank]));
  useEffect(() => {
    if (asTable || !place.current || !bins.length) return undefined;
    const drawn = draw(place.current, bins, groups, values, colours, isDark);
    const resized = new ResizeObserver(() => drawn.setSize({width: place.current.clientWidth, height: 220}));
    resized.observe(place.current);
    return () => {
      resized.disconnect();
      drawn.destroy();
    };
  }, [asTable, isDark, JSON.stringify([bins, values])]);
  return html`<figure class="chart">
    <figcaption><h2>${title}</h2>
      <button type="button" aria-pressed=${asTable} onClick=${() => setAsTable(!asTable)}>Show as table</button>
    </figcaption>
    ${asTable
      ? html`<${Twin} title=${title} bins=${bins} groups=${groups} values=${values} />`
      : html`<div ref=${place} role="img" aria-label=${summary} class="plot"></div>
          <ul class="legend">${groups.map((group, rank) => html`<li key=${group}>
            <svg width="12" height="12" aria-hidden="true"><rect width="12" height="12" rx="2" fill=${colours[rank]} /></svg>
            <span>${group}</span> <span class="faint">${money(sum(values[group]))}</span>
          </li>`)}</ul>`}
  </figure>`;
}

function Twin({title, bins, groups, values}) {
  const columns = [
    {title: "Day", value: (row) => row.bin, kind: "text"},
    ...groups.map((group) => ({title: group, kind: "number", value: (row) => money(values[group][row.index])})),
    {title: "Total", kind: "number", value: (row) => money(sum(groups.map((group) => values[group][row.index])))},
  ];
  const rows = bins.map((bin, index) => ({bin, index})).reverse();
  return html`<${Table} caption=${title} columns=${columns} rows=${rows} identity=${(row) => row.bin} />`;
}

/** The lowest group is drawn last, over the sums of those above it. */
function draw(place, bins, groups, values, colours, isDark) {
  const ink = getComputedStyle(place).color;
  const line = isDark ? "#3a3f47" : "#dfe3e8";
  const numbers = groups.map((group) => values[group].map(Number));
  const heights = numbers.map((_, rank) => bins.map((__, bin) => numbers.slice(0, rank + 1).reduce((a, row) => a + row[bin], 0)));
  const order = groups.map((_, rank) => rank).reverse();
  const series = order.map((rank) => ({
    label: groups[rank],
    fill: colours[rank],
    stroke: colours[rank],
    width: 0,
    paths: window.uPlot.paths.bars({size: [0.7, 48]}),
    points: {show: false},
  }));
  const axis = {stroke: ink, grid: {stroke: line, width: 1}, ticks: {show: false}, font: "12px system-ui, sans-serif"};
  const options = {
    width: place.clientWidth,
    height: 220,
    legend: {show: false},
    cursor: {show: false},
    padding: [8, 8, 0, 0],
    scales: {x: {time: false, range: [-0.6, bins.length - 0.4]}, y: {range: (_, __, most) => [0, most * 1.1 || 1]}},
    axes: [
      {...axis, size: 28, grid: {show: false}, splits: () => marks(bins.length), values: (_, at) => at.map((i) => bins[i]?.slice(5) ?? "")},
      {...axis, size: 56, values: (_, at) => at.map(shortMoney)},
    ],
    series: [{}, ...series],
  };
  return new window.uPlot(options, [bins.map((_, index) => index), ...order.map((rank) => heights[rank])], place);
}

const marks = (many) => [0, 1, 2, 3, 4].map((part) => Math.round(((many - 1) * part) / 4));

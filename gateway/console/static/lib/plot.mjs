/** The SVG of a chart: bars or lines over time, the earlier period in the background, and the forecast at the end. */
import {dayText, timeText} from "./format.mjs";
import {html} from "./html.mjs";

const HEIGHT = 1000; // height in SVG units; the drawing is stretched to its box
const STRIPE = 30; // height of a stripe of a hatched bar, in SVG units
const TICKS = 6; // maximum number of labels below the axis
const WEEK = 7;

/** Return the label of a bin: a day gets its weekday. */
export const named = (bin, isDaily) => (isDaily ? `${weekday(bin)} ${dayText(bin)}` : timeText(bin));

/** The square of a series, in legends and tables. `paint` is its class of `painted` in chart.mjs. */
export const Square = ({paint}) => html`<svg class=${`key ${paint}`} width="12" height="12" aria-hidden="true"><rect x="1" y="1" width="10" height="10" rx="3" />
  ${paint.includes("hatched") && html`<path d="M1 4.5H11M1 8.5H11" />`}</svg>`;

export const weekday = (bin) => new Date(`${bin.slice(0, 10)}T00:00Z`).toLocaleString("en", {weekday: "short", timeZone: "UTC"});

export function Plot({summary, bins, groups, values, ghost, ahead, marks, isStacked, isDaily, isOpen, paint, short, tip, shown, part, setAt, setPart, moved, follow}) {
  const numbers = groups.map((group) => values[group].map((value) => (value === null ? null : Number(value))));
  const heights = isStacked ? bins.map((_, bin) => numbers.reduce((all, row) => all + row[bin], 0)) : numbers.flat();
  const before = (ghost ?? []).map(Number);
  const [step, steps] = scale(Math.max(0, ...heights, ...before, ...ahead.map(({high}) => Number(high))));
  const y = (value) => HEIGHT - (HEIGHT * value) / (step * steps);
  const open = isOpen ? bins.length - Math.max(1, ahead.length) : null; // the bin that is not complete yet; later bins are in the future
  const pointed = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const bin = Math.max(0, Math.min(bins.length - 1, Math.floor(((event.clientX - box.left) / box.width) * bins.length)));
    return [bin, event.target.getAttribute("data-group")];
  };
  const over = (event) => {
    const [bin, group] = pointed(event);
    setAt(bin);
    setPart(group);
  };
  const out = () => {
    setAt(null);
    setPart(null);
  };
  const bars = (bin) => {
    let below = 0;
    return groups.map((group, rank) => {
      const [from, value] = [below, numbers[rank][bin]];
      below += value;
      const box = {x: bin + 0.15, width: 0.7, y: y(from + value), height: y(from) - y(from + value), "fill-opacity": bin === open ? 0.55 : 1};
      return value > 0 && html`<rect ...${box} data-group=${group} class=${`part ${paint.get(group)}${shown === bin && part === group ? " pointed" : ""}`} />
        ${paint.get(group).includes("hatched") && html`<rect ...${box} fill="url(#stripes)" class="hatching" />`}`;
    });
  };
  const drawn = isStacked ? bins.map((_, bin) => bars(bin)) : groups.map((group, rank) => html`<path d=${line(numbers[rank], y)} class=${`course ${paint.get(group)}`} />`);
  const ticks = ticked(bins, isDaily);
  const isOneDay = bins[0]?.slice(0, 10) === bins.at(-1)?.slice(0, 10);
  const left = shown === null ? 0 : (100 * (shown + 0.5)) / bins.length;
  return html`<div class="plot">
    <div class="axis" aria-hidden="true">${Array.from({length: steps + 1}, (_, place) => html`<span>${short(step * (steps - place), step)}</span>`)}</div>
    <div class="drawing"><svg role="img" aria-label=${summary} tabindex="0" viewBox=${`0 0 ${bins.length} ${HEIGHT}`} preserveAspectRatio="none"
      class=${follow && "leads"} onKeyDown=${moved} onPointerMove=${over} onPointerLeave=${out} onBlur=${out} onClick=${follow && ((event) => follow(...pointed(event)))}>
      ${Array.from({length: steps + 1}, (_, place) => html`<path class="grid" d=${`M0 ${y(step * place)}H${bins.length}`} />`)}
      ${shown !== null && html`<rect class="at" x=${shown} width="1" height=${HEIGHT} />`}
      ${isStacked && html`<pattern id="stripes" patternUnits="userSpaceOnUse" width="1" height=${STRIPE}><rect width="1" height=${STRIPE / 3} class="stripe" /></pattern>`}
      ${drawn}
      ${before.map((value, bin) => value > 0 && html`<path class="past" d=${`M${bin} ${y(value)}H${bin + 1}${before[bin + 1] > 0 ? `V${y(before[bin + 1])}` : ""}`} />`)}
      ${[...marks.keys()].map((bin) => html`<path key=${bin} class="mark" d=${`M${bin + 0.5} 0V${HEIGHT}`} />`)}
      ${ahead.length > 0 && html`<${Forecast} ...${{ahead, first: open, y}} />`}</svg>
      ${tip && html`<div class="tip" aria-hidden="true" ref=${beside(left)}>
        <strong>${named(bins[shown], isDaily)}</strong>
        ${tip.map(([colour, name, figure, isPart]) => html`<div key=${name} class=${isPart ? "pointed" : figure === undefined ? "words" : undefined}>
          ${colour ? html`<${Square} paint=${colour} />` : html`<svg class="key" width="12" height="12" />`} <span>${name}</span> <span class="number">${figure}</span></div>`)}</div>`}
    </div>
    <svg class="days" aria-hidden="true">${ticks.map((bin) => html`<text key=${bin} y="14" x=${`${(100 * (bin + 0.5)) / bins.length}%`}
      text-anchor=${bin === bins.length - 1 && bins.length > 12 ? "end" : "middle"}>${isOneDay && !isDaily ? bins[bin].slice(-5) : named(bins[bin], isDaily)}</text>`)}</svg>
  </div>`;
}

/** Place an element next to a position, in percent of the width, on the side with more space. */
const beside = (left) => (box) => {
  if (!box) return;
  box.style.left = left > 50 ? "" : `${left}%`;
  box.style.right = left > 50 ? `${100 - left}%` : "";
};

/** The forecast: a line through the future bins, and a band between its bounds. */
function Forecast({ahead, first, y}) {
  const place = (index) => first + index + 0.5;
  const upper = ahead.map(({high}, index) => `${index ? "L" : "M"}${place(index)} ${y(Number(high))}`).join("");
  const lower = ahead.map(({low}, index) => `L${place(index)} ${y(Number(low))}`).reverse().join("");
  return html`<path class="band" d=${`${upper}${lower}Z`} /><path class="forecast" d=${line(ahead.map(({amount}) => Number(amount)), y, first)} />`;
}

/** Choose the bins that get a label: Mondays if there are more than two weeks of days, and otherwise evenly spaced bins, including the last bin. */
function ticked(bins, isDaily) {
  const all = bins.map((_, bin) => bin);
  if (isDaily && bins.length > 2 * WEEK) {
    const mondays = all.filter((bin) => weekday(bins[bin]) === "Mon");
    const every = Math.ceil(mondays.length / TICKS);
    return mondays.filter((_, place) => place % every === 0);
  }
  const every = Math.ceil(bins.length / (isDaily ? WEEK : TICKS - 1));
  return all.filter((bin) => (bins.length - 1 - bin) % every === 0);
}

/** Choose the axis steps: [size, number]. The size is 1, 2 or 5 times a power of ten; the steps together reach `most`. */
function scale(most) {
  if (!(most > 0)) return [1, 1];
  const power = 10 ** Math.floor(Math.log10(most / 4));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each * 5 >= most);
  return [step, Math.ceil(most / step)];
}

/** Draw a line through the middle of each bin from `first` on. A missing value breaks it; a single value becomes a dot. */
function line(values, y, first = 0) {
  return values.map((value, place) => {
    const bin = first + place;
    if (value === null) return "";
    return (values[place - 1] ?? null) === null ? `M${bin + 0.45} ${y(value)}L${bin + 0.5} ${y(value)}` : `L${bin + 0.5} ${y(value)}`;
  }).join("");
}

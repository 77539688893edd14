/** A chart as an SVG file. The file has its own colours and the figures of each bar, and needs no script and no other file. */
import {sum} from "./format.mjs";
import {html, render} from "./html.mjs";
import {Square, named} from "./plot.mjs";

const [WIDTH, LEFT, TOP, HEIGHT, ROW, COLUMN] = [960, 88, 72, 320, 20, 424];
const LEGEND = TOP + HEIGHT + 40;
const PAINTS = {fill: "rgb(0, 0, 0)", "fill-opacity": "1", stroke: "none", "stroke-width": "1px", "stroke-dasharray": "none", "vector-effect": "none"}; // and their defaults
const NOT_IN_XML = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/g;

/** Save what the element of a chart shows. The other argument is the `drawing` of `Chart`. */
export function save(figure, {title, bins, begun, groups, absent, values, totals, ghost, ahead, marks, isStacked, isDaily, isOpen, paint, format, zone = "UTC"}) {
  const line = (kind) => html`<path class=${kind} d="M0 6H12" />`;
  const legend = [
    ...groups.map((group) => [html`<${Square} paint=${paint.get(group)} />`, group, isStacked && format(sum(values[group]))]),
    ...(ghost ? [[line("past"), "earlier period", format(sum(ghost))]] : []),
    ...(ahead.length ? [[line("forecast"), "forecast"]] : []),
  ];
  const [height, days] = [LEGEND + ROW * Math.ceil(legend.length / 2) + 12, `${bins[0]} to ${bins[begun - 1]}`];
  const notes = [`${days} (${zone})`, isStacked && `Total: ${format(sum(["0", ...totals]))}`, absent.length > 0 && `Hidden: ${absent.join(", ")}`, isOpen && "The end is not complete"];
  const steps = [...figure.querySelectorAll(".axis span")];
  const box = document.createElement("div");
  box.className = "plot";
  box.style.colorScheme = "light"; // slides and paper are white
  document.body.append(box);
  render(html`<svg xmlns="http://www.w3.org/2000/svg" width=${WIDTH} height=${height} viewBox=${`0 0 ${WIDTH} ${height}`} font-family="Inter, Segoe UI, Roboto, Noto Sans, Liberation Sans, Arial, sans-serif" font-size="12">
    <title>${title}</title><rect width=${WIDTH} height=${height} fill="rgb(255, 255, 255)" />
    <text x="24" y="32" font-size="16" font-weight="600">${title}</text><text x="24" y="52">${notes.filter(Boolean).join(". ")}</text>
    ${steps.map(({textContent}, place) => html`<text x=${LEFT - 8} y=${TOP + (HEIGHT * place) / (steps.length - 1) + 4} text-anchor="end">${textContent}</text>`)}
    ${legend.map(([key, name, amount], place) => html`<svg x=${LEFT + COLUMN * (place % 2)} y=${LEGEND + ROW * Math.floor(place / 2)} width=${COLUMN} height=${ROW}>${key}
      <text x="20" y="10" class="name">${name}</text><text x=${COLUMN - 24} y="10" text-anchor="end">${amount}</text></svg>`)}</svg>`, box);
  const svg = box.firstElementChild;
  const copied = (query, attributes) => {
    const part = svg.appendChild(figure.querySelector(query).cloneNode(true));
    for (const name of ["role", "tabindex", "aria-label"]) part.removeAttribute(name);
    for (const [name, value] of Object.entries({x: LEFT, width: 2 * COLUMN, ...attributes})) part.setAttribute(name, value);
    return part;
  };
  const stated = (shape, text) => shape.appendChild(document.createElementNS(svg.namespaceURI, "title")).append(text);
  const drawn = copied("[role=img]", {y: TOP, height: HEIGHT});
  copied(".days", {y: TOP + HEIGHT + 4, height: ROW, overflow: "visible"});
  drawn.querySelector(".at")?.remove();
  const said = (bin) => named(bin, isDaily);
  const all = (query, texts) => drawn.querySelectorAll(query).forEach((shape, place) => stated(shape, texts[place]));
  const points = (amounts) => amounts.map((amount, bin) => amount !== null && `${said(bins[bin])}: ${format(amount)}`).filter(Boolean).join("; ");
  for (const bar of drawn.querySelectorAll("[data-group]")) {
    const [group, bin] = [bar.getAttribute("data-group"), Math.floor(bar.getAttribute("x"))];
    stated(bar, `${said(bins[bin])}, ${group}: ${format(values[group][bin])}`);
  }
  all(".course", groups.map((group) => `${group}: ${points(values[group])}`));
  all(".past", (ghost ?? []).map((amount, bin) => Number(amount) > 0 && `${said(bins[bin])}, earlier period: ${format(amount)}`).filter(Boolean));
  all(".mark", [...marks.values()].map((words) => words.join(". ")));
  all(".forecast", [ahead.map(({bin, amount}) => `${said(bin)}, forecast: ${format(amount)}`).join("; ")]);
  for (const text of svg.querySelectorAll(".name")) {
    const most = COLUMN - 60 - text.nextElementSibling.getComputedTextLength();
    if (text.getComputedTextLength() > most) stated(text, text.textContent);
    for (const shown = text.firstChild; text.getComputedTextLength() > most;) shown.data = `${[...shown.data].slice(0, -2).join("")}…`;
  }
  for (const shape of svg.querySelectorAll("rect, path, text")) {
    const style = getComputedStyle(shape);
    for (const [name, usual] of Object.entries(PAINTS)) if (style[name] !== usual) shape.setAttribute(name, style[name]);
  }
  for (const part of svg.querySelectorAll("*")) for (const name of ["class", "data-group", "aria-hidden"]) part.removeAttribute(name);
  box.remove();
  download(`${title}, ${days}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(svg).replace(NOT_IN_XML, ""));
}

/** Save a text as a file. */
function download(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}

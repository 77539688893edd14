/**
 * A definition's text, split into dimensions. The form reads and writes dimensions with one source, groups of listed values,
 * an optional rule for all other values, and a default. It copies every other dimension unchanged.
 */

const HEAD = "Dimensions:";
const KEY = /^ {2}([A-Za-z][\w-]*):\s*$/;
const QUOTED = /^"/;
const NOT_PLAIN = /^['"&*!|>%@`{[]|: |:$| #/;

/** Split a definition into [{key, lines}]. Returns null if it is laid out in another way. */
export function blocksOf(text) {
  const lines = text.replace(/\s+$/, "").split("\n");
  const first = lines.findIndex((line) => line.trim()); // a comment above "Dimensions:" would be lost, so it must come first
  if (first < 0) return [];
  if (lines[first].trimEnd() !== HEAD) return null;
  const blocks = [];
  for (const line of lines.slice(first + 1)) {
    const [, key] = line.match(KEY) ?? [];
    if (key) blocks.push({key, lines: []});
    else if (!blocks.length ? line.trim() : line.trim() && !/^ {3}|^ *#/.test(line)) return null;
    else blocks.at(-1)?.lines.push(line);
  }
  return blocks;
}

/** Parse a one-line text, or return undefined. */
function scalar(written) {
  const text = written.trim();
  if (!QUOTED.test(text)) return NOT_PLAIN.test(text) ? undefined : text;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Parse a one-line list of texts, or return undefined. */
function list(written) {
  try {
    const found = JSON.parse(written);
    return found.every((each) => typeof each === "string") ? found : undefined;
  } catch {
    const found = written.slice(1, -1).split(",").map(scalar);
    return found.every((each) => each && !QUOTED.test(each)) ? found : undefined;
  }
}

const LINES = [
  [/^ {4}Name: (.+)$/, (of, text) => (of.name = scalar(text))],
  [/^ {4}Source: (.+)$/, (of, text) => (of.source = scalar(text))],
  [/^ {4}DefaultValue: (.+)$/, (of, text) => (of.fallback = scalar(text))],
  [/^ {4}Rules:$/, () => true],
  [/^ {6}- Type: Group$/, (of) => !of.others && of.groups.push({name: "", values: []})],
  [/^ {8}Name: (.+)$/, (of, text) => of.groups.length && (of.groups.at(-1).name = scalar(text))],
  [/^ {8}Conditions:$/, (of) => of.groups.length],
  [/^ {10}- Equals: (\[.*\])$/, (of, text) => {
    const values = list(text);
    return values && of.groups.length && of.groups.at(-1).values.push(...values);
  }],
  [/^ {6}- Type: GroupBy$/, (of) => (of.others = true)],
];

/** Parse a block into {key, name, source, fallback, groups: [{name, values}], others}. Returns null for rules that the form cannot show. */
export function dimensionOf({key, lines}) {
  const found = {key, name: key, source: "", fallback: "", groups: [], others: false};
  for (const line of lines.filter((each) => each.trim())) {
    const [pattern, take] = LINES.find(([each]) => each.test(line.trimEnd())) ?? [];
    if (!pattern || !take(found, line.trimEnd().match(pattern)[1])) return null;
  }
  return found.source ? found : null;
}

const text = (value) => JSON.stringify(value);

function linesOf({name, source, fallback, groups, others}) {
  return [
    `    Name: ${text(name)}`,
    `    Source: ${text(source)}`,
    ...(fallback ? [`    DefaultValue: ${text(fallback)}`] : []),
    "    Rules:",
    ...groups.filter(({values}) => values.length).flatMap((group) => [
      "      - Type: Group", `        Name: ${text(group.name)}`, "        Conditions:", `          - Equals: [${group.values.map(text).join(", ")}]`]),
    ...(others ? ["      - Type: GroupBy"] : []),
  ];
}

/** Return the definition with this dimension: it replaces the one with the same key, or is added at the end. */
export function withDimension(definition, dimension) {
  const blocks = blocksOf(definition);
  const lines = linesOf(dimension);
  const isThere = blocks.some(({key}) => key === dimension.key);
  const all = isThere ? blocks.map((each) => (each.key === dimension.key ? {...each, lines} : each)) : [...blocks, {key: dimension.key, lines}];
  return [HEAD, ...all.flatMap(({key, lines: own}) => [`  ${key}:`, ...own]), ""].join("\n");
}

/** Build a key from a name's letters and digits, different from all in `taken`. */
export function keyFor(name, taken) {
  const plain = name.normalize("NFKD").replace(/[^A-Za-z0-9]+/g, "").replace(/^[0-9]+/, "").slice(0, 60) || "Dimension";
  let key = plain;
  for (let number = 2; taken.includes(key); number++) key = `${plain}${number}`;
  return key;
}

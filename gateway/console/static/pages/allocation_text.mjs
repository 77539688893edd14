/**
 * A definition as text, cut into its dimensions: what the form knows is read and written, everything else stays to the letter.
 * The form's part: one source, groups that are lists of values, then each value by itself, and a default.
 */

const HEAD = "Dimensions:";
const KEY = /^ {2}([A-Za-z][\w-]*):\s*$/;
const QUOTED = /^"/;
const NOT_PLAIN = /^['"&*!|>%@`{[]|: |:$| #/;

/** [{key, lines}] of a definition in blocks of lines; null for one that is written in another way. */
export function blocksOf(text) {
  const lines = text.replace(/\s+$/, "").split("\n");
  const first = lines.findIndex((line) => line.trim()); // a comment above it would be lost
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

/** A text of one line, or undefined. */
function scalar(written) {
  const text = written.trim();
  if (!QUOTED.test(text)) return NOT_PLAIN.test(text) ? undefined : text;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The texts of a list in one line, or undefined. */
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

/** {key, name, source, fallback, groups: [{name, values}], others} of a block; null for rules that the form does not know. */
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

/** The definition with this dimension in the place of that of its key, or behind all others. */
export function withDimension(definition, dimension) {
  const blocks = blocksOf(definition);
  const lines = linesOf(dimension);
  const isThere = blocks.some(({key}) => key === dimension.key);
  const all = isThere ? blocks.map((each) => (each.key === dimension.key ? {...each, lines} : each)) : [...blocks, {key: dimension.key, lines}];
  return [HEAD, ...all.flatMap(({key, lines: own}) => [`  ${key}:`, ...own]), ""].join("\n");
}

/** A key for a name: its letters and digits, with none of `taken`. */
export function keyFor(name, taken) {
  const plain = name.normalize("NFKD").replace(/[^A-Za-z0-9]+/g, "").replace(/^[0-9]+/, "").slice(0, 60) || "Dimension";
  let key = plain;
  for (let number = 2; taken.includes(key); number++) key = `${plain}${number}`;
  return key;
}

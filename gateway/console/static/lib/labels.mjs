/** Labels of keys and devices, written one name=value a line. */

export const asText = (labels) => Object.entries(labels).map(([name, value]) => `${name}=${value}`).join("\n");

export const labelsField = (labels) => ({name: "labels", label: "Labels", type: "area", value: asText(labels),
  note: "one name=value a line", rows: 3});

/** The labels of such a text; an error names the line that is none. */
export function labelsIn(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter(Boolean);
  const wrong = lines.find((line) => !/^[^=]+=/.test(line));
  if (wrong) throw new Error(`${wrong} is not name=value.`);
  return Object.fromEntries(lines.map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1).trim()]));
}

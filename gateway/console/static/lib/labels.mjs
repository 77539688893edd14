/** Labels of keys and devices, as text with one name=value per line. */

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

/** The drawing functions of the console: Preact elements, written as templates. */
import {h} from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export {Fragment, createContext, render} from "../vendor/preact.mjs";
export {useContext, useEffect, useLayoutEffect, useMemo, useRef, useState} from "../vendor/hooks.mjs";

const build = htm.bind(h);
const spaced = new Map(); // the texts of each template
const BESIDE_TEXT = /(?<=[^>\s(])\s*\n\s*(?=[^<\s]|<[^/]|$)|(?<=^|>)\s*\n\s*(?=[^\s<.,;:)])/g; // a line break between text and anything else

/**
 * Draw a template. A line break next to text is a space, also before and after an element, where htm would leave it out. So words of
 * neighbouring lines are never joined.
 */
export function html(texts, ...values) {
  if (!spaced.has(texts)) spaced.set(texts, texts.map((text) => text.replace(BESIDE_TEXT, " ")));
  return build(spaced.get(texts), ...values);
}

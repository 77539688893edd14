/** The drawing functions of the console: Preact elements, written as templates. */
import {h} from "../vendor/preact.mjs";
import htm from "../vendor/htm.mjs";

export {Fragment, createContext, render} from "../vendor/preact.mjs";
export {useContext, useEffect, useLayoutEffect, useMemo, useRef, useState} from "../vendor/hooks.mjs";

export const html = htm.bind(h);

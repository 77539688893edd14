/** Every page of the console, in the order of the menu. */
import {page as overview} from "./overview.mjs";

export const PAGES = [overview];

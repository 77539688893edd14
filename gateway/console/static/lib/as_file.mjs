/** An object as a file: the file that manages it, and its YAML to copy. */
import {get} from "./api.mjs";
import {html} from "./html.mjs";
import {Copy, Problem} from "./parts.mjs";
import {useQuery} from "./query.mjs";

/** `kind`: the object's file without `.yaml`, such as "views". `id`: its id or its name. `what`: as in `useQuery`. */
export function AsFile({kind, id, what}) {
  const found = useQuery(() => get(`/files/${kind}/${encodeURIComponent(id)}`), [kind, id], what);
  const {managed, yaml} = found.data?.object ?? {};
  return html`<${Problem} error=${found.error} at=${found.at} retry=${found.reload} />
    ${managed && html`<p><strong>Managed by ${managed}.</strong> Change that file and apply it. Changes here are refused.</p>`}
    ${yaml && html`<details><summary>Copy as YAML</summary><${Copy} label="YAML" text=${yaml} /></details>`}`;
}

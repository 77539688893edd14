/** A preview inside a form. */
import {useEffect, useRef, useState} from "./html.mjs";

/** The state of a preview: `found` or `error`, until the form changes. `box` is the ref of its fieldset; `look` requests it with `ask(FormData)`. */
export function usePreview(ask) {
  const [tried, setTried] = useState({});
  const box = useRef(null);
  useEffect(() => {
    const {form} = box.current;
    const changed = () => setTried({});
    form.addEventListener("input", changed);
    return () => form.removeEventListener("input", changed);
  }, []);
  const look = () => ask(new FormData(box.current.form)).then((found) => setTried({found}), (error) => setTried({error}));
  return {...tried, box, look};
}

/** Data of a page. Loaded data stays visible while it is loaded again, and after an error. */
import {useEffect, useRef, useState} from "./html.mjs";
import {isBusy, listening, useLive} from "./live.mjs";

const INCOMPLETE = "totals_incomplete"; // the totals are counted again, and the error has the share that is done

/**
 * Return {data, error, at, isOld, reload} for the async function `load`. It runs again when a value of `on` changes and when the live
 * stream reports one of `what`. After an error, `data` is the last good result and `at` its time. `isOld`: `data` belongs to the
 * earlier values of `on`, and the new result is loading. While the totals are counted again, it runs again by itself.
 */
export function useQuery(load, on, what = []) {
  const [state, setState] = useState({data: null, error: null, at: null, isOld: false});
  const latest = useRef(0);
  const isAsked = useRef(true); // whether the reader waits for the result
  const reload = async (isLive) => {
    const request = ++latest.current;
    if (isLive !== true) isAsked.current = true;
    await listening();
    if (request !== latest.current) return;
    try {
      const data = await load();
      if (request !== latest.current) return;
      if (!isAsked.current && isBusy()) return false; // the reader came to a row meanwhile
      isAsked.current = false;
      setState({data, error: null, at: new Date(), isOld: false});
    } catch (error) {
      if (request !== latest.current) return;
      setState((before) => ({...before, error, isOld: false}));
      if (error.type === INCOMPLETE) setTimeout(() => request === latest.current && reload(), 1000 * error.retryAfterS);
    }
  };
  useLive(what, reload);
  useEffect(() => {
    setState((before) => (before.data === null ? before : {...before, isOld: true}));
    reload();
    return () => {
      latest.current++;
    };
  }, on);
  return {...state, reload};
}

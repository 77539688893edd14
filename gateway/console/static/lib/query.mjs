/** What a page shows: loaded, kept while it is loaded again, and never exchanged while somebody reads an error. */
import {useEffect, useRef, useState} from "./html.mjs";
import {listening, useLive} from "./live.mjs";

/**
 * The answer of `load`, an async function; loaded again when one of `on` changes, and when the live stream says that
 * one of `what` did. {data, error, at, isOld, reload}: the last good data stays beside an error, `at` says how old it is. `isOld`: it
 * answers what was asked before, and the new answer is on its way.
 */
export function useQuery(load, on, what = []) {
  const [state, setState] = useState({data: null, error: null, at: null, isOld: false});
  const latest = useRef(0);
  const reload = async () => {
    const mine = ++latest.current;
    await listening();
    if (mine !== latest.current) return;
    try {
      const data = await load();
      if (mine === latest.current) setState({data, error: null, at: new Date(), isOld: false});
    } catch (error) {
      if (mine === latest.current) setState((before) => ({...before, error, isOld: false}));
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

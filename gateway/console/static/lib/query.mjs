/** What a page shows: loaded, kept while it is loaded again, and never exchanged while somebody reads an error. */
import {useEffect, useRef, useState} from "./html.mjs";
import {listening, useLive} from "./live.mjs";

/**
 * The answer of `load`, an async function; loaded again when one of `on` changes, and when the live stream says that
 * one of `what` did. {data, error, at, reload}: the last good data stays beside an error, `at` says how old it is.
 */
export function useQuery(load, on, what = []) {
  const [state, setState] = useState({data: null, error: null, at: null});
  const latest = useRef(0);
  const reload = async () => {
    const mine = ++latest.current;
    await listening();
    if (mine !== latest.current) return;
    try {
      const data = await load();
      if (mine === latest.current) setState({data, error: null, at: new Date()});
    } catch (error) {
      if (mine === latest.current) setState((before) => ({...before, error}));
    }
  };
  useLive(what, reload);
  useEffect(() => {
    reload();
    return () => {
      latest.current++;
    };
  }, on);
  return {...state, reload};
}

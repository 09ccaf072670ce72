import { useCallback, useEffect, useRef, useState } from "react";
import type { Listed } from "../core/list";
import * as api from "../shell/api";

const PAUSE = 180;

export interface SearchState {
  /** What was searched for; the chats are those of this text. */
  query: string;
  chats: Listed[];
  cursor: string | null;
  busy: boolean;
  error: string | null;
}

const nothing: SearchState = { query: "", chats: [], cursor: null, busy: true, error: null };

/** Asks a moment after the last key. A newer question cancels the one before it. */
export function useSearch(query: string): SearchState & { more: () => void } {
  const [state, setState] = useState(nothing);
  const asked = useRef<AbortController>(new AbortController());
  const ask = useCallback((text: string, cursor: string | null) => {
    asked.current.abort();
    const mine = new AbortController();
    asked.current = mine;
    setState((old) => ({ ...old, busy: true, error: null }));
    api.search(text, cursor, mine.signal).then(
      (page) => {
        if (mine.signal.aborted) return;
        setState((old) => ({
          query: text,
          chats: cursor === null ? page.sessions : [...old.chats, ...page.sessions],
          cursor: page.next_cursor,
          busy: false,
          error: null,
        }));
      },
      (error: Error) => {
        if (!mine.signal.aborted)
          setState((old) => ({ ...old, cursor: null, busy: false, error: error.message }));
      },
    );
  }, []);
  useEffect(() => {
    const timer = setTimeout(() => ask(query, null), PAUSE);
    return () => {
      clearTimeout(timer);
      asked.current.abort();
    };
  }, [query, ask]);
  const { cursor, busy } = state;
  const more = useCallback(() => {
    if (cursor !== null && !busy) ask(query, cursor);
  }, [ask, query, cursor, busy]);
  return { ...state, more };
}

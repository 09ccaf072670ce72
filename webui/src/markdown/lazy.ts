import { useEffect, useSyncExternalStore } from "react";

/**
 * A module that is fetched when the first component wants it. Until then, and after a failed fetch,
 * the hook gives `undefined`; the next component that wants it tries again.
 */
export function lazyModule<T>(load: () => Promise<T>): {
  use: (wanted: boolean) => T | undefined;
  fetch: () => Promise<void>;
} {
  let module: T | undefined;
  let pending: Promise<void> | undefined;
  const listeners = new Set<() => void>();

  const subscribe = (listener: () => void) => {
    listeners.add(listener);
    return () => void listeners.delete(listener);
  };
  const current = () => module;
  const fetch = () => {
    pending ??= load().then(
      (loaded) => {
        module = loaded;
        for (const listener of listeners) listener();
      },
      () => {
        pending = undefined;
      },
    );
    return pending;
  };
  const use = (wanted: boolean) => {
    useEffect(() => {
      if (wanted) void fetch();
    }, [wanted]);
    return useSyncExternalStore(subscribe, current, current);
  };
  return { use, fetch };
}

// What survives a reload: texts that wait to be sent, drafts, what has been read, the theme.
// Each tab keeps its own outbox under its own name and holds a lock of that name while it lives;
// whoever gets the lock of a closed tab takes over what it left. Ids make doubles harmless.

import type { Media } from "../core/frames";
import type { Outgoing } from "../core/link";

const OUTBOX = "parley.outbox.";
const DRAFT = "parley.draft.";
const FILES = "parley.files.";
const SEEN = "parley.seen";
const tab = crypto.randomUUID();

export function read<T>(name: string): T | null {
  try {
    const text = localStorage.getItem(name);
    return text === null ? null : (JSON.parse(text) as T);
  } catch {
    return null;
  }
}

/** False if there is no room, or storage is switched off: then it lives as long as the tab. */
export function write(name: string, value: unknown): boolean {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function saveOutbox(outbox: Outgoing[]): boolean {
  return write(OUTBOX + tab, outbox.length > 0 ? outbox : null);
}

/** Calls `adopt` with what tabs left behind, now and whenever one closes. */
export function followOutboxes(adopt: (outbox: Outgoing[]) => void): void {
  const asked = new Set([OUTBOX + tab]);
  void navigator.locks?.request(OUTBOX + tab, () => new Promise(() => {}));
  const follow = (name: string) => {
    if (asked.has(name)) return;
    asked.add(name);
    const take = () => {
      const left = read<Outgoing[]>(name);
      if (left) adopt(left);
      write(name, null);
      asked.delete(name);
    };
    if (navigator.locks) void navigator.locks.request(name, take);
    else take();
  };
  for (const name of Object.keys(localStorage)) if (name.startsWith(OUTBOX)) follow(name);
  window.addEventListener("storage", (event) => {
    if (event.key?.startsWith(OUTBOX) && event.newValue !== null) follow(event.key);
  });
}

export const draftOf = (key: string) => read<string>(DRAFT + key) ?? "";
export const saveDraft = (key: string, text: string) =>
  write(DRAFT + key, text === "" ? null : text);

export const draftFiles = (key: string) => read<Media[]>(FILES + key) ?? [];
export const saveDraftFiles = (key: string, media: Media[]) =>
  write(FILES + key, media.length > 0 ? media : null);

/** Up to when each chat has been read, and when this browser was first here. */
export interface Seen {
  since: string;
  chats: Record<string, string>;
}

export function loadSeen(): Seen {
  const known = read<Seen>(SEEN);
  if (known?.chats) return known;
  const fresh = { since: new Date().toISOString(), chats: {} };
  write(SEEN, fresh);
  return fresh;
}

const MOST_SEEN = 2_000;

export function markSeen(key: string, time: string): Seen {
  const seen = loadSeen();
  const entries = Object.entries({ ...seen.chats, [key]: time });
  const chats = Object.fromEntries(
    entries.sort((a, b) => (a[1] < b[1] ? 1 : -1)).slice(0, MOST_SEEN),
  );
  const next = { ...seen, chats };
  write(SEEN, next);
  return next;
}

export function followSeen(changed: (seen: Seen) => void): void {
  window.addEventListener("storage", (event) => {
    if (event.key === SEEN) changed(loadSeen());
  });
}

export type Theme = "system" | "light" | "dark";

export function loadTheme(): Theme {
  const theme = localStorage.getItem("parley.theme");
  return theme === "light" || theme === "dark" ? theme : "system";
}

export function saveTheme(theme: Theme): void {
  if (theme === "system") {
    localStorage.removeItem("parley.theme");
    document.documentElement.removeAttribute("data-theme");
  } else {
    localStorage.setItem("parley.theme", theme);
    document.documentElement.setAttribute("data-theme", theme);
  }
}

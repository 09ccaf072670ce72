// Keeps the chats to be deleted, for all tabs of this browser, and deletes them when it is time.
// It survives a reload. One tab at a time does the work, and what was taken back meanwhile stays.

import type { Deletion } from "../core/deletions";
import * as deletions from "../core/deletions";
import { strings } from "../strings";
import * as api from "./api";
import { read, write } from "./storage";

const NAME = "parley.deletions";
let user: string | null = null;
let working = false;
let timer: ReturnType<typeof setTimeout> | undefined;
let changed: (all: Deletion[]) => void = () => {};
let tell: (text: string) => void = () => {};

export const load = (): Deletion[] => read<Deletion[]>(NAME) ?? [];

/** `onChange` hears of every change in any tab, `onMishap` of what could not be deleted. */
export function follow(
  onChange: (all: Deletion[]) => void,
  onMishap: (text: string) => void,
): void {
  [changed, tell] = [onChange, onMishap];
  window.addEventListener("storage", (event) => {
    if (event.key === NAME) renew();
  });
}

/** Who is logged in and connected; called again after every new connection. */
export function serve(name: string): void {
  user = name;
  renew();
}

export function ask(chat: Pick<Deletion, "key" | "title" | "updated_at">): void {
  if (user !== null) save(deletions.ask(load(), chat, user, Date.now()));
}

export const takeBack = (key: string): void => save(deletions.takeBack(load(), key));

function save(all: Deletion[]): void {
  write(NAME, all.length > 0 ? all : null);
  renew();
}

function renew(): void {
  const all = load();
  changed(all);
  clearTimeout(timer);
  const due = user === null ? null : deletions.nextDue(all, user);
  if (due !== null && !working)
    timer = setTimeout(() => void work(), Math.max(0, due - Date.now()));
}

async function work(): Promise<void> {
  working = true;
  try {
    if (navigator.locks) await navigator.locks.request(NAME, carryOut);
    else await carryOut();
  } finally {
    working = false;
    renew();
  }
}

async function carryOut(): Promise<void> {
  if (user === null) return;
  for (const one of deletions.ready(load(), user, Date.now())) await remove(one);
}

async function remove(one: Deletion): Promise<void> {
  // It may have been taken back while the one before it was deleted.
  if (!load().some((other) => other.key === one.key)) return;
  save(deletions.begin(load(), one.key));
  try {
    if (deletions.isOld(one, Date.now())) {
      const found = await api.session(one.key);
      if (found.updated_at !== one.updated_at) {
        tell(strings.sidebar.kept(one.title));
        save(deletions.done(load(), one.key));
        return;
      }
    }
    await api.remove(one.key);
    save(deletions.done(load(), one.key));
  } catch (error) {
    failed(one, error);
  }
}

function failed(one: Deletion, error: unknown): void {
  const status = error instanceof api.ApiError ? error.status : 0;
  if (status === 404) {
    save(deletions.done(load(), one.key));
  } else if (status === 0 || status === 401 || status === 429 || status >= 500) {
    save(deletions.postpone(load(), one.key, Date.now()));
  } else {
    save(deletions.done(load(), one.key));
    tell(strings.sidebar.notDeleted(one.title, (error as Error).message));
  }
}

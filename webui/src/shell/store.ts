// The page's state and the only place with a socket, timers and listeners. Frames are folded at
// once; only telling React waits for the next frame of the screen, which a hidden tab never gets.

import { useSyncExternalStore } from "react";
import type { Deletion } from "../core/deletions";
import { type ClientFrame, keyOf, parse, type SessionFrame } from "../core/frames";
import { type Draft, type Effect, type Event, initial, type Link, step } from "../core/link";
import {
  type ChatList,
  emptyList,
  type Filter,
  type Listed,
  mergePage,
  update,
} from "../core/list";
import * as api from "./api";
import * as deletions from "./deletions";
import * as storage from "./storage";

export interface AppState {
  link: Link;
  list: ChatList;
  listError: string | null;
  me: api.Me | null;
  page: "chat" | "operations";
  /** Which chat is open, by key; null: none. */
  open: string | null;
  /** The message to be shown next, by the number a search found. */
  target: { key: string; seq: number } | null;
  deleting: Deletion[];
  /** What somebody wanted to do to a chat and why it did not happen. */
  mishap: string | null;
  seen: storage.Seen;
  /** False once something could not be kept on this device. */
  stored: boolean;
  hidden: boolean;
}

let state: AppState = {
  link: initial(),
  list: emptyList,
  listError: null,
  me: null,
  page: "chat",
  open: null,
  target: null,
  deleting: deletions.load(),
  mishap: null,
  seen: storage.loadSeen(),
  stored: true,
  hidden: document.hidden,
};

// -- telling React ------------------------------------------------------------------------------

const listeners = new Set<() => void>();
let told = true;

function tell(): void {
  told = true;
  for (const listener of listeners) listener();
}

function set(change: Partial<AppState>): void {
  state = { ...state, ...change };
  if (!told) return;
  told = false;
  if (document.hidden) setTimeout(tell, 250);
  else requestAnimationFrame(tell);
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** `select` must give the same object as long as nothing it looks at has changed. */
export function useApp<T>(select: (state: AppState) => T): T {
  return useSyncExternalStore(subscribe, () => select(state));
}

export const current = (): AppState => state;

// -- the connection -----------------------------------------------------------------------------

let socket: WebSocket | null = null;
let timer: ReturnType<typeof setTimeout> | undefined;

export function dispatch(event: Event): void {
  const before = state.link;
  const [link, effects] = step(before, event, Date.now());
  const change: Partial<AppState> = { link };
  if (link.outbox !== before.outbox) change.stored = storage.saveOutbox(link.outbox);
  set(change);
  clearTimeout(timer);
  for (const effect of effects) run(effect);
  readOpenChat();
  readBackToTarget();
}

function run(effect: Effect): void {
  switch (effect.type) {
    case "connect":
      connect();
      return;
    case "disconnect":
      drop();
      return;
    case "transmit":
      transmit(effect.frame);
      return;
    case "wake":
      // Timers hold at most 2^31 ms, and a sleeping machine stops them: tick decides by the clock.
      timer = setTimeout(() => dispatch({ type: "tick" }), Math.max(0, effect.at - Date.now()));
      return;
    case "session":
      loading?.frames.push(effect.frame);
      set({ list: update(state.list, effect.frame) });
      return;
    case "ready":
      for (const listener of readers) listener();
      void loadList(true);
      deletions.serve(state.link.ready?.user ?? "");
      if (state.me === null)
        void api.me().then(
          (me) => set({ me }),
          () => {},
        );
      return;
  }
}

const readers = new Set<() => void>();

/** Calls with every new connection. */
export function whenReady(listener: () => void): void {
  readers.add(listener);
}

function connect(): void {
  forgetSocket();
  const opened = new WebSocket(
    `${location.protocol === "https:" ? "wss:" : "ws:"}//${location.host}/ws`,
  );
  socket = opened;
  opened.onopen = () => dispatch({ type: "opened" });
  opened.onmessage = (message) => {
    const frame = parse(String(message.data));
    if (frame) dispatch({ type: "frame", frame });
  };
  opened.onclose = (close) => {
    if (socket !== opened) return;
    forgetSocket();
    dispatch({ type: "closed", code: close.code, jitter: Math.random() });
  };
}

/** Not waiting for the closing handshake: a dead network would never finish it. */
function drop(): void {
  const dropped = socket !== null;
  forgetSocket();
  if (dropped && state.link.phase !== "refused") {
    queueMicrotask(() => dispatch({ type: "closed", code: 1006, jitter: Math.random() }));
  }
}

function forgetSocket(): void {
  const old = socket;
  socket = null;
  if (!old) return;
  old.onopen = old.onmessage = old.onclose = null;
  old.close();
}

function transmit(frame: ClientFrame): void {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(frame));
}

// -- what people do -----------------------------------------------------------------------------

export async function start(): Promise<void> {
  storage.followOutboxes((outbox) => dispatch({ type: "adopt", outbox }));
  storage.followSeen((seen) => set({ seen }));
  deletions.follow(
    (deleting) => set({ deleting }),
    (mishap) => set({ mishap }),
  );
  window.addEventListener("online", () => dispatch({ type: "online" }));
  window.addEventListener("offline", () => dispatch({ type: "offline" }));
  document.addEventListener("visibilitychange", () => {
    set({ hidden: document.hidden });
    if (!document.hidden) dispatch({ type: "visible" });
  });
  window.addEventListener("hashchange", openFromAddress);
  openFromAddress();
  try {
    set({ me: await api.me() });
    dispatch({ type: "start" });
  } catch (error) {
    if (error instanceof api.ApiError && error.status === 401) dispatch({ type: "logged_out" });
    else dispatch({ type: "start" });
  }
}

export async function login(token: string): Promise<void> {
  const me = await api.login(token);
  set({ me, list: emptyList });
  dispatch({ type: "logged_in" });
  openFromAddress();
}

export async function logout(): Promise<void> {
  await api.logout();
  set({ me: null, list: emptyList });
  dispatch({ type: "logged_out" });
}

export const OPERATIONS = "#/operations";

export const addressOfChat = (key: string, seq?: number): string =>
  `#/chat/${encodeURIComponent(key)}${seq === undefined ? "" : `/${seq}`}`;

function openFromAddress(): void {
  if (location.hash === OPERATIONS) {
    set({ page: "operations", open: null });
    return;
  }
  const place = placeInAddress();
  if (place === null) {
    newChat();
    return;
  }
  if (place.key.includes("#")) {
    void openEnded(place.key);
    return;
  }
  set({ page: "chat", open: place.key });
  dispatch({ type: "watch", key: place.key, fresh: false });
  if (place.seq !== null) showMessage(place.key, place.seq);
}

function placeInAddress(): { key: string; seq: number | null } | null {
  try {
    const found = /^#\/chat\/([^/]+)(?:\/(\d+))?$/.exec(location.hash);
    if (!found?.[1]) return null;
    return { key: decodeURIComponent(found[1]), seq: found[2] ? Number(found[2]) : null };
  } catch {
    return null;
  }
}

/** An ended conversation is a part of its chat: the chat is opened where it ended. */
async function openEnded(key: string): Promise<void> {
  const chat = key.slice(0, key.lastIndexOf("#"));
  const last = await api.lastMessage(key).catch(() => null);
  location.replace(addressOfChat(chat, last?.seq));
}

/** Brings a message of an open chat before the reader's eyes. */
export function showMessage(key: string, seq: number): void {
  set({ target: { key, seq } });
  readBackToTarget();
}

export const targetShown = (): void => set({ target: null });

export function openChat(key: string): void {
  location.hash = addressOfChat(key);
}

/** A chat gets its name now and begins with its first message. */
export function newChat(): void {
  const key = keyOf(crypto.randomUUID().slice(0, 13));
  history.replaceState(null, "", location.pathname);
  set({ page: "chat", open: key });
  dispatch({ type: "watch", key, fresh: true });
}

export function submit(key: string, draft: Partial<Draft> & { text: string }): void {
  const base = {
    id: crypto.randomUUID(),
    key,
    kind: "send" as const,
    at: new Date().toISOString(),
  };
  dispatch({ type: "submit", out: { ...base, ...draft } });
  if (location.hash !== addressOfChat(key)) history.replaceState(null, "", addressOfChat(key));
}

// -- lists --------------------------------------------------------------------------------------

/** What changed while a page was on its way: the page may not know of it. */
let loading: { frames: SessionFrame[] } | null = null;

export async function loadList(first: boolean): Promise<void> {
  if (!first && (loading !== null || state.list.cursor === null)) return;
  const mine: { frames: SessionFrame[] } = { frames: [] };
  loading = mine;
  try {
    const page = await api.sessions(state.list.filter, first ? null : (state.list.cursor ?? null));
    // Another list may have been asked for meanwhile.
    if (loading !== mine) return;
    set({ list: mergePage(state.list, page, first, mine.frames), listError: null });
  } catch (error) {
    if (loading === mine) set({ listError: words(error) });
  } finally {
    if (loading === mine) loading = null;
  }
}

const words = (error: unknown): string => (error instanceof Error ? error.message : String(error));

export function setFilter(filter: Filter): void {
  set({ list: { ...emptyList, filter }, listError: null });
  void loadList(true);
}

const asking = new Set<string>();
const PAGE = 200;

export async function loadOlder(key: string, limit = PAGE): Promise<void> {
  const chat = state.link.chats[key];
  const first = chat?.rows[0]?.seq;
  if (!chat?.older || first === undefined || asking.has(key)) return;
  asking.add(key);
  try {
    const page = await api.olderMessages(key, first, limit);
    dispatch({ type: "older", key, rows: page.messages, more: page.more });
  } catch {
    // Scrolling up asks again.
    if (state.target?.key === key) targetShown();
  } finally {
    asking.delete(key);
  }
  readBackToTarget();
}

const MOST_AT_ONCE = 1_000;
const FURTHEST_BACK = 20_000;

/** What was found may be older than what has been read: rows are held without a gap. */
function readBackToTarget(): void {
  if (state.target === null) return;
  const { key, seq } = state.target;
  const chat = state.link.chats[key];
  const first = chat?.rows[0]?.seq;
  if (!chat?.older || first === undefined || first <= seq) return;
  if (chat.rows.length > FURTHEST_BACK) targetShown();
  else void loadOlder(key, MOST_AT_ONCE);
}

// -- what is done to a chat as a whole ----------------------------------------------------------

/** The gateway tells every list of the change; this only says what went wrong. */
async function attempt(work: Promise<unknown>): Promise<boolean> {
  try {
    await work;
    set({ mishap: null });
    return true;
  } catch (error) {
    set({ mishap: words(error) });
    return false;
  }
}

export const changeChat = (key: string, title: string, tags: string[]) =>
  attempt(api.changeSession(key, { title, tags }));
export const archiveChat = (key: string) => attempt(api.archive(key));
export const forgetMishap = () => set({ mishap: null });

export function bringBack(chat: Pick<Listed, "key" | "state">): Promise<boolean> {
  return attempt(chat.state === "suspended" ? api.resume(chat.key) : api.restore(chat.key));
}

/** Deleted in a few seconds, unless it is taken back. */
export function deleteChat(chat: Listed): void {
  const title = chat.title || chat.preview;
  deletions.ask({ key: chat.key, title, updated_at: chat.updated_at });
  if (state.open === chat.key) newChat();
}

export const undoDelete = (key: string): void => deletions.takeBack(key);

/** What stands open in front of a person has been read. */
function readOpenChat(): void {
  if (state.open === null || document.hidden) return;
  const updated = state.list.chats.find((chat) => chat.key === state.open)?.updated_at;
  if (updated !== undefined && updated > (state.seen.chats[state.open] ?? "")) {
    set({ seen: storage.markSeen(state.open, updated) });
  }
}

export const isUnread = (seen: storage.Seen, key: string, updatedAt: string): boolean =>
  updatedAt > (seen.chats[key] ?? seen.since);

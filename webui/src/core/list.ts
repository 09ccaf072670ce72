// The list of chats: pages read over HTTP, kept up to date by `session` frames. Pure.

import { placeOf, type SessionFrame } from "./frames";

export interface Match {
  seq: number;
  snippet: string;
}

export interface Listed {
  key: string;
  channel: string;
  chat_id: string;
  user: string | null;
  title: string;
  preview: string;
  state: string;
  tags: string[];
  updated_at: string;
  /** Where the words of a search were found. */
  matches?: Match[];
}

/** Which chats are asked for; null: any. */
export interface Filter {
  state: "active" | "suspended" | "archived";
  channel: string | null;
  tag: string | null;
}

export const everyday: Filter = { state: "active", channel: null, tag: null };

export interface ChatList {
  filter: Filter;
  /** The newest first, each once. */
  chats: Listed[];
  /** Where the next page begins; null: this is all; undefined: nothing has been read. */
  cursor: string | null | undefined;
}

export const emptyList: ChatList = { filter: everyday, chats: [], cursor: undefined };

function fits(chat: Listed, filter: Filter): boolean {
  return (
    chat.state === filter.state &&
    (filter.channel === null || chat.channel === filter.channel) &&
    (filter.tag === null || chat.tags.includes(filter.tag))
  );
}

/** A page the server filtered; the first one replaces what was known. */
export function addPage(
  list: ChatList,
  page: Listed[],
  cursor: string | null,
  first: boolean,
): ChatList {
  const known = new Map((first ? [] : list.chats).map((chat) => [chat.key, chat]));
  // What is known already was told by a frame, which may be newer than the page.
  for (const chat of page) if (!known.has(chat.key)) known.set(chat.key, chat);
  return { ...list, chats: [...known.values()].sort(newestFirst), cursor };
}

/** A page, and the frames that came while it was on its way: it may know of each of them or not. */
export function mergePage(
  list: ChatList,
  page: { sessions: Listed[]; next_cursor: string | null },
  first: boolean,
  meanwhile: SessionFrame[],
): ChatList {
  const read = addPage(list, page.sessions, page.next_cursor, first);
  const times = new Map(read.chats.map((chat) => [chat.key, chat.updated_at]));
  const stale = (frame: SessionFrame) =>
    frame.updated_at !== undefined && frame.updated_at < (times.get(placeOf(frame) ?? "") ?? "");
  return meanwhile.filter((frame) => !stale(frame)).reduce(update, read);
}

/** A chat that has changed comes in, moves, or leaves. */
export function update(list: ChatList, frame: SessionFrame): ChatList {
  const key = placeOf(frame);
  if (key === null) return list;
  const at = list.chats.findIndex((chat) => chat.key === key);
  const chat = changed(key, list.chats[at], frame);
  const chats = at < 0 ? [...list.chats] : list.chats.toSpliced(at, 1);
  if (fits(chat, list.filter)) chats.splice(placeFor(chat, chats), 0, chat);
  else if (at < 0) return list;
  return { ...list, chats };
}

function changed(key: string, old: Listed | undefined, frame: SessionFrame): Listed {
  const [channel = "", ...parts] = key.split(":");
  return {
    key,
    channel,
    chat_id: frame.chat_id ?? parts.join(":"),
    user: old?.user ?? null,
    title: frame.title ?? old?.title ?? "",
    preview: frame.preview ?? old?.preview ?? "",
    state: frame.state ?? old?.state ?? "active",
    tags: frame.tags ?? old?.tags ?? [],
    updated_at: frame.updated_at ?? old?.updated_at ?? "",
  };
}

function newestFirst(a: Listed, b: Listed): number {
  if (a.updated_at !== b.updated_at) return a.updated_at < b.updated_at ? 1 : -1;
  return a.key < b.key ? 1 : a.key > b.key ? -1 : 0;
}

function placeFor(chat: Listed, chats: Listed[]): number {
  let low = 0;
  let high = chats.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (newestFirst(chats[middle] as Listed, chat) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The chat above or below the open one; the first one if that is not in the list. */
export function neighbour(chats: Listed[], open: string | null, by: number): string | null {
  const at = chats.findIndex((chat) => chat.key === open);
  return chats[at < 0 ? 0 : at + by]?.key ?? null;
}

/** Tags as a person writes them, separated by commas. */
export function readTags(text: string): string[] {
  const tags = text.split(",").map((tag) => tag.trim().replace(/\s+/g, " "));
  return [...new Set(tags.filter((tag) => tag !== ""))];
}

/** A text cut into what a search looked for and what stands around it. */
export function highlight(text: string, query: string): { text: string; hit: boolean }[] {
  const words = query.split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return [{ text, hit: false }];
  // The longest first: where one word begins another, the whole of it is marked.
  const longest = words.sort((a, b) => b.length - a.length).map(escaped);
  return text
    .split(new RegExp(`(${longest.join("|")})`, "iu"))
    .map((part, at) => ({ text: part, hit: at % 2 === 1 }))
    .filter((part) => part.text !== "");
}

const escaped = (word: string): string => word.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");

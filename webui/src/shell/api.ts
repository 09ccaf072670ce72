// The HTTP side of the gateway. What goes wrong is an ApiError with words for a person.

import type { Row } from "../core/frames";
import type { Filter, Listed } from "../core/list";
import { strings } from "../strings";

export interface Me {
  user: string;
  role: string;
  mode: "none" | "token" | "proxy";
}

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string,
  ) {
    super(message);
  }
}

export async function request<T>(
  method: string,
  path: string,
  body?: unknown,
  signal: AbortSignal | null = null,
): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      signal,
      ...(body === undefined
        ? {}
        : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) }),
    });
  } catch {
    throw new ApiError(0, strings.errors.unreachable, "unreachable");
  }
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? (undefined as T) : ((await answer.json()) as T);
}

async function problem(answer: Response): Promise<ApiError> {
  const value = (await answer.json().catch(() => ({}))) as { detail?: string; code?: string };
  const detail = value.detail ?? strings.errors.unexpected(answer.status);
  return new ApiError(answer.status, detail, value.code ?? "internal");
}

const API = "/api/v1";

export const me = () => request<Me>("GET", `${API}/me`);
export const login = (token: string) => request<Me>("POST", `${API}/login`, { token });
export const logout = () => request<void>("POST", `${API}/logout`);

export interface Page {
  sessions: Listed[];
  next_cursor: string | null;
}

export function sessions(filter: Filter, cursor: string | null): Promise<Page> {
  const query = new URLSearchParams({ limit: "100", state: filter.state });
  if (filter.channel !== null) query.set("channel", filter.channel);
  if (filter.tag !== null) query.set("tag", filter.tag);
  if (cursor !== null) query.set("cursor", cursor);
  return request("GET", `${API}/sessions?${query}`);
}

/** Every state, every channel: who searches does not know where it was. */
export function search(text: string, cursor: string | null, signal: AbortSignal): Promise<Page> {
  const query = new URLSearchParams({ limit: "50", q: text });
  if (cursor !== null) query.set("cursor", cursor);
  return request("GET", `${API}/sessions?${query}`, undefined, signal);
}

const ofSession = (key: string) => `${API}/sessions/${encodeURIComponent(key)}`;

export const session = (key: string) => request<Listed>("GET", ofSession(key));
export const changeSession = (key: string, change: { title: string; tags: string[] }) =>
  request<Listed>("PATCH", ofSession(key), change);
export const archive = (key: string) => request<Listed>("POST", `${ofSession(key)}/archive`);
export const restore = (key: string) => request<Listed>("POST", `${ofSession(key)}/restore`);
export const resume = (key: string) => request<Listed>("POST", `${ofSession(key)}/resume`);
export const remove = (key: string) => request<void>("DELETE", ofSession(key));
export const exportAddress = (key: string) => `${ofSession(key)}/export?format=md`;

export function olderMessages(
  key: string,
  before: number,
  limit: number,
): Promise<{ messages: Row[]; more: boolean }> {
  return request("GET", `${ofSession(key)}/messages?before=${before}&limit=${limit}`);
}

/** One message as it is now: the links to its files are fresh. */
export async function messageAt(key: string, seq: number): Promise<Row | undefined> {
  const path = `${API}/sessions/${encodeURIComponent(key)}/messages`;
  const page = await request<{ messages: Row[] }>("GET", `${path}?after=${seq - 1}&limit=1`);
  return page.messages.find((row) => row.seq === seq);
}

export async function lastMessage(key: string): Promise<Row | null> {
  const path = `${ofSession(key)}/messages?limit=1`;
  const page = await request<{ messages: Row[] }>("GET", path);
  return page.messages.at(-1) ?? null;
}

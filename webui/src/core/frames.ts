// The frames of the WebSocket, as docs/protocol.md has them. A client ignores what it does not know.

export type Address = { chat_id: string } | { key: string };

export type ClientFrame =
  | { type: "hello"; token?: string; client?: string }
  | ({ type: "attach"; since?: number; log?: string } & Address)
  | ({ type: "detach" } & Address)
  | { type: "send"; chat_id: string; id: string; text: string; media?: string[]; replaces?: number }
  | { type: "regenerate"; chat_id: string; id: string }
  | { type: "stop"; chat_id: string; all?: boolean }
  | { type: "ping"; id?: string };

export interface Media {
  id: string;
  name: string;
  mime: string;
  size: number;
  url: string;
}

export interface ToolCall {
  id?: string;
  function?: { name?: string; arguments?: string };
}

/** One message of the log. */
export interface Row {
  seq: number;
  role: "system" | "user" | "assistant" | "tool";
  content: string;
  timestamp: string;
  id?: string;
  turn?: string;
  outcome?: string;
  latency_ms?: number;
  media?: Media[];
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  name?: string;
  reasoning?: string;
  sender?: { id: string; name?: string };
  usage?: Record<string, number>;
  error?: string;
  settles?: Record<string, string>;
  replaces?: number;
  conversation?: number;
  command?: boolean;
}

export interface Tool {
  id: string;
  name: string;
  phase: "start" | "end" | "ask";
  summary: string;
}

export interface SessionInfo {
  key: string;
  title: string;
  state: string;
  agent?: string | null;
  model?: string | null;
  goal?: unknown;
  tags?: string[];
  updated_at?: string;
}

export interface Limits {
  text: number;
  frame: number;
  upload: number;
  media_per_message: number;
}

export interface Ready {
  type: "ready";
  version: string;
  user: string;
  role: string;
  limits: Limits;
}

interface Named {
  chat_id?: string;
  key?: string;
}

export type Attached = Named & {
  type: "attached";
  log: string;
  last_seq: number;
  first_seq: number;
  gap: boolean;
  reset: boolean;
  session: SessionInfo;
};
export type Ack = Named & {
  type: "ack";
  id: string;
  seq: number;
  duplicate: boolean;
  queued: number;
};
export type Message = Named & { type: "message" } & Row;
export type TurnStart = Named & {
  type: "turn_start";
  turn: string;
  started_at: string;
  n: number;
  text: string;
  reasoning: string;
  tools: Tool[];
};
export type Delta = Named & { turn: string; n: number; text: string } & (
    | { type: "delta" }
    | { type: "reasoning" }
  );
export type ToolFrame = Named & { type: "tool"; turn: string; n: number } & Tool;
export type TurnEnd = Named & {
  type: "turn_end";
  turn: string;
  seq: number;
  outcome: string;
  latency_ms?: number;
  error?: string;
};

export type ChatFrame = Attached | Ack | Message | TurnStart | Delta | ToolFrame | TurnEnd;

export type SessionFrame = Named & {
  type: "session";
  title?: string;
  preview?: string;
  state?: string;
  tags?: string[];
  goal?: unknown;
  updated_at?: string;
};
export type ErrorFrame = Named & {
  type: "error";
  code: string;
  message: string;
  id?: string;
  retry_after?: number;
};
export type Pong = { type: "pong"; id?: string };

export type ServerFrame = Ready | ChatFrame | SessionFrame | ErrorFrame | Pong;

const WEBSOCKET = "websocket:";

/** The key of a chat of this page: the id's awkward characters are percent-encoded in it. */
export function keyOf(chatId: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is encoded
  return WEBSOCKET + chatId.replace(/[%/#\u0000-\u001f\u007f]/g, encodeURIComponent);
}

/** Which chat a frame is about, by its key; null if about none. */
export function placeOf(frame: Named): string | null {
  if (frame.chat_id !== undefined) return keyOf(frame.chat_id);
  return frame.key ?? null;
}

/** The id under which one writes to a chat; null where this page can only read. */
export function chatIdOf(key: string): string | null {
  if (!key.startsWith(WEBSOCKET)) return null;
  const text = key.slice(WEBSOCKET.length);
  if (text.includes("#")) return null;
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function addressOf(key: string): Address {
  const chatId = chatIdOf(key);
  return chatId === null ? { key } : { chat_id: chatId };
}

/** A frame from the server; null for anything else. */
export function parse(text: string): ServerFrame | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && "type" in value
      ? (value as ServerFrame)
      : null;
  } catch {
    return null;
  }
}

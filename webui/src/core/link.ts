// The connection, resuming, and what waits to be sent: `step(state, event, now)` gives the next
// state and what the shell has to do. Pure. A queued text reaches the log once, by its id, or is
// shown as failed. Texts of one chat go out one after the other, so a refused one is not overtaken.

import { type Chat, emptyChat, fold, lostRows, prepend } from "./chat";
import {
  addressOf,
  type ChatFrame,
  type ClientFrame,
  chatIdOf,
  type ErrorFrame,
  type Media,
  placeOf,
  type Ready,
  type Row,
  type ServerFrame,
  type SessionFrame,
} from "./frames";

export interface Outgoing {
  id: string;
  key: string;
  kind: "send" | "regenerate";
  text: string;
  /** Files that are on the gateway already. */
  media?: Media[];
  replaces?: number;
  /** RFC 3339, when it was written. */
  at: string;
  /** Whose message it is: never sent in another user's name. Null: whoever is logged in. */
  user: string | null;
  state: "queued" | "sent" | "failed";
  /** Not before this time; milliseconds. */
  notBefore: number;
  tries: number;
  error?: string;
}

export type Draft = Pick<Outgoing, "id" | "key" | "kind" | "text" | "media" | "replaces" | "at">;

export type Phase = "idle" | "connecting" | "open" | "waiting" | "refused";

export interface Link {
  phase: Phase;
  ready: Ready | null;
  /** Connections lost or refused in a row. */
  failures: number;
  retryAt: number;
  heardAt: number;
  /** When an answer to a ping is due; 0: none asked for. */
  pongDue: number;
  offline: boolean;
  chats: Record<string, Chat>;
  /** Chats to be attached to, the most recently opened last. */
  watched: string[];
  outbox: Outgoing[];
  /** What the server refused that belongs to no message. */
  problem: { message: string; code: string } | null;
}

export type Event =
  | { type: "start" }
  | { type: "opened" }
  | { type: "closed"; code: number; jitter: number }
  | { type: "frame"; frame: ServerFrame }
  | { type: "tick" }
  | { type: "online" }
  | { type: "offline" }
  | { type: "visible" }
  | { type: "logged_in" }
  | { type: "logged_out" }
  | { type: "watch"; key: string; fresh: boolean }
  | { type: "forget"; key: string }
  | { type: "older"; key: string; rows: Row[]; more: boolean }
  | { type: "submit"; out: Draft }
  | { type: "adopt"; outbox: Outgoing[] }
  | { type: "retry"; id: string }
  | { type: "discard"; id: string }
  | { type: "stop"; key: string; all: boolean }
  | { type: "seen_problem" };

export type Effect =
  | { type: "connect" }
  | { type: "disconnect" }
  | { type: "transmit"; frame: ClientFrame }
  | { type: "wake"; at: number }
  | { type: "session"; frame: SessionFrame }
  | { type: "ready" };

export const MOST_WATCHED = 12;
const FIRST_PAUSE = 400;
const LONGEST_PAUSE = 15_000;
const QUIET = 25_000;
const PATIENCE = 8_000;
const CHECK = 5_000;
const MOST_TRIES = 5;
const RETRIED = new Set([
  "rate_limited",
  "queue_full",
  "busy",
  "storage_unavailable",
  "shutting_down",
]);
const UNAUTHORIZED = 4401;

export function initial(): Link {
  return {
    phase: "idle",
    ready: null,
    failures: 0,
    retryAt: 0,
    heardAt: 0,
    pongDue: 0,
    offline: false,
    chats: {},
    watched: [],
    outbox: [],
    problem: null,
  };
}

type Step = [Link, Effect[]];

export function step(link: Link, event: Event, now: number): Step {
  const [next, effects] = react(link, event, now);
  const [sent, more] = flush(next, now);
  const all = [...effects, ...more];
  const at = nextWake(sent, now);
  if (at !== null) all.push({ type: "wake", at });
  return [sent, all];
}

function react(link: Link, event: Event, now: number): Step {
  switch (event.type) {
    case "start":
    case "logged_in":
      return connect(link, now);
    case "opened":
      // A hello without a token: where the cookie has expired, the refusal comes at once.
      return [
        { ...link, heardAt: now, pongDue: now + PATIENCE },
        [{ type: "transmit", frame: { type: "hello", client: "webui" } }],
      ];
    case "closed":
      return closed(link, event.code, event.jitter, now);
    case "frame":
      return heard({ ...link, heardAt: now, pongDue: 0 }, event.frame, now);
    case "tick":
      return tick(link, now);
    case "offline":
      return [{ ...link, offline: true }, []];
    case "online":
    case "visible":
      return awake({ ...link, offline: event.type === "visible" ? link.offline : false }, now);
    case "logged_out":
      // What was not sent waits for its writer to come back.
      return [
        { ...initial(), outbox: unsent(link.outbox), phase: "refused" },
        [{ type: "disconnect" }],
      ];
    case "watch":
      return watch(link, event.key, event.fresh);
    case "forget":
      return forget(link, event.key);
    case "older":
      return [withChat(link, event.key, (chat) => prepend(chat, event.rows, event.more)), []];
    case "submit":
      return [{ ...link, outbox: [...link.outbox, outgoing(event.out, link)] }, []];
    case "adopt":
      return [adopt(link, event.outbox), []];
    case "retry":
      return [
        changed(link, event.id, (one) => ({ ...one, state: "queued", notBefore: 0, tries: 0 })),
        [],
      ];
    case "discard":
      return [{ ...link, outbox: link.outbox.filter((one) => one.id !== event.id) }, []];
    case "stop":
      return stop(link, event.key, event.all);
    case "seen_problem":
      return [{ ...link, problem: null }, []];
  }
}

// -- the connection -----------------------------------------------------------------------------

/** A browser may wait for ever for a handshake that nobody answers. */
function connect(link: Link, now: number): Step {
  return [
    { ...link, phase: "connecting", retryAt: 0, pongDue: now + PATIENCE },
    [{ type: "connect" }],
  ];
}

function closed(link: Link, code: number, jitter: number, now: number): Step {
  const outbox = unsent(link.outbox);
  if (code === UNAUTHORIZED) return [{ ...link, outbox, phase: "refused", pongDue: 0 }, []];
  const pause = Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** link.failures) * (0.5 + jitter / 2);
  return [
    {
      ...link,
      outbox,
      phase: "waiting",
      failures: Math.min(link.failures + 1, 10),
      retryAt: now + pause,
      pongDue: 0,
    },
    [],
  ];
}

function tick(link: Link, now: number): Step {
  if (link.phase === "waiting" && now >= link.retryAt) return connect(link, now);
  if (link.phase !== "open" && link.phase !== "connecting") return [link, []];
  if (link.pongDue > 0 && now >= link.pongDue)
    return [{ ...link, pongDue: 0 }, [{ type: "disconnect" }]];
  if (link.phase === "open" && link.pongDue === 0 && now - link.heardAt >= QUIET) {
    return ping(link, now + PATIENCE);
  }
  return [link, []];
}

/** The machine woke up, or the network came back: find out now rather than in a while. */
function awake(link: Link, now: number): Step {
  if (link.phase === "waiting") return connect({ ...link, failures: 0 }, now);
  return link.phase === "open" ? ping(link, now + CHECK) : [link, []];
}

function ping(link: Link, due: number): Step {
  return [{ ...link, pongDue: due }, [{ type: "transmit", frame: { type: "ping" } }]];
}

function nextWake(link: Link, now: number): number | null {
  const times: number[] = [];
  if (link.phase === "waiting") times.push(link.retryAt);
  if (link.pongDue > 0) times.push(link.pongDue);
  else if (link.phase === "open") times.push(link.heardAt + QUIET);
  if (link.phase === "open") {
    for (const one of link.outbox)
      if (one.state === "queued" && one.notBefore > now) times.push(one.notBefore);
  }
  return times.length > 0 ? Math.min(...times) : null;
}

// -- what is heard ------------------------------------------------------------------------------

function heard(link: Link, frame: ServerFrame, now: number): Step {
  switch (frame.type) {
    case "ready":
      return resume(link, frame);
    case "session":
      return onSession(link, frame);
    case "error":
      return [refused(link, frame, now), []];
    case "ack":
    case "attached":
    case "message":
    case "turn_start":
    case "delta":
    case "reasoning":
    case "tool":
    case "turn_end":
      return onChat(link, frame);
    default:
      return [link, []];
  }
}

/** Every chat from where it was left; what was not acknowledged follows behind. */
function resume(link: Link, ready: Ready): Step {
  const other = link.ready !== null && link.ready.user !== ready.user;
  const chats = other ? {} : link.chats;
  const open: Link = { ...link, phase: "open", failures: 0, ready, chats, problem: null };
  const attaches = link.watched.flatMap((key) => attach(chats[key] ?? emptyChat(key)));
  return [open, [...attaches, { type: "ready" }]];
}

function attach(chat: Chat): Effect[] {
  if (chat.absent) return [];
  const place = chat.log === null ? {} : { since: chat.cursor, log: chat.log };
  return [{ type: "transmit", frame: { type: "attach", ...addressOf(chat.key), ...place } }];
}

function onSession(link: Link, frame: SessionFrame): Step {
  const effects: Effect[] = [{ type: "session", frame }];
  const key = placeOf(frame);
  const chat = key === null ? undefined : link.chats[key];
  if (key === null || chat === undefined) return [link, effects];
  if (frame.state === "deleted") {
    return [
      { ...link, chats: { ...link.chats, [key]: { ...emptyChat(key), absent: true } } },
      effects,
    ];
  }
  // Somebody has begun, elsewhere, the chat that stands open here.
  if (chat.absent && !link.outbox.some((one) => one.key === key) && link.watched.includes(key)) {
    const there = { ...chat, absent: false };
    return [{ ...link, chats: { ...link.chats, [key]: there } }, [...attach(there), ...effects]];
  }
  if (chat.session === null) return [link, effects];
  const { type: _type, chat_id: _chat, key: _key, ...change } = frame;
  const session = { ...chat.session, ...change };
  return [{ ...link, chats: { ...link.chats, [key]: { ...chat, session } } }, effects];
}

function onChat(link: Link, frame: ChatFrame): Step {
  const key = placeOf(frame);
  if (key === null) return [link, []];
  const before = link.chats[key] ?? emptyChat(key);
  const after = fold(before, frame);
  let next = after === before ? link : { ...link, chats: { ...link.chats, [key]: after } };
  if (frame.type === "ack") next = without(next, frame.id);
  if (frame.type === "message" && frame.role === "user" && frame.id) next = without(next, frame.id);
  if (frame.type === "attached" && frame.reset && link.ready) {
    const lost = lostRows(before, frame.last_seq, frame.log, link.ready.user);
    if (lost.length > 0)
      next = { ...next, outbox: [...lost.map((row) => again(row, key, link)), ...next.outbox] };
  }
  return [next, after.holed && !before.holed ? attach(after) : []];
}

function without(link: Link, id: string): Link {
  return link.outbox.some((one) => one.id === id)
    ? { ...link, outbox: link.outbox.filter((one) => one.id !== id) }
    : link;
}

function refused(link: Link, frame: ErrorFrame, now: number): Link {
  const { id, code, message } = frame;
  const one = id === undefined ? undefined : link.outbox.find((out) => out.id === id);
  if (one !== undefined) {
    const tries = one.tries + 1;
    const again = RETRIED.has(code) || (code === "internal" && tries < MOST_TRIES);
    const pause = (frame.retry_after ?? Math.min(30, 2 ** tries)) * 1000;
    return changed(link, one.id, (out) =>
      again
        ? { ...out, state: "queued", notBefore: now + pause, tries, error: message }
        : { ...out, state: "failed", tries, error: message },
    );
  }
  const key = placeOf(frame);
  if (code === "not_found" && id === undefined && key !== null) {
    const chat = link.chats[key];
    if (chat)
      return { ...link, chats: { ...link.chats, [key]: { ...emptyChat(key), absent: true } } };
  }
  return { ...link, problem: { message, code } };
}

// -- chats --------------------------------------------------------------------------------------

function watch(link: Link, key: string, fresh: boolean): Step {
  const chat = link.chats[key] ?? { ...emptyChat(key), absent: fresh };
  const known = link.watched.includes(key);
  const order = [...link.watched.filter((one) => one !== key), key];
  const dropped = order.slice(0, Math.max(0, order.length - MOST_WATCHED));
  const effects: Effect[] = [];
  const chats = { ...link.chats, [key]: chat };
  for (const one of dropped) {
    delete chats[one];
    if (link.phase === "open")
      effects.push({ type: "transmit", frame: { type: "detach", ...addressOf(one) } });
  }
  if (!known && link.phase === "open") effects.push(...attach(chat));
  return [{ ...link, chats, watched: order.slice(dropped.length) }, effects];
}

function forget(link: Link, key: string): Step {
  const { [key]: _gone, ...chats } = link.chats;
  return [{ ...link, chats, watched: link.watched.filter((one) => one !== key) }, []];
}

function withChat(link: Link, key: string, change: (chat: Chat) => Chat): Link {
  const chat = link.chats[key];
  return chat ? { ...link, chats: { ...link.chats, [key]: change(chat) } } : link;
}

function stop(link: Link, key: string, all: boolean): Step {
  const chatId = chatIdOf(key);
  if (chatId === null || link.phase !== "open") return [link, []];
  const frame: ClientFrame = { type: "stop", chat_id: chatId, ...(all ? { all } : {}) };
  return [link, [{ type: "transmit", frame }]];
}

// -- the outbox ---------------------------------------------------------------------------------

function outgoing(out: Draft, link: Link): Outgoing {
  return { ...out, user: link.ready?.user ?? null, state: "queued", notBefore: 0, tries: 0 };
}

function again(row: Row, key: string, link: Link): Outgoing {
  const out = {
    id: row.id ?? "",
    key,
    kind: "send" as const,
    text: row.content,
    at: row.timestamp,
  };
  return outgoing(row.media ? { ...out, media: row.media } : out, link);
}

/** What a closed tab, or this one before a reload, had left to send. */
function adopt(link: Link, outbox: Outgoing[]): Link {
  const known = new Set(link.outbox.map((one) => one.id));
  const added = unsent(outbox.filter((one) => !known.has(one.id)));
  return added.length > 0 ? { ...link, outbox: [...added, ...link.outbox] } : link;
}

/** Whether a text arrived is not known without its acknowledgement. */
function unsent(outbox: Outgoing[]): Outgoing[] {
  return outbox.map((one) => (one.state === "sent" ? { ...one, state: "queued" } : one));
}

function changed(link: Link, id: string, change: (one: Outgoing) => Outgoing): Link {
  return { ...link, outbox: link.outbox.map((one) => (one.id === id ? change(one) : one)) };
}

/** Sends what may go now: the oldest unsent one of each chat. */
function flush(link: Link, now: number): Step {
  if (link.phase !== "open" || link.outbox.length === 0) return [link, []];
  const busy = new Set<string>();
  const effects: Effect[] = [];
  const outbox = link.outbox.map((one) => {
    if (one.state === "failed" || busy.has(one.key)) return one;
    if (one.user !== null && one.user !== link.ready?.user) return one;
    busy.add(one.key);
    if (one.state === "sent" || one.notBefore > now) return one;
    const frame = sendFrame(one);
    if (frame === null) return one;
    effects.push({ type: "transmit", frame });
    return { ...one, state: "sent" as const };
  });
  return effects.length > 0 ? [{ ...link, outbox }, effects] : [link, []];
}

function sendFrame(one: Outgoing): ClientFrame | null {
  const chat_id = chatIdOf(one.key);
  if (chat_id === null) return null;
  if (one.kind === "regenerate") return { type: "regenerate", chat_id, id: one.id };
  return {
    type: "send",
    chat_id,
    id: one.id,
    text: one.text,
    ...(one.media && one.media.length > 0 ? { media: one.media.map((file) => file.id) } : {}),
    ...(one.replaces === undefined ? {} : { replaces: one.replaces }),
  };
}

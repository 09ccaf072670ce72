// What a thread shows: rows, the running turn and what waits to be sent, as a list of items. Pure.

import type { Chat, LiveTurn } from "./chat";
import type { Media, Row, Tool } from "./frames";
import type { Outgoing } from "./link";

export type Delivery =
  | { state: "waiting" | "sending" | "stored" | "answering" | "ended" }
  | { state: "queued"; before: number }
  | { state: "failed"; reason: string };

export interface Mine {
  kind: "mine";
  key: string;
  seq: number | null;
  id: string | null;
  text: string;
  media: Media[];
  time: string;
  delivery: Delivery;
  outcome: string | null;
  command: boolean;
  sender: string | null;
  edited: boolean;
}

export interface Answer {
  kind: "answer";
  key: string;
  seq: number | null;
  text: string;
  reasoning: string;
  tools: Tool[];
  media: Media[];
  time: string;
  outcome: string | null;
  latencyMs: number | null;
  error: string | null;
  live: boolean;
  command: boolean;
}

export interface Day {
  kind: "day";
  key: string;
  time: string;
}

/** Under an answer that grows: a row of its own, which is moved, not laid out again. */
export interface Progress {
  kind: "progress";
  key: string;
  time: string;
  /** Not a word has come yet. */
  waiting: boolean;
}

export type Item = Mine | Answer | Day | Progress;

export function view(chat: Chat, outgoing: Outgoing[]): Item[] {
  const known = facts(chat.rows);
  const rows = chat.rows.filter((row) => !known.hidden.has(row.seq));
  const answers = new Map<string, Row[]>();
  const after = new Map<number, string[]>();
  const seen = new Set(rows.filter((row) => row.role === "user").map((row) => row.seq));
  const items: Item[] = [];
  const alone: [number, string][] = [];
  for (const row of rows) {
    if (row.role === "user" || row.role === "system") continue;
    const name = row.turn ?? `row-${row.seq}`;
    const mine = answers.get(name);
    if (mine) {
      mine.push(row);
      continue;
    }
    answers.set(name, [row]);
    const anchor = anchorOf(name, row, known, seen, chat);
    if (anchor === null) alone.push([row.seq, name]);
    else after.set(anchor, [...(after.get(anchor) ?? []), name]);
  }
  let live = chat.turn;
  if (live && answers.has(live.id)) live = null;
  const liveAnchor = live ? oldestOpen(rows, known) : null;
  const answer = (name: string): Answer[] => {
    const made = answerOf(name, answers.get(name) ?? [], chat.turn?.id === name ? chat.turn : null);
    return made ? [made] : [];
  };
  const loose = [...alone];
  for (const row of rows) {
    while (loose[0] && loose[0][0] < row.seq) items.push(...answer(loose.shift()?.[1] ?? ""));
    if (row.role !== "user") continue;
    items.push(mineOf(row, chat, known));
    for (const name of after.get(row.seq) ?? []) items.push(...answer(name));
    if (live && row.seq === liveAnchor) items.push(liveItem(live));
  }
  for (const [, name] of loose) items.push(...answer(name));
  if (live && liveAnchor === null) items.push(liveItem(live));
  const stored = new Set(chat.rows.map((row) => row.id));
  for (const one of outgoing) {
    if (one.kind === "send" && one.key === chat.key && !stored.has(one.id))
      items.push(pending(one));
  }
  return withDays(items, new Set(alone.map(([, name]) => name)));
}

interface Facts {
  settled: Map<number, string>;
  settles: Map<string, number[]>;
  hidden: Set<number>;
}

/** Which messages have ended, and which were replaced by a later one (docs: edit and resend). */
function facts(rows: Row[]): Facts {
  const settled = new Map<number, string>();
  const settles = new Map<string, number[]>();
  for (const row of rows) {
    if (!row.settles) continue;
    const seqs = Object.keys(row.settles).map(Number);
    for (const seq of seqs) settled.set(seq, row.settles[seq] ?? "");
    settles.set(row.turn ?? `row-${row.seq}`, seqs);
  }
  const ranges = rows.flatMap((row) =>
    row.role === "user" && row.replaces !== undefined ? [[row.replaces, row.seq] as const] : [],
  );
  const hidden = new Set<number>();
  if (ranges.length > 0) {
    const gone = (seq: number) => ranges.some(([from, to]) => seq >= from && seq < to);
    for (const row of rows) {
      const owned = settles.get(row.turn ?? `row-${row.seq}`);
      if (row.role === "user" ? gone(row.seq) : owned ? owned.some(gone) : gone(row.seq)) {
        hidden.add(row.seq);
      }
    }
  }
  for (const row of rows) if (row.outcome === "withdrawn" && !row.content) hidden.add(row.seq);
  return { settled, settles, hidden };
}

/** The message an answer stands under; null if it stands by itself. */
function anchorOf(
  name: string,
  row: Row,
  known: Facts,
  seen: Set<number>,
  chat: Chat,
): number | null {
  const owned = known.settles.get(name)?.filter((seq) => seen.has(seq)) ?? [];
  if (owned.length > 0) return Math.max(...owned);
  if (chat.turn?.id !== name && row.turn !== undefined && known.settles.has(name)) return null;
  return row.turn !== undefined ? oldestOpen(chat.rows, known) : null;
}

/** The message a running turn answers: the oldest one without an end. */
function oldestOpen(rows: Row[], known: Facts): number | null {
  for (const row of rows) {
    if (row.role === "user" && !row.command && !known.settled.has(row.seq)) {
      if (!known.hidden.has(row.seq)) return row.seq;
    }
  }
  return null;
}

function mineOf(row: Row, chat: Chat, known: Facts): Mine {
  const outcome = known.settled.get(row.seq) ?? null;
  return {
    kind: "mine",
    key: row.id ?? `row-${row.seq}`,
    seq: row.seq,
    id: row.id ?? null,
    text: row.content,
    media: filesOf(row),
    time: row.timestamp,
    delivery: deliveryOf(row, outcome, chat, known),
    outcome,
    command: row.command ?? false,
    sender: row.sender?.name ?? row.sender?.id ?? null,
    edited: isEdited(row, chat.rows),
  };
}

/** Answering again stores the question again: that one was not edited. */
function isEdited(row: Row, rows: Row[]): boolean {
  if (row.replaces === undefined) return false;
  return rows.find((one) => one.seq === row.replaces)?.content !== row.content;
}

function deliveryOf(row: Row, outcome: string | null, chat: Chat, known: Facts): Delivery {
  if (outcome !== null) return { state: "ended" };
  if (chat.turn && oldestOpen(chat.rows, known) === row.seq) {
    return { state: "answering" };
  }
  const before = chat.rows.filter(
    (one) => one.role === "user" && one.seq < row.seq && !known.settled.has(one.seq),
  ).length;
  return before > 0 && chat.queued[row.seq] ? { state: "queued", before } : { state: "stored" };
}

function answerOf(name: string, rows: Row[], turn: LiveTurn | null): Answer | null {
  const last = rows.at(-1);
  if (!last) return null;
  const spoken = rows.filter((row) => row.role === "assistant");
  const texts = spoken.map((row) => row.content);
  const thoughts = spoken.map((row) => row.reasoning ?? "");
  if (turn) {
    texts.push(turn.text);
    thoughts.push(turn.reasoning);
  }
  const closing = spoken.find((row) => row.outcome !== undefined) ?? spoken.at(-1) ?? last;
  return {
    kind: "answer",
    key: name,
    seq: closing.seq,
    text: joined(texts),
    reasoning: joined(thoughts),
    tools: turn && turn.tools.length > 0 ? turn.tools : toolsOf(rows),
    media: rows.flatMap((row) => (row.role === "assistant" ? filesOf(row) : [])),
    time: turn ? turn.startedAt : closing.timestamp,
    outcome: closing.outcome ?? null,
    latencyMs: closing.latency_ms ?? null,
    error: closing.error ?? null,
    live: turn !== null,
    command: closing.command === true || closing.outcome === "command",
  };
}

/** Logs of other programs have paths where ours have files: those cannot be read from here. */
function filesOf(row: Row): Media[] {
  const files: unknown[] = row.media ?? [];
  return files.filter((one): one is Media => {
    return typeof one === "object" && one !== null && "id" in one && "url" in one;
  });
}

function joined(parts: string[]): string {
  return parts.filter((part) => part !== "").join("\n\n");
}

function liveItem(turn: LiveTurn): Answer {
  return {
    kind: "answer",
    key: turn.id,
    seq: null,
    text: turn.text,
    reasoning: turn.reasoning,
    tools: turn.tools,
    media: [],
    time: turn.startedAt,
    outcome: null,
    latencyMs: null,
    error: null,
    live: true,
    command: false,
  };
}

function toolsOf(rows: Row[]): Tool[] {
  const results = new Map<string, Row>();
  for (const row of rows)
    if (row.role === "tool" && row.tool_call_id) results.set(row.tool_call_id, row);
  return rows.flatMap((row) =>
    (row.tool_calls ?? []).map((call) => {
      const result = call.id ? results.get(call.id) : undefined;
      return {
        id: call.id ?? "",
        name: call.function?.name ?? "",
        phase: result ? ("end" as const) : ("start" as const),
        summary: (result?.content ?? "").split("\n", 1)[0]?.slice(0, 160) ?? "",
      };
    }),
  );
}

function pending(one: Outgoing): Mine {
  const delivery: Delivery =
    one.state === "failed"
      ? { state: "failed", reason: one.error ?? "" }
      : { state: one.state === "sent" ? "sending" : "waiting" };
  return {
    kind: "mine",
    key: one.id,
    seq: null,
    id: one.id,
    text: one.text,
    media: one.media ?? [],
    time: one.at,
    delivery,
    outcome: null,
    command: false,
    sender: null,
    edited: one.replaces !== undefined,
  };
}

/** A day begins with what somebody wrote, or with what came by itself, never inside an answer. */
function withDays(items: Item[], alone: Set<string>): Item[] {
  const shown: Item[] = [];
  let last = "";
  for (const item of items) {
    const day = localDay(item.time);
    if (day !== last && (item.kind === "mine" || alone.has(item.key))) {
      shown.push({ kind: "day", key: `day-${item.key}`, time: item.time });
      last = day;
    }
    shown.push(item);
    if (item.kind === "answer" && item.live) {
      const { key, time, text } = item;
      shown.push({ kind: "progress", key: `progress-${key}`, time, waiting: text === "" });
    }
  }
  return shown;
}

function localDay(time: string): string {
  const date = new Date(time);
  return `${date.getFullYear()}-${date.getMonth()}-${date.getDate()}`;
}

/** Keeps the objects of what has not changed, so that only what changed is drawn again. */
export function stable(before: Item[], after: Item[]): Item[] {
  const known = new Map(before.map((item) => [item.key, item]));
  return after.map((item) => {
    const old = known.get(item.key);
    return old && same(old, item) ? old : item;
  });
}

function same(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || !one || !other) return false;
  const names = Object.keys(one);
  return (
    names.length === Object.keys(other).length &&
    names.every((name) =>
      same((one as Record<string, unknown>)[name], (other as Record<string, unknown>)[name]),
    )
  );
}

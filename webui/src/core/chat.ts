// One chat as a fold over the frames about it. Pure. A frame seen twice changes nothing. The rows
// held are always a gapless tail of the log; older ones are put in front when they have been read.

import type {
  ChatFrame,
  Delta,
  Message,
  Row,
  SessionInfo,
  Tool,
  ToolFrame,
  TurnStart,
} from "./frames";

export interface LiveTurn {
  id: string;
  startedAt: string;
  n: number;
  text: string;
  reasoning: string;
  tools: Tool[];
}

export interface Chat {
  key: string;
  log: string | null;
  /** The highest number seen: a safe place to resume from. */
  cursor: number;
  rows: Row[];
  /** There are older rows than the first one held. */
  older: boolean;
  turn: LiveTurn | null;
  /** The running turn cannot be shown from here on: attach again. */
  holed: boolean;
  session: SessionInfo | null;
  /** How many messages are answered before an own one, by its number. */
  queued: Record<number, number>;
  /** The log does not exist (yet). */
  absent: boolean;
}

export function emptyChat(key: string): Chat {
  return {
    key,
    log: null,
    cursor: 0,
    rows: [],
    older: false,
    turn: null,
    holed: false,
    session: null,
    queued: {},
    absent: false,
  };
}

export function fold(chat: Chat, frame: ChatFrame): Chat {
  switch (frame.type) {
    case "attached": {
      const fresh = frame.reset || (chat.log !== null && chat.log !== frame.log);
      // Rows that do not reach the first one sent would leave a hole: they are read again later.
      const torn = frame.gap && frame.first_seq > chat.cursor + 1 && chat.rows.length > 0;
      const kept = fresh || torn ? [] : chat.rows;
      return {
        ...chat,
        log: frame.log,
        rows: kept,
        cursor: kept.length > 0 ? chat.cursor : 0,
        older: kept.length > 0 ? chat.older : frame.gap,
        turn: null,
        holed: false,
        absent: false,
        session: frame.session,
        queued: fresh ? {} : chat.queued,
      };
    }
    case "ack":
      return frame.queued > 0 && !frame.duplicate
        ? { ...chat, queued: { ...chat.queued, [frame.seq]: frame.queued } }
        : chat;
    case "message":
      return addRow(chat, frame);
    case "turn_start":
      return startTurn(chat, frame);
    case "delta":
    case "reasoning":
    case "tool":
      return growTurn(chat, frame);
    case "turn_end":
      return chat.turn?.id === frame.turn ? { ...chat, turn: null } : chat;
    default:
      return chat;
  }
}

function addRow(chat: Chat, frame: Message): Chat {
  if (frame.seq <= chat.cursor) return chat;
  const { type: _type, chat_id: _chat, key: _key, ...row } = frame;
  return {
    ...chat,
    cursor: row.seq,
    rows: [...chat.rows, row],
    turn: turnAfter(chat.turn, row),
    absent: false,
  };
}

/** A tool call starts the answer afresh; the closing row is the answer. */
function turnAfter(turn: LiveTurn | null, row: Row): LiveTurn | null {
  if (turn === null || row.turn !== turn.id || row.role !== "assistant") return turn;
  if (row.outcome !== undefined) return null;
  return row.tool_calls ? { ...turn, text: "", reasoning: "" } : turn;
}

function startTurn(chat: Chat, frame: TurnStart): Chat {
  const known = chat.turn?.id === frame.turn ? chat.turn : null;
  if ((known !== null && known.n >= frame.n && !chat.holed) || isClosed(chat, frame.turn)) {
    return chat;
  }
  const { turn: id, started_at: startedAt, n, text, reasoning, tools } = frame;
  return { ...chat, turn: { id, startedAt, n, text, reasoning, tools }, holed: false };
}

function growTurn(chat: Chat, frame: ToolFrame | Delta): Chat {
  const turn = chat.turn;
  if (turn === null || turn.id !== frame.turn || frame.n > turn.n) {
    return isClosed(chat, frame.turn) || chat.holed ? chat : { ...chat, holed: true };
  }
  if (frame.n < turn.n || chat.holed) return chat;
  const next: LiveTurn = { ...turn, n: turn.n + 1 };
  if (frame.type === "tool") next.tools = withTool(turn.tools, frame);
  else if (frame.type === "delta") next.text += frame.text;
  else next.reasoning += frame.text;
  return { ...chat, turn: next };
}

function withTool(tools: Tool[], frame: ToolFrame): Tool[] {
  const { id, name, phase, summary } = frame;
  const tool = { id, name, phase, summary };
  const at = tools.findIndex((one) => one.id === id);
  return at < 0 ? [...tools, tool] : tools.with(at, tool);
}

function isClosed(chat: Chat, turn: string): boolean {
  return chat.rows.some((row) => row.turn === turn && row.outcome !== undefined);
}

/** Rows read over HTTP, all older than the ones held. */
export function prepend(chat: Chat, rows: Row[], more: boolean): Chat {
  const first = chat.rows[0]?.seq ?? chat.cursor + 1;
  const older = rows.filter((row) => row.seq < first);
  return { ...chat, rows: [...older, ...chat.rows], older: more };
}

/** Own messages the server no longer has: the log it lost them from is still the same one. */
export function lostRows(chat: Chat, lastSeq: number, log: string, user: string): Row[] {
  if (chat.log !== log) return [];
  return chat.rows.filter(
    (row) => row.seq > lastSeq && row.role === "user" && row.id && row.sender?.id === user,
  );
}

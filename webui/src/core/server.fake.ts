// A gateway in a few lines, for the tests: one chat, a log, a running turn, one connection.

import type { ClientFrame, Row, ServerFrame, Tool, TurnStart } from "./frames";

const LAST = 200;

export class FakeServer {
  rows: Row[] = [];
  log = "log-1";
  frames: ServerFrame[] = [];
  /** Answers the next sends with these errors instead of storing them. */
  refusals: { code: string; retry_after?: number }[] = [];
  private attached = false;
  private turn: { id: string; n: number; text: string; reasoning: string; tools: Tool[] } | null =
    null;
  private turns = 0;

  constructor(private readonly chat: string) {}

  /** A new connection: whatever was on its way over the old one is lost. */
  connect(): void {
    this.attached = false;
    this.frames = [
      {
        type: "ready",
        version: "0",
        user: "ada",
        role: "user",
        limits: { text: 1, frame: 1, upload: 1, media_per_message: 1 },
      },
    ];
  }

  receive(frame: ClientFrame): void {
    if (frame.type === "attach") this.attach(frame.since, frame.log);
    if (frame.type === "ping") this.frames.push({ type: "pong" });
    if (frame.type === "send") this.store(frame.id, frame.text);
  }

  private attach(since?: number, log?: string): void {
    if (this.rows.length === 0) {
      this.frames.push({ type: "error", code: "not_found", message: "none", chat_id: this.chat });
      return;
    }
    this.attached = true;
    const last = this.rows.at(-1)?.seq ?? 0;
    const reset = (log !== undefined && log !== this.log) || (since ?? 0) > last;
    const from = since === undefined || reset ? null : since;
    const all = from === null ? this.rows : this.rows.filter((row) => row.seq > from);
    const rows = from === null ? all.slice(-LAST) : all;
    this.push({
      type: "attached",
      log: this.log,
      last_seq: last,
      first_seq: rows[0]?.seq ?? last + 1,
      gap: rows.length < all.length,
      reset,
      session: { key: `websocket:${this.chat}`, title: "", state: "active" },
    });
    for (const row of rows) this.push({ type: "message", ...row });
    if (this.turn) this.push(this.snapshot());
  }

  private store(id: string, text: string): void {
    const refusal = this.refusals.shift();
    if (refusal) {
      this.frames.push({ type: "error", message: "no", chat_id: this.chat, id, ...refusal });
      return;
    }
    const known = this.rows.find((row) => row.id === id);
    if (!this.attached) {
      if (this.rows.length === 0) {
        this.attached = true;
        this.push({
          type: "attached",
          log: this.log,
          last_seq: 0,
          first_seq: 1,
          gap: false,
          reset: false,
          session: { key: `websocket:${this.chat}`, title: "", state: "active" },
        });
      } else this.attach();
    }
    const seq = known?.seq ?? this.next();
    this.push({ type: "ack", id, seq, duplicate: known !== undefined, queued: 0 });
    if (!known) this.append({ role: "user", content: text, id, sender: { id: "ada" } }, seq);
  }

  private next(): number {
    return (this.rows.at(-1)?.seq ?? 0) + 1;
  }

  private append(fields: Omit<Row, "seq" | "timestamp">, seq = this.next()): void {
    const row: Row = { seq, timestamp: `2030-01-01T00:00:${String(seq % 60)}Z`, ...fields };
    this.rows.push(row);
    this.push({ type: "message", ...row });
  }

  begin(): void {
    if (this.turn || this.rows.length === 0) return;
    this.turns += 1;
    this.turn = { id: `turn-${this.turns}`, n: 0, text: "", reasoning: "", tools: [] };
    this.push(this.snapshot());
  }

  grow(kind: "delta" | "reasoning", text: string): void {
    if (!this.turn) return;
    this.push({ type: kind, turn: this.turn.id, n: this.turn.n, text });
    this.turn.n += 1;
    if (kind === "delta") this.turn.text += text;
    else this.turn.reasoning += text;
  }

  callTool(name: string): void {
    if (!this.turn) return;
    const { id: turn, text, reasoning } = this.turn;
    this.append({
      role: "assistant",
      content: text,
      turn,
      tool_calls: [{ id: name, function: { name } }],
      ...(reasoning ? { reasoning } : {}),
    });
    this.turn = { ...this.turn, text: "", reasoning: "" };
    const tool: Tool = { id: name, name, phase: "end", summary: "done" };
    this.push({ type: "tool", turn, n: this.turn.n, ...tool });
    this.turn.n += 1;
    this.turn.tools = [...this.turn.tools.filter((one) => one.id !== name), tool];
  }

  end(): void {
    if (!this.turn) return;
    const { id: turn, text } = this.turn;
    this.turn = null;
    const asked = this.rows.filter((row) => row.role === "user").at(-1)?.seq ?? 0;
    this.append({
      role: "assistant",
      content: text,
      turn,
      outcome: "answered",
      settles: { [asked]: "answered" },
    });
    this.push({ type: "turn_end", turn, seq: this.rows.at(-1)?.seq ?? 0, outcome: "ok" });
  }

  private snapshot(): TurnStart {
    const turn = this.turn ?? { id: "", n: 0, text: "", reasoning: "", tools: [] };
    const { id, ...shown } = turn;
    return { type: "turn_start", turn: id, started_at: "2030-01-01T00:00:00Z", ...shown };
  }

  private push(frame: ServerFrame): void {
    if (this.attached) this.frames.push({ ...frame, chat_id: this.chat } as ServerFrame);
  }
}

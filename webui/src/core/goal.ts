// What a chat is working towards, as `session.goal` has it. Pure.

export interface Goal {
  summary: string;
  /** In full; empty if the summary says it all. */
  objective: string;
}

/** Null unless there is one that is being worked on. */
export function activeGoal(value: unknown): Goal | null {
  if (typeof value !== "object" || value === null) return null;
  const { status, objective, ui_summary } = value as Record<string, unknown>;
  if (status !== "active") return null;
  const whole = typeof objective === "string" ? objective.trim() : "";
  const short = typeof ui_summary === "string" ? ui_summary.trim() : "";
  if (whole === "" && short === "") return null;
  return { summary: short || whole, objective: short && whole !== short ? whole : "" };
}

// The last minutes of a gateway's numbers, as the charts show them. Pure.

import { type Buckets, histogram, quantile, type Sample, since, sum } from "./metrics";

export interface Moment {
  /** Milliseconds. */
  at: number;
  running: number;
  received: number;
  turns: Buckets;
  firstWords: Buckets;
}

export const KEPT = 150;
const WINDOW = 60_000;

export function moment(samples: Sample[], at: number): Moment {
  return {
    at,
    running: sum(samples, "parley_turns_running") ?? 0,
    received: sum(samples, "parley_messages_received_total") ?? 0,
    turns: histogram(samples, "parley_turn_seconds"),
    firstWords: histogram(samples, "parley_turn_first_token_seconds"),
  };
}

export const remember = (history: Moment[], now: Moment): Moment[] =>
  [...history, now].slice(-KEPT);

/** The oldest moment that is at most a minute before the one at `at`; null for the first one. */
function before(history: Moment[], at: number): Moment | null {
  const now = history[at] as Moment;
  const found = history.findIndex((one) => now.at - one.at <= WINDOW);
  return found < at ? (history[found] as Moment) : null;
}

/** For each moment, how many messages came in per minute, over the minute before it. */
export function throughput(history: Moment[]): (number | null)[] {
  return history.map((now, at) => {
    const then = before(history, at);
    if (then === null || now.at === then.at) return null;
    const count = now.received < then.received ? now.received : now.received - then.received;
    return (count * 60_000) / (now.at - then.at);
  });
}

/** For each moment, the quantile in milliseconds of the minute before it; null if there was none. */
export function latency(
  history: Moment[],
  which: "turns" | "firstWords",
  share: number,
): (number | null)[] {
  return history.map((now, at) => {
    const then = before(history, at);
    const found = then && quantile(since(now[which], then[which]), share);
    return found === null ? null : found * 1000;
  });
}

/** The points of a line in a box of 100 by 30; where there is no value, the line is broken. */
export function path(values: (number | null)[], most: number): string {
  const wide = Math.max(1, KEPT - 1);
  const start = KEPT - values.length;
  let pen = "M";
  const parts: string[] = [];
  values.forEach((value, at) => {
    if (value === null) {
      pen = "M";
      return;
    }
    const x = ((start + at) / wide) * 100;
    const y = 29 - (most > 0 ? value / most : 0) * 27;
    parts.push(`${pen}${x.toFixed(2)} ${y.toFixed(2)}`);
    pen = "L";
  });
  return parts.join("");
}

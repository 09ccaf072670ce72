// Prometheus' text format, and what is worked out from it. Pure.

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
const ESCAPES: Record<string, string> = { n: "\n", "\\": "\\", '"': '"' };

/** Comments, and lines that are none of the format, are left out. */
export function parse(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line.trim());
    if (!found) continue;
    const value = number(found[3] as string);
    if (value !== null) samples.push({ name: found[1] as string, labels: labels(found[2]), value });
  }
  return samples;
}

function number(text: string): number | null {
  if (text === "+Inf") return Infinity;
  if (text === "-Inf") return -Infinity;
  const value = Number(text);
  return Number.isNaN(value) ? null : value;
}

function labels(text: string | undefined): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [, name, value] of (text ?? "").matchAll(LABEL))
    found[name as string] = (value as string).replace(
      /\\(.)/g,
      (_, sign: string) => ESCAPES[sign] ?? sign,
    );
  return found;
}

/** The sum over every series of that name with these labels; null if there is none. */
export function sum(
  samples: Sample[],
  name: string,
  wanted: Record<string, string> = {},
): number | null {
  const fits = samples.filter(
    (one) =>
      one.name === name &&
      Object.entries(wanted).every(([label, value]) => one.labels[label] === value),
  );
  return fits.length === 0 ? null : fits.reduce((total, one) => total + one.value, 0);
}

/** How many were at most `le`, for each limit, the smallest limit first. */
export type Buckets = { le: number; count: number }[];

/** Added up over all labels but `le`. */
export function histogram(samples: Sample[], name: string): Buckets {
  const counts = new Map<number, number>();
  for (const one of samples) {
    const le = one.name === `${name}_bucket` ? number(one.labels.le ?? "") : null;
    if (le !== null) counts.set(le, (counts.get(le) ?? 0) + one.value);
  }
  return [...counts].map(([le, count]) => ({ le, count })).sort((a, b) => a.le - b.le);
}

/** What came in between. A restart begins at nought: then all of it is new. */
export function since(now: Buckets, before: Buckets): Buckets {
  const old = new Map(before.map((one) => [one.le, one.count]));
  const restarted = now.some((one) => one.count < (old.get(one.le) ?? 0));
  if (restarted) return now;
  return now.map(({ le, count }) => ({ le, count: count - (old.get(le) ?? 0) }));
}

/** Evenly within a bucket, as Prometheus has it; the last limit for what is beyond it. */
export function quantile(buckets: Buckets, share: number): number | null {
  const total = buckets.at(-1)?.count ?? 0;
  if (total <= 0) return null;
  const rank = share * total;
  const at = buckets.findIndex((one) => one.count >= rank);
  const { le, count } = buckets[at] as { le: number; count: number };
  const { le: low, count: under } = buckets[at - 1] ?? { le: 0, count: 0 };
  if (le === Infinity) return low;
  return count === under ? le : low + ((le - low) * (rank - under)) / (count - under);
}

export interface Conservation {
  received: number;
  ended: number;
  pending: number;
  balanced: boolean;
}

/** received = outcomes + pending, always: the gateway counts them in one moment. */
export function conservation(samples: Sample[]): Conservation {
  const received = sum(samples, "parley_messages_received_total") ?? 0;
  const ended = sum(samples, "parley_messages_outcome_total") ?? 0;
  const pending = sum(samples, "parley_messages_pending") ?? 0;
  return { received, ended, pending, balanced: received === ended + pending };
}

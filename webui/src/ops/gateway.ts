import { useEffect, useState } from "react";
import { request } from "../shell/api";
import { strings } from "../strings";
import { type Moment, moment, remember } from "./history";
import { parse, type Sample } from "./metrics";

const EVERY = 2_000;
const WARNINGS = 50;

export interface Readiness {
  status: string;
  store: { state: string; reason?: string };
  channels: Record<string, { state: string } & Record<string, unknown>>;
}

export interface Stats {
  total_sessions: number;
  active_sessions: number;
  archived_sessions: number;
  total_messages: number;
  queued_messages: number;
  connections: number;
  undelivered_messages?: number;
  unsynced_bytes?: number;
}

export interface LogEvent {
  ts: string;
  level: string;
  event: string;
  [field: string]: unknown;
}

export interface Numbers {
  samples: Sample[];
  history: Moment[];
  readiness: Readiness;
  stats: Stats;
  warnings: LogEvent[];
}

export interface GatewayState {
  numbers: Numbers | null;
  error: string | null;
}

/** Asks every two seconds while somebody looks. An answer that is slow is waited for. */
export function useGateway(wanted: boolean): GatewayState {
  const [state, setState] = useState<GatewayState>({ numbers: null, error: null });
  useEffect(() => {
    if (!wanted) return;
    const stopped = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const round = async () => {
      try {
        const found = await read(stopped.signal);
        setState(({ numbers }) => ({
          numbers: {
            ...found,
            history: remember(numbers?.history ?? [], moment(found.samples, Date.now())),
          },
          error: null,
        }));
      } catch (error) {
        if (!stopped.signal.aborted)
          setState((old) => ({ ...old, error: error instanceof Error ? error.message : "" }));
      }
      if (!stopped.signal.aborted) timer = setTimeout(round, EVERY);
    };
    void round();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, [wanted]);
  return state;
}

async function read(signal: AbortSignal): Promise<Omit<Numbers, "history">> {
  const [metrics, readiness, stats, logs] = await Promise.all([
    plain("/metrics", signal).then((answer) => {
      if (!answer.ok) throw new Error(strings.errors.unexpected(answer.status));
      return answer.text();
    }),
    // Not ready is an answer too, with the same body.
    plain("/readyz", signal).then((answer) => answer.json() as Promise<Readiness>),
    request<Stats>("GET", "/api/v1/stats", undefined, signal),
    request<{ events: LogEvent[] }>(
      "GET",
      `/api/v1/logs?level=WARNING&limit=${WARNINGS}`,
      undefined,
      signal,
    ),
  ]);
  return { samples: parse(metrics), readiness, stats, warnings: logs.events.toReversed() };
}

async function plain(path: string, signal: AbortSignal): Promise<Response> {
  try {
    return await fetch(path, { signal });
  } catch {
    throw new Error(strings.errors.unreachable);
  }
}

import { strings } from "../strings";
import { clockTime, exactTime } from "../time";
import type { LogEvent } from "./gateway";

const SHOWN_ALREADY = new Set(["ts", "level", "event", "exception"]);

export function Warnings({ events }: { events: LogEvent[] }) {
  return (
    <section>
      <h2>{strings.operations.warnings}</h2>
      {events.length === 0 && <p className="quiet">{strings.operations.noWarnings}</p>}
      <ul className="warnings">
        {numbered(events).map(([key, event]) => (
          <li key={key}>
            <time dateTime={event.ts} title={exactTime(event.ts)}>
              {clockTime(event.ts)}
            </time>
            <span className="pill" data-mood={event.level === "WARNING" ? "warn" : "bad"}>
              {event.level.toLowerCase()}
            </span>
            <code>{event.event}</code>
            <span className="fields">{fields(event)}</span>
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Two events may carry the same time and words. */
function numbered(events: LogEvent[]): [string, LogEvent][] {
  const seen = new Map<string, number>();
  return events.map((event) => {
    const name = `${event.ts} ${event.event}`;
    const at = (seen.get(name) ?? 0) + 1;
    seen.set(name, at);
    return [`${name} ${at}`, event];
  });
}

function fields(event: LogEvent): string {
  return Object.entries(event)
    .filter(([name]) => !SHOWN_ALREADY.has(name))
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

import { useEffect, useState } from "react";
import { dispatch, useApp } from "../shell/store";
import { strings } from "../strings";

/** Beside the name: a dot and a word. */
export function ConnectionDot() {
  const phase = useApp((state) => state.link.phase);
  return (
    <span className="connection" data-phase={phase}>
      <span className="dot" aria-hidden="true" />
      {phase === "open" ? strings.connection.connected : strings.connection.connecting}
    </span>
  );
}

/** Above the composer, only when there has been no connection for a moment. */
export function ConnectionNotice() {
  const phase = useApp((state) => state.link.phase);
  const failures = useApp((state) => state.link.failures);
  const retryAt = useApp((state) => state.link.retryAt);
  const offline = useApp((state) => state.link.offline);
  const stored = useApp((state) => state.stored);
  const now = useNow(phase === "waiting" && !offline);
  if (!stored) return <p className="notice">{strings.connection.notStored}</p>;
  if (phase === "open" || failures < 2) {
    return offline && phase !== "open" ? (
      <p className="notice">{strings.connection.offline}</p>
    ) : null;
  }
  return (
    <p className="notice" role="status">
      {offline
        ? strings.connection.offline
        : phase === "waiting"
          ? strings.connection.waiting(retryAt - now)
          : strings.connection.connecting}
      <button type="button" className="link" onClick={() => dispatch({ type: "online" })}>
        {strings.connection.again}
      </button>
    </p>
  );
}

function useNow(running: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!running) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [running]);
  return now;
}

/** What was refused and belongs to no message. */
export function ProblemNotice() {
  const problem = useApp((state) => state.link.problem);
  if (!problem) return null;
  return (
    <p className="notice error" role="alert">
      {problem.message}
      <button type="button" className="link" onClick={() => dispatch({ type: "seen_problem" })}>
        {strings.errors.close}
      </button>
    </p>
  );
}

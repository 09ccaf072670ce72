import { useEffect, useState } from "react";
import type { Progress } from "../core/view";
import { strings } from "../strings";

export function ProgressItem({ item }: { item: Progress }) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 100);
    return () => clearInterval(timer);
  }, []);
  const elapsed = strings.seconds(Math.max(0, now - new Date(item.time).getTime()));
  const words = item.waiting ? strings.thread.waiting : strings.thread.writing;
  return (
    <p className="progress">
      <span className="spinner" aria-hidden="true" />
      {words(elapsed)}
    </p>
  );
}

import { ChevronRight, RotateCw } from "lucide-react";
import { memo } from "react";
import type { Tool } from "../core/frames";
import type { Answer } from "../core/view";
import { Markdown } from "../markdown/Markdown";
import { submit } from "../shell/store";
import { strings } from "../strings";
import { exactTime } from "../time";
import { CopyButton } from "./CopyButton";
import { Files } from "./Files";

interface Props {
  item: Answer;
  chatKey: string;
  /** The newest answer: only that one can be given again. */
  last: boolean;
}

export const AnswerItem = memo(function AnswerItem({ item, chatKey, last }: Props) {
  return (
    <article
      className="answer"
      aria-label={strings.thread.assistant}
      aria-busy={item.live}
      data-command={item.command}
    >
      {item.seq !== null && (
        <span className="seq" aria-hidden="true">
          {item.seq}
        </span>
      )}
      {item.reasoning && (
        <Fold label={item.live && !item.text ? strings.thread.thinking : strings.thread.reasoning}>
          <p className="reasoning" dir="auto">
            {item.reasoning}
          </p>
        </Fold>
      )}
      {item.tools.length > 0 && <Tools tools={item.tools} live={item.live} />}
      {item.text && <Markdown text={item.text} streaming={item.live} />}
      <Files media={item.media} chatKey={chatKey} seq={item.seq} />
      <Ending item={item} />
      {!item.live && (
        <footer className="answer-foot">
          {item.text && <CopyButton text={item.text} />}
          {last && !item.command && (
            <button
              type="button"
              className="icon small"
              title={strings.thread.regenerate}
              aria-label={strings.thread.regenerate}
              onClick={() => submit(chatKey, { kind: "regenerate", text: "" })}
            >
              <RotateCw size={14} aria-hidden="true" />
            </button>
          )}
          {item.latencyMs !== null && (
            <span className="quiet" title={exactTime(item.time)}>
              {strings.seconds(item.latencyMs)}
            </span>
          )}
        </footer>
      )}
    </article>
  );
});

/** Why an answer ended otherwise than with its last word. */
function Ending({ item }: { item: Answer }) {
  if (item.live) return null;
  if (item.outcome === "failed") {
    return (
      <p className="ending error" role="alert">
        {item.error ? strings.answer.failed(item.error) : strings.answer.failedPlain}
      </p>
    );
  }
  if (item.outcome === "stopped") return <p className="ending">{strings.answer.stopped}</p>;
  if (item.outcome === "interrupted")
    return <p className="ending">{item.error ?? strings.answer.interrupted}</p>;
  return !item.text && item.tools.length === 0 && item.media.length === 0 ? (
    <p className="ending">{strings.answer.empty}</p>
  ) : null;
}

function Tools({ tools, live }: { tools: Tool[]; live: boolean }) {
  const running = live ? tools.find((tool) => tool.phase === "start") : undefined;
  return (
    <Fold
      label={running ? strings.thread.usingTools(running.name) : strings.thread.tools(tools.length)}
    >
      <ul className="tools">
        {tools.map((tool) => (
          <li key={tool.id}>
            <code>{tool.name}</code> {tool.summary}
            {tool.phase !== "end" && <span className="quiet"> {strings.thread.toolRunning}</span>}
          </li>
        ))}
      </ul>
    </Fold>
  );
}

function Fold({ label, children }: { label: string; children: React.ReactNode }) {
  return (
    <details className="fold">
      <summary>
        <ChevronRight size={16} aria-hidden="true" /> {label}
      </summary>
      {children}
    </details>
  );
}

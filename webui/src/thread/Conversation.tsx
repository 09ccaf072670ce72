import { Menu, Target } from "lucide-react";
import { type DragEvent, useEffect, useMemo, useRef, useState } from "react";
import "./thread.css";
import { ConnectionNotice, ProblemNotice } from "../app/Connection";
import { chatIdOf, type Media } from "../core/frames";
import { activeGoal } from "../core/goal";
import { type Answer, type Item, stable, view } from "../core/view";
import { bringBack, useApp } from "../shell/store";
import { attach } from "../shell/uploads";
import { Badge } from "../sidebar/Badge";
import { strings } from "../strings";
import { Composer } from "./Composer";
import { Thread } from "./Thread";

export interface Editing {
  seq: number;
  text: string;
  media: Media[];
}

/** Where the files of what is being written are kept: an edited message has its own. */
export const trayPlace = (chatKey: string, editing: Editing | null): string =>
  editing ? `${chatKey} ${editing.seq}` : chatKey;

export function Conversation({ chatKey, onShowList }: { chatKey: string; onShowList: () => void }) {
  const chat = useApp((state) => state.link.chats[chatKey]);
  const outbox = useApp((state) => state.link.outbox);
  const listed = useApp((state) => state.list.chats.find((one) => one.key === chatKey));
  const connected = useApp((state) => state.link.phase === "open");
  const user = useApp((state) => state.link.ready?.user);
  const [editing, setEditing] = useState<Editing | null>(null);
  const shown = useRef<Item[]>([]);
  const items = useMemo(() => {
    shown.current = stable(shown.current, chat ? view(chat, outbox) : []);
    return shown.current;
  }, [chat, outbox]);
  const title = listed?.title || listed?.preview || chat?.session?.title || strings.sidebar.newChat;
  useEffect(() => {
    document.title =
      title === strings.sidebar.newChat ? strings.product : `${title} · ${strings.product}`;
  }, [title]);
  const loading = chat !== undefined && !chat.absent && chat.log === null && items.length === 0;
  // Administrators see everybody's chats and write in their own.
  const foreign = listed?.user != null && user !== undefined && listed.user !== user;
  // One that is put away takes no messages until it is brought back.
  const state = chat?.session?.state ?? "active";
  const away = state === "archived" || state === "suspended";
  const writable = chatIdOf(chatKey) !== null && !foreign && !away;
  const channel = chatKey.split(":", 1)[0] ?? "";
  const drop = useDrop(writable, (files) => attach(trayPlace(chatKey, editing), files));
  return (
    <main className="conversation" {...drop.handlers}>
      <header className="conversation-head">
        <button
          type="button"
          className="icon phone-only"
          aria-label={strings.sidebar.open}
          onClick={onShowList}
        >
          <Menu size={18} aria-hidden="true" />
        </button>
        <Badge channel={channel} />
        <h2 dir="auto">{title}</h2>
      </header>
      <GoalStrip goal={chat?.session?.goal} />
      {items.length > 0 ? (
        <Thread
          chatKey={chatKey}
          items={items}
          older={chat?.older ?? false}
          writable={writable}
          onEdit={setEditing}
        />
      ) : (
        <div className="welcome">
          {loading ? (
            <p className="quiet">
              {connected ? strings.thread.loading : strings.connection.connecting}
            </p>
          ) : (
            <>
              <p className="welcome-title">{strings.thread.welcome}</p>
              <p className="quiet">{strings.thread.welcomeHint}</p>
            </>
          )}
        </div>
      )}
      <div className="dock">
        <ConnectionNotice />
        <ProblemNotice />
        {away ? (
          <p className="notice">
            {state === "archived" ? strings.thread.archived : strings.thread.suspended}
            {!foreign && (
              <button
                type="button"
                className="link"
                onClick={() => void bringBack({ key: chatKey, state })}
              >
                {strings.sidebar.bringBack}
              </button>
            )}
          </p>
        ) : writable ? (
          <Composer
            chatKey={chatKey}
            running={chat?.turn != null}
            editing={editing}
            onEdited={() => setEditing(null)}
          />
        ) : (
          <p className="notice">
            {foreign
              ? strings.thread.foreign(listed.user ?? "")
              : strings.thread.readOnly(strings.channels[channel] ?? channel)}
          </p>
        )}
      </div>
      <Announcer items={items} />
      {drop.over && <p className="drop-here">{strings.files.drop}</p>}
    </main>
  );
}

function GoalStrip({ goal }: { goal: unknown }) {
  const active = useMemo(() => activeGoal(goal), [goal]);
  if (!active) return null;
  const line = (
    <>
      <Target size={16} aria-hidden="true" />{" "}
      <span className="goal-label">{strings.goal.label}</span>
      <span className="goal-text" dir="auto">
        {active.summary}
      </span>
    </>
  );
  return (
    <section className="goal" aria-label={strings.goal.label}>
      {active.objective ? (
        <details>
          <summary>{line}</summary>
          <p dir="auto">{active.objective}</p>
        </details>
      ) : (
        <p className="goal-line" title={active.summary}>
          {line}
        </p>
      )}
    </section>
  );
}

const hasFiles = (event: { dataTransfer: DataTransfer | null }): boolean =>
  event.dataTransfer?.types.includes("Files") ?? false;

/** Files can be dropped anywhere on the chat. A drop beside it must not leave the page. */
function useDrop(writable: boolean, take: (files: File[]) => void) {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const refuse = (event: globalThis.DragEvent) => {
      if (hasFiles(event)) event.preventDefault();
    };
    window.addEventListener("dragover", refuse);
    window.addEventListener("drop", refuse);
    return () => {
      window.removeEventListener("dragover", refuse);
      window.removeEventListener("drop", refuse);
    };
  }, []);
  const handlers = {
    onDragOver: (event: DragEvent) => {
      if (writable && hasFiles(event)) setOver(true);
    },
    onDragLeave: (event: DragEvent) => {
      if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
    },
    onDrop: (event: DragEvent) => {
      setOver(false);
      if (writable && hasFiles(event)) take([...event.dataTransfer.files]);
    },
  };
  return { over, handlers };
}

/** Tells a screen reader that an answer is complete; the words themselves are in the thread. */
function Announcer({ items }: { items: Item[] }) {
  const last = items.findLast((item): item is Answer => item.kind === "answer");
  const running = last?.live ?? false;
  const was = useRef(false);
  const [text, setText] = useState("");
  useEffect(() => {
    if (was.current && !running) setText(strings.thread.finished);
    if (running) setText("");
    was.current = running;
  }, [running]);
  return (
    <div className="sr-only" role="status">
      {text}
    </div>
  );
}

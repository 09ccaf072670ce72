import { useVirtualizer } from "@tanstack/react-virtual";
import { Ellipsis } from "lucide-react";
import { memo, useEffect, useMemo, useRef, useState } from "react";
import { everyday, type Listed } from "../core/list";
import { addressOfChat, isUnread, loadList, useApp } from "../shell/store";
import { strings } from "../strings";
import { periods, relative } from "../time";
import { Badge } from "./Badge";

type Entry = { heading: string } | { chat: Listed };

interface ChatsProps {
  onChosen: () => void;
  onMenu: (chat: Listed, anchor: HTMLElement) => void;
}

export function Chats({ onChosen, onMenu }: ChatsProps) {
  const chats = useApp((state) => state.list.chats);
  const cursor = useApp((state) => state.list.cursor);
  const filter = useApp((state) => state.list.filter);
  const error = useApp((state) => state.listError);
  const deleting = useApp((state) => state.deleting);
  const open = useApp((state) => state.open);
  const now = useMinute();
  const entries = useMemo(() => {
    const gone = new Set(deleting.map((one) => one.key));
    return withHeadings(
      chats.filter((chat) => !gone.has(chat.key)),
      now,
    );
  }, [chats, deleting, now]);
  const scroller = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: entries.length,
    getScrollElement: () => scroller.current,
    estimateSize: (at) => ("heading" in (entries[at] as Entry) ? 34 : 56),
    getItemKey: (at) => keyOfEntry(entries[at] as Entry),
    overscan: 8,
  });
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (cursor && last >= entries.length - 20) void loadList(false);
  }, [cursor, last, entries.length]);
  // The open chat is in sight after a step with the keys; a list that merely grows stays put.
  const known = useRef(entries);
  known.current = entries;
  useEffect(() => {
    const at = known.current.findIndex((entry) => "chat" in entry && entry.chat.key === open);
    if (at >= 0) rows.scrollToIndex(at, { align: "auto" });
  }, [open, rows]);
  const empty = !error && cursor === null && entries.length === 0;
  return (
    <div className="chats" ref={scroller}>
      {error && (
        <p className="sidebar-note" role="alert">
          {strings.sidebar.failed(error)}{" "}
          <button type="button" className="link" onClick={() => void loadList(true)}>
            {strings.sidebar.again}
          </button>
        </p>
      )}
      {empty && (
        <p className="sidebar-note">
          {filter === everyday ? strings.sidebar.empty : strings.sidebar.none}
        </p>
      )}
      <div className="rows" style={{ height: rows.getTotalSize() }}>
        {items.map((item) => {
          const entry = entries[item.index];
          if (!entry) return null;
          return (
            <div
              key={item.key}
              className="row"
              style={{ transform: `translateY(${item.start}px)`, height: item.size }}
            >
              {"heading" in entry ? (
                <h2>{entry.heading}</h2>
              ) : (
                <ChatRow chat={entry.chat} now={now} onChosen={onChosen} onMenu={onMenu} />
              )}
            </div>
          );
        })}
      </div>
    </div>
  );
}

interface ChatRowProps extends ChatsProps {
  chat: Listed;
  now: Date;
}

const ChatRow = memo(function ChatRow({ chat, now, onChosen, onMenu }: ChatRowProps) {
  const chosen = useApp((state) => state.open === chat.key);
  const unread = useApp(
    (state) =>
      !(state.open === chat.key && !state.hidden) &&
      isUnread(state.seen, chat.key, chat.updated_at),
  );
  const writing = useApp((state) => state.link.chats[chat.key]?.turn != null);
  const title = chat.title || chat.preview || strings.sidebar.untitled;
  const under = writing ? strings.sidebar.writing : chat.title ? chat.preview : "";
  return (
    <div className="chat-row" data-unread={unread}>
      <a
        className="chat-link"
        href={addressOfChat(chat.key)}
        onClick={onChosen}
        aria-current={chosen ? "page" : undefined}
      >
        <span className="chat-title" dir="auto">
          <Badge channel={chat.channel} />
          {title}
        </span>
        <time dateTime={chat.updated_at}>{relative(chat.updated_at, now)}</time>
        <span className="chat-preview" dir="auto">
          {chat.tags.map((tag) => (
            <span key={tag} className="tag">
              {tag}
            </span>
          ))}
          {under}
        </span>
        {unread && (
          <span className="unread">
            <span className="sr-only">{strings.sidebar.unread}</span>
          </span>
        )}
      </a>
      <button
        type="button"
        className="icon small row-menu-button"
        aria-haspopup="menu"
        aria-label={strings.sidebar.menu(title)}
        onClick={(event) => onMenu(chat, event.currentTarget)}
      >
        <Ellipsis size={16} aria-hidden="true" />
      </button>
    </div>
  );
});

function withHeadings(chats: Listed[], now: Date): Entry[] {
  const period = periods(now);
  const entries: Entry[] = [];
  let last = "";
  for (const chat of chats) {
    const heading = period(chat.updated_at);
    if (heading !== last) entries.push({ heading });
    last = heading;
    entries.push({ chat });
  }
  return entries;
}

function keyOfEntry(entry: Entry): string {
  return "heading" in entry ? `heading ${entry.heading}` : entry.chat.key;
}

/** The present, to the minute: relative times grow old. */
function useMinute(): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), 30_000);
    return () => clearInterval(timer);
  }, []);
  return now;
}

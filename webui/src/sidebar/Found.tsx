import { Fragment, type KeyboardEvent, type UIEvent } from "react";
import { highlight, type Listed } from "../core/list";
import { addressOfChat, showMessage } from "../shell/store";
import { strings } from "../strings";
import { relative } from "../time";
import { Badge } from "./Badge";
import { useSearch } from "./search";

const NEAR_END = 400;

export function Found({ query, onChosen }: { query: string; onChosen: () => void }) {
  const search = useSearch(query);
  const fresh = search.query === query && !search.busy;
  const onScroll = (event: UIEvent<HTMLDivElement>) => {
    const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
    if (scrollHeight - scrollTop - clientHeight < NEAR_END) search.more();
  };
  return (
    <>
      <p className="sidebar-note" role="status">
        {search.error !== null
          ? strings.sidebar.failed(search.error)
          : !fresh
            ? strings.sidebar.searching
            : search.chats.length === 0
              ? strings.sidebar.foundNothing
              : strings.sidebar.found(search.chats.length, search.cursor !== null)}
      </p>
      {/* biome-ignore lint/a11y/noStaticElementInteractions: arrows move between the links in it */}
      <div className="found" onScroll={onScroll} onKeyDown={moveFocus} aria-busy={!fresh}>
        {search.chats.map((chat) => (
          <FoundChat key={chat.key} chat={chat} query={search.query} onChosen={onChosen} />
        ))}
      </div>
    </>
  );
}

interface FoundChatProps {
  chat: Listed;
  query: string;
  onChosen: () => void;
}

function FoundChat({ chat, query, onChosen }: FoundChatProps) {
  const title = chat.title || chat.preview || strings.sidebar.untitled;
  const matches = chat.matches ?? [];
  return (
    <article className="found-chat">
      <a className="found-title" href={addressOfChat(chat.key)} onClick={onChosen}>
        <span className="chat-title" dir="auto">
          <Badge channel={chat.channel} />
          {chat.state !== "active" && (
            <span className="badge">{strings.sidebar.states[chat.state] ?? chat.state}</span>
          )}
          <Marked text={title} query={query} />
        </span>
        <time dateTime={chat.updated_at}>{relative(chat.updated_at, new Date())}</time>
      </a>
      {matches.map((match) => (
        <a
          key={match.seq}
          className="snippet"
          dir="auto"
          href={addressOfChat(chat.key, match.seq)}
          onClick={() => {
            // The address may be the present one already.
            showMessage(chat.key, match.seq);
            onChosen();
          }}
        >
          <Marked text={match.snippet} query={query} />
        </a>
      ))}
    </article>
  );
}

function Marked({ text, query }: { text: string; query: string }) {
  let at = 0;
  return highlight(text, query).map((part) => {
    const key = at;
    at += part.text.length;
    return part.hit ? (
      <mark key={key}>{part.text}</mark>
    ) : (
      <Fragment key={key}>{part.text}</Fragment>
    );
  });
}

/** Down and up go from link to link; above the first one is the search box. */
function moveFocus(event: KeyboardEvent<HTMLDivElement>): void {
  if (event.altKey || (event.key !== "ArrowDown" && event.key !== "ArrowUp")) return;
  const links = [...event.currentTarget.querySelectorAll("a")];
  const next =
    links.indexOf(event.target as HTMLAnchorElement) + (event.key === "ArrowUp" ? -1 : 1);
  event.preventDefault();
  if (next < 0) document.querySelector<HTMLElement>(".search input")?.focus();
  else links[next]?.focus();
}

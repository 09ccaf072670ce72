import { lazy, Suspense, useCallback, useEffect, useState } from "react";
import "./app.css";
import { neighbour } from "../core/list";
import { current, loadList, newChat, openChat, useApp } from "../shell/store";
import { Sidebar } from "../sidebar/Sidebar";
import { Toasts } from "../sidebar/Toasts";
import { Conversation } from "../thread/Conversation";
import { Login } from "./Login";

const Operations = lazy(() => import("../ops/Operations"));

export function App() {
  const refused = useApp((state) => state.link.phase === "refused");
  const open = useApp((state) => state.open);
  const page = useApp((state) => state.page);
  const [listShown, setListShown] = useState(false);
  const hideList = useCallback(() => setListShown(false), []);
  const showList = useCallback(() => setListShown(true), []);
  useShortcuts(showList);
  useEffect(() => {
    if (open !== null) setListShown(false);
  }, [open]);
  if (refused) return <Login />;
  return (
    <div className="shell" data-list={listShown}>
      <Sidebar onClose={hideList} />
      {page === "operations" && (
        <Suspense fallback={<main />}>
          <Operations onShowList={showList} />
        </Suspense>
      )}
      {open !== null && <Conversation key={open} chatKey={open} onShowList={showList} />}
      <Toasts />
    </div>
  );
}

/** Alt with an arrow: the chat above or below. Ctrl Shift O: a new one. Ctrl K: the search. */
function useShortcuts(showList: () => void) {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") showList();
      if ((event.ctrlKey || event.metaKey) && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        newChat();
      }
      if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown")) {
        event.preventDefault();
        step(event.key === "ArrowUp" ? -1 : 1);
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [showList]);
}

function step(by: number) {
  const { list, open, deleting } = current();
  const gone = new Set(deleting.map((one) => one.key));
  const chats = list.chats.filter((chat) => !gone.has(chat.key));
  const next = neighbour(chats, open, by);
  if (next !== null) openChat(next);
  else if (by > 0) void loadList(false);
}

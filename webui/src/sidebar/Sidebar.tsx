import { Activity, LogOut, Monitor, Moon, Plus, Sun, X } from "lucide-react";
import { useState } from "react";
import "./sidebar.css";
import { ConnectionDot } from "../app/Connection";
import { loadTheme, saveTheme, type Theme } from "../shell/storage";
import { logout, newChat, OPERATIONS, useApp } from "../shell/store";
import { strings } from "../strings";
import { useRowActions } from "./actions";
import { Chats } from "./Chats";
import { EditDialog } from "./EditDialog";
import { Filters } from "./Filters";
import { Found } from "./Found";
import { RowMenu } from "./RowMenu";
import { SearchBox } from "./SearchBox";

export function Sidebar({ onClose }: { onClose: () => void }) {
  const [query, setQuery] = useState("");
  const actions = useRowActions();
  return (
    <nav className="sidebar" aria-label={strings.sidebar.label}>
      <header className="sidebar-head">
        <h1>{strings.product}</h1>
        <button
          type="button"
          className="icon"
          title={strings.sidebar.newChat}
          aria-label={strings.sidebar.newChat}
          onClick={() => {
            newChat();
            onClose();
          }}
        >
          <Plus size={18} aria-hidden="true" />
        </button>
        <button
          type="button"
          className="icon phone-only"
          aria-label={strings.sidebar.close}
          onClick={onClose}
        >
          <X size={18} aria-hidden="true" />
        </button>
      </header>
      <SearchBox query={query} onChange={setQuery} />
      {query.trim() === "" ? (
        <>
          <Filters />
          <Chats onChosen={onClose} onMenu={actions.openMenu} />
        </>
      ) : (
        <Found query={query.trim()} onChosen={onClose} />
      )}
      <Foot onChosen={onClose} />
      <RowMenu open={actions.menu} onClose={actions.closeMenu} onEdit={actions.edit} />
      {actions.editing && <EditDialog chat={actions.editing} onClose={actions.stopEditing} />}
    </nav>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const ICONS = { system: Monitor, light: Sun, dark: Moon };

function Foot({ onChosen }: { onChosen: () => void }) {
  const user = useApp((state) => state.link.ready?.user ?? state.me?.user ?? "");
  const admin = useApp((state) => (state.link.ready?.role ?? state.me?.role) === "admin");
  const mode = useApp((state) => state.me?.mode);
  const operating = useApp((state) => state.page === "operations");
  const [theme, setTheme] = useState(loadTheme);
  const Icon = ICONS[theme];
  const change = () => {
    saveTheme(NEXT[theme]);
    setTheme(NEXT[theme]);
  };
  return (
    <footer className="sidebar-foot">
      <div className="who">
        <strong>{user}</strong>
        <ConnectionDot />
      </div>
      {admin && (
        <a
          className="icon"
          href={OPERATIONS}
          title={strings.sidebar.operations}
          aria-label={strings.sidebar.operations}
          aria-current={operating ? "page" : undefined}
          onClick={onChosen}
        >
          <Activity size={16} aria-hidden="true" />
        </a>
      )}
      <button
        type="button"
        className="icon"
        title={strings.theme[theme]}
        aria-label={strings.theme[theme]}
        onClick={change}
      >
        <Icon size={16} aria-hidden="true" />
      </button>
      {mode === "token" && (
        <button
          type="button"
          className="icon"
          title={strings.sidebar.logout}
          aria-label={strings.sidebar.logout}
          onClick={() => void logout()}
        >
          <LogOut size={16} aria-hidden="true" />
        </button>
      )}
    </footer>
  );
}

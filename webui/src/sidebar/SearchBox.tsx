import { Search, X } from "lucide-react";
import { type KeyboardEvent, useEffect, useRef } from "react";
import { strings } from "../strings";

const MOST = 200;

interface Props {
  query: string;
  onChange: (query: string) => void;
}

export function SearchBox({ query, onChange }: Props) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const onKey = (event: globalThis.KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey) return;
      if (event.key.toLowerCase() !== "k") return;
      event.preventDefault();
      input.current?.focus();
      input.current?.select();
      // On a phone the list is only now coming into sight.
      requestAnimationFrame(() => input.current?.focus());
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  const onKeyDown = (event: KeyboardEvent<HTMLInputElement>) => {
    if (event.key === "Escape") {
      if (query === "") input.current?.blur();
      onChange("");
    }
    if (event.key === "ArrowDown" || event.key === "Enter") {
      const first = document.querySelector<HTMLElement>(".found a, .chats a");
      if (!first || event.nativeEvent.isComposing) return;
      event.preventDefault();
      if (event.key === "ArrowDown") first.focus();
      else if (query.trim() !== "") first.click();
    }
  };
  return (
    <div className="search">
      <Search size={15} aria-hidden="true" />
      <input
        ref={input}
        type="search"
        enterKeyHint="search"
        autoComplete="off"
        spellCheck={false}
        maxLength={MOST}
        placeholder={strings.sidebar.search}
        aria-label={strings.sidebar.search}
        aria-keyshortcuts="Control+K"
        value={query}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={onKeyDown}
      />
      {query === "" ? (
        <span className="keys" aria-hidden="true">
          {strings.sidebar.searchKeys}
        </span>
      ) : (
        <button
          type="button"
          className="icon small"
          aria-label={strings.sidebar.clear}
          onClick={() => {
            onChange("");
            input.current?.focus();
          }}
        >
          <X size={15} aria-hidden="true" />
        </button>
      )}
    </div>
  );
}

import { useCallback, useState } from "react";
import type { Listed } from "../core/list";

/** Which chat's menu is open, and beside what. */
export interface OpenMenu {
  chat: Listed;
  anchor: HTMLElement;
}

/** One menu and one dialog serve every row: rows come and go while one scrolls. */
export function useRowActions() {
  const [menu, setMenu] = useState<OpenMenu | null>(null);
  const [editing, setEditing] = useState<Listed | null>(null);
  const openMenu = useCallback(
    (chat: Listed, anchor: HTMLElement) =>
      setMenu((open) => (open?.chat.key === chat.key ? null : { chat, anchor })),
    [],
  );
  const closeMenu = useCallback(() => setMenu(null), []);
  const stopEditing = useCallback(() => setEditing(null), []);
  return { menu, openMenu, closeMenu, editing, edit: setEditing, stopEditing };
}

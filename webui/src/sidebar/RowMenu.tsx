import { Archive, ArchiveRestore, Download, PencilLine, Tag, Trash2 } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useEffect, useRef } from "react";
import type { Listed } from "../core/list";
import * as api from "../shell/api";
import { archiveChat, bringBack, current, deleteChat, setFilter } from "../shell/store";
import { strings } from "../strings";
import type { OpenMenu } from "./actions";

interface Props {
  open: OpenMenu | null;
  onClose: () => void;
  onEdit: (chat: Listed) => void;
}

const GAP = 4;

/** The browser closes it on Escape or a click elsewhere and gives the focus back. */
export function RowMenu({ open, onClose, onEdit }: Props) {
  const menu = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const element = menu.current;
    if (!element) return;
    if (!open) {
      element.hidePopover();
      return;
    }
    element.showPopover();
    place(element, open.anchor);
    items(element)[0]?.focus();
  }, [open]);
  const chat = open?.chat;
  return (
    <div
      ref={menu}
      className="menu"
      popover="auto"
      role="menu"
      tabIndex={-1}
      aria-label={chat ? strings.sidebar.menu(chat.title || chat.preview) : undefined}
      onKeyDown={move}
      onToggle={(event) => {
        if (event.newState === "closed") onClose();
      }}
    >
      {chat && <Items chat={chat} onClose={onClose} onEdit={onEdit} />}
    </div>
  );
}

interface ItemsProps {
  chat: Listed;
  onClose: () => void;
  onEdit: (chat: Listed) => void;
}

function Items({ chat, onClose, onEdit }: ItemsProps) {
  const ended = chat.key.includes("#");
  const after = (work: () => unknown) => () => {
    onClose();
    work();
  };
  return (
    <>
      {!ended && (
        <MenuItem
          icon={<PencilLine size={15} aria-hidden="true" />}
          onClick={after(() => onEdit(chat))}
        >
          {strings.sidebar.rename}
        </MenuItem>
      )}
      {chat.tags.map((tag) => (
        <MenuItem
          key={tag}
          icon={<Tag size={15} aria-hidden="true" />}
          onClick={after(() => setFilter({ ...current().list.filter, tag }))}
        >
          {strings.sidebar.filteredTag(tag)}
        </MenuItem>
      ))}
      {chat.state === "active" ? (
        <MenuItem
          icon={<Archive size={15} aria-hidden="true" />}
          onClick={after(() => archiveChat(chat.key))}
        >
          {strings.sidebar.archive}
        </MenuItem>
      ) : (
        <MenuItem
          icon={<ArchiveRestore size={15} aria-hidden="true" />}
          onClick={after(() => bringBack(chat))}
        >
          {strings.sidebar.bringBack}
        </MenuItem>
      )}
      <a
        role="menuitem"
        tabIndex={-1}
        href={api.exportAddress(chat.key)}
        download=""
        onClick={onClose}
      >
        <Download size={15} aria-hidden="true" /> {strings.sidebar.export}
      </a>
      {!ended && (
        <MenuItem
          danger
          icon={<Trash2 size={15} aria-hidden="true" />}
          onClick={after(() => deleteChat(chat))}
        >
          {strings.sidebar.delete}
        </MenuItem>
      )}
    </>
  );
}

interface MenuItemProps {
  icon: ReactNode;
  children: ReactNode;
  danger?: boolean;
  onClick: () => void;
}

function MenuItem({ icon, children, danger, onClick }: MenuItemProps) {
  return (
    <button type="button" role="menuitem" tabIndex={-1} data-danger={danger} onClick={onClick}>
      {icon} {children}
    </button>
  );
}

const items = (menu: HTMLElement): HTMLElement[] => [
  ...menu.querySelectorAll<HTMLElement>("[role=menuitem]"),
];

/** Under the button, or above it where there is no room; always on the screen. */
function place(menu: HTMLElement, anchor: HTMLElement): void {
  const button = anchor.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const below = button.bottom + GAP + height <= window.innerHeight;
  const top = below ? button.bottom + GAP : Math.max(GAP, button.top - GAP - height);
  const left = Math.min(button.left, window.innerWidth - width - GAP);
  menu.style.top = `${top}px`;
  menu.style.left = `${Math.max(GAP, left)}px`;
}

function move(event: KeyboardEvent<HTMLElement>): void {
  const all = items(event.currentTarget);
  const at = all.indexOf(document.activeElement as HTMLElement);
  const steps: Record<string, number> = {
    ArrowDown: at + 1,
    ArrowUp: at - 1,
    Home: 0,
    End: all.length - 1,
  };
  const next = steps[event.key];
  if (next !== undefined) {
    event.preventDefault();
    event.stopPropagation();
    all.at(next % all.length)?.focus();
  } else if (event.key === "Tab") {
    event.currentTarget.hidePopover();
  }
}

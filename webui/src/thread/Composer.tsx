import { ArrowUp, Paperclip, Square } from "lucide-react";
import {
  type ClipboardEvent,
  type KeyboardEvent,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { type Attachment, sendable as ready } from "../core/files";
import { draftOf, saveDraft } from "../shell/storage";
import { dispatch, submit, useApp } from "../shell/store";
import { attach, empty, fill, useTray } from "../shell/uploads";
import { strings } from "../strings";
import { type Editing, trayPlace } from "./Conversation";
import { Tray } from "./Tray";

interface Props {
  chatKey: string;
  running: boolean;
  editing: Editing | null;
  onEdited: () => void;
}

const encoder = new TextEncoder();

export function Composer({ chatKey, running, editing, onEdited }: Props) {
  const [text, setText] = useState(() => draftOf(chatKey));
  const limit = useApp((state) => state.link.ready?.limits.text ?? 65_536);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const draft = useRef("");
  const before = useRef<Editing | null>(null);
  const place = trayPlace(chatKey, editing);
  const tray = useTray(place);
  useEffect(() => {
    const was = before.current;
    before.current = editing;
    if (!editing) return;
    if (was) empty(trayPlace(chatKey, was));
    else draft.current = field.current?.value ?? "";
    fill(trayPlace(chatKey, editing), editing.media);
    setText(editing.text);
    field.current?.focus();
  }, [chatKey, editing]);
  useEffect(() => {
    if (!editing) saveDraft(chatKey, text);
  }, [chatKey, text, editing]);
  useGrowing(field, text);
  const over = text.length * 3 > limit ? encoder.encode(text).length - limit : 0;
  const media = ready(tray.attachments);
  const filled = text.trim() !== "" || tray.attachments.length > 0;
  const sendable = filled && over <= 0 && media !== null;

  const leave = () => {
    empty(place);
    setText(draft.current);
    onEdited();
  };
  const send = () => {
    if (!sendable) return;
    const files = media.length > 0 ? { media } : {};
    submit(chatKey, { text, ...files, ...(editing ? { replaces: editing.seq } : {}) });
    if (editing) leave();
    else {
      setText("");
      empty(place);
    }
    field.current?.focus();
  };
  const stop = () => dispatch({ type: "stop", key: chatKey, all: false });
  const onPaste = (event: ClipboardEvent) => {
    // A table copied from a program is text with a picture of it beside: the text is meant.
    const { files } = event.clipboardData;
    if (files.length === 0 || event.clipboardData.types.includes("text/plain")) return;
    event.preventDefault();
    attach(place, [...files]);
  };
  const note = hint(over, tray.attachments);
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape") {
      if (editing) leave();
      else if (running) stop();
    }
  };
  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      {editing && (
        <p className="composer-note">
          {strings.thread.edit}
          <button type="button" className="link" onClick={leave}>
            {strings.thread.cancel}
          </button>
        </p>
      )}
      <Tray place={place} tray={tray} />
      <textarea
        ref={field}
        rows={1}
        dir="auto"
        value={text}
        placeholder={strings.composer.placeholder}
        aria-label={strings.composer.label}
        aria-invalid={over > 0}
        // biome-ignore lint/a11y/noAutofocus: writing is what this page is for
        autoFocus
        onChange={(event) => setText(event.target.value)}
        onKeyDown={onKey}
        onPaste={onPaste}
      />
      <div className="composer-foot">
        <button
          type="button"
          className="icon"
          title={strings.files.add}
          aria-label={strings.files.add}
          onClick={() => picker.current?.click()}
        >
          <Paperclip size={18} aria-hidden="true" />
        </button>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          aria-hidden="true"
          tabIndex={-1}
          onChange={(event) => {
            attach(place, [...(event.target.files ?? [])]);
            event.target.value = "";
            field.current?.focus();
          }}
        />
        <span className={note.urgent ? "hint error-text" : "hint"} role="status">
          {note.text}
        </span>
        {running && !filled ? (
          <button
            type="button"
            className="send"
            title={strings.composer.stop}
            aria-label={strings.composer.stop}
            onClick={stop}
          >
            <Square size={13} fill="currentColor" aria-hidden="true" />
          </button>
        ) : (
          <button
            type="submit"
            className="send"
            title={strings.composer.send}
            aria-label={strings.composer.send}
            disabled={!sendable}
          >
            <ArrowUp size={18} aria-hidden="true" />
          </button>
        )}
      </div>
    </form>
  );
}

function hint(over: number, attachments: Attachment[]): { text: string; urgent: boolean } {
  if (over > 0) return { text: strings.composer.tooLong(over), urgent: true };
  if (attachments.some((one) => one.state === "failed")) {
    return { text: strings.files.stuck, urgent: true };
  }
  const busy = attachments.some((one) => one.state !== "done");
  return { text: busy ? strings.files.busy : strings.composer.hint, urgent: busy };
}

/** As high as its text, up to what the stylesheet allows. */
function useGrowing(field: React.RefObject<HTMLTextAreaElement | null>, text: string) {
  useLayoutEffect(() => {
    const element = field.current;
    if (!element || (text === "" && element.style.height === "")) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [field, text]);
}

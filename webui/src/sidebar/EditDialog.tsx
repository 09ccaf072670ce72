import { type FormEvent, useEffect, useRef, useState } from "react";
import { type Listed, readTags } from "../core/list";
import { changeChat } from "../shell/store";
import { strings } from "../strings";

interface Props {
  chat: Listed;
  onClose: () => void;
}

export function EditDialog({ chat, onClose }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [title, setTitle] = useState(chat.title);
  const [tags, setTags] = useState(chat.tags.join(", "));
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    if (await changeChat(chat.key, title.trim(), readTags(tags))) dialog.current?.close();
    setBusy(false);
  };
  return (
    <dialog ref={dialog} className="edit" aria-labelledby="edit-head" onClose={onClose}>
      <form onSubmit={submit}>
        <h2 id="edit-head">{strings.sidebar.rename}</h2>
        <label htmlFor="edit-title">{strings.sidebar.title}</label>
        <input
          id="edit-title"
          maxLength={200}
          value={title}
          placeholder={chat.preview}
          onChange={(event) => setTitle(event.target.value)}
        />
        <label htmlFor="edit-tags">{strings.sidebar.tags}</label>
        <input
          id="edit-tags"
          value={tags}
          aria-describedby="edit-hint"
          onChange={(event) => setTags(event.target.value)}
        />
        <p id="edit-hint" className="quiet">
          {strings.sidebar.tagsHint}
        </p>
        <div className="edit-buttons">
          <button type="button" className="button" onClick={() => dialog.current?.close()}>
            {strings.thread.cancel}
          </button>
          <button type="submit" className="button primary" disabled={busy}>
            {strings.sidebar.save}
          </button>
        </div>
      </form>
    </dialog>
  );
}

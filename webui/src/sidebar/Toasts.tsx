import { forgetMishap, undoDelete, useApp } from "../shell/store";
import { strings } from "../strings";

/** What can still be taken back, and what did not work. */
export function Toasts() {
  const deleting = useApp((state) => state.deleting);
  const user = useApp((state) => state.link.ready?.user);
  const mishap = useApp((state) => state.mishap);
  const mine = deleting.filter((one) => one.user === user);
  return (
    <section className="toasts" aria-label={strings.sidebar.actions} aria-live="polite">
      {mine.map((one) => (
        <p key={one.key} className="toast">
          <span className="toast-text">
            {strings.sidebar.deleted(one.title || strings.sidebar.untitled)}
          </span>
          {!one.sent && (
            <button type="button" className="link" onClick={() => undoDelete(one.key)}>
              {strings.sidebar.undo}
            </button>
          )}
        </p>
      ))}
      {mishap !== null && (
        <p className="toast" data-bad="true">
          <span className="toast-text">{mishap}</span>
          <button type="button" className="link" onClick={forgetMishap}>
            {strings.errors.close}
          </button>
        </p>
      )}
    </section>
  );
}

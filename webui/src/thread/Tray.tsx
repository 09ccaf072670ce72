import { File as FileIcon, X } from "lucide-react";
import { type Attachment, isPicture } from "../core/files";
import { remove, retry, type Tray as TrayState } from "../shell/uploads";
import { strings } from "../strings";

/** The files of a message that is being written. */
export function Tray({ place, tray }: { place: string; tray: TrayState }) {
  return (
    <>
      {tray.refused.length > 0 && (
        <div className="composer-note error-text" role="alert">
          {tray.refused.map((reason) => (
            <p key={reason}>{reason}</p>
          ))}
        </div>
      )}
      {tray.attachments.length > 0 && (
        <ul className="tray" aria-label={strings.files.list}>
          {tray.attachments.map((one) => (
            <Chip key={one.id} place={place} one={one} />
          ))}
        </ul>
      )}
    </>
  );
}

function Chip({ place, one }: { place: string; one: Attachment }) {
  const label = strings.files.remove(one.name);
  const picture = one.preview ?? (isPicture(one) ? one.media?.url : undefined);
  return (
    <li className="chip" data-state={one.state}>
      {picture ? <img src={picture} alt="" /> : <FileIcon size={18} aria-hidden="true" />}
      <span className="chip-text">
        <span className="chip-name" dir="auto">
          {one.name}
        </span>
        <Standing place={place} one={one} />
      </span>
      <button
        type="button"
        className="icon small"
        title={label}
        aria-label={label}
        onClick={() => remove(place, one.id)}
      >
        <X size={14} aria-hidden="true" />
      </button>
      {one.state === "uploading" && <progress value={one.progress} max={1} aria-label={one.name} />}
    </li>
  );
}

function Standing({ place, one }: { place: string; one: Attachment }) {
  if (one.state === "failed") {
    return (
      <span className="chip-state error-text" role="alert">
        {strings.files.failed(one.error ?? "")}{" "}
        <button type="button" className="link" onClick={() => retry(place, one.id)}>
          {strings.files.again}
        </button>
      </span>
    );
  }
  const words = {
    uploading: strings.files.uploading(one.progress),
    waiting: strings.files.waiting,
    done: strings.bytes(one.size),
  };
  return <span className="chip-state">{words[one.state]}</span>;
}

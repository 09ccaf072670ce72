import { Check, CheckCheck, Clock, Pencil, TriangleAlert } from "lucide-react";
import { memo } from "react";
import type { Mine } from "../core/view";
import { dispatch } from "../shell/store";
import { strings } from "../strings";
import { clockTime, exactTime } from "../time";
import type { Editing } from "./Conversation";
import { CopyButton } from "./CopyButton";
import { Files } from "./Files";

interface Props {
  item: Mine;
  chatKey: string;
  writable: boolean;
  onEdit: (editing: Editing) => void;
}

export const MineItem = memo(function MineItem({ item, chatKey, writable, onEdit }: Props) {
  const { seq } = item;
  return (
    <article className="mine" aria-label={strings.thread.you}>
      {seq !== null && (
        <span className="seq" aria-hidden="true">
          {seq}
        </span>
      )}
      <Files media={item.media} chatKey={chatKey} seq={seq} />
      {item.text && (
        <div className="bubble" data-command={item.command} dir="auto">
          {item.text}
        </div>
      )}
      <footer className="mine-foot">
        <span className="actions">
          {item.text && <CopyButton text={item.text} />}
          {writable && seq !== null && !item.command && (
            <button
              type="button"
              className="icon small"
              title={strings.thread.edit}
              aria-label={strings.thread.edit}
              onClick={() => onEdit({ seq, text: item.text, media: item.media })}
            >
              <Pencil size={14} aria-hidden="true" />
            </button>
          )}
        </span>
        <DeliveryState item={item} />
      </footer>
    </article>
  );
});

function DeliveryState({ item }: { item: Mine }) {
  const { delivery, id } = item;
  if (delivery.state === "failed" && id !== null) {
    return (
      <span className="delivery failed" role="alert">
        <TriangleAlert size={14} aria-hidden="true" /> {strings.delivery.failed(delivery.reason)}
        <button type="button" className="link" onClick={() => dispatch({ type: "retry", id })}>
          {strings.thread.resend}
        </button>
        <button type="button" className="link" onClick={() => dispatch({ type: "discard", id })}>
          {strings.thread.discard}
        </button>
      </span>
    );
  }
  const Icon = delivery.state === "ended" ? CheckCheck : item.seq === null ? Clock : Check;
  const edited = item.edited ? ` · ${strings.thread.edited}` : "";
  return (
    <span className="delivery" title={exactTime(item.time)} data-state={delivery.state}>
      <Icon size={14} aria-hidden="true" /> {words(item)}
      {edited} · {clockTime(item.time)}
    </span>
  );
}

function words(item: Mine): string {
  const { delivery, outcome } = item;
  switch (delivery.state) {
    case "ended":
      return strings.outcome[outcome ?? ""] ?? strings.delivery.stored;
    case "queued":
      return strings.delivery.queued(delivery.before);
    case "failed":
      return strings.delivery.failed(delivery.reason);
    default:
      return strings.delivery[delivery.state];
  }
}

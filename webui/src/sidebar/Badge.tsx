import { strings } from "../strings";

/** Where a chat takes place, if not on this page. */
export function Badge({ channel }: { channel: string }) {
  if (channel === "websocket") return null;
  return <span className="badge">{strings.channels[channel] ?? channel}</span>;
}

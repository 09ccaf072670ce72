// Files that are to go with a message: what may be added, and where each one stands. Pure.

import type { Limits, Media } from "./frames";

export interface Attachment {
  id: string;
  name: string;
  mime: string;
  size: number;
  /** Waiting: the gateway could not be reached, it is tried again with the next connection. */
  state: "uploading" | "waiting" | "done" | "failed";
  /** How much has been sent, 0 to 1. */
  progress: number;
  /** A picture of it on this device. */
  preview: string | null;
  media: Media | null;
  error: string | null;
}

export type Refusal =
  | { reason: "too_large"; name: string; size: number; most: number }
  | { reason: "too_many"; most: number; left: number };

type Sized = { name: string; size: number };

/** Which of the files fit, in their order, and why the others do not. */
export function admit<F extends Sized>(
  held: number,
  files: F[],
  limits: Pick<Limits, "upload" | "media_per_message">,
): { taken: F[]; refused: Refusal[] } {
  const refused: Refusal[] = [];
  const small = files.filter(({ name, size }) => {
    if (size <= limits.upload) return true;
    refused.push({ reason: "too_large", name, size, most: limits.upload });
    return false;
  });
  const most = limits.media_per_message;
  const taken = small.slice(0, Math.max(0, most - held));
  if (taken.length < small.length) {
    refused.push({ reason: "too_many", most, left: small.length - taken.length });
  }
  return { taken, refused };
}

/** A file that is on the gateway already. */
export function stored(media: Media): Attachment {
  const { id, name, mime, size } = media;
  return { id, name, mime, size, state: "done", progress: 1, preview: null, media, error: null };
}

/** Null while one of them is not there yet. */
export function sendable(attachments: Attachment[]): Media[] | null {
  const media = attachments.flatMap((one) => (one.media ? [one.media] : []));
  return media.length === attachments.length ? media : null;
}

const INLINE = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** The gateway shows only these; everything else it gives to be saved. */
export const isPicture = (file: { mime: string }): boolean => INLINE.has(file.mime);

/** Whether a signed link has run out; one without an end never does. */
export function expired(url: string, now: number): boolean {
  const found = /[?&]exp=(\d+)/.exec(url);
  return found !== null && Number(found[1]) * 1000 <= now;
}

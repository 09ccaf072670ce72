// Files on their way to the gateway. They belong to a chat, not to what is drawn of it: going to
// another chat stops nothing. What has arrived is kept with the draft; the rest dies with the tab.

import { useSyncExternalStore } from "react";
import { type Attachment, admit, isPicture, stored } from "../core/files";
import type { Media } from "../core/frames";
import { strings } from "../strings";
import { draftFiles, saveDraftFiles } from "./storage";
import { current, whenReady } from "./store";

export interface Tray {
  attachments: Attachment[];
  /** Why a file was not taken. */
  refused: string[];
  /** Whether it survives a reload: the draft does, an edit does not. */
  kept: boolean;
}

const trays = new Map<string, Tray>();
const running = new Map<string, { file: File; request: XMLHttpRequest | null }>();
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function trayOf(place: string): Tray {
  const known = trays.get(place);
  if (known) return known;
  const fresh = { attachments: draftFiles(place).map(stored), refused: [], kept: true };
  trays.set(place, fresh);
  return fresh;
}

export function useTray(place: string): Tray {
  return useSyncExternalStore(subscribe, () => trayOf(place));
}

function set(place: string, change: Partial<Tray>): void {
  const tray = { ...trayOf(place), ...change };
  trays.set(place, tray);
  const media = tray.attachments.flatMap((one) => (one.media ? [one.media] : []));
  if (tray.kept) saveDraftFiles(place, media);
  for (const listener of listeners) listener();
}

function change(place: string, id: string, fields: Partial<Attachment>): void {
  const { attachments } = trayOf(place);
  set(place, {
    attachments: attachments.map((one) => (one.id === id ? { ...one, ...fields } : one)),
  });
}

/** What a message that is edited carries already. */
export function fill(place: string, media: Media[]): void {
  set(place, { attachments: media.map(stored), refused: [], kept: false });
}

export function attach(place: string, files: File[]): void {
  const { attachments } = trayOf(place);
  const limits = current().link.ready?.limits ?? { upload: Infinity, media_per_message: 10 };
  const { taken, refused } = admit(attachments.length, files, limits);
  const added = taken.map((file): Attachment => {
    const id = crypto.randomUUID();
    running.set(id, { file, request: null });
    return {
      id,
      name: file.name,
      mime: file.type,
      size: file.size,
      state: "waiting",
      progress: 0,
      preview: isPicture({ mime: file.type }) ? URL.createObjectURL(file) : null,
      media: null,
      error: null,
    };
  });
  set(place, {
    attachments: [...attachments, ...added],
    refused: refused.map((one) =>
      one.reason === "too_many"
        ? strings.files.tooMany(one.most, one.left)
        : strings.files.tooLarge(one.name, one.size, one.most),
    ),
  });
  for (const { id } of added) send(place, id);
}

export function remove(place: string, id: string): void {
  release(trayOf(place).attachments.filter((one) => one.id === id));
  set(place, {
    attachments: trayOf(place).attachments.filter((one) => one.id !== id),
    refused: [],
  });
}

export function empty(place: string): void {
  release(trayOf(place).attachments);
  set(place, { attachments: [], refused: [] });
}

function release(gone: Attachment[]): void {
  for (const one of gone) {
    running.get(one.id)?.request?.abort();
    running.delete(one.id);
    if (one.preview) URL.revokeObjectURL(one.preview);
  }
}

export const retry = (place: string, id: string): void => send(place, id);

whenReady(() => {
  for (const [place, tray] of trays)
    for (const one of tray.attachments) if (one.state === "waiting") send(place, one.id);
});

function send(place: string, id: string): void {
  const upload = running.get(id);
  if (!upload) return;
  const request = new XMLHttpRequest();
  upload.request = request;
  change(place, id, { state: "uploading", progress: 0, error: null });
  request.upload.onprogress = (event) => {
    if (event.lengthComputable) change(place, id, { progress: event.loaded / event.total });
  };
  request.onload = () => {
    const answer = read(request.responseText);
    if (request.status === 201 && answer.id !== undefined) {
      running.delete(id);
      change(place, id, { state: "done", progress: 1, media: answer as Media });
    } else {
      const error = answer.detail ?? strings.errors.unexpected(request.status);
      change(place, id, { state: "failed", error });
    }
  };
  request.onerror = () => {
    if (current().link.phase === "open") {
      change(place, id, { state: "failed", error: strings.errors.unreachable });
    } else change(place, id, { state: "waiting", progress: 0 });
  };
  request.open("POST", "/api/v1/media");
  const body = new FormData();
  body.set("file", upload.file, upload.file.name);
  request.send(body);
}

function read(text: string): Partial<Media> & { detail?: string } {
  try {
    return JSON.parse(text) as Partial<Media>;
  } catch {
    return {};
  }
}

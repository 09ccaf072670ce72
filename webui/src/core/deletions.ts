// Chats that somebody wants to delete. Nothing is sent for a few seconds, so that it can be taken
// back. Pure: `shell/deletions.ts` keeps them and carries them out.

export interface Deletion {
  key: string;
  title: string;
  /** Who asked for it: never carried out in another user's name. */
  user: string;
  /** The chat as it was when this was asked for. */
  updated_at: string;
  /** Not before this time; milliseconds. */
  due: number;
  /** It is on its way and can no longer be taken back. */
  sent: boolean;
}

export const GRACE = 6_000;
const PAUSE = 15_000;
const OLD = 60_000;

export function ask(
  all: Deletion[],
  chat: Pick<Deletion, "key" | "title" | "updated_at">,
  user: string,
  now: number,
): Deletion[] {
  const { key, title, updated_at } = chat;
  const asked = { key, title, user, updated_at, due: now + GRACE, sent: false };
  return [...all.filter((one) => one.key !== key), asked];
}

export const takeBack = (all: Deletion[], key: string): Deletion[] =>
  all.filter((one) => one.key !== key || one.sent);

export const done = (all: Deletion[], key: string): Deletion[] =>
  all.filter((one) => one.key !== key);

export const begin = (all: Deletion[], key: string): Deletion[] =>
  all.map((one) => (one.key === key ? { ...one, sent: true } : one));

/** The gateway could not be asked: later again, and until then it can be taken back. */
export const postpone = (all: Deletion[], key: string, now: number): Deletion[] =>
  all.map((one) => (one.key === key ? { ...one, due: now + PAUSE, sent: false } : one));

export const ready = (all: Deletion[], user: string, now: number): Deletion[] =>
  all.filter((one) => one.user === user && one.due <= now);

/** So late that somebody may have written there since: the browser was closed for a while. */
export const isOld = (one: Deletion, now: number): boolean => now - one.due > OLD;

export function nextDue(all: Deletion[], user: string): number | null {
  const times = all.filter((one) => one.user === user).map((one) => one.due);
  return times.length > 0 ? Math.min(...times) : null;
}

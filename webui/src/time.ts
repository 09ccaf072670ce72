// Times as people read them.

import { strings } from "./strings";

const clock = new Intl.DateTimeFormat(strings.locale, {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const weekday = new Intl.DateTimeFormat(strings.locale, { weekday: "short" });
const dayMonth = new Intl.DateTimeFormat(strings.locale, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(strings.locale, {
  weekday: "long",
  day: "numeric",
  month: "long",
  year: "numeric",
});
const exact = new Intl.DateTimeFormat(strings.locale, { dateStyle: "full", timeStyle: "medium" });
const DAY = 86_400_000;

/** How many days ago, by the calendar. */
export function daysAgo(time: string, now: Date): number {
  const then = new Date(time);
  const a = new Date(then.getFullYear(), then.getMonth(), then.getDate()).getTime();
  const b = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  return Math.round((b - a) / DAY);
}

export const clockTime = (time: string): string => clock.format(new Date(time));
export const exactTime = (time: string): string => exact.format(new Date(time));

export function relative(time: string, now: Date): string {
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return "";
  if (now.getTime() - date.getTime() < 60_000) return strings.sidebar.now;
  const days = daysAgo(time, now);
  if (days <= 0) return clock.format(date);
  return days < 7 ? weekday.format(date) : dayMonth.format(date);
}

/** Names the days of many times: its limits are worked out once. */
export function periods(now: Date): (time: string) => string {
  const midnight = (days: number) =>
    new Date(now.getFullYear(), now.getMonth(), now.getDate() - days).toISOString();
  const [today, yesterday, week] = [midnight(0), midnight(1), midnight(6)];
  return (time) => {
    if (time >= today) return strings.sidebar.today;
    if (time >= yesterday) return strings.sidebar.yesterday;
    return time >= week ? strings.sidebar.week : strings.sidebar.older;
  };
}

export function dayName(time: string, now: Date): string {
  const days = daysAgo(time, now);
  if (days === 0) return strings.sidebar.today;
  if (days === 1) return strings.sidebar.yesterday;
  return full.format(new Date(time));
}

// Every word the page says. A translation is another object of the same type.

const number = new Intl.NumberFormat("en");

function plural(count: number, one: string, many: string): string {
  return `${number.format(count)} ${count === 1 ? one : many}`;
}

function seconds(milliseconds: number): string {
  const value = milliseconds / 1000;
  if (value < 0.1) return "< 0.1 s";
  if (value < 60) return `${value.toFixed(1)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

function bytes(size: number): string {
  if (size < 1024) return plural(size, "byte", "bytes");
  const units = ["KB", "MB", "GB"];
  let value = size / 1024;
  let at = 0;
  while (value >= 1023.95 && at < units.length - 1) {
    value /= 1024;
    at += 1;
  }
  return `${number.format(Math.round(value * 10) / 10)} ${units[at]}`;
}

export const strings = {
  locale: "en",
  product: "Parley",
  seconds,
  bytes,
  sidebar: {
    label: "Chats",
    newChat: "New chat",
    untitled: "New chat",
    empty: "No chats yet. Write the first message.",
    today: "Today",
    yesterday: "Yesterday",
    week: "Last 7 days",
    older: "Older",
    unread: "Unread",
    now: "now",
    open: "Show chats",
    close: "Hide chats",
    writing: "Writing…",
    logout: "Log out",
    failed: (reason: string) => `The list could not be loaded: ${reason}`,
    again: "Try again",
    search: "Search all chats",
    searchKeys: "Ctrl K",
    clear: "Clear the search",
    searching: "Searching…",
    found: (count: number, more: boolean) =>
      `${more ? "More than " : ""}${plural(count, "chat", "chats")} found`,
    foundNothing: "Nothing was found. Every word must be in one message, or in the title.",
    filter: "Filter",
    filterState: "Show",
    states: { active: "Chats", suspended: "Suspended", archived: "Archived" } as Record<
      string,
      string
    >,
    filterChannel: "Channel",
    anyChannel: "All channels",
    filteredTag: (tag: string) => `Tag: ${tag}`,
    removeFilter: "Show all chats",
    none: "No chats here.",
    menu: (title: string) => `Actions for ${title}`,
    rename: "Rename or tag",
    archive: "Archive",
    bringBack: "Bring back",
    export: "Export as Markdown",
    delete: "Delete",
    title: "Title",
    tags: "Tags",
    tagsHint: "Separated by commas. At most 32.",
    save: "Save",
    deleted: (title: string) => `“${title}” is being deleted.`,
    undo: "Undo",
    notDeleted: (title: string, reason: string) => `“${title}” was not deleted: ${reason}`,
    kept: (title: string) => `“${title}” was kept: something was written there meanwhile.`,
    actions: "What just happened",
    operations: "Operations",
  },
  channels: { websocket: "Web", slack: "Slack" } as Record<string, string>,
  operations: {
    title: "Operations",
    forAdmins: "This page is for administrators.",
    live: "Live, every 2 seconds",
    paused: (reason: string) => `Not up to date: ${reason}`,
    loading: "Reading the numbers…",
    running: "Running turns",
    runningOf: (limit: number) => `of at most ${number.format(limit)}`,
    firstWord: "First word, p95",
    turnTime: "Whole answer, p95",
    half: (value: string) => `half within ${value}`,
    lastMinute: "last minute",
    sinceStart: "since start",
    noAnswers: "no answers yet",
    throughput: "Messages per minute",
    total: (count: number) => `${number.format(count)} since start`,
    conservation: "Message conservation",
    balanced: "Balanced",
    unbalanced: "Out of balance",
    sum: (received: number, ended: number, pending: number) =>
      `${number.format(received)} received = ${number.format(ended)} ended + ${number.format(pending)} pending`,
    missing: (received: number, ended: number, pending: number) =>
      `${number.format(received)} received, but ${number.format(ended)} ended + ${number.format(pending)} pending`,
    balancedMeaning: "Every message that came in has ended or is still being worked on.",
    unbalancedMeaning: "Messages are unaccounted for. Look at the warnings and report it.",
    gauges: "Work and stock",
    queue: "Messages waiting",
    slots: "Chats waiting for a turn",
    connections: "Connections",
    undelivered: "Replies not delivered",
    sessions: "Sessions",
    stored: "Messages stored",
    unsynced: "Not yet on the disk",
    write: "One write takes",
    channels: "Channels",
    channel: "Channel",
    state: "State",
    received: "Received",
    ended: "Ended",
    details: "Details",
    channelStates: {
      connected: "Receiving",
      degraded: "Disturbed",
      starting: "Starting",
      failed: "Failed",
      stopped: "Stopped",
      disabled: "Off",
    } as Record<string, string>,
    store: "Storage",
    storeOk: "Accepts writes",
    warnings: "Recent warnings",
    noWarnings: "None since the gateway started.",
    chart: (name: string, values: string) => `${name}, the last minutes: ${values}`,
    range: (least: string, most: string) => `between ${least} and ${most}`,
    noValues: "no values",
    detail: (name: string, value: string) => `${name.replaceAll("_", " ")} ${value}`,
  },
  theme: { system: "Theme: system", light: "Theme: light", dark: "Theme: dark" },
  connection: {
    connected: "Connected",
    connecting: "Connecting…",
    offline: "Offline. What you write is kept and sent later.",
    waiting: (left: number) =>
      `No connection. Next try in ${Math.max(1, Math.ceil(left / 1000))} s.`,
    again: "Try now",
    notStored: "This browser keeps nothing: unsent messages are lost when the page closes.",
  },
  markdown: {
    code: "Code",
    copy: "Copy",
    copied: "Copied",
    copyFailed: "Copying was refused",
    table: "Table",
    formula: "Formula",
    done: "Done",
    toDo: "To do",
  },
  thread: {
    label: "Messages",
    welcome: "What is on your mind?",
    welcomeHint: "Everything you send is stored before it is answered.",
    absent: "There is nothing here. Perhaps the chat was deleted. Writing begins it anew.",
    loading: "Loading…",
    older: "Loading older messages…",
    newest: "Jump to newest",
    readOnly: (channel: string) =>
      `This chat lives in ${channel}. Answer there; here it can only be read.`,
    ended: "This conversation has ended. It can only be read.",
    archived: "This chat is archived.",
    suspended: "This chat is suspended: it takes no messages.",
    foreign: (user: string) => `This chat belongs to ${user}. Here it can only be read.`,
    you: "You",
    assistant: "Answer",
    copy: "Copy",
    copied: "Copied",
    regenerate: "Answer again",
    edit: "Edit and send again",
    cancel: "Cancel",
    resend: "Send again",
    discard: "Discard",
    command: "Command",
    edited: "edited",
    thinking: "Thinking",
    reasoning: "Reasoning",
    tools: (count: number) => `Used ${plural(count, "tool", "tools")}`,
    usingTools: (name: string) => `Using ${name}`,
    toolRunning: "running",
    writing: (time: string) => `Writing · ${time}`,
    waiting: (time: string) => `Waiting for the first word · ${time}`,
    attachment: (count: number) => plural(count, "file", "files"),
    finished: "The answer is complete.",
  },
  delivery: {
    waiting: "Not sent yet",
    sending: "Sending",
    stored: "Stored",
    queued: (before: number) => `Stored, ${plural(before, "message", "messages")} before it`,
    answering: "Stored",
    failed: (reason: string) => `Not sent: ${reason}`,
  },
  outcome: {
    answered: "Answered",
    command: "Done",
    merged: "Answered together",
    stopped: "Stopped",
    interrupted: "Interrupted",
    failed: "Failed",
    withdrawn: "Withdrawn",
    rejected: "Refused",
  } as Record<string, string>,
  answer: {
    stopped: "You stopped this answer.",
    interrupted: "This answer was interrupted.",
    failed: (reason: string) => `No answer: ${reason}`,
    failedPlain: "Something went wrong. Ask again.",
    empty: "The answer is empty.",
  },
  composer: {
    label: "Message",
    placeholder: "Write a message",
    hint: "Enter to send, Shift Enter for a new line",
    send: "Send",
    stop: "Stop",
    tooLong: (over: number) => `${plural(over, "byte", "bytes")} too long`,
  },
  files: {
    add: "Attach files",
    list: "Attached files",
    remove: (name: string) => `Remove ${name}`,
    uploading: (part: number) => `${Math.floor(part * 100)} %`,
    waiting: "Waiting for the connection",
    failed: (reason: string) => `Not uploaded: ${reason}`,
    again: "Try again",
    drop: "Drop files to attach them",
    open: (name: string) => `Open ${name}`,
    save: (name: string) => `Save ${name}`,
    gone: "This file cannot be read any more.",
    busy: "The message can be sent when its files are uploaded.",
    stuck: "A file was not uploaded. Try again, or remove it.",
    tooLarge: (name: string, size: number, most: number) =>
      `${name} has ${bytes(size)}; a file may have ${bytes(most)}. Make it smaller, or split it.`,
    tooMany: (most: number, left: number) =>
      `A message takes ${plural(most, "file", "files")}. ${plural(left, "was", "were")} left out: send the rest with another message.`,
  },
  goal: { label: "Goal" },
  login: {
    title: "Log in",
    text: "This gateway asks for a token. An administrator makes one with",
    token: "Token",
    submit: "Log in",
    busy: "Logging in…",
  },
  errors: {
    unreachable: "The gateway cannot be reached. Check that it runs and try again.",
    unexpected: (status: number) => `The gateway answered with ${status}. Try again.`,
    crashed: "The page has a fault. Nothing you sent is lost.",
    reload: "Reload",
    close: "Close",
  },
};

export type Strings = typeof strings;

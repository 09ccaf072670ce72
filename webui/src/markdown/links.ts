/** What a link or an image of a message may point to. Everything else is shown as text. */

const LINK = /^(?:https?:\/\/[^/\\]|mailto:|tel:|#|\/(?![/\\]))/i;

// Browsers drop control characters and read a backslash as a slash while they parse an address.
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters to refuse.
const UNCLEAN = /[\u0000-\u0020\u007f-\u009f\\<>"]/;

const MEDIA = /^\/api\/v1\/media\/[\w-]+(?:\?[\w=&.~-]*)?$/;

export function safeLink(address: string): boolean {
  return LINK.test(address) && !UNCLEAN.test(address);
}

/** Only our own media is loaded without a click: a remote picture tells its server who reads. */
export function ownMedia(address: string): boolean {
  return MEDIA.test(address);
}

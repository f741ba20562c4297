// Patterns as interface.js has them: short, for a small page. See `short_pattern` in capsule_mt/web/language.py.

const CLASSES = { w: "\\p{L}\\p{N}_", d: "\\p{Nd}", s: "\\s\\x1c-\\x1f\\x85", "\\": "\\\\" }; // as Python's \w, \d and \s

const inBothCases = (part) => part.replace(/\\.|[a-z]/g, (letter) => (letter[1] ? letter : `[${letter}${letter.toUpperCase()}]`));

/** Return a pattern with Python's classes, and with letters in "(?i:...)" in both cases, for browsers that lack this group. */
export function expanded(pattern) {
  const sensitive = pattern.replace(/\(\?i:((?:[^()]|\([^()]*\))*)\)/g, (_, part) => `(?:${inBothCases(part)})`);
  return sensitive.replace(/\\([wds\\])/g, (_, letter) => CLASSES[letter]);
}

/** Return a pattern of a text itself, also between brackets. */
export const escaped = (text) => text.replace(/[\\\]\-^$.*+?()[{}|/]/g, (sign) => `\\x${sign.charCodeAt().toString(16)}`);

/** Return the regular expression of a short pattern. */
export const regex = (pattern, flags = "u") => new RegExp(expanded(pattern), flags);

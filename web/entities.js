// HTML entities in a text, such as "&eacute;": the model reads their characters, and the translation gets them back.
//
// It follows text/entities.py, but knows only the frequent names: see capsule_mt/web/language.py.

import { ACCENTS, ENTITIES, ENTITY_PATTERN, WINDOWS_1252 } from "./interface.js";
import { regex } from "./patterns.js";

const ENTITY = regex(ENTITY_PATTERN, "gu");
const ENTITY_OR_CHARACTER = regex(`${ENTITY_PATTERN}|[^]`, "gu");
let code = 0; // of the last character; a space stands for the next one
const CHARACTERS = new Map(Array.from(ENTITIES.matchAll(/(\w+)(\W)/g), ([, name, character]) => {
  code = character === " " ? code + 1 : character.charCodeAt();
  return [name, String.fromCharCode(code)];
}));
const WITH_ACCENT = new RegExp(`^[a-z](?=(${Object.keys(ACCENTS).join("|")})$)`, "i");
const FORBIDDEN = /[<>\0-\x08\v\x0e-\x1f\x7f\ufffd\p{NChar}\p{Cs}]/u;

/** Return the character of an entity; null for "&lt;", "&gt;" and unknown names. */
export function characterOf(entity) {
  const name = entity.slice(1, -1);
  if (name[0] === "#") {
    const number = Number(name.slice(1).replace(/^x/i, "0x"));
    const character = number <= 0x10ffff ? WINDOWS_1252[number - 128] ?? String.fromCodePoint(number) : "\0";
    return FORBIDDEN.test(character) ? null : character;
  }
  const [letter, accent] = WITH_ACCENT.exec(name) ?? [];
  const composed = `${letter}${ACCENTS[accent]}`.normalize();
  return CHARACTERS.get(name) ?? (/^[\xa0-\u017f]$/.test(composed) ? composed : null);
}

/** Return a text with the characters of its entities. */
export const withoutEntities = (text) => text.replace(ENTITY, (entity) => characterOf(entity) ?? entity);

/** Return a translation with entities for the characters that its source writes only as entities. */
export function withEntities(translation, source) {
  const entityOf = new Map((source.match(ENTITY) ?? []).map((entity) => [characterOf(entity), entity]));
  entityOf.delete(null);
  if (!entityOf.size) return translation;
  const plain = source.replace(ENTITY, " "); // a space is never written as an entity
  return translation.replace(ENTITY_OR_CHARACTER, (part) => (plain.includes(part) ? part : entityOf.get(part) ?? part));
}

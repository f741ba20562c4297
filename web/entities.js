// HTML entities in a text, such as "&nbsp;": the model reads their characters, and the translation gets them back.
//
// It follows text/entities.py, but knows only the frequent names: see capsule_mt/web/language.py.

import { ACCENTS, ENTITIES, PATTERNS, WINDOWS_1252 } from "./interface.js";

export const ENTITY = new RegExp(PATTERNS.ENTITY, "gu");
const NO_BREAK_AFTER_NUMBER = new RegExp(PATTERNS.NO_BREAK_AFTER_NUMBER, "gu");
const ENTITY_OR_CHARACTER = new RegExp(`${PATTERNS.ENTITY}|[^]`, "gu");
let code = 0; // of the last character; a space stands for the next one
const CHARACTERS = new Map(Array.from(ENTITIES.matchAll(/(\w+)(\W)/g), ([, name, character]) => {
  code = character === " " ? code + 1 : character.charCodeAt();
  return [name, String.fromCharCode(code)];
}));
const WITH_ACCENT = new RegExp(`^[a-z](?=(${Object.keys(ACCENTS).join("|")})$)`, "i");
const FORBIDDEN = /[<>\0-\x08\v\x0e-\x1f\x7f\ufffd\p{NChar}\p{Cs}]/u;

/** Return the character of an entity; null for "&lt;", "&gt;" and unknown names. */
function characterOf(entity) {
  const name = entity.slice(1, -1);
  if (name[0] === "#") {
    const code = Number(name.slice(1).replace(/^x/i, "0x"));
    const character = code <= 0x10ffff ? WINDOWS_1252[code - 128] ?? String.fromCodePoint(code) : "\0";
    return FORBIDDEN.test(character) ? null : character;
  }
  const [letter, accent] = WITH_ACCENT.exec(name) ?? [];
  const composed = `${letter}${ACCENTS[accent]}`.normalize();
  return CHARACTERS.get(name) ?? (/^[\xa0-\u017f]$/.test(composed) ? composed : null);
}

/** Return the entities of a text whose characters are known: of each, its start, its end and its character. */
export function entitiesOf(text) {
  return Array.from(text.includes("&") ? text.matchAll(ENTITY) : [], ({ 0: entity, index }) => [index, index + entity.length, characterOf(entity)])
    .filter(([, , character]) => character);
}

/** Return a text with the characters of its entities. */
export function withoutEntities(text) {
  return text.replace(ENTITY, (entity) => characterOf(entity) ?? entity);
}

/**
 * Return a translation with entities for the characters that its source writes only as entities.
 *
 * A no-break space comes back between a number and the next word.
 */
export function withEntities(translation, source) {
  const entities = entitiesOf(source);
  if (!entities.length) return translation;
  const plain = source.replace(ENTITY, " ") + " ";
  const entityOf = new Map(entities.map(([start, end, character]) => [character, source.slice(start, end)]));
  const written = translation.replace(ENTITY_OR_CHARACTER, (part) => (plain.includes(part) ? part : entityOf.get(part) ?? part));
  return Array.from(source.matchAll(NO_BREAK_AFTER_NUMBER)).reduce((text, [, number, space]) => (
    text.replace(new RegExp(`(?<![\\p{Nd}.,])${number.replaceAll(".", "\\.")} (?=[\\p{L}\\p{N}_])`, "u"), () => number + space)), written);
}

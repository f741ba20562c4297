// The reasons to check a translation; `python -m tools.reasons` writes this file.
"use strict";

const MIN_PRECISION = 0.5;
const [ROW_LENGTH, MIN_SUPPORT] = [4, 0.03];
const LEVELS = ["fault", "probable", "hint"];
const REASONS = {
  empty: {"level": "fault", "message": "The translation is empty."},
  unreadable: {"level": "fault", "message": "The model cannot read {part} of the text."},
  items: {"level": "fault", "message": "The placeholders are others, or in another order."},
  plural: {"level": "fault", "message": "Not in the file: a plural form must have its number {number} once."},
  placeholders: {"level": "fault", "message": "The placeholder {missing} is missing in the translation.", "added": "The placeholder {added} is only in the translation."},
  tags: {"level": "fault", "message": "The tag {missing} is missing in the translation.", "added": "The tag {added} is only in the translation."},
  urls: {"level": "fault", "message": "The address {missing} is missing in the translation.", "added": "The address {added} is only in the translation."},
  numbers: {"level": "fault", "message": "The number {missing} is missing in the translation.", "added": "The number {added} is only in the translation."},
  swapped_numbers: {"level": "fault", "message": "Two numbers change places: “{missing}”, “{added}”."},
  months: {"level": "fault", "message": "The month {missing} is missing in the translation.", "added": "The month {added} is only in the translation."},
  weekdays: {"level": "fault", "message": "The weekday {missing} is missing in the translation.", "added": "The weekday {added} is only in the translation."},
  signs: {"level": "fault", "message": "The sign {missing} is missing in the translation.", "added": "The sign {added} is only in the translation."},
  end: {"level": "fault", "message": "The text ends with “{missing}”, the translation with “{added}”."},
  doubled: {"level": "fault", "message": "Said twice in a row: {added}"},
  untranslated: {"level": "fault", "message": "Not translated: {missing}"},
  copy: {"level": "fault", "message": "The translation is a copy of the text."},
  brackets: {"level": "fault", "message": "The bracket {missing} is missing in the translation.", "added": "The bracket {added} is only in the translation."},
  names: {"level": "probable", "message": "The name “{missing}” became “{added}”."},
  lone_numbers: {"level": "probable", "message": "The number {missing} is missing in the translation.", "added": "The number {added} is only in the translation."},
  sentences: {"level": "probable", "message": "The text has {missing}, the translation {added}, and is much {comparison}."},
  language: {"level": "probable", "message": "The text seems to be in another language: {language}"},
  incomplete: {"level": "probable", "message": "Probably incomplete: {words}"},
  made_up: {"level": "probable", "message": "Probably made up: {words}"},
  left_out: {"level": "probable", "message": "Probably left out: {words}"},
  unrelated: {"level": "probable", "message": "Probably a translation of another text."},
  foreign: {"level": "probable", "message": "The translation seems to be in another language."},
  order: {"level": "probable", "message": "Probably in another order."},
  negation: {"level": "hint", "message": "The negation {missing} is missing in the translation.", "added": "The negation {added} is only in the translation."},
  perhaps_left_out: {"level": "hint", "message": "Perhaps left out{unverified}: {words}"},
  perhaps_made_up: {"level": "hint", "message": "Perhaps made up: {words}"},
};

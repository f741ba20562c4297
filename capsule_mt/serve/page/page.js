// The page: translate a text or check a translation, show what was left out or made up, retry with more beams.
"use strict";

const $ = (id) => document.getElementById(id);
const buttons = ["translate", "check", "again"].map($);
const IS_WORD = /[\p{L}\p{N}]/u;
const PROBLEMS = {
  numbers: "A number", signs: "A sign", placeholders: "A placeholder", tags: "A tag", urls: "An address", brackets: "A pair of brackets",
  negation: "A negation",
};
let languages = [];
let settings = { maxBeams: 1, precision: {}, verified: [] };
let shown = null; // the translation below the form: { q, beams, score }
let repeatLatest = null; // shows it again, for another choice of marks

const targetsOf = ({ code, targets }) => targets.filter((target) => target !== code);
const percent = (share) => `${Math.round(100 * share)} %`;

function element(tag, text, attributes = {}) {
  const node = document.createElement(tag);
  node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

function showStatus(text, kind = "") {
  $("status").textContent = text;
  $("status").className = kind;
}

/** Run the work of a button: show the time while it runs, then its message and how long it took, or its error. */
async function run(activity, work) {
  const started = performance.now();
  const seconds = () => ((performance.now() - started) / 1000).toFixed(1);
  const focused = document.activeElement;
  buttons.forEach((button) => (button.disabled = true));
  showStatus(`${activity} …`, "busy");
  const clock = setInterval(() => showStatus(`${activity} … ${seconds()} s`, "busy"), 1000);
  let message = null;
  try {
    message = await work();
    clearInterval(clock);
    showStatus(`${message} in ${seconds()} s.`);
  } catch (error) {
    clearInterval(clock);
    showStatus(error.message, "error");
  }
  buttons.forEach((button) => (button.disabled = false));
  if (document.activeElement === document.body) focused?.focus(); // disabling a button took its focus
}

/** Return the text of a field, or focus it and ask for `description`. */
function requiredText(id, description) {
  const value = $(id).value;
  if (value.trim() === "") {
    $(id).focus();
    throw new Error(`Type ${description} first.`);
  }
  return value;
}

const languagePair = () => ({ source: $("from").value, target: $("to").value });

async function translate(beams) {
  const q = requiredText("source", "a text");
  const previousScore = beams && shown?.q === q ? shown.score : null;
  const answer = await call("translate", { q, ...languagePair(), coverage: true, marks: $("marks").value, ...(beams && { num_beams: beams }) });
  $("target").value = answer.translatedText;
  if (!answer.coverage) return "Translated, by a model that cannot mark words,";
  showCoverage(answer.coverage, previousScore);
  shown = { q, beams, score: answer.coverage.score };
  $("again").hidden = settings.maxBeams < 2 || beams === settings.maxBeams;
  return beams ? `Translated with ${beams} beams` : "Translated";
}

async function check() {
  const q = requiredText("source", "a text");
  const translation = requiredText("target", "a translation");
  const answer = await call("cover", { q, translation, marks: $("marks").value, ...languagePair() });
  showCoverage(answer.coverage, null);
  shown = null;
  $("again").hidden = true;
  return "Checked";
}

/** Return a word in a frame, with its share as a tip; `problem` is null, or has the style and the label of an error. */
function chip(word, share, problem) {
  if (!IS_WORD.test(word)) return element("li", word, { class: "word mark" });
  if (!problem) return element("li", word, { class: "word", "data-tip": share });
  const tip = `perhaps ${problem.label}; ${share}`;
  return element("li", word, {
    class: `word ${problem.style}`, "data-tip": tip, "aria-label": `${word}: ${tip}`, tabindex: 0,
  });
}

const LEFT_OUT = { style: "left", label: "left out" };
const MADE_UP = { style: "new", label: "made up" };
const sourceChip = (word) => chip(word.word, `translated ${percent(word.covered)}`, word.untranslated ? LEFT_OUT : null);
const targetChip = (word) => chip(word.word, `supported ${percent(word.supported)}`, word.unsupported ? MADE_UP : null);

/** Offer the choice of marks if they are verified, with their precision if a person has checked such marks. */
function showMarkChoice() {
  const pair = `${$("from").value}-${$("to").value}`;
  $("points").hidden = !settings.verified.includes(pair);
  const precision = settings.precision[pair]?.[$("marks").value];
  $("precision").textContent =
    precision === undefined ? "" : `Of such marks on left-out words, ${percent(precision)} were right when checked by hand.`;
}

/** A check in words. */
function problem({ kind, missing, added }) {
  if (kind === "end") return `The text ends with ${missing}, its translation with ${added}`;
  if (kind === "untranslated") return `Not translated: ${missing}`;
  if (kind === "doubled") return `Said twice in a row: ${added}`;
  return missing ? `${PROBLEMS[kind]} of the text is not in the translation: ${missing}` : `${PROBLEMS[kind]} is only in the translation: ${added}`;
}

function showCoverage(coverage, previousScore) {
  const words = coverage.words.filter((word) => IS_WORD.test(word.word));
  const leftOut = words.filter((word) => word.untranslated);
  const score = $("score");
  score.replaceChildren(element("strong", `Coverage: ${percent(coverage.score)}`));
  if (previousScore !== null) score.append(` (before: ${percent(previousScore)})`);
  if (leftOut.length > 0) {
    score.append(`. Perhaps left out, ${leftOut.length} of ${words.length} words: `);
    score.append(element("strong", leftOut.map((word) => word.word).join(", ")), ".");
  } else {
    score.append(". No word seems to be left out.");
  }
  const targetWords = coverage.target_words ?? [];
  const unsupported = targetWords.filter((word) => word.unsupported);
  if (unsupported.length > 0) {
    score.append(" Perhaps made up: ", element("strong", unsupported.map((word) => word.word).join(", ")), ".");
  }
  $("made-up").hidden = targetWords.length === 0;
  $("translated").hidden = targetWords.length === 0;
  $("targets").lang = $("to").value;
  $("targets").replaceChildren(...targetWords.map(targetChip));
  $("alarm").hidden = !coverage.sentences.some((sentence) => sentence.below_threshold);
  showMarkChoice();
  const problems = coverage.checks ?? [];
  if (coverage.repetitions.length > 0 && !problems.some(({ kind }) => kind === "doubled")) {
    score.append(" Said twice in a row: ", element("em", coverage.repetitions.join(", ")), ".");
  }
  $("checks").hidden = problems.length === 0;
  $("checks").replaceChildren(...problems.map((check) => element("li", problem(check))));
  $("sentences").replaceChildren(
    ...coverage.sentences.map((sentence) => {
      const row = element("li", "");
      const chips = element("ol", "", { class: "words", lang: $("from").value, dir: "auto" });
      const sentenceWords = coverage.words.filter((word) => word.start >= sentence.start && word.start < sentence.end);
      chips.append(...sentenceWords.map(sourceChip));
      const share = percent(sentence.score);
      const label = `coverage of this sentence: ${share}${sentence.below_threshold ? "; it has probably lost something" : ""}`;
      row.append(element("span", share, { class: sentence.below_threshold ? "badge low" : "badge", "aria-label": label }), chips);
      return row;
    }),
  );
  $("result").hidden = false;
  for (const word of document.querySelectorAll("#result ol .word")) {
    word.classList.toggle("at-end", word.offsetLeft > document.body.clientWidth / 2); // its tip opens to the left
  }
}

function clearResult() {
  $("result").hidden = true;
  shown = null;
  showStatus("");
}

function showTargets() {
  const names = new Map(languages.map((language) => [language.code, language.name]));
  const source = languages.find((language) => language.code === $("from").value);
  $("to").replaceChildren(...targetsOf(source).map((code) => element("option", names.get(code), { value: code })));
  showLanguages();
}

function showLanguages() {
  $("source").lang = $("from").value;
  $("target").lang = $("to").value;
  clearResult();
}

async function start() {
  showStatus("Loading the languages …", "busy");
  try {
    [languages, settings] = await Promise.all([call("languages"), call("frontend/settings")]);
  } catch (error) {
    showStatus(error.message, "error");
    return;
  }
  const sources = languages.filter((language) => targetsOf(language).length);
  $("from").replaceChildren(...sources.map(({ code, name }) => element("option", name, { value: code })));
  $("key").hidden = !settings.keyRequired;
  $("again").textContent = `Try again with ${settings.maxBeams} beams`;
  showTargets();
  buttons.forEach((button) => (button.disabled = false));
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!$("translate").disabled) run("Translating", (repeatLatest = () => translate(null)));
});
$("again").addEventListener("click", () => run("Searching", (repeatLatest = () => translate(settings.maxBeams))));
$("check").addEventListener("click", () => run("Checking", (repeatLatest = check)));
$("marks").addEventListener("change", () => repeatLatest && run("Checking", repeatLatest));
$("from").addEventListener("change", showTargets);
$("to").addEventListener("change", showLanguages);
$("source").addEventListener("input", clearResult);
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
buttons.forEach((button) => (button.disabled = true));
start();

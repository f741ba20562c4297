// The page: translate, show what was left out, try again with more beams, check a translation.
"use strict";

const $ = (id) => document.getElementById(id);
const buttons = ["translate", "check", "again"].map($);
const IS_WORD = /[\p{L}\p{N}]/u;
let languages = [];
let settings = { maxBeams: 1, precision: {}, verified: [] };
let shown = null; // what is below the form: { q, beams, score }
let latest = null; // the work of the button that showed it

const others = ({ code, targets }) => targets.filter((target) => target !== code);
const percent = (share) => `${Math.round(100 * share)} %`;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

function say(text, kind = "") {
  $("status").textContent = text;
  $("status").className = kind;
}

/** Run the work of a button: show that it goes on, then how long it took, or what is wrong. */
async function run(doing, work) {
  const started = performance.now();
  const seconds = () => ((performance.now() - started) / 1000).toFixed(1);
  const focused = document.activeElement;
  buttons.forEach((button) => (button.disabled = true));
  say(`${doing} …`, "busy");
  const clock = setInterval(() => say(`${doing} … ${seconds()} s`, "busy"), 1000);
  let said = null;
  try {
    said = await work();
    clearInterval(clock);
    say(`${said} in ${seconds()} s.`);
  } catch (error) {
    clearInterval(clock);
    say(error.message, "error");
  }
  buttons.forEach((button) => (button.disabled = false));
  if (document.activeElement === document.body) focused?.focus(); // a disabled button loses it
}

function text(id, what) {
  const value = $(id).value;
  if (value.trim() === "") {
    $(id).focus();
    throw new Error(`Type ${what} first.`);
  }
  return value;
}

const pair = () => ({ source: $("from").value, target: $("to").value });

async function translate(beams) {
  const q = text("source", "a text");
  const before = beams && shown?.q === q ? shown.score : null;
  const answer = await call("translate", { q, ...pair(), coverage: true, marks: $("marks").value, ...(beams && { num_beams: beams }) });
  $("target").value = answer.translatedText;
  if (!answer.coverage) return "Translated, by a model that cannot mark words,";
  show(answer.coverage, before);
  shown = { q, beams, score: answer.coverage.score };
  $("again").hidden = settings.maxBeams < 2 || beams === settings.maxBeams;
  return beams ? `Translated with ${beams} beams` : "Translated";
}

async function check() {
  const q = text("source", "a text");
  const translation = text("target", "a translation");
  const answer = await call("cover", { q, translation, marks: $("marks").value, ...pair() });
  show(answer.coverage, null);
  shown = null;
  $("again").hidden = true;
  return "Checked";
}

/** A word in a frame: what is `wrong` with it, if anything, by a name of the style and in words. */
function chip(word, share, wrong) {
  if (!IS_WORD.test(word)) return element("li", word, { class: "word mark" });
  if (!wrong) return element("li", word, { class: "word", "data-tip": share });
  const said = `perhaps ${wrong.said}; ${share}`;
  return element("li", word, {
    class: `word ${wrong.name}`, "data-tip": said, "aria-label": `${word}: ${said}`, tabindex: 0,
  });
}

const LEFT = { name: "left", said: "left out" };
const NEW = { name: "new", said: "made up" };
const sourceChip = (word) => chip(word.word, `translated ${percent(word.covered)}`, word.untranslated && LEFT);
const targetChip = (word) => chip(word.word, `supported ${percent(word.supported)}`, word.unsupported && NEW);

/** Let a reader choose verified marks, and say how many of them were right, if somebody read such marks. */
function showPoints() {
  const pair = `${$("from").value}-${$("to").value}`;
  $("points").hidden = !settings.verified.includes(pair);
  const precision = settings.precision[pair]?.[$("marks").value];
  $("precision").textContent =
    precision === undefined ? "" : `Of such marks on left-out words, ${percent(precision)} were right in text that was read by hand.`;
}

function show(coverage, before) {
  const words = coverage.words.filter((word) => IS_WORD.test(word.word));
  const left = words.filter((word) => word.untranslated);
  const score = $("score");
  score.replaceChildren(element("strong", `Coverage: ${percent(coverage.score)}`));
  if (before !== null) score.append(` (before: ${percent(before)})`);
  if (left.length > 0) {
    score.append(`. Perhaps left out, ${left.length} of ${words.length} words: `);
    score.append(element("strong", left.map((word) => word.word).join(", ")), ".");
  } else {
    score.append(". No word seems to be left out.");
  }
  const made = coverage.target_words ?? [];
  const unsupported = made.filter((word) => word.unsupported);
  if (unsupported.length > 0) {
    score.append(" Perhaps made up: ", element("strong", unsupported.map((word) => word.word).join(", ")), ".");
  }
  $("made-up").hidden = made.length === 0;
  $("translated").hidden = made.length === 0;
  $("targets").lang = $("to").value;
  $("targets").replaceChildren(...made.map(targetChip));
  $("alarm").hidden = !coverage.sentences.some((sentence) => sentence.below_threshold);
  showPoints();
  if (coverage.repetitions.length > 0) {
    score.append(" Said twice in a row: ", element("em", coverage.repetitions.join(", ")), ".");
  }
  $("sentences").replaceChildren(
    ...coverage.sentences.map((sentence) => {
      const row = element("li", "");
      const chips = element("ol", "", { class: "words", lang: $("from").value, dir: "auto" });
      const own = coverage.words.filter((word) => word.start >= sentence.start && word.start < sentence.end);
      chips.append(...own.map(sourceChip));
      const share = percent(sentence.score);
      const said = `coverage of this sentence: ${share}${sentence.below_threshold ? "; it has probably lost something" : ""}`;
      row.append(element("span", share, { class: sentence.below_threshold ? "badge low" : "badge", "aria-label": said }), chips);
      return row;
    }),
  );
  const guided = words.filter((word) => word.past !== undefined && word.future !== undefined);
  $("guided").hidden = guided.length === 0;
  $("shares").replaceChildren(...guided.map(shares));
  $("result").hidden = false;
  for (const own of document.querySelectorAll("#result ol .word")) {
    own.classList.toggle("at-end", own.offsetLeft > document.body.clientWidth / 2); // its share opens to the left
  }
}

function shares(word) {
  const row = element("tr", "");
  row.append(element("th", word.word, { scope: "row" }));
  for (const [name, share] of [["PAST", word.past], ["FUTURE", word.future]]) {
    const cell = element("td", "");
    cell.append(element("meter", "", { value: share, "aria-label": `${name} of ${word.word}` }), percent(share));
    row.append(cell);
  }
  return row;
}

function forget() {
  $("result").hidden = true;
  shown = null;
  say("");
}

function showTargets() {
  const names = new Map(languages.map((language) => [language.code, language.name]));
  const source = languages.find((language) => language.code === $("from").value);
  $("to").replaceChildren(...others(source).map((code) => element("option", names.get(code), { value: code })));
  showLanguages();
}

function showLanguages() {
  $("source").lang = $("from").value;
  $("target").lang = $("to").value;
  forget();
}

async function start() {
  say("Asking for the languages …", "busy");
  try {
    [languages, settings] = await Promise.all([call("languages"), call("frontend/settings")]);
  } catch (error) {
    say(error.message, "error");
    return;
  }
  const sources = languages.filter((language) => others(language).length);
  $("from").replaceChildren(...sources.map(({ code, name }) => element("option", name, { value: code })));
  $("key").hidden = !settings.keyRequired;
  $("again").textContent = `Try again with ${settings.maxBeams} beams`;
  showTargets();
  buttons.forEach((button) => (button.disabled = false));
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!$("translate").disabled) run("Translating", (latest = () => translate(null)));
});
$("again").addEventListener("click", () => run("Searching", (latest = () => translate(settings.maxBeams))));
$("check").addEventListener("click", () => run("Checking", (latest = check)));
$("marks").addEventListener("change", () => latest && run("Checking", latest));
$("from").addEventListener("change", showTargets);
$("to").addEventListener("change", showLanguages);
$("source").addEventListener("input", forget);
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
buttons.forEach((button) => (button.disabled = true));
start();

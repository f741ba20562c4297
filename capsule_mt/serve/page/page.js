// The page: translates texts and files, checks a translation, and remembers the last pair and texts.
"use strict";

const STORAGE = "capsule-mt"; // the key of what this browser remembers
const AUTO = "auto";
const TEXT_SUFFIX = ".txt";
const buttons = ["translate", "upload", "check", "again", "swap", "clear"].map($);
const texts = new MarkedTexts();
let languages = [];
let settings = {};
const choices = [...$("marks").options].map((option) => ({ option, label: option.textContent }));
let detected = null; // the language of the text, if the page has asked for it
let repeatLatest = null; // shows the translation again, for another choice of marks

const nameOf = (code) => languages.find((language) => language.code === code)?.name ?? code;
const targetsOf = ({ code, targets }) => targets.filter((target) => target !== code);
const sourceCode = () => ($("from").value === AUTO ? detected : $("from").value);
const isBlank = (id) => $(id).value.trim() === "";

function showStatus(text, kind = "") {
  $("status").textContent = text;
  $("status").className = kind;
}

/** Run the work of a button: show the time while it runs, then its message, or its error. */
async function run(activity, work) {
  const started = performance.now();
  const focused = document.activeElement;
  buttons.forEach((button) => (button.disabled = true));
  showStatus(`${activity} …`, "busy");
  const clock = setInterval(() => showStatus(`${activity} … ${Math.round((performance.now() - started) / 1000)} s`, "busy"), 1000);
  try {
    showStatus(await work());
  } catch (error) {
    showStatus(error.message, "error");
  }
  clearInterval(clock);
  buttons.forEach((button) => (button.disabled = false));
  showLanguages();
  if (document.activeElement === document.body) focused?.focus(); // disabling a button took its focus
}

/** Return the text of a field, or focus it and ask for `description`. */
function requiredText(id, description) {
  if (isBlank(id)) {
    $(id).focus();
    throw new Error(`Type ${description} first.`);
  }
  return $(id).value;
}

// ---- translating and checking
async function translate(beams) {
  const q = requiredText("source", "a text");
  const fields = { q, source: $("from").value, target: $("to").value, coverage: true, alignment: true, edits: true, ...chosenMarks() };
  const answer = await call("translate", { ...fields, ...(beams && { num_beams: beams }) });
  const previous = $("target").value;
  $("target").value = answer.translatedText;
  showDetected(answer.detectedLanguage?.language ?? null);
  const isOutdated = $("source").value !== q; // the text was changed while it was translated
  const message = isOutdated ? showMarks(null) : showMarks(answer.coverage, answer.alignment, answer.edits);
  $("again").hidden = !(settings.maxBeams > 1) || beams === settings.maxBeams;
  if (detected === $("to").value) return `The text is already in ${nameOf(detected)}.`;
  if (beams && previous === answer.translatedText) return `The translation stays as it was. ${message}`;
  return `Translated. ${message}`;
}

async function check() {
  const q = requiredText("source", "a text");
  const translation = requiredText("target", "a translation");
  if ($("from").value === AUTO) showDetected((await call("detect", { q }))[0].language);
  const { coverage } = await call("cover", { q, translation, ...chosenMarks(), source: sourceCode(), target: $("to").value });
  const isOutdated = $("source").value !== q || $("target").value !== translation;
  const message = showMarks(isOutdated ? null : coverage);
  $("again").hidden = true;
  return `Checked. ${message}`;
}

/** Return the choice of marks as a field of a request; without one, single words of a given translation are not marked. */
function chosenMarks() {
  const marks = $("marks").value;
  return marks && { marks };
}

/** Mark the problems of a translation in both texts and list them; return a message with their number. */
function showMarks(coverage, pairs, edits) {
  const numProblems = texts.show(coverage, pairs ?? [], edits ?? []);
  const pair = `${sourceCode()}-${$("to").value}`;
  $("choice").hidden = !settings.verified?.includes(pair);
  for (const { option, label } of choices) {
    const share = settings.precision?.[pair]?.[option.value];
    option.textContent = share === undefined ? label : `${label} (a reader found ${percent(share)} right)`;
  }
  if (coverage && !$("choice").hidden) $("problems").hidden = false; // to choose more marks where nothing is listed
  showTexts();
  if (!coverage) return "";
  if (numProblems === 0) return "No problems found.";
  return numProblems === 1 ? "1 thing to look at." : `${numProblems} things to look at.`;
}

// ---- files
/** Return the text of a file, for a page that does not translate files. */
async function textOf(file) {
  if (!file.name.toLowerCase().endsWith(TEXT_SUFFIX)) {
    throw new Error(`${file.name} is not a text file (${TEXT_SUFFIX}), and this page opens no others. ` +
      "Paste its text here, or translate the file with `capsule-mt translate` or a server.");
  }
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    if (!text.includes("\0")) return text;
  } catch (error) {
    if (!(error instanceof TypeError)) throw error; // the file cannot be read
  }
  throw new Error(`${file.name} is not text in UTF-8. Save it as UTF-8, or paste its text here.`);
}

/** Translate a file, or open its text where files are not translated. */
async function openFile(file) {
  $("translated-file").hidden = true;
  if (!settings.filesTranslation) {
    $("source").value = await textOf(file);
    changeText();
    return `Opened ${file.name}.`;
  }
  const fields = { file, source: $("from").value, target: $("to").value };
  const { translatedFileUrl, notes = [] } = await call("translate_file", fields);
  const link = $("translated-file");
  link.download = file.name.replace(/(\.[^.]*)?$/, `.${$("to").value}$1`);
  link.href = translatedFileUrl.replace(/^.*\/(?=download_file\/)/, ""); // a proxy may have another address
  link.textContent = `Download ${link.download}`;
  link.hidden = false;
  const messages = notes.map(({ location, note }) => `${location}: ${note}.`);
  return [`Translated ${file.name}.`, ...messages].join(" ");
}

function downloadText() {
  const link = element("a", "", { download: `translation.${$("to").value}.txt` });
  link.href = URL.createObjectURL(new Blob([$("target").value], { type: "text/plain" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

async function copyTarget() {
  try {
    await navigator.clipboard.writeText($("target").value);
  } catch { // a page without https has no clipboard
    $("target").select();
    document.execCommand("copy");
  }
  showStatus("Copied.");
}

// ---- the state of the form
/** Show the buttons that the texts call for, and remember the texts. */
function showTexts() {
  const isEmpty = isBlank("target");
  $("copy").hidden = $("download").hidden = isEmpty;
  $("check").hidden = isEmpty || isBlank("source") || texts.isShown;
  $("clear").hidden = isEmpty && isBlank("source");
  const [length, limit] = [[...$("source").value].length, settings.charLimit];
  $("count").hidden = !(limit > 0);
  $("count").textContent = `${length} of ${limit} characters`;
  $("count").className = length > limit ? "error" : "";
  remember();
}

/** After a change of a text or a language, remove the marks: they belong to the translation before it. */
function changeText() {
  texts.clear();
  showTexts();
  if (!$("status").classList.contains("busy")) showStatus("");
}

function showDetected(code) {
  detected = code;
  const option = $("from").querySelector(`[value=${AUTO}]`);
  if (option) option.textContent = code ? `${nameOf(code)} (detected)` : "Detect language";
  showLanguages();
}

/** Offer the targets of the source language, and keep the chosen one if it is among them. */
function showTargets() {
  const target = $("to").value;
  const source = languages.find((language) => language.code === $("from").value);
  const codes = source ? targetsOf(source) : [...new Set(languages.flatMap(targetsOf))];
  $("to").replaceChildren(...codes.map((code) => element("option", nameOf(code), { value: code })));
  if (codes.includes(target)) $("to").value = target;
  showLanguages();
}

function showLanguages() {
  $("source").lang = sourceCode() ?? "";
  $("target").lang = $("to").value;
  $("swap").disabled = !languages.find(({ code }) => code === $("to").value)?.targets.includes(sourceCode());
}

function swap() {
  const [newSource, newTarget] = [$("to").value, sourceCode()];
  [$("source").value, $("target").value] = [$("target").value, $("source").value];
  $("from").value = newSource;
  showTargets();
  $("to").value = newTarget;
  showDetected(null);
  changeText();
}

function clear() {
  $("source").value = $("target").value = "";
  $("translated-file").hidden = true;
  showDetected(null);
  changeText();
  $("source").focus();
}

/** Store the pair and the texts in this browser, which may refuse. */
function remember() {
  const state = { from: $("from").value, to: $("to").value, source: $("source").value, target: $("target").value };
  try {
    localStorage.setItem(STORAGE, JSON.stringify(state));
  } catch {}
}

function remembered() {
  try {
    return JSON.parse(localStorage.getItem(STORAGE)) ?? {};
  } catch {
    return {};
  }
}

async function start() {
  showStatus("Loading the languages …", "busy");
  try {
    [languages, settings] = await Promise.all([call("languages"), call("frontend/settings")]);
  } catch (error) {
    showStatus(error.message, "error");
    return;
  }
  const state = remembered();
  const sources = languages.filter((language) => targetsOf(language).length);
  const options = sources.map(({ code, name }) => element("option", name, { value: code }));
  if (settings.language?.source.code === AUTO) {
    options.unshift(element("option", "Detect language", { value: AUTO }));
  } else if (sources.length > 1) {
    options.unshift(element("option", "Choose the language: it is not detected here", { value: "", disabled: true }));
  }
  $("from").replaceChildren(...options);
  const select = (id, ...codes) => {
    const code = codes.find((code) => [...$(id).options].some(({ value }) => value === code));
    if (code) $(id).value = code;
  };
  select("from", state.from, settings.language?.source.code);
  showTargets();
  select("to", state.to, settings.language?.target.code);
  for (const id of ["source", "target"]) {
    if ($(id).value === "" && typeof state[id] === "string") $(id).value = state[id];
  }
  $("key").hidden = !settings.keyRequired;
  $("file").accept = (settings.filesTranslation ? settings.supportedFilesFormat : [TEXT_SUFFIX]).join(",");
  buttons.forEach((button) => (button.disabled = false));
  showStatus("");
  showLanguages();
  changeText();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!$("translate").disabled) run("Translating", (repeatLatest = () => translate(null)));
});
$("again").addEventListener("click", () => run("Translating", (repeatLatest = () => translate(settings.maxBeams))));
$("check").addEventListener("click", () => run("Checking", (repeatLatest = check)));
$("marks").addEventListener("change", () => repeatLatest && run("Checking", repeatLatest));
$("from").addEventListener("change", () => {
  showDetected(null);
  showTargets();
  changeText();
});
$("to").addEventListener("change", () => {
  showLanguages();
  changeText();
});
$("source").addEventListener("input", changeText);
$("target").addEventListener("input", changeText);
$("source").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("form").requestSubmit();
});
$("swap").addEventListener("click", swap);
$("clear").addEventListener("click", clear);
$("copy").addEventListener("click", copyTarget);
$("download").addEventListener("click", downloadText);
$("upload").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => {
  const [file] = $("file").files;
  if (file) run("Reading the file", () => openFile(file));
  $("file").value = "";
});
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => {
  const [file] = event.dataTransfer.files;
  if (!file || $("upload").disabled) return;
  event.preventDefault();
  run("Reading the file", () => openFile(file));
});
buttons.forEach((button) => (button.disabled = true));
start();

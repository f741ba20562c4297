// `call` answers the page through the API of `capsule-mt serve`. A site without a server replaces this file
// by web/page/service.js of the repository.
"use strict";

async function call(path, fields) {
  let response;
  try {
    response = await fetch(path, fields && requestOf({ ...fields, api_key: $("api_key").value }));
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) {
    const { coverage, edits = [] } = answer;
    countInUtf16(fields?.q, [...(coverage ? [...coverage.words, ...coverage.sentences] : []), ...edits]);
    countInUtf16(answer.translatedText ?? fields?.translation, coverage?.target_words ?? []);
    return answer;
  }
  if (response.status === 403) {
    $("key").hidden = false;
    $("api_key").focus();
    throw new Error("This server needs an API key: type it above.");
  }
  throw new Error(answer?.error ?? `The server answered with the status ${response.status}.`);
}

/** Return a request with these fields: as JSON, or with a file as a form. */
function requestOf(fields) {
  if (!fields.file) return { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) };
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) body.append(name, value);
  return { method: "POST", body };
}

/** Change the offsets of spans of a text from characters, which Python counts, to JavaScript's units of UTF-16. */
function countInUtf16(text, spans) {
  if (!spans.length) return;
  const offsets = [0];
  for (const character of text) offsets.push(offsets.at(-1) + character.length);
  for (const span of spans) [span.start, span.end] = [offsets[span.start], offsets[span.end]];
}

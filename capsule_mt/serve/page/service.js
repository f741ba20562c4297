// `call` answers the page through the API of `capsule-mt serve`. A site without a server replaces this file
// by web/page/service.js of the repository.
"use strict";

async function call(path, fields) {
  let response;
  const request = fields && {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...fields, api_key: $("api_key").value }),
  };
  try {
    response = await fetch(path, request);
  } catch {
    throw new Error("The server does not answer. Is it still running?");
  }
  const answer = await response.json().catch(() => null);
  if (response.ok && answer !== null) return answer;
  if (response.status === 403) {
    $("key").hidden = false;
    $("api_key").focus();
    throw new Error("This server needs an API key: type it above.");
  }
  throw new Error(answer?.error ?? `The server answered with the status ${response.status}.`);
}

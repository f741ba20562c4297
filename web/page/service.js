// What answers the page: models that translate in a worker of the reader's browser, in place of serve/page/service.js.
"use strict";

const site = fetch("site.json").then((response) => response.json());
const translators = new Map(); // by language pair

function translatorOf(pair) {
  if (!translators.has(pair)) {
    const loading = Promise.all([site, import("./capsule/index.js")])
      .then(([{ models }, { TranslatorWorker }]) => TranslatorWorker.load(models[pair]));
    loading.catch(() => translators.delete(pair)); // the next call tries again
    translators.set(pair, loading);
  }
  return translators.get(pair);
}

async function call(path, fields) {
  const { languages, settings } = await site;
  if (path === "languages") return languages;
  if (path === "frontend/settings") return settings;
  const translator = await translatorOf(`${fields.source}-${fields.target}`);
  if (path === "cover") return { coverage: await translator.cover(fields.q, fields.translation) };
  const { marks } = translator; // without them, an alignment takes a pass for each token
  const { text, coverage, alignment, edits } = await translator.translate(fields.q, { coverage: marks, alignment: marks, num_beams: fields.num_beams });
  return { translatedText: text, coverage, alignment, edits };
}

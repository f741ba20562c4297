// How many steps the checks of pairs of texts take: elements that arrays' methods visit or move, and look-ups in maps.
import { readFileSync } from "node:fs";
import { checksOf } from "./checks.js";

let numSteps = 0;

function counted(prototype, names, stepsOf) {
  for (const name of names) {
    const method = prototype[name];
    prototype[name] = function (...values) {
      numSteps += stepsOf(this);
      return method.apply(this, values);
    };
  }
}

const VISITING = ["every", "filter", "find", "findIndex", "flatMap", "forEach", "indexOf", "map", "reduce", "some", "splice", "unshift"];
const { texts, words } = JSON.parse(readFileSync(0));
counted(Array.prototype, VISITING, (array) => array.length);
counted(Map.prototype, ["get", "has", "set"], () => 1);
const steps = texts.map((pair) => {
  numSteps = 0;
  checksOf(...pair, words);
  return numSteps;
});
process.stdout.write(JSON.stringify(steps));

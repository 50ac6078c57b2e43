// What a head answers, as `tests/fixtures/http/answers` has it, read by the page's models.
// `make contract` records the answers; tests/unit/head/http/test_contract.py compares them with the API.

import { expect, test } from "vitest";
import type { operations } from "../types.generated";
import { needs } from "./attention";
import { meanAt, stepsIn } from "./bands";
import { columns, toPieces } from "./columns";
import { leaves, toTree } from "./config";
import { byHost, isBad, rowWords, troubleWords } from "./devices";
import { facts, stackOrder, toBars } from "./goodput";
import { decoded } from "./heat";
import { toIntervals } from "./intervals";
import { toLines } from "./lines";
import { toMetrics } from "./metrics";
import { moments, nothingYet } from "./moments";
import { endWords, inOrder } from "./processes";
import { figures, isOver, profileWords, splitParts, topOperations } from "./profiles";
import { leftOut, shares } from "./rollup";
import { incidentTitle, newest, oddFirst } from "./stacks";
import { listed, progress, value } from "./table";

type Answer<Name extends keyof operations> = operations[Name] extends {
  responses: { 200: { content: { "application/json": infer Told } } };
}
  ? Told
  : never;

const files = import.meta.glob<{ answer: unknown }>("../../../../tests/fixtures/http/answers/*.json", {
  eager: true,
  import: "default",
});
function recorded<Name extends keyof operations>(name: Name): Answer<Name> {
  const found = Object.entries(files).find(([path]) => path.endsWith(`/${name}.json`));
  if (!found) throw new Error(`${name} is not recorded: \`make contract\` records it`);
  return found[1].answer as Answer<Name>;
}

test("runs are listed, with their progress and their numbers", () => {
  const { runs } = recorded("runs");
  expect(listed(runs, { text: "llama", states: [], sort: "-started", grouped: false, closed: new Set() })).toHaveLength(1);
  const llama = runs.find((run) => run.name === "llama")!;
  expect(progress(llama)).toBeGreaterThan(0);
  expect(value(llama, "loss")).toEqual(llama.values.loss?.value);
  expect(llama.goodput?.share).toBeGreaterThan(0);
});

test("a timeline has moments, classes and steps", () => {
  const told = recorded("runs_run_timeline");
  const range = { start: told.start_ns, end: told.end_ns };
  expect(moments(told).map((one) => one.title)).toContain("attempt 2 started: 2 ranks");
  expect(columns(toPieces(told.goodput), range, 20)).not.toHaveLength(0);
  expect(stepsIn(told.steps, range)).toBe(60);
  expect(Object.keys(nothingYet(recorded("runs_run"))).sort()).toEqual(Object.keys(told).sort());
});

test("goodput has bars, intervals and facts", () => {
  const account = recorded("runs_run_goodput");
  expect(toBars(account.over_time, stackOrder(account))).toHaveLength(2);
  expect(toIntervals(account.intervals)).not.toHaveLength(0);
  expect(facts(account, account.figures)).not.toHaveLength(0);
  const together = recorded("goodput");
  expect(leftOut(together)).toBe(0);
  expect(Object.keys(shares(together.parts![0]!))).toContain("productive");
});

test("metrics and settings are read", () => {
  const [band] = recorded("runs_run_bands").bands;
  expect(meanAt(band!, band!.start_ns)).toBeTypeOf("number");
  expect(toLines(recorded("runs_run_curves").curves, "step", 0)).not.toHaveLength(0);
  expect(toMetrics(recorded("runs_run_series").series).map((one) => one.metric)).toContain("loss");
  expect(leaves(toTree(recorded("runs_run_configs").user)).map((one) => one.path)).toContain("lr");
});

test("devices say what is wrong with them", () => {
  const { devices } = recorded("devices");
  expect(byHost(devices).map((one) => one.host)).toEqual(["host-a"]);
  expect(devices.filter(isBad).map(troubleWords).join()).not.toBe("");
  const map = recorded("runs_run_heatmap");
  expect(decoded(map.values, map.rows.length, map.columns)).toBeDefined();
  expect(map.rows.map(rowWords).join()).toContain("host-a");
});

test("processes, stacks and incidents are told", () => {
  expect(inOrder(recorded("runs_run_processes").processes).map(endWords).join()).toContain("SIGKILL");
  const { groups, ranks, processes } = recorded("runs_run_stacks");
  expect(oddFirst(groups, ranks)).toHaveLength(2);
  expect(newest(processes)).toHaveLength(2);
  const one = recorded("runs_run_incidents_incident");
  expect(incidentTitle(one)).not.toBe("");
  expect(oddFirst(one.report.groups ?? [], one.ranks)).toHaveLength(2);
});

test("profiles and captures are told", () => {
  const one = recorded("profiles_run_session");
  expect(profileWords(one)).not.toBe("");
  expect(figures(one.summary!)).not.toHaveLength(0);
  expect(splitParts(one.summary!.split)).not.toHaveLength(0);
  expect(topOperations(one.summary!.traces, "device")).not.toHaveLength(0);
  expect(isOver(recorded("runs_run_captures_session"))).toBe(true);
});

test("a head says what needs attention", () => {
  expect(needs(recorded("health"))).toHaveLength(1);
});

import { expect, test } from "vitest";
import type { SeriesInfo } from "../types";
import { matching, sections, toMetrics } from "./metrics";

const series = (metric: string, rank = 0, time = 1, step: number | null = 1): SeriesInfo => ({
  series: 1, metric, unit: "", rank, host: "a", device: "", attempt: 1, labels: {},
  latest: { time_ns: time, step, value: time },
});

test("a metric has its ranks in order and its newest value", () => {
  const [loss] = toMetrics([series("loss", 3, 5), series("loss", 0, 9), series("loss", 3, 7)]);
  expect(loss?.ranks).toEqual([0, 3]);
  expect(loss?.latest?.value).toBe(9);
});

test("steps count if any of its series has them", () => {
  expect(toMetrics([series("a", 0, 1, null), series("a", 1, 1, 4)])[0]?.hasSteps).toBe(true);
  expect(toMetrics([series("a", 0, 1, null)])[0]?.hasSteps).toBe(false);
});

test("numbers in names sort as numbers", () => {
  const names = toMetrics([series("layer10"), series("layer9")]).map((one) => one.metric);
  expect(names).toEqual(["layer9", "layer10"]);
});

test("every word is looked for, in any case", () => {
  const metrics = toMetrics([series("train/Loss"), series("eval/loss"), series("lr")]);
  expect(matching(metrics, "LOSS train").map((one) => one.metric)).toEqual(["train/Loss"]);
  expect(matching(metrics, " ").length).toBe(3);
});

test("folders become sections, loners and those of the system do not", () => {
  const names = ["train/a", "train/b", "alone/x", "loss", "process_threads", "host_cpu_percent"];
  const found = sections(toMetrics(names.map((name) => series(name))));
  expect(found.map((one) => [one.title, one.metrics.map((metric) => metric.metric)])).toEqual([
    ["", ["loss", "alone/x"]],
    ["train", ["train/a", "train/b"]],
    ["Hosts", ["host_cpu_percent"]],
    ["Processes", ["process_threads"]],
  ]);
});

import { describe, expect, it } from "vitest";
import { formatList, formatPlace, parseList, parsePlace, withQuery } from "./url";

describe("places", () => {
  it("comes back from its own text, whatever a run is called", () => {
    const place = { path: ["run", "a/b 100% ü?#", "timeline"], query: { from: "17", metrics: "x&y" } };
    expect(parsePlace(formatPlace(place))).toEqual(place);
  });

  it("is the front page when there is nothing", () => {
    expect(parsePlace("")).toEqual({ path: [], query: {} });
    expect(parsePlace("#/")).toEqual({ path: [], query: {} });
  });

  it("survives what is not an escape", () => {
    expect(parsePlace("#/run/100%").path).toEqual(["run", "100%"]);
  });

  it("changes some of its query and drops what is empty", () => {
    const place = { path: ["x"], query: { a: "1", b: "2" } };
    expect(withQuery(place, { a: null, c: "3", d: "" }).query).toEqual({ b: "2", c: "3" });
    expect(place.query).toEqual({ a: "1", b: "2" });
  });
});

describe("lists", () => {
  it("keeps commas and percent signs apart", () => {
    const items = ["a,b", "50%", "plain", "%2C"];
    expect(parseList(formatList(items))).toEqual(items);
    expect(parseList(undefined)).toEqual([]);
  });
});

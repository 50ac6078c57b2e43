// All runs, newest first, kept up to date by the live stream.

import * as api from "./api";
import { Live } from "./live.svelte";
import { merged } from "./model/table";
import type { RunInfo } from "./types";

const FIRST_PAGE = 100;
const PAGE = 1000;
const TELL_MS = 200;
const AGAIN_MS = 5_000;

export class AllRuns {
  runs = $state.raw<RunInfo[]>([]);
  total = $state<number | null>(null);
  error = $state.raw<unknown>(null);

  #known = new Map<string, RunInfo>();
  #metrics: readonly string[] = [];
  #telling: ReturnType<typeof setTimeout> | undefined;
  #again: ReturnType<typeof setInterval>;
  #live: Live;
  #round = 0;

  constructor() {
    this.#live = new Live({
      hello: () => void this.load(),
      run: (run) => this.#add([run]),
    });
    // Goodput comes later, and chosen values are not in the live stream.
    this.#again = setInterval(() => void this.#refresh(), AGAIN_MS);
  }

  close(): void {
    this.#round += 1;
    clearTimeout(this.#telling);
    clearInterval(this.#again);
    this.#live.close();
  }

  choose(metrics: readonly string[]): void {
    this.#metrics = metrics;
    void this.load();
  }

  /** The first screenful, then all the rest. */
  async load(): Promise<void> {
    const round = ++this.#round;
    try {
      let next: number | null = 0;
      while (next !== null) {
        const page = await this.#page(next, next ? PAGE : FIRST_PAGE);
        if (round !== this.#round) return;
        this.total = page.total;
        this.#add(page.runs);
        next = page.next_offset;
      }
      this.error = null;
    } catch (problem) {
      if (round === this.#round) this.error = problem;
    }
  }

  async #refresh(): Promise<void> {
    const waiting = [...this.#known.values()].slice(0, PAGE).some((run) => run.goodput === null);
    const moving = this.#metrics.length > 0 && this.runs.some((run) => run.state === "running");
    if (document.hidden || !(waiting || moving)) return;
    try {
      this.#add((await this.#page(0, PAGE)).runs);
    } catch {
      // The live stream already shows that the head is away.
    }
  }

  #page(offset: number, limit: number) {
    const metrics = this.#metrics.length ? { metrics: this.#metrics } : {};
    return api.runs({ offset, limit, ...metrics });
  }

  #add(news: readonly RunInfo[]): void {
    for (const run of news) this.#known.set(run.run, merged(this.#known.get(run.run), run));
    if (this.total !== null) this.total = Math.max(this.total, this.#known.size);
    // Many messages at once make one change of the list.
    this.#telling ??= setTimeout(() => {
      this.#telling = undefined;
      this.runs = [...this.#known.values()];
    }, this.runs.length ? TELL_MS : 0);
  }
}

// An answer of the head.  It is fetched again when something changes, but not too often.

import { untrack } from "svelte";

export class Fetched<T> {
  data = $state.raw<T | null>(null);
  error = $state.raw<unknown>(null);
  /** True until the current request has its first answer. */
  waiting = $state(true);

  #askedAtMs = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #abort: AbortController | null = null;
  #again = false;

  constructor(
    private readonly get: (signal: AbortSignal) => Promise<T>,
    private readonly gapMs = 1000,
  ) {}

  /** Something may have changed: ask, at most every `gapMs`. */
  readonly news = (): void =>
    untrack(() => {
      if (this.#abort) this.#again = true;
      else if (this.#timer === undefined) this.#timer = setTimeout(() => void this.#ask(), this.#rest());
    });

  /** The request has changed: drop the pending one and ask now. */
  readonly anew = (): void =>
    untrack(() => {
      this.close();
      this.waiting = true;
      void this.#ask();
    });

  readonly close = (): void => {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#again = false;
    this.#abort?.abort();
    this.#abort = null;
  };

  #rest(): number {
    return Math.max(0, this.#askedAtMs + this.gapMs - performance.now());
  }

  async #ask(): Promise<void> {
    this.#timer = undefined;
    this.#askedAtMs = performance.now();
    const abort = new AbortController();
    this.#abort = abort;
    try {
      const answer = await this.get(abort.signal);
      if (this.#abort !== abort) return;
      this.data = answer;
      this.error = null;
    } catch (problem) {
      if (this.#abort !== abort) return;
      this.error = problem;
    }
    this.#abort = null;
    this.waiting = false;
    if (this.#again) {
      this.#again = false;
      this.news();
    }
  }
}

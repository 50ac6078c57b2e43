// An answer of the head that is asked for again while something changes, yet not too often.

import { untrack } from "svelte";

export class Fetched<T> {
  data = $state.raw<T | null>(null);
  error = $state.raw<unknown>(null);
  /** True until the present question was answered for the first time. */
  waiting = $state(true);

  #asked = 0;
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

  /** The question is another one: what is on its way is of no use. */
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
    return Math.max(0, this.#asked + this.gapMs - performance.now());
  }

  async #ask(): Promise<void> {
    this.#timer = undefined;
    this.#asked = performance.now();
    const abort = new AbortController();
    this.#abort = abort;
    try {
      const found = await this.get(abort.signal);
      if (this.#abort !== abort) return;
      this.data = found;
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

// The live stream.  It reconnects by itself, and notes when the head is away.

import { access, ApiError, health, liveAddress } from "./api";
import type { LiveHello, LivePoints, RunInfo } from "./types";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const SILENCE_MS = 20_000;
const LOOK_MS = 5_000;

export interface Listeners {
  /** The stream is complete from here on: fetch what you show. */
  hello?: (message: LiveHello) => void;
  run?: (run: RunInfo) => void;
  points?: (points: LivePoints) => void;
}

/** Whether the head is away, for the banner; every open stream updates it. */
export const connection = $state<{ away: boolean; since: number }>({ away: false, since: 0 });

export class Live {
  #source: EventSource | null = null;
  #wait = FIRST_WAIT_MS;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #watch: ReturnType<typeof setInterval>;
  #heard = Date.now();
  #closed = false;

  constructor(
    private readonly listeners: Listeners,
    private readonly runId?: string,
  ) {
    this.#open();
    this.#watch = setInterval(() => void this.#look(), LOOK_MS);
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearInterval(this.#watch);
    this.#source?.close();
  }

  #open(): void {
    if (this.#closed) return;
    const source = new EventSource(liveAddress(this.runId));
    this.#source = source;
    const on = <T>(name: string, tell: ((message: T) => void) | undefined) =>
      source.addEventListener(name, (event) => {
        this.#here();
        tell?.(JSON.parse((event as MessageEvent<string>).data) as T);
      });
    on("hello", this.listeners.hello);
    on("run", this.listeners.run);
    on("points", this.listeners.points);
    source.onopen = () => this.#here();
    source.onerror = () => void this.#failed();
  }

  #here(): void {
    this.#heard = Date.now();
    this.#wait = FIRST_WAIT_MS;
    connection.away = false;
  }

  /** The head may be up but refuse us, or not know the run: a request shows which. */
  async #failed(): Promise<void> {
    const heard = this.#heard;
    this.#again();
    try {
      await access(AbortSignal.timeout(LOOK_MS));
    } catch (problem) {
      const isThere = problem instanceof ApiError && problem.status > 0;
      if (!isThere && heard === this.#heard) this.#gone();
    }
  }

  #gone(): void {
    if (this.#closed) return;
    if (!connection.away) connection.since = this.#heard;
    connection.away = true;
  }

  /** The browser reconnects by itself, but not after every kind of failure. */
  #again(): void {
    this.#source?.close();
    clearTimeout(this.#timer);
    if (this.#closed) return;
    this.#timer = setTimeout(() => this.#open(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }

  /** A stream can die silently (a proxy, a laptop that slept). */
  async #look(): Promise<void> {
    if (this.#closed || connection.away || Date.now() - this.#heard < SILENCE_MS) return;
    try {
      await health(AbortSignal.timeout(LOOK_MS));
      this.#heard = Date.now();
    } catch {
      this.#gone();
      this.#again();
    }
  }
}

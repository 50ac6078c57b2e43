// Joins many small requests at one moment into a few large ones.

interface Waiting<V> {
  give: (value: V) => void;
  fail: (problem: unknown) => void;
}

export class Batcher<V> {
  #waiting = new Map<string, Waiting<V>[]>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly load: (keys: string[]) => Promise<Map<string, V>>,
    private readonly none: () => V,
    private readonly most = 16,
    private readonly waitMs = 15,
  ) {}

  get(key: string): Promise<V> {
    return new Promise((give, fail) => {
      this.#waiting.set(key, [...(this.#waiting.get(key) ?? []), { give, fail }]);
      this.#timer ??= setTimeout(() => this.#send(), this.waitMs);
    });
  }

  #send(): void {
    this.#timer = undefined;
    const all = [...this.#waiting];
    this.#waiting = new Map();
    for (let at = 0; at < all.length; at += this.most) void this.#ask(all.slice(at, at + this.most));
  }

  async #ask(some: [string, Waiting<V>[]][]): Promise<void> {
    try {
      const values = await this.load(some.map(([key]) => key));
      for (const [key, waiting] of some) for (const one of waiting) one.give(values.get(key) ?? this.none());
    } catch (problem) {
      for (const [, waiting] of some) for (const one of waiting) one.fail(problem);
    }
  }
}

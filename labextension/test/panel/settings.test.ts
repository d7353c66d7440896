import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Signal } from '@lumino/signaling';

import { synchronize } from '../../src/panel/settings';

/** Settings that are stored only when the test lets the server answer. */
class Slow {
  constructor(public value: unknown) {}
  readonly changed = new Signal<this, void>(this);
  readonly requests: { value: unknown; done: () => void }[] = [];
  get(): { composite: never; user: never } {
    return { composite: this.value as never, user: this.value as never };
  }
  set(_: string, value: unknown): Promise<void> {
    return new Promise(resolve => {
      const done = (): void => {
        this.value = value;
        this.changed.emit();
        resolve();
      };
      this.requests.push({ value, done });
    });
  }
  async answer(): Promise<void> {
    this.requests.shift()!.done();
    await new Promise(resolve => setTimeout(resolve));
  }
}

class Switch {
  constructor(private _isOn: boolean) {}
  readonly chosen = new Signal<this, void>(this);
  read = (): boolean => this._isOn;
  show = (isOn: unknown): void => {
    if (isOn !== this._isOn) {
      this._isOn = isOn as boolean;
      this.chosen.emit();
    }
  };
}

test('a stored choice is applied, and not stored again', async () => {
  const settings = new Slow(false);
  const marks = new Switch(true);
  synchronize(settings, 'marks', marks);
  assert.equal(marks.read(), false);
  settings.value = true;
  settings.changed.emit();
  assert.equal(marks.read(), true);
  await Promise.resolve();
  assert.deepEqual(settings.requests, []);
});

test('the later of two choices stays, although the earlier is stored first', async () => {
  const settings = new Slow(true);
  const marks = new Switch(true);
  synchronize(settings, 'marks', marks);
  marks.show(false);
  await Promise.resolve();
  marks.show(true);
  assert.deepEqual(
    settings.requests.map(({ value }) => value),
    [false]
  );
  await settings.answer();
  assert.equal(marks.read(), true);
  await settings.answer();
  assert.equal(settings.value, true);
  assert.equal(marks.read(), true);
});

/** The reader's settings. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ISignal } from '@lumino/signaling';

import type { Marking } from './marking';
import type { GraphBreakPanel } from './panel';
import type { Sort } from './tree';

/** Keep the panel as the settings say, and the settings as the reader leaves the panel. */
export async function followSettings(
  registry: ISettingRegistry,
  plugin: string,
  panel: GraphBreakPanel
): Promise<void> {
  keep(await registry.load(plugin), 'sort', {
    read: () => panel.sort,
    show: sort => (panel.sort = sort as Sort),
    chosen: panel.sortChosen
  });
}

/** Show the marks or not, as the settings say. */
export async function followMarksSetting(
  registry: ISettingRegistry,
  plugin: string,
  marking: Marking
): Promise<void> {
  keep(await registry.load(plugin), 'marks', {
    read: () => marking.isOn,
    show: isOn => (marking.isOn = isOn as boolean),
    chosen: marking.toggled
  });
}

/** What a setting is about. */
export interface IChoice {
  read(): string | boolean;
  show(value: unknown): void;
  /** Emitted when the reader chose something else. */
  readonly chosen: ISignal<unknown, unknown>;
}

/** What of a plugin's settings is needed here. */
export type Settings = Pick<ISettingRegistry.ISettings, 'get' | 'set'> & {
  readonly changed: ISignal<unknown, void>;
};

/** Keep a choice and its setting the same. */
export function keep(settings: Settings, name: string, choice: IChoice): void {
  let saves = 0;
  let saved: Promise<void> = Promise.resolve();
  const stored = (): unknown => settings.get(name).composite;
  const apply = (): void => {
    // While a choice is being saved, what is stored may be an earlier one.
    if (saves === 0) {
      choice.show(stored());
    }
  };
  settings.changed.connect(apply);
  apply();
  choice.chosen.connect(() => {
    if (saves === 0 && choice.read() === stored()) {
      return;
    }
    saves += 1;
    const save = saved
      .then(() => settings.set(name, choice.read()))
      .finally(() => (saves -= 1));
    // One that fails is the browser's to report, and the next one is saved all the same.
    saved = save.catch(() => undefined);
  });
}

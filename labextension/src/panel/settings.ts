/** Synchronizes the reader's choices with the settings of the application. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ISignal } from '@lumino/signaling';

import type { CellMarks } from '../editor/cellmarks';
import type { PanelModel } from './panelmodel';
import type { Sort } from './tree';

/** Synchronize the order of the panel with its setting. */
export async function followSortSetting(
  registry: ISettingRegistry,
  plugin: string,
  panel: PanelModel
): Promise<void> {
  synchronize(await registry.load(plugin), 'sort', {
    read: () => panel.state.sort,
    show: sort => panel.setSort(sort as Sort),
    chosen: panel.sortChosen
  });
}

/** Follow the setting that makes the panel open automatically. */
export async function followOpenSetting(
  registry: ISettingRegistry,
  plugin: string,
  show: (isOn: boolean) => void
): Promise<void> {
  const settings = await registry.load(plugin);
  const apply = (): void => show(settings.get('open').composite as boolean);
  settings.changed.connect(apply);
  apply();
}

/** Synchronize the visibility of marks with its setting. */
export async function followMarksSetting(
  registry: ISettingRegistry,
  plugin: string,
  marks: CellMarks
): Promise<void> {
  synchronize(await registry.load(plugin), 'marks', {
    read: () => marks.isOn,
    show: isOn => (marks.isOn = isOn as boolean),
    chosen: marks.toggled
  });
}

/** A choice that corresponds to a setting. */
export interface IChoice {
  read(): string | boolean;
  show(value: unknown): void;
  /** Emitted when the choice changes. */
  readonly chosen: ISignal<unknown, unknown>;
}

/** The part of a plugin's settings that is needed here. */
export type Settings = Pick<ISettingRegistry.ISettings, 'get' | 'set'> & {
  readonly changed: ISignal<unknown, void>;
};

/** Synchronize a choice with its setting. */
export function synchronize(
  settings: Settings,
  name: string,
  choice: IChoice
): void {
  let pendingSaveCount = 0;
  let lastSave: Promise<void> = Promise.resolve();
  const storedValue = (): unknown => settings.get(name).composite;
  const apply = (): void => {
    // While a choice is being saved, the stored value may be outdated.
    if (pendingSaveCount === 0) {
      choice.show(storedValue());
    }
  };
  settings.changed.connect(apply);
  apply();
  choice.chosen.connect(() => {
    if (pendingSaveCount === 0 && choice.read() === storedValue()) {
      return;
    }
    pendingSaveCount += 1;
    const save = lastSave
      .then(() => settings.set(name, choice.read()))
      .finally(() => (pendingSaveCount -= 1));
    // The browser reports a failed save, and the next choice is saved anyway.
    lastSave = save.catch(() => undefined);
  });
}

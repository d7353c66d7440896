/** Keeps what the reader chose and the settings of the application the same. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { ISignal } from '@lumino/signaling';

import type { CellMarks } from '../editor/cellmarks';
import type { PanelModel } from './panelmodel';
import type { Sort } from './tree';

/** Sort the panel as the settings say, and keep the order that the reader chooses. */
export async function followSortSetting(
  registry: ISettingRegistry,
  plugin: string,
  panel: PanelModel
): Promise<void> {
  keep(await registry.load(plugin), 'sort', {
    read: () => panel.state.sort,
    show: sort => panel.setSort(sort as Sort),
    chosen: panel.sortChosen
  });
}

/** Show the marks or not, as the settings say. */
export async function followMarksSetting(
  registry: ISettingRegistry,
  plugin: string,
  marks: CellMarks
): Promise<void> {
  keep(await registry.load(plugin), 'marks', {
    read: () => marks.isOn,
    show: isOn => (marks.isOn = isOn as boolean),
    chosen: marks.toggled
  });
}

/** What a setting is about, as the reader sees it. */
export interface IChoice {
  read(): string | boolean;
  show(value: unknown): void;
  /** Emitted when the reader chose something else. */
  readonly chosen: ISignal<unknown, unknown>;
}

/** The part of a plugin's settings that is needed here. */
export type Settings = Pick<ISettingRegistry.ISettings, 'get' | 'set'> & {
  readonly changed: ISignal<unknown, void>;
};

/** Keep a choice and its setting the same. */
export function keep(settings: Settings, name: string, choice: IChoice): void {
  let saves = 0;
  let lastSave: Promise<void> = Promise.resolve();
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
    const save = lastSave
      .then(() => settings.set(name, choice.read()))
      .finally(() => (saves -= 1));
    // The browser reports a save that fails, and the next choice is saved all the same.
    lastSave = save.catch(() => undefined);
  });
}

/** The reader's settings. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

import type { Marking } from './marking';
import type { GraphBreakPanel } from './panel';
import type { Sort } from './tree';

/** Keep the panel as the settings say, and the settings as the reader leaves the panel. */
export async function followSettings(
  registry: ISettingRegistry,
  plugin: string,
  panel: GraphBreakPanel
): Promise<void> {
  const settings = await registry.load(plugin);
  const apply = (): void => {
    panel.sort = settings.get('sort').composite as Sort;
  };
  settings.changed.connect(apply);
  apply();
  panel.sortChosen.connect((_, sort) => void settings.set('sort', sort));
}

/** Show the marks or not, as the settings say. */
export async function followMarksSetting(
  registry: ISettingRegistry,
  plugin: string,
  marking: Marking
): Promise<void> {
  const settings = await registry.load(plugin);
  const apply = (): void => {
    marking.isOn = settings.get('marks').composite as boolean;
  };
  settings.changed.connect(apply);
  apply();
  marking.toggled.connect(() => void settings.set('marks', marking.isOn));
}

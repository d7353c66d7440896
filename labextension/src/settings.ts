/** The reader's settings of the panel. */
import type { ISettingRegistry } from '@jupyterlab/settingregistry';

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

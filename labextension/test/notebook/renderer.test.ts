import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';

import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { Widget } from '@lumino/widgets';

import {
  type IRenderers,
  ReportOutput,
  WIDGET_VIEW
} from '../../src/notebook/renderer';
import { MIME_TYPE } from '../../src/report/mimetype';

const REPORT: unknown = JSON.parse(
  await readFile('../tests/reports/two_breaks.json', 'utf-8')
);

/** A renderer that shows what the test lets it show. */
class Renderer extends Widget implements IRenderMime.IRenderer {
  constructor(readonly type: string) {
    super();
  }
  data: string[] = [];
  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    this.data = Object.keys(model.data);
    if (this.type !== WIDGET_VIEW) {
      this.node.innerHTML = '<p>static</p>';
    } else {
      this.node.textContent = 'Loading widget...';
    }
    return Promise.resolve();
  }
}

class Renderers implements IRenderers {
  created: Renderer[] = [];
  mimeTypes = [WIDGET_VIEW, 'text/html', 'text/plain'];
  createRenderer(type: string): Renderer {
    const renderer = new Renderer(type);
    this.created.push(renderer);
    return renderer;
  }
  get types(): string[] {
    return this.created
      .filter(renderer => !renderer.isDisposed)
      .map(renderer => renderer.type);
  }
}

function model(trusted: boolean, data: object = {}): IRenderMime.IMimeModel {
  return {
    trusted,
    data: {
      [WIDGET_VIEW]: { model_id: 'x' },
      [MIME_TYPE]: REPORT,
      'text/html': '<p>static</p>',
      'text/plain': 'static',
      ...data
    }
  } as unknown as IRenderMime.IMimeModel;
}

const later = (ms = 0): Promise<void> =>
  new Promise(resolve => setTimeout(resolve, ms));

test('an untrusted output shows the HTML at once', async () => {
  const renderers = new Renderers();
  await new ReportOutput(renderers, () => true).renderModel(model(false));
  assert.deepEqual(renderers.types, ['text/html']);
});

test('without ipywidgets the HTML is shown at once', async () => {
  const renderers = new Renderers();
  renderers.mimeTypes = ['text/html'];
  await new ReportOutput(renderers, () => true).renderModel(model(true));
  assert.deepEqual(renderers.types, ['text/html']);
});

test('a live widget is shown instead of the HTML', async () => {
  const renderers = new Renderers();
  const output = new ReportOutput(renderers, () => true);
  await output.renderModel(model(true));
  const live = renderers.created[0]!;
  assert(live.isHidden);
  live.node.replaceChildren(document.createElement('div'));
  await later(600);
  assert(!live.isHidden);
  assert.deepEqual(renderers.types, [WIDGET_VIEW]);
  output.dispose();
});

test('the HTML replaces a widget that is gone, until the widget is restored', async () => {
  const renderers = new Renderers();
  const output = new ReportOutput(renderers, () => true);
  await output.renderModel(model(true));
  await later(600);
  const live = renderers.created[0]!;
  assert(live.isHidden);
  assert.deepEqual(renderers.types, [WIDGET_VIEW, 'text/html']);
  live.node.replaceChildren(document.createElement('div'));
  await later();
  assert(!live.isHidden);
  assert.deepEqual(renderers.types, [WIDGET_VIEW]);
  live.node.replaceChildren();
  await later();
  assert.deepEqual(renderers.types, [WIDGET_VIEW, 'text/html']);
  output.dispose();
  assert.deepEqual(renderers.types, []);
});

test('during a run the text is shown because there is no HTML', async () => {
  const renderers = new Renderers();
  const output = new ReportOutput(renderers, () => true);
  await output.renderModel(model(false, { 'text/html': undefined }));
  assert.deepEqual(renderers.types, ['text/plain']);
});

test('without a kernel the HTML is shown at once, until a widget appears', async () => {
  const renderers = new Renderers();
  const output = new ReportOutput(renderers, () => false);
  await output.renderModel(model(true));
  assert.deepEqual(renderers.types, [WIDGET_VIEW, 'text/html']);
  const live = renderers.created[0]!;
  assert(live.isHidden);
  live.node.replaceChildren(document.createElement('div'));
  await later();
  assert(!live.isHidden);
  assert.deepEqual(renderers.types, [WIDGET_VIEW]);
  output.dispose();
});

test('the HTML is shown at once if the widget is reported as missing', async () => {
  const renderers = new Renderers();
  const output = new ReportOutput(renderers, () => true);
  await output.renderModel(model(true));
  assert.deepEqual(renderers.types, [WIDGET_VIEW]);
  renderers.created[0]!.node.textContent = 'Error displaying widget';
  await later();
  assert.deepEqual(renderers.types, [WIDGET_VIEW, 'text/html']);
  output.dispose();
});

test('the data of a notebook are read without copies, and renderers get only their own', async () => {
  const renderers = new Renderers();
  const { data } = model(true);
  const copying = {
    trusted: true,
    get data(): never {
      throw new Error('copied');
    },
    toJSON: () => ({ data })
  };
  const output = new ReportOutput(renderers, () => false);
  await output.renderModel(copying as unknown as IRenderMime.IMimeModel);
  assert.deepEqual(
    renderers.created.map(renderer => renderer.data),
    [[WIDGET_VIEW], ['text/html']]
  );
  output.dispose();
});

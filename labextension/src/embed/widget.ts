/** The anywidget module: a progress line during the run, then the report. */
import type { RenderProps } from '@anywidget/types';

import type { IReportData } from '../view/link';
import type { Rest } from '../view/list';
import { type IProgress, ProgressLine } from './progress';
import { addBehaviour } from '../view/view';

interface IModel {
  _html: string;
  _progress: Partial<IProgress>;
}

interface IAnswer<T> {
  asked?: string;
  list?: string | null;
  answer?: T;
}

type Model = RenderProps<IModel>['model'];

/** How long to wait for the kernel's answer, which comes only when the kernel is idle. */
const PATIENCE_MS = 20_000;

function render({ model, el }: RenderProps<IModel>): () => void {
  let line: ProgressLine | null = null;
  let detach = (): void => undefined;

  const showProgress = (): void => {
    const progress = model.get('_progress');
    if (line !== null && progress.elapsed_s !== undefined) {
      line.show(progress as IProgress);
    }
  };
  const show = (): void => {
    detach();
    line?.dispose();
    line = null;
    const html = model.get('_html');
    if (html === '') {
      line = new ProgressLine();
      el.replaceChildren(line.element);
      showProgress();
      return;
    }
    // The Python package has escaped this markup, in the kernel of this page.
    el.innerHTML = html;
    const root = el.querySelector<HTMLElement>('.graphbreak');
    detach =
      root === null ? () => undefined : addBehaviour(root, dataOf(model));
  };

  model.on('change:_html', show);
  model.on('change:_progress', showProgress);
  show();
  return () => {
    model.off('change:_html', show);
    model.off('change:_progress', showProgress);
    line?.dispose();
    detach();
  };
}

function dataOf(model: Model): IReportData {
  const ask = <T>(what: string, list: string | null = null): Promise<T> =>
    new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        model.off('msg:custom', onAnswer);
      };
      const onAnswer = (message: IAnswer<T>): void => {
        if (message.asked === what && (message.list ?? null) === list) {
          end();
          resolve(message.answer as T);
        }
      };
      const timer = setTimeout(() => {
        end();
        reject(new Error('the kernel is busy or gone'));
      }, PATIENCE_MS);
      model.on('msg:custom', onAnswer);
      model.send({ ask: what, list });
    });
  return {
    rest: name => ask<Rest>('rest', name),
    text: () => ask<string>('text'),
    json: () => ask<string>('json')
  };
}

export default { render };

/** The anywidget module: progress during the run, a preview of the report while changes are tried, then the report. */
import type { RenderProps } from '@anywidget/types';

import type { IReportData } from '../view/link';
import type { OmittedItems } from '../view/list';
import { type IProgress, ProgressLine } from './progress';
import { addBehaviour } from '../view/view';

interface IModel {
  _html: string;
  /** The report without the results of trials; empty if there is none yet. */
  _preview: string;
  _progress: Partial<IProgress>;
}

interface IAnswer<T> {
  request?: string;
  list?: string | null;
  answer?: T;
}

type Model = RenderProps<IModel>['model'];

/** The time to wait for the kernel's answer, which comes only when the kernel is idle. */
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
  const fill = (within: HTMLElement, html: string): void => {
    // The Python package has escaped this markup, in the kernel of this page.
    within.innerHTML = html;
    const root = within.querySelector<HTMLElement>('.graphbreak');
    detach =
      root === null ? () => undefined : addBehaviour(root, dataOf(model));
  };
  const show = (): void => {
    detach();
    detach = () => undefined;
    const html = model.get('_html');
    if (html !== '') {
      line?.dispose();
      line = null;
      fill(el, html);
      return;
    }
    line ??= new ProgressLine();
    el.replaceChildren(line.element);
    showProgress();
    const preview = model.get('_preview');
    if (preview !== '') {
      // The preview is inert: the kernel cannot answer yet, and the report will replace it.
      const box = document.createElement('div');
      box.className = 'gb-preview';
      box.inert = true;
      el.append(box);
      fill(box, preview);
    }
  };
  const showPreview = (): void => {
    if (model.get('_html') === '') {
      show();
    }
  };

  model.on('change:_html', show);
  model.on('change:_preview', showPreview);
  model.on('change:_progress', showProgress);
  show();
  return () => {
    model.off('change:_html', show);
    model.off('change:_preview', showPreview);
    model.off('change:_progress', showProgress);
    line?.dispose();
    detach();
  };
}

function dataOf(model: Model): IReportData {
  const request = <T>(kind: string, list: string | null = null): Promise<T> =>
    new Promise((resolve, reject) => {
      const end = (): void => {
        clearTimeout(timer);
        model.off('msg:custom', onAnswer);
      };
      const onAnswer = (message: IAnswer<T>): void => {
        if (message.request === kind && (message.list ?? null) === list) {
          end();
          resolve(message.answer as T);
        }
      };
      const timer = setTimeout(() => {
        end();
        reject(new Error('the kernel is busy or gone'));
      }, PATIENCE_MS);
      model.on('msg:custom', onAnswer);
      model.send({ request: kind, list });
    });
  return {
    omittedItems: name => request<OmittedItems>('rest', name),
    text: () => request<string>('text'),
    json: () => request<string>('json')
  };
}

export default { render };

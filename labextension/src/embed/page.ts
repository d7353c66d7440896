/** The script of a page with reports that have their data beside them. */
import { unpack } from '../report/packed';
import { addBehaviour } from '../view/view';

interface IData {
  text: string;
  report: string;
  rest: Record<string, readonly string[]>;
}

for (const root of document.querySelectorAll<HTMLElement>('.graphbreak')) {
  const blocks = Array.from(root.parentElement!.children).filter(
    element => element instanceof HTMLScriptElement
  );
  const block = blocks.find(({ dataset }) => dataset.graphbreak === 'data');
  const report = blocks.find(({ dataset }) => dataset.graphbreak === 'report');
  // A report without data has a different script or none.
  if (block !== undefined) {
    let unpackedData: Promise<IData> | null = null;
    const data = (): Promise<IData> =>
      (unpackedData ??= unpack<IData>(block.textContent ?? ''));
    addBehaviour(root, {
      omittedItems: async () => (await data()).rest,
      text: async () => (await data()).text,
      json: async () => report?.textContent ?? (await data()).report
    });
  }
}

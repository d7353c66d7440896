/** The data of the reports in an output, besides their markup. */
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';

import { JOB_TYPE, MIME_TYPE, REST_TYPE } from '../report/mimetype';
import { unpack } from '../report/packed';
import type { IReportData } from '../view/link';
import type { OmittedItems } from '../view/list';

/** The data of an output by MIME type. */
type OutputData = IRenderMime.IMimeModel['data'];

/** The data of an output that is not rendered yet. */
export const NO_DATA: IReportData = {
  omittedItems: () => Promise.resolve({}),
  text: () => Promise.resolve(''),
  json: () => Promise.resolve('null')
};

/** The compressed data of an output: of a single report, or of the reports of several processes. */
interface IPacked {
  gzip?: string;
  processes?: { gzip: string }[];
}

/** The unpacked data of a single report: the rest of the markup, and the code of graphs by their ids if it is long. */
interface IUnpacked {
  rest: OmittedItems;
  code?: Record<string, string>;
}

/** The data of an output's report besides the markup. */
export function dataOf(data: OutputData): IReportData {
  const packedData = data[REST_TYPE] as IPacked | undefined;
  const text = data['text/plain'] ?? '';
  const report = data[MIME_TYPE];
  let unpackedData: Promise<IUnpacked> | null = null;
  const load = (): Promise<IUnpacked> =>
    (unpackedData ??=
      packedData?.gzip === undefined
        ? Promise.resolve({ rest: {} })
        : unpack<IUnpacked>(packedData.gzip));
  return {
    omittedItems: async () => (await load()).rest,
    text: () =>
      Promise.resolve(Array.isArray(text) ? text.join('') : String(text)),
    // The rows come with the report, but are not part of it.
    json: async () =>
      JSON.stringify({
        ...withCode(Object(report) as ICoded, (await load()).code ?? {}),
        rows: undefined
      })
  };
}

/** A report with graphs whose code may be missing. */
interface ICoded {
  graphs?: { id: string; code?: string }[];
}

/** Add the code of the graphs that an output has in compressed form. */
function withCode(report: ICoded, code: Record<string, string>): ICoded {
  return {
    ...report,
    graphs: report.graphs?.map(graph =>
      graph.id in code ? { ...graph, code: code[graph.id] } : graph
    )
  };
}

/** The data of one process's report in a job. */
export function dataOfProcess(data: OutputData, index: number): IReportData {
  const packedData = (data[REST_TYPE] as IPacked | undefined)?.processes?.[
    index
  ];
  const job = data[JOB_TYPE] as { processes?: { report: unknown }[] } | undefined; // prettier-ignore
  let unpackedData: Promise<{ rest: OmittedItems; text: string }> | null = null;
  const load = (): Promise<{ rest: OmittedItems; text: string }> =>
    (unpackedData ??= packedData
      ? unpack(packedData.gzip)
      : Promise.resolve({ rest: {}, text: '' }));
  return {
    omittedItems: async () => (await load()).rest,
    text: async () => (await load()).text,
    json: () =>
      Promise.resolve(JSON.stringify(job?.processes?.[index]?.report ?? null))
  };
}

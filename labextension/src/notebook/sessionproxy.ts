/** A session whose requests to run a cell also ask the kernel to explain the cell. */
import type { ISessionContext } from '@jupyterlab/apputils';

/** What is asked of the kernel, as the Python package reads it from the metadata of a request. */
export interface IExplainRequest {
  explain: string;
  only_torch: boolean;
  /** Cells that were edited and not run, by their texts before and after: they are tried as remedies. */
  edited?: [before: string, after: string][];
}

/**
 * The same session, but every request to run a cell carries another request.
 *
 * @param context - The session.
 * @param request - What is asked of the kernel.
 * @param code - The code to run in place of the cell's.
 */
export function explainingSession(
  context: ISessionContext,
  request: IExplainRequest,
  code?: string
): ISessionContext {
  return withProperty(
    context,
    'session',
    session =>
      session &&
      withProperty(
        session,
        'kernel',
        kernel =>
          kernel &&
          withProperty(
            kernel,
            'requestExecute',
            requestExecute => (content, dispose, metadata) =>
              requestExecute.call(
                kernel,
                code === undefined ? content : { ...content, code },
                dispose,
                { ...metadata, graphbreak: { ...request } }
              )
          )
      )
  );
}

/** An object as it is, with one property replaced. */
function withProperty<T extends object, K extends keyof T>(
  target: T,
  name: K,
  replace: (value: T[K]) => T[K]
): T {
  return new Proxy(target, {
    get: (_, key) => {
      // Read from the object, not from the proxy: the object's own methods see it unchanged.
      const value: unknown = Reflect.get(target, key, target);
      if (key === name) {
        return replace(value as T[K]);
      }
      return typeof value === 'function' ? value.bind(target) : value;
    }
  });
}

/** A session whose execution requests also ask the kernel to explain the cell. */
import type { ISessionContext } from '@jupyterlab/apputils';

/** The request in the metadata, as the Python package reads it. */
export interface IExplainRequest {
  explain: string;
  only_torch: boolean;
  /** The texts of edited cells before and after the edits, which are tried as remedies. */
  edited?: [before: string, after: string][];
}

/**
 * The same session, but every execution request contains an explain request.
 *
 * @param context - The session.
 * @param request - The explain request.
 * @param code - The code to run instead of the cell's.
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

/** A proxy of an object with one property replaced. */
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

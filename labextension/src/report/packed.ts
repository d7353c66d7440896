/** Data that a page or an output carries compressed. */

/** Unpack JSON that was compressed with gzip and written as base64. */
export async function unpack<T>(base64: string): Promise<T> {
  const bytes = Uint8Array.from(atob(base64.trim()), char => char.charCodeAt(0)); // prettier-ignore
  const stream = new Blob([bytes])
    .stream()
    .pipeThrough(new DecompressionStream('gzip'));
  return (await new Response(stream).json()) as T;
}

/** Compressed data in a page or an output. */

/** The maximum number of unpacked bytes, to limit decompression bombs. */
export const MAX_BYTES = 2 ** 28;

/** Unpack JSON that was compressed with gzip and encoded as base64. */
export async function unpack<T>(
  base64: string,
  maxBytes = MAX_BYTES
): Promise<T> {
  const bytes = Uint8Array.from(atob(base64.trim()), char => char.charCodeAt(0)); // prettier-ignore
  const reader = new Blob([bytes])
    .stream()
    .pipeThrough(new DecompressionStream('gzip'))
    .getReader();
  const chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      break;
    }
    size += value.byteLength;
    if (size > maxBytes) {
      await reader.cancel();
      throw new Error('the rest of this report is too large to be shown');
    }
    chunks.push(value as Uint8Array<ArrayBuffer>);
  }
  return (await new Response(new Blob(chunks)).json()) as T;
}

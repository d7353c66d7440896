/** The reason of a graph break, as people read it. */

/** PyTorch's name of the reason, with its GB id where it has one. */
export function reasonLabel(type: string, gbId: string | null): string {
  return gbId === null ? type : `${type} (${gbId})`;
}

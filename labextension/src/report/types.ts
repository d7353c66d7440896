/* Made from schema.json by scripts/types.mjs; not to be edited. */
/**
 * The report of one run of ``torch.compile``. The classes of its lists describe their fields.
 */
export interface Report {
  status: 'error' | 'interrupted' | 'ok';
  sources: Source[];
  graphs: Graph[];
  breaks: Break[];
  order: string[];
  skipped: Skipped[];
  scopes: Scope[];
  compiled: CompiledCall[] | null;
  remedies: Remedy[] | null;
}
/**
 * A file or a cell.
 */
export interface Source {
  id: string;
  name: string;
  kind: 'cell' | 'file' | 'library';
  path: string | null;
  segments: Segment[];
  functions: FunctionName[];
}
/**
 * Consecutive lines of a source, without a final line break.
 */
export interface Segment {
  first_line: number;
  text: string;
}
/**
 * The first line of a function, and its name with its class: "BartDecoder.forward".
 */
export interface FunctionName {
  line: number;
  name: string;
}
/**
 * A graph that Dynamo passed to the backend.
 */
export interface Graph {
  id: string;
  name: string;
  frame: string;
  ops: Op[];
  inputs: Tensor[];
  lines: GraphLine[];
  code: string;
  ends: 'break' | 'return';
  break: string | null;
}
/**
 * One operation of a graph: the name of its result, the function it calls, and its location without the text.
 */
export interface Op {
  name: string;
  target: string;
  location: Location | null;
  output: TensorMeta | null;
}
/**
 * A range of source text.
 */
export interface Location {
  source: string;
  line: number;
  end_line: number;
  column: number | null;
  end_column: number | null;
  function: string | null;
  code: string | null;
}
/**
 * The shape (with symbols for dynamic dimensions), dtype and device of a tensor, as PyTorch prints them.
 */
export interface TensorMeta {
  shape: (number | string)[];
  dtype: string;
  device: string | null;
}
/**
 * An input of a graph; if it is a number, only ``dtype`` is known, as PyTorch prints it: ``Sym(s0)``.
 */
export interface Tensor {
  name: string;
  shape: (number | string)[] | null;
  dtype: string;
  device: string | null;
}
/**
 * The number of operations in a graph that a source line, or a function called on it, contributes.
 */
export interface GraphLine {
  source: string;
  line: number;
  ops: number;
}
/**
 * One expression or line that broke a graph for one reason, however often this occurred.
 */
export interface Break {
  id: string;
  gb_id: string | null;
  gb_type: string;
  location: Location | null;
  outcome: 'error' | 'resumed' | 'skipped';
  url: string | null;
  explanation: string | null;
  hints: string[];
  context: string | null;
  consequence: Reason | null;
  stack: Location[];
  occurrences: Occurrence[];
  resumes: string[];
  skipped: string[];
  scope: string | null;
  advice: Advice[];
  setting: Setting | null;
  also_reported_as: string[];
  cost: BreakCost | null;
  owner: 'library' | 'own' | 'torch';
  minor: boolean;
}
/**
 * The reason for a break as PyTorch names it: its GB id in the registry of graph breaks, and its type.
 */
export interface Reason {
  gb_id: string | null;
  gb_type: string;
}
/**
 * One event of the trace: a break in one frame and one attempt.
 */
export interface Occurrence {
  frame: string | null;
  attempt: number;
  stack: Location[];
  outcome: 'error' | 'resumed' | 'skipped';
  consequence: Reason | null;
  setting: Setting | null;
}
/**
 * The setting that decided whether a break was an error.
 */
export interface Setting {
  value: boolean;
  rules: ('default' | 'fullgraph' | 'inherited' | 'inner over outer' | 'own')[];
  scope: string | null;
  chain: string[];
}
/**
 * A piece of advice about a break; ``origin`` is its author: PyTorch or this package.
 */
export interface Advice {
  text: string;
  origin: 'graphbreak' | 'pytorch';
}
/**
 * The cost of a break.
 */
export interface BreakCost {
  graphs: number;
  compile_s: number | null;
  eager: number;
}
/**
 * A function that runs eagerly because of a break, an error, the recompile limit or a similar reason.
 */
export interface Skipped {
  id: string;
  frame: string | null;
  function: string;
  location: Location | null;
  reason: string;
  break: string | null;
  kind:
    | 'context manager'
    | 'dispatch mode'
    | 'error'
    | 'generator'
    | 'loop'
    | 'marked'
    | 'other'
    | 'recompile limit'
    | 'remembered'
    | 'shared wrapper'
    | 'skip_frame'
    | 'try';
  callees: string[];
  way_out: string | null;
  setting: Setting | null;
}
/**
 * A region of the source in which a setting decides whether a break is an error.
 */
export interface Scope {
  id: string;
  setting: 'error_on_graph_break' | 'fullgraph';
  value: boolean;
  form: 'call' | 'decorator' | 'with';
  location: Location | null;
  parent: string | null;
  breaks: string[];
  note: string | null;
}
/**
 * A module or a function that was compiled only for this report, because the program does not compile it.
 */
export interface CompiledCall {
  name: string;
  type: string | null;
  code: string | null;
  edit: Edit | null;
}
/**
 * The replacement of whole lines of a source.
 */
export interface Edit {
  source: string;
  first_line: number;
  last_line: number;
  old: string;
  new: string;
}
/**
 * A change that may remove breaks or recompiles, and the result of trying it.
 */
export interface Remedy {
  id: string;
  breaks: string[];
  family: string;
  title: string;
  kind: 'edit' | 'mark' | 'person' | 'setting' | 'switch';
  verdict:
    | 'another break'
    | 'another result'
    | 'break stays'
    | 'fails'
    | 'not tried'
    | 'works'
    | 'works but differs'
    | 'works on what ran';
  frames: string[];
  edits: Edit[];
  settings: {
    [k: string]: unknown;
  };
  code: string | null;
  patch: string | null;
  excludes: string[];
  reason: string | null;
  differences: string[];
  evidence: Evidence | null;
  person: string | null;
  seconds: number;
  recompiles: string[];
  is_right: boolean;
}
/**
 * The evidence for a verdict.
 */
export interface Evidence {
  backend: string;
  inputs: number;
  both_sides: boolean | null;
  compared: string[];
  graphs_before: number;
  graphs_after: number;
  breaks_before: number;
  breaks_after: number;
  compilations_before: number | null;
  compilations_after: number | null;
  unseen: UnseenInputs | null;
}
/**
 * Calls with sizes or values that the run never used: their number, and the number of frames compiled for them.
 */
export interface UnseenInputs {
  inputs: number;
  compilations: number;
}

/**
 * A report as rows, in sections.
 */
export interface Rows {
  version: string;
  look: 'bad' | 'error' | 'good' | 'plain';
  status: string[];
  about: Row[];
  sections: Section[];
  title: string;
}
/**
 * One entry of a section.
 */
export interface Row {
  id: string;
  label: string;
  look:
    | 'allow'
    | 'bad'
    | 'break'
    | 'eager'
    | 'error'
    | 'figures'
    | 'forbid'
    | 'gone'
    | 'good'
    | 'graph'
    | 'moved'
    | 'new'
    | 'note'
    | 'recompile'
    | 'unknown';
  name: string;
  sign: string;
  is_code: boolean;
  details: string[];
  more: string[];
  group: string;
  beside: string;
  spot: Spot | null;
  cost: number | null;
  colour: number | null;
  comment: string[];
}
/**
 * The line that a row is about, as :class:`~jupyter_graphbreak.report.location.Location` counts lines.
 */
export interface Spot {
  source: string;
  line: number;
  column: number | null;
}
/**
 * Rows of one kind.
 */
export interface Section {
  id: string;
  title: string;
  rows: Row[];
  total: number;
  details: string[];
  form: 'groups' | 'list' | 'plain';
}

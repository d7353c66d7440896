/* Made from schema.json by scripts/types.mjs; not to be edited. */

/**
 * The report of one run of ``torch.compile``. The classes of its lists describe their fields.
 */
export interface Report {
  status: 'error' | 'interrupted' | 'ok';
  device: Device;
  schema_version: string;
  torch: string | null;
  python: string | null;
  config: {
    [k: string]: unknown;
  };
  error: RunError | null;
  timing: Timing;
  summary: Summary;
  sources: Source[];
  frames: Frame[];
  graphs: Graph[];
  breaks: Break[];
  order: string[];
  resumes: Resume[];
  skipped: Skipped[];
  scopes: Scope[];
  recompiles: Recompile[];
  cudagraph_skips: CudagraphSkip[];
  what_if: WhatIf;
  diagnostics: Diagnostic[];
  changes: Changes | null;
  compiled: CompiledCall[] | null;
  remedies: Remedy[] | null;
  cost: Cost | null;
  check: Check[] | null;
  held: HeldFunction[] | null;
  effects: Effect[] | null;
}
/**
 * The requested device and the device that was used; if they differ, ``note`` gives the reason.
 */
export interface Device {
  requested: string;
  used: string;
  name: string | null;
  note: string | null;
}
/**
 * The exception that ended the run; ``break_`` is the id of the break that caused it.
 */
export interface RunError {
  type: string;
  message: string;
  location: Location | null;
  break: string | null;
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
 * Times in seconds: the whole run, compiling, and recording the run.
 */
export interface Timing {
  wall_s: number | null;
  compile_s: number | null;
  capture_s: number | null;
  cache_hits: number | null;
  cache_misses: number | null;
}
/**
 * The lengths of the lists in the report; ``events`` counts the occurrences of all breaks.
 */
export interface Summary {
  frames: number;
  graphs: number;
  ops: number;
  breaks: number;
  events: number;
  resumes: number;
  skipped: number;
  recompiles: number;
  errors: number;
}
/**
 * A file or a cell. A cell has its whole text in one segment; a file only has the functions that took part.
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
 * Consecutive lines of a source, without a line break at the end.
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
 * One compilation of one code object, under the id that PyTorch prints (``0/0``).
 */
export interface Frame {
  id: string;
  function: string;
  location: Location | null;
  role: 'call' | 'entry' | 'resume';
  outcome: 'compiled' | 'empty' | 'error' | 'skipped';
  attempts: number;
  resume: string | null;
  caller: string | null;
  graphs: string[];
  breaks: string[];
  compile_s: number | null;
  recompile_of: string | null;
  recompile_reasons: string[];
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
 * One operation of a graph: the name of its result, what it calls, the line it comes from (without its text).
 */
export interface Op {
  name: string;
  target: string;
  location: Location | null;
  output: TensorMeta | null;
}
/**
 * Shape (with symbols for dynamic dimensions), dtype and device of a tensor, as PyTorch prints them.
 */
export interface TensorMeta {
  shape: (number | string)[];
  dtype: string;
  device: string | null;
}
/**
 * An input of a graph. For a number ``shape`` and ``device`` are ``None`` and ``dtype`` is its symbol.
 */
export interface Tensor {
  name: string;
  shape: (number | string)[] | null;
  dtype: string;
  device: string | null;
}
/**
 * The number of operations of a graph that come from a source line or from its calls.
 */
export interface GraphLine {
  source: string;
  line: number;
  ops: number;
}
/**
 * One place in the source that broke a graph for one reason, however often it occurred.
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
 * A reason under PyTorch's names for it: its GB id in the registry of graph breaks, and its type.
 */
export interface Reason {
  gb_id: string | null;
  gb_type: string;
}
/**
 * One event of the trace: the break in one frame and one attempt.
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
 * A piece of advice about a break; ``origin`` tells whether it comes from PyTorch or from this package.
 */
export interface Advice {
  text: string;
  origin: 'graphbreak' | 'pytorch';
}
/**
 * The cost of a break, which removing the break saves.
 */
export interface BreakCost {
  graphs: number;
  compile_s: number | null;
  eager: number;
}
/**
 * A function that Dynamo created to continue after a break.
 */
export interface Resume {
  id: string;
  name: string;
  function: string;
  location: Location | null;
  break: string | null;
  frames: string[];
  graphs: string[];
  no_frame: ('compiled before' | 'eager' | 'inlined' | 'not reached') | null;
}
/**
 * A function that runs eagerly because of a break or an error.
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
 * A further compilation of a function, or its refusal because a limit was reached.
 */
export interface Recompile {
  frame: string;
  of: string | null;
  function: string;
  location: Location | null;
  reasons: GuardFailure[];
  limit_hit: boolean;
}
/**
 * A guard that failed, and the source line that caused it, if PyTorch reports it.
 */
export interface GuardFailure {
  guard: string;
  location: Location | null;
}
/**
 * A graph that runs without a CUDA graph although the backend was asked to use one.
 */
export interface CudagraphSkip {
  reason: string;
  graph: string | null;
  location: Location | null;
}
/**
 * The effect that stricter settings would have had in this run, as far as the run shows it.
 */
export interface WhatIf {
  error_on_graph_break: string[];
  fullgraph: string | null;
  captured: string[];
}
/**
 * A note about the run or about this report.
 */
export interface Diagnostic {
  level: 'error' | 'info' | 'warning';
  message: string;
}
/**
 * The changes from one run to a later run.
 */
export interface Changes {
  before: RunFigures;
  after: RunFigures;
  breaks: Change[];
  same: string[];
  reused: Reused[];
}
/**
 * The figures of one of two compared runs; ``name`` is the name of its cell, if it ran a cell.
 */
export interface RunFigures {
  name: string | null;
  status: 'error' | 'interrupted' | 'ok';
  summary: Summary1;
  timing: Timing1;
}
/**
 * The lengths of the lists in the report; ``events`` counts the occurrences of all breaks.
 */
export interface Summary1 {
  frames: number;
  graphs: number;
  ops: number;
  breaks: number;
  events: number;
  resumes: number;
  skipped: number;
  recompiles: number;
  errors: number;
}
/**
 * Times in seconds: the whole run, compiling, and recording the run.
 */
export interface Timing1 {
  wall_s: number | null;
  compile_s: number | null;
  capture_s: number | null;
  cache_hits: number | null;
  cache_misses: number | null;
}
/**
 * A break that only one of two runs has, or that has moved to a different line.
 */
export interface Change {
  change: 'gone' | 'moved' | 'new' | 'unknown';
  gb_id: string | null;
  gb_type: string;
  function: string | null;
  code: string | null;
  before: Place | null;
  after: Place | null;
  break: string | null;
}
/**
 * A line and the name of its source; ``name`` is ``None`` for the cell that ran.
 */
export interface Place {
  name: string | null;
  line: number;
}
/**
 * A function that one of two runs compiled while the other reused its code from earlier.
 */
export interface Reused {
  function: string;
  place: Place | null;
  run: 'after' | 'before';
}
/**
 * A module or a function that was compiled for this report although the code does not compile it.
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
 * A change that may remove breaks, and the result of trying it.
 */
export interface Remedy {
  id: string;
  breaks: string[];
  family: string;
  title: string;
  kind: 'edit' | 'person' | 'setting' | 'switch';
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
}
/**
 * The cost of the entries of a run, measured on copies.
 */
export interface Cost {
  device: string;
  backend: string;
  entries: EntryCost[];
}
/**
 * The steady state of one entry: eager, compiled, and with remedies.
 */
export interface EntryCost {
  function: string;
  frame: string | null;
  settled: boolean;
  eager: Spread;
  compiled: Spread;
  remedied: RemediedCost[];
  parts: CostPart[];
  coverage: Coverage | null;
  break_even_calls: number | null;
  in_run: Spread | null;
  eager_device_work: DeviceWork | null;
  device_work: DeviceWork | null;
}
/**
 * A median with its quartiles, in microseconds, over a number of runs.
 */
export interface Spread {
  median_us: number;
  low_us: number;
  high_us: number;
  runs: number;
  processor_us: number | null;
}
/**
 * The time of a call with some remedies applied, and the work of its CUDA device, if it uses one.
 */
export interface RemediedCost {
  remedies: string[];
  time: Spread;
  device_work: DeviceWork | null;
}
/**
 * The work of a CUDA device in one call.
 */
export interface DeviceWork {
  launches: number;
  graph_launches: number;
  synchronisations: number;
  peak_bytes: number;
}
/**
 * A part of the time of a compiled call.
 */
export interface CostPart {
  kind: 'graph' | 'guards' | 'outside';
  time: Spread;
  graph: string | null;
  break: string | null;
  frame: string | null;
}
/**
 * The number of a call's tensor operations that ran compiled and eagerly, and the share of its time in graphs.
 */
export interface Coverage {
  compiled_ops: number;
  eager_ops: number;
  time_share: number | null;
}
/**
 * The comparison of the compiled run of a function with the eager run.
 */
export interface Check {
  function: string;
  backend: string;
  equal: boolean;
  differences: string[];
  first: Divergence | null;
  step: ('aot_eager' | 'backend' | 'eager') | null;
}
/**
 * The first operation with a different result when compiled.
 */
export interface Divergence {
  graph: string;
  location: Location | null;
  op: string | null;
}
/**
 * A function that PyTorch had begun to compile before the run and still held.
 */
export interface HeldFunction {
  function: string;
  source: string;
  line: number;
}
/**
 * An effect of a function outside the objects that can be copied.
 */
export interface Effect {
  kind: 'database' | 'file' | 'network' | 'process' | 'state';
  what: string;
  location: Location | null;
}

/** Checks that the imports of the front end's modules go one way only. */
import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join, posix } from 'node:path';
import { test } from 'node:test';

import ts from 'typescript';

/** The folders; each may import itself and the folders above it in this list. */
const FOLDERS = ['report', 'view', 'embed', 'notebook', 'editor', 'panel', '.'];

/** The folders that may import only types from packages, because pages do not contain the packages. */
const WITHOUT_PACKAGES = ['report', 'view', 'embed'];

/** Modules by their path within the sources, without the ending, and their text. */
type Modules = ReadonlyMap<string, string>;

interface IImport {
  readonly from: string;
  readonly to: string;
  readonly isTypeOnly: boolean;
}

/** All imports of a module: statements, re-exports, import() of modules and of types. */
function importsOf(path: string, text: string): IImport[] {
  const imports: IImport[] = [];
  const add = (target: ts.Node | undefined, isTypeOnly: boolean): void => {
    if (target !== undefined && ts.isStringLiteralLike(target)) {
      const to = target.text.startsWith('.')
        ? posix.join(posix.dirname(path), target.text)
        : target.text;
      imports.push({ from: path, to, isTypeOnly });
    }
  };
  const visit = (node: ts.Node): void => {
    if (ts.isImportDeclaration(node)) {
      add(node.moduleSpecifier, node.importClause?.isTypeOnly ?? false);
    } else if (ts.isExportDeclaration(node)) {
      add(node.moduleSpecifier, node.isTypeOnly);
    } else if (ts.isImportTypeNode(node)) {
      add(ts.isLiteralTypeNode(node.argument) ? node.argument.literal : undefined, true); // prettier-ignore
    } else if (
      ts.isCallExpression(node) &&
      node.expression.kind === ts.SyntaxKind.ImportKeyword
    ) {
      add(node.arguments[0], false);
    }
    ts.forEachChild(node, visit);
  };
  const kind = ts.ScriptKind.TSX;
  visit(ts.createSourceFile(path, text, ts.ScriptTarget.Latest, false, kind));
  return imports;
}

function allImports(modules: Modules): IImport[] {
  return [...modules].flatMap(([path, text]) => importsOf(path, text));
}

/** The paths of the first import cycle; null if there is none. */
function cycleIn(modules: Modules): string[] | null {
  const targets = new Map<string, string[]>();
  for (const { from, to } of allImports(modules)) {
    targets.set(from, [...(targets.get(from) ?? []), to]);
  }
  const finished = new Set<string>();
  const follow = (path: string, trail: readonly string[]): string[] | null => {
    if (trail.includes(path)) {
      return [...trail.slice(trail.indexOf(path)), path];
    }
    if (finished.has(path)) {
      return null;
    }
    for (const target of targets.get(path) ?? []) {
      const circle = follow(target, [...trail, path]);
      if (circle !== null) {
        return circle;
      }
    }
    finished.add(path);
    return null;
  };
  for (const path of modules.keys()) {
    const circle = follow(path, []);
    if (circle !== null) {
      return circle;
    }
  }
  return null;
}

/** The imports that lead from a folder to one below it in the list. */
function wrongImports(modules: Modules): string[] {
  const rank = (path: string): number => FOLDERS.indexOf(posix.dirname(path));
  return allImports(modules)
    .filter(({ from, to }) => modules.has(to) && rank(to) > rank(from))
    .map(({ from, to }) => `${from} imports ${to}`);
}

async function sources(): Promise<Modules> {
  const names = await readdir('src', { recursive: true });
  const paths = names.filter(name => /\.tsx?$/.test(name)).sort();
  return new Map(
    await Promise.all(
      paths.map(async (path): Promise<[string, string]> => [
        path.replace(/\.tsx?$/, ''),
        await readFile(join('src', path), 'utf-8')
      ])
    )
  );
}

const SOURCES = await sources();

test('every module is in a folder, and one wires them together', () => {
  const folders = [...SOURCES.keys()].map(path => posix.dirname(path));
  assert.deepEqual([...new Set(folders)].sort(), [...FOLDERS].sort());
  assert.equal(folders.filter(folder => folder === '.').length, 1);
});

test('every relative import resolves to a module or to the schema', () => {
  const lost = allImports(SOURCES).filter(
    ({ to }) =>
      FOLDERS.includes(to.split('/')[0]!) &&
      !SOURCES.has(to) &&
      to !== 'report/schema.json'
  );
  assert.deepEqual(lost, []);
});

test('no module imports from a higher layer', () => {
  assert.deepEqual(wrongImports(SOURCES), []);
});

test('imports form no cycle, including type imports', () => {
  assert.equal(cycleIn(SOURCES)?.join(' > ') ?? '', '');
});

test('scripts of pages need no package', () => {
  const packages = allImports(SOURCES).filter(
    ({ from, to, isTypeOnly }) =>
      WITHOUT_PACKAGES.includes(posix.dirname(from)) &&
      !isTypeOnly &&
      !SOURCES.has(to) &&
      to !== 'report/schema.json'
  );
  assert.deepEqual(packages, []);
});

test('wrong layers and cycles of every form are detected', () => {
  const forms = [
    `import type { A } from '../panel/a';`,
    `import { type A, b } from '../panel/a';`,
    `import '../panel/a';`,
    `export * from '../panel/a';`,
    `export type { A } from '../panel/a';`,
    `let a: import('../panel/a').A;`,
    `const a = async () => import('../panel/a');`
  ];
  for (const form of forms) {
    const modules = new Map([
      ['view/b', form],
      ['view/c', `import './b';`],
      ['panel/a', `import type { C } from '../view/c';`]
    ]);
    assert.deepEqual(wrongImports(modules), ['view/b imports panel/a'], form);
    assert.deepEqual(
      cycleIn(modules),
      ['view/b', 'panel/a', 'view/c', 'view/b'],
      form
    );
  }
  assert.equal(cycleIn(new Map([['a/b', `import './c'; import './d';`], ['a/c', `import './d';`], ['a/d', '']])), null); // prettier-ignore
});

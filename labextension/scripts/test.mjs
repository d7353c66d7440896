// Bundles each unit test and runs them all with node's own runner.
import { spawnSync } from 'node:child_process';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';

import { build } from 'esbuild';

// Inside the package, so that packages that are not bundled are resolved.
const out = await mkdtemp('node_modules/.test-');
const tests = (await readdir('test', { recursive: true })).filter(name =>
  name.endsWith('.test.ts')
);
try {
  await build({
    entryPoints: tests.map(name => join('test', name)),
    outbase: 'test',
    outdir: out,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    format: 'esm',
    external: ['node:*', 'typescript'],
    sourcemap: 'inline'
  });
  const files = tests.map(name => join(out, name.replace(/ts$/, 'mjs')));
  const { status } = spawnSync(
    process.execPath,
    [
      '--enable-source-maps',
      '--import',
      './test/dom.mjs',
      '--test',
      '--test-reporter=dot',
      ...files
    ],
    { stdio: 'inherit' }
  );
  process.exitCode = status ?? 1;
} finally {
  await rm(out, { recursive: true });
}

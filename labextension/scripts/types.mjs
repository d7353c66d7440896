// Makes src/report/types.ts from the schema of reports and rows; with --check it only checks that the file is current.
import { readFile, writeFile } from 'node:fs/promises';

import { compile } from 'json-schema-to-typescript';
import { format, resolveConfig } from 'prettier';

const TARGET = new URL('../src/report/types.ts', import.meta.url);

/** The fields of a report that the front end reads. It draws everything else from rows, so a new field needs no type. */
const FIELDS = [
  'status',
  'sources',
  'graphs',
  'breaks',
  'order',
  'skipped',
  'scopes',
  'compiled',
  'remedies'
];

const schema = JSON.parse(
  await readFile(new URL('../src/report/schema.json', import.meta.url), 'utf-8')
);
for (const definition of Object.values(schema.$defs)) {
  // A field with a default always exists: the reader adds it if it is missing.
  definition.required = Object.keys(definition.properties ?? {});
  definition.additionalProperties ??= false;
  definition.description = definition.description?.split('\n')[0];
}
const { Report, Rows, ...others } = schema.$defs;
Report.properties = Object.fromEntries(
  FIELDS.map(name => [name, Report.properties[name]])
);
Report.required = FIELDS;
const options = { bannerComment: '', format: false };
const declarations = [
  '/* Made from schema.json by scripts/types.mjs; not to be edited. */',
  await compile({ ...Report, $defs: others }, 'Report', options),
  await compile({ ...Rows, $defs: others }, 'Rows', options)
].join('\n');
const text = await format(declarations, {
  ...(await resolveConfig(TARGET)),
  parser: 'typescript'
});

if (process.argv.includes('--check')) {
  const saved = await readFile(TARGET, 'utf-8').catch(() => '');
  if (saved !== text) {
    console.error('src/report/types.ts is not current: run npm run types');
    process.exit(1);
  }
} else {
  await writeFile(TARGET, text);
}

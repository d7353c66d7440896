// Bundles the widget's module and the script of a report's own page into the Python package.
import { build } from 'esbuild';

await build({
  entryPoints: ['src/embed/widget.ts', 'src/embed/page.ts'],
  outdir: '../jupyter_graphbreak/views/html/static',
  bundle: true,
  format: 'esm',
  target: 'es2021',
  minify: true,
  // Private members of classes. The names in a widget's model are strings, so they stay.
  mangleProps: /^_[a-z]/,
  legalComments: 'none'
});

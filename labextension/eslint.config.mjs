import jupyter from '@jupyter/eslint-plugin';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  { ignores: ['lib', 'node_modules', 'src/report/types.ts'] },
  ...tseslint.configs.recommended,
  { plugins: { jupyter } },
  ...jupyter.configs.recommended,
  {
    files: ['src/**/*.{ts,tsx}'],
    languageOptions: { parserOptions: { projectService: true } },
    rules: {
      '@typescript-eslint/consistent-type-imports': 'error',
      '@typescript-eslint/explicit-function-return-type': [
        'error',
        { allowExpressions: true }
      ],
      '@typescript-eslint/naming-convention': [
        'error',
        {
          selector: 'interface',
          format: ['PascalCase'],
          custom: { regex: '^I[A-Z]', match: true }
        }
      ],
      '@typescript-eslint/no-floating-promises': 'error',
      '@typescript-eslint/no-namespace': 'off',
      curly: 'error',
      eqeqeq: 'error',
      // A name is the noun of the field: `graphBreak`, not `found`.
      'id-denylist': ['error', 'each', 'found', 'met', 'said', 'told'],
      'no-console': 'error'
    }
  },
  {
    rules: {
      // The words of a report are written in Python, in English, and these stand between them.
      'jupyter/no-untranslated-string': 'off',
      // Renderers are made as soon as a notebook opens.
      'jupyter/prefer-lazy-imports': 'off'
    }
  }
);

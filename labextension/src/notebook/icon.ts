/** The icon of the extension. */
import { LabIcon } from '@jupyterlab/ui-components';

/** A graph broken in two. */
export const graphBreakIcon = new LabIcon({
  name: 'jupyter-graphbreak:icon',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="#616161">
    <path d="M3 7h7.2l-2.6 10H3a1 1 0 0 1-1-1V8a1 1 0 0 1 1-1z"/>
    <path d="M13.8 17H21a1 1 0 0 0 1-1V8a1 1 0 0 0-1-1h-4.6z"/>
    <path d="M15.1 3.2l1.7.4-5 17.2-1.7-.4z"/>
  </g>
</svg>`
});

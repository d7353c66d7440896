/* The script of a report keeps only links to PyTorch's pages. On this site, cards also link to the pages of causes. */
function linkCauses() {
  for (const link of document.querySelectorAll('.graphbreak a.gb-cause:not([href])')) {
    const name = link.textContent.slice(0, 6).toLowerCase();
    link.href = link.textContent.endsWith('programs and fixes') ? `causes/${name}.html` : `causes/others.html#${name}`;
  }
}

addEventListener('DOMContentLoaded', () => {
  linkCauses();
  const changes = { subtree: true, childList: true, attributes: true, attributeFilter: ['href'] };
  new MutationObserver(linkCauses).observe(document.body, changes);
});

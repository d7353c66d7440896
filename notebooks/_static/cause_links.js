/* The script of a report keeps only links to PyTorch's pages. On this site, the ids of causes also lead to their pages. */
function linkCauses() {
  for (const link of document.querySelectorAll('.graphbreak small > a:not([href])')) {
    link.href = `causes/${link.textContent.toLowerCase()}.html`;
  }
}

addEventListener('DOMContentLoaded', () => {
  linkCauses();
  const changes = { subtree: true, childList: true, attributes: true, attributeFilter: ['href'] };
  new MutationObserver(linkCauses).observe(document.body, changes);
});

"""What a panel needs of the page around it: keys that reach the controls, and their tooltips."""

import html
from typing import Any

import ipywidgets as w

# JupyterLab takes plain keys (arrows, letters) from a focused drop-down or slider for its cells:
# `x` would cut the panel's cell. Tab skips the headers of accordions, and only labels have titles.
_SCRIPT = """
if (!window.ktLabKeys) {
  window.ktLabKeys = true;
  const header = '.jupyter-widget-Collapse-header';
  window.addEventListener('keydown', (event) => {
    const at = event.target;
    if (event.key === 'Tab') {
      document.querySelectorAll(header).forEach((each) => { each.tabIndex = 0; });
    }
    if (!at.closest || !at.closest('.jupyter-widgets')) return;
    const runsCell = event.shiftKey && event.key === 'Enter';
    const forLab = event.ctrlKey || event.metaKey || event.altKey || runsCell;
    at.toggleAttribute('data-lm-suppress-shortcuts', !forLab);
    if (at.matches(header) && !forLab && (event.key === 'Enter' || event.key === ' ')) {
      event.preventDefault();
      at.click();
    }
  }, true);
  window.addEventListener('pointerover', (event) => {
    const box = event.target.closest('.widget-inline-hbox, .jupyter-widgets');
    const told = box && box.querySelector(
      ':scope > label[title]:not([title=""], [title=null]), :scope > label [title]');
    if (told && box.title !== told.title) box.title = told.title;
    const player = event.target.closest('.widget-play');
    ['Plays on, or pauses.', 'Stops, and goes to the start.', 'Plays again and again.'].forEach(
      (said, at) => { if (player) player.querySelectorAll('button')[at].title = said; });
  });
}
"""


def keyboard() -> w.Output:
    """Returns what belongs once, unseen, into each panel: it makes the page's keys its own.

    In a page with it, plain keys work in every widget, Ctrl, Alt and Shift-Enter stay
    JupyterLab's, the headers of accordions are reached by Tab and opened by Enter, and a
    control shows its label's tooltip as well.
    """
    shown = {"output_type": "display_data", "metadata": {}}
    script = shown | {"data": {"application/javascript": _SCRIPT}}
    return w.Output(layout=w.Layout(display="none"), outputs=(script,))


def described(name: str, tooltip: str) -> dict[str, Any]:
    """Returns the traits of a widget that show its name with a tooltip.

    ipywidgets 8 drops the `tooltip` of drop-downs, lists and texts that have a description.
    """
    label = f'<span title="{html.escape(tooltip)}">{html.escape(name)}</span>'
    return {"description": label, "description_allow_html": True, "tooltip": tooltip}

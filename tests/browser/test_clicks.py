"""The count of clicks that journeys are judged by."""

from __future__ import annotations

from urllib.parse import quote

from tests.browser.console import Console

MOVING = """
<button style="position: absolute; top: 50px">Press</button>
<script>
  const button = document.querySelector("button");
  button.addEventListener("mousemove", () => { button.style.top = "200px"; }, {once: true});
</script>
"""


def test_a_press_that_missed_a_moving_button_is_not_counted(console: Console) -> None:
    console.page.goto(f"data:text/html,{quote(MOVING)}")
    console.page.get_by_role("button").click()
    assert 1 == console.clicks()

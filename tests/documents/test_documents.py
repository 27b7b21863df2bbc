"""Every Python block of the documents runs as it stands, in the order of its page.

Not tested here: the shell blocks, which `test_readme_commands.py` runs against the Worker.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def blocks_of(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_python_blocks_of_a_page_run_in_order(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": f"documents.{page.stem}"}
    for number, block in enumerate(blocks_of(page), start=1):
        code = compile(block, f"{page.name}, block {number}", "exec")
        exec(code, namespace)


def test_the_pages_about_agents_have_blocks_that_run() -> None:
    with_blocks = {page.stem for page in PAGES if blocks_of(page)}
    assert {
        "README",
        "writing-agents",
        "waiting-and-deciding",
        "failure-and-retries",
    } <= with_blocks


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    broken = [
        link
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not (page.parent / link).exists()
    ]
    assert not broken

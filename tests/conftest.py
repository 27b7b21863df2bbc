"""Whatever uses a running Worker tells of it when it fails."""

from collections.abc import Generator

import pytest

from workshop.condition import told_of
from workshop.serving import Server


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to the report of a test that has failed what can be seen of its servers."""
    report = yield
    if report.failed:
        used = getattr(item, "funcargs", {}).values()
        for server in {id(each): each for each in used if isinstance(each, Server)}.values():
            report.sections.append(("the Worker", told_of(server)))
    return report

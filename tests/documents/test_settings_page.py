"""The page of settings names every setting, with the default that it has."""

import re
from pathlib import Path

import pytest

from quiesce.settings import Settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"
ROW = re.compile(r"^\| `([A-Z_]+)` \| ([^|]+) \|", re.MULTILINE)
NONE = {"none", "none: closed", "for ever", "half the base", "false"}


def rows() -> dict[str, str]:
    return {name: default.strip() for name, default in ROW.findall(PAGE.read_text("utf-8"))}


def test_every_setting_stands_on_the_page_and_nothing_else_does() -> None:
    assert rows().keys() == {name.upper() for name in Settings.model_fields}


@pytest.mark.parametrize("name", sorted(Settings.model_fields))
def test_the_default_of_a_setting_is_the_one_on_the_page(name: str) -> None:
    shown, default = rows()[name.upper()], getattr(Settings(), name)
    if default:
        assert shown.replace(",", "") == str(default)
    else:
        assert shown in NONE

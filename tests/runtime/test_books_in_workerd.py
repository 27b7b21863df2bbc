"""The contract of the books, over the Object's real storage inside workerd.

Parity: CE-1.
"""

import uuid

import pytest

from contract.books import CONTRACT
from contract.ground import Check
from worker.helpers.client import Client

pytestmark = pytest.mark.worker


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_books_keep_their_contract_inside_workerd(client: Client, check: Check) -> None:
    response = client.http.post(f"/books/{uuid.uuid4().hex}", content=check.__name__)
    assert response.status_code == 200, response.text
    assert response.json()["broken"] is None, response.json()["broken"]

"""The contract of the books over the storage seam: the same functions, on whatever store they are given.

A check takes a function that opens the storage of an Object which holds nothing, opens one, and raises
AssertionError when the contract is broken. Nothing here needs pytest, a clock or a file, so that a Worker can
carry the folder and run CONTRACT inside workerd.
"""

from contract.ground import Check
from contract.history import HISTORY
from contract.purging import PURGING
from contract.rows import ROWS
from contract.seam import SEAM
from contract.waking import WAKING

CONTRACT: tuple[Check, ...] = (*SEAM, *ROWS, *HISTORY, *PURGING, *WAKING)

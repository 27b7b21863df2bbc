"""The Worker under test with one thing more: traps can be set where deliveries are written down, too."""

import trapped
import trapped_entry

from quiesce.failpoints import DELIVERIES

trapped.COMMITS = (*trapped.COMMITS, *DELIVERIES)

BookObject = trapped_entry.BookObject
ConversationObject = trapped_entry.ConversationObject
Default = trapped_entry.Default
ProbeObject = trapped_entry.ProbeObject

"""The guards of the engine, one by one: what is taken away, and which tests have to see it.

Each entry: a name, the file within the package, the text of the guard, what takes its place, and the tests that
run, up to the first failure. A change of the engine that moves a guard changes its entry too. S71: a guard that
another guard masks is found here, since only one is missing at a time.
"""

TOOLS = "operations/test_tools.py"
APPROVALS = "operations/test_approvals.py"
SIGNALS = "operations/test_signals.py"
TIMERS = "operations/test_timers_and_first.py"
BRANCHES = "operations/test_branches.py"
INBOX = "operations/test_inbox.py"
ABORTS = "operations/test_aborts.py"
RUNS = "operations/test_runs.py"
RESOLUTIONS = "operations/test_resolutions.py"
BOOKS = "contract/test_books_on_sqlite.py"
GENERATION = "decisions/test_generation.py"
RECOVERY = "decisions/test_recovery.py"
ADMISSION = "stages/test_admission.py"
MAINTENANCE = "stages/test_maintenance.py"
DRAIN = "stages/test_drain.py"
REQUESTS = "edge/test_requests.py"
ASSERTIONS = "edge/test_assertions.py"
KEYRING = "edge/test_keyring.py"
RETENTION = "stages/test_retention.py"
RATES = "stages/test_rates.py"
HEADS = "operations/test_heads.py"

GUARDS: list[tuple[str, str, str, str, tuple[str, ...]]] = [
    # The books: what every write names.
    (
        "a move names the epoch that it holds",
        "ledger.py",
        "WHERE sequence = ? AND state = ? AND epoch = ?",
        "WHERE sequence = ? AND state = ? AND ? >= 0",
        (BOOKS, "-k", "stale_epoch or stale_attempt"),
    ),
    (
        "a move names the state that it leaves",
        "ledger.py",
        "WHERE sequence = ? AND state = ? AND epoch = ?",
        "WHERE sequence = ? AND ? <> '' AND epoch = ?",
        (BOOKS, "-k", "stale_state"),
    ),
    (
        "an operation is closed from the state in which it was read",
        "operations.py",
        '"DELETE FROM operations WHERE submission_sequence = ? AND operation = ? AND state = ?"',
        "\"DELETE FROM operations WHERE submission_sequence = ? AND operation = ? AND ? <> ''\"",
        (BOOKS, "-k", "operation_is_closed_once or prepared_call_is_marked"),
    ),
    (
        "a record that stands in the log is replayed only if it says the same",
        "conversation_log.py",
        "    if inserted:\n        return new\n    _check_replay(storage, entry, payload)",
        "    if inserted:\n        return new",
        (BOOKS, "-k", "altered_content"),
    ),
    (
        "every link of the chain is recomputed",
        "invariants.py",
        "if record.chain == link:",
        "if True:",
        ("decisions/test_invariants.py",),
    ),
    # The generation.
    (
        "a mutation bumps the generation",
        "generation.py",
        "record.changed(dirty=record.dirty + 1, idle_wakes=0), alarm",
        "record.changed(idle_wakes=0), alarm",
        (GENERATION,),
    ),
    (
        "finish acknowledges only what begin saw",
        "generation.py",
        "processed=max(record.processed, begun.generation) if acknowledged",
        "processed=record.dirty if acknowledged",
        (GENERATION,),
    ),
    (
        "an active mutation keeps a pass from acknowledging",
        "generation.py",
        "body_ran = begun.active > 0 or active > 0",
        "body_ran = False",
        (GENERATION,),
    ),
    (
        "begin arms its successor before anything can fail",
        "generation.py",
        """    alarm = arm_by(wanted_ms, at, tolerate_stale=False)
    armed_at_ms = alarm.at_ms if isinstance(alarm, SetAt) else at.slot_ms
    assert armed_at_ms is not None""",
        "    alarm: AlarmWrite = Keep()\n    armed_at_ms = at.slot_ms or at.now_ms + 1",
        (GENERATION,),
    ),
    (
        "begin counts the wake that it begins",
        "generation.py",
        "failures=record.failures + 1, idle_wakes=idle_wakes + 1",
        "failures=record.failures + 1, idle_wakes=idle_wakes",
        (GENERATION,),
    ),
    (
        "a parked lane is tried once an hour",
        "generation.py",
        "    if is_parked(record, settings):\n        return settings.parked_wake_ms\n",
        "",
        (GENERATION,),
    ),
    (
        "no alarm is moved before the slot that begin armed",
        "pacing.py",
        "        floor_ms = armed_at_ms\n",
        "        pass\n",
        ("decisions/test_pacing.py",),
    ),
    (
        "no alarm is set to now",
        "pacing.py",
        "floor_ms = now_ms + 1",
        "floor_ms = now_ms",
        ("decisions/test_pacing.py",),
    ),
    (
        "the gate fills only an empty slot",
        "generation.py",
        "if not has_need or at.slot_ms is not None:",
        "if not has_need:",
        (GENERATION,),
    ),
    (
        "a due time counts only after now",
        "quiescence.py",
        "if isinstance(part, DueAt) and part.at_ms <= now_ms:",
        "if False:",
        ("decisions/test_quiescence.py",),
    ),
    # Recovery.
    (
        "what is queued behind the head has no part in what the lane can do",
        "recovery.py",
        "    if evidence.is_head:\n        return None\n",
        "    return None\n",
        (RECOVERY, "-k", "4-queued"),
    ),
    (
        "a call without a result is reconciled before anything else",
        "recovery.py",
        "    if unproven:\n        return Reconcile(unproven)\n",
        "",
        (TOOLS,),
    ),
    (
        "attempts end at their maximum",
        "recovery.py",
        "if evidence.attempts >= limits.attempts_max:",
        "if evidence.attempts > limits.attempts_max:",
        (TOOLS, "-k", "exhausts"),
    ),
    (
        "only what the reconciler proves lets a call go on",
        "repair.py",
        '        return Unproven("the call left no result, and its tool has no reconciler")',
        '        return NeverStarted("nobody knows")',
        (TOOLS,),
    ),
    # The attempt.
    (
        "the claim counts itself before any work",
        "drain.py",
        '"interruptions": decision.interruptions + 1,',
        '"interruptions": decision.interruptions,',
        (RUNS, "-k", "claim_is_on_disk"),
    ),
    (
        "the claim is on disk before the handler runs",
        "drain.py",
        "_claim(lane, work, submission, decision, now_ms))\n    await storage.sync()",
        "_claim(lane, work, submission, decision, now_ms))",
        (RUNS, "-k", "claim_is_on_disk"),
    ),
    (
        "an attempt writes only while it owns its submission",
        "fence.py",
        'WHERE sequence = ? AND epoch = ? AND owner = ?",',
        "WHERE sequence = ? AND ? > 0 AND ? <> ''\",",
        (RUNS, "-k", "old_attempt"),
    ),
    (
        "an attempt sees the wish to abort at its next operation",
        "fence.py",
        "if found[0][0] is not None:",
        "if False:",
        (ABORTS, "-k", "between_claim_and_handler"),
    ),
    (
        "an abort that was recorded first wins over a result",
        "drain.py",
        "final = verdict if wish is None else",
        "final = verdict if True else",
        (ABORTS,),
    ),
    (
        "an abort does not settle what an attempt owns",
        "commands.py",
        "is_alone = found.owner is None and found.host_sequence is None",
        "is_alone = found.host_sequence is None",
        (ABORTS,),
    ),
    (
        "what ended the attempt from inside counts for more than the handler's answer",
        "attempt.py",
        "    if fence.unwound is None:\n        return outcome\n",
        "    return outcome\n",
        (APPROVALS, "-k", "swallow"),
    ),
    # Operations.
    (
        "a call that may have an effect is prepared first",
        "run.py",
        'prepared = None if effect == "readonly" else await self._prepare(operation, effect)',
        "prepared = None",
        (TOOLS, "-k", "crash_around"),
    ),
    (
        "what is prepared is on disk before the call",
        "run.py",
        "prepared = fence.commit(step)\n        await fence.sync()",
        "prepared = fence.commit(step)",
        (TOOLS, "-k", "crash_around"),
    ),
    (
        "a call under way is not cut off by a sibling that waits",
        "run.py",
        "await asyncio.shield(task)",
        "await task",
        (BRANCHES,),
    ),
    (
        "a replay answers only the same question",
        "journal.py",
        "if recorded is None or recorded == asked:",
        "if True:",
        (RUNS, "-k", "diverged"),
    ),
    (
        "a Run goes on only when all that it waits for is decided",
        "waits.py",
        "if submission.state is State.SUSPENDED and not undecided:",
        "if submission.state is State.SUSPENDED:",
        (BRANCHES, "-k", "three_approvals"),
    ),
    (
        "the losers of a choice are closed with its winner",
        "waits.py",
        'if other.detail.get("choice") == choice:',
        "if False:",
        (TIMERS,),
    ),
    (
        "time decides in the transaction",
        "deciding.py",
        "late = waits.earliest_due(lane.storage, wait, wake.now_ms)",
        "late = None",
        (APPROVALS,),
    ),
    (
        "another decision than the recorded one is a conflict",
        "deciding.py",
        "if recorded.decision != choice:",
        "if False:",
        (APPROVALS,),
    ),
    (
        "another resolution than the recorded one is a conflict",
        "deciding.py",
        "is_same = last.resolution == resolution",
        "is_same = True",
        (RESOLUTIONS,),
    ),
    (
        "every unknown call needs its own resolution",
        "deciding.py",
        "if found.state is State.UNKNOWN and is_covered:",
        "if found.state is State.UNKNOWN:",
        (BRANCHES, "-k", "two_uncertain"),
    ),
    (
        "a signal's key belongs to one payload",
        "deciding.py",
        "if earlier.payload != text:",
        "if False:",
        (SIGNALS,),
    ),
    (
        "signals that wait are limited",
        "deciding.py",
        "if pending >= maximum:",
        "if False:",
        (SIGNALS,),
    ),
    (
        "a signal is consumed once",
        "waiting.py",
        "                signals.consume(storage, signal, row.operation)\n",
        "",
        (SIGNALS,),
    ),
    (
        "only the same principal joins",
        "joining.py",
        "(each.agent, each.agent_version, each.principal)",
        "(each.agent, each.agent_version, host.principal)",
        (INBOX, "-k", "does_not_fit"),
    ),
    (
        "a joined submission is not aborted alone",
        "commands.py",
        "if found.state in {State.JOINED, State.JOINING}:",
        "if False:",
        (INBOX, "-k", "aborted_alone"),
    ),
    # Admission.
    (
        "one key is one content",
        "admission.py",
        "    if differing:\n",
        "    if False:\n",
        (ADMISSION,),
    ),
    (
        "a replay is exempt from every limit",
        "admission.py",
        "found = ledger.find(storage, proposal.id)",
        "_check_room(lane, proposal, is_virgin=False); found = ledger.find(storage, proposal.id)",
        (ADMISSION,),
    ),
    (
        "the queue has a depth",
        "admission.py",
        "if end.nonterminal >= settings.queue_depth_max:",
        "if False:",
        (ADMISSION,),
    ),
    # Who may do what.
    (
        "a token lacks the roles that it does not list",
        "access.py",
        "if role.value not in token.roles:",
        "if False:",
        (REQUESTS,),
    ),
    (
        "a token with a prefix is kept to it",
        "access.py",
        "if not conversation.startswith(token.prefix):",
        "if False:",
        (REQUESTS,),
    ),
    (
        "only an operator lets children go",
        "asks.py",
        "    if call.body.detach:\n",
        "    if False:\n",
        (REQUESTS,),
    ),
    (
        "an assertion is bounded before it is parsed",
        "assertions.py",
        "_COMPACT.fullmatch(text) if len(text) <= ASSERTION_BYTES_MAX else None",
        "_COMPACT.fullmatch(text)",
        (ASSERTIONS,),
    ),
    (
        "an assertion is signed with the one algorithm",
        "assertions.py",
        "head.alg == ALGORITHM and ",
        "",
        (ASSERTIONS,),
    ),
    (
        "an assertion that must be understood otherwise is refused",
        "assertions.py",
        "head.crit is None and ",
        "",
        (ASSERTIONS,),
    ),
    (
        "an assertion is made for this deployment",
        "assertions.py",
        "return is_known and claims.iss == settings.access_issuer",
        "return claims.iss == settings.access_issuer",
        (ASSERTIONS,),
    ),
    (
        "an assertion is made by the one issuer",
        "assertions.py",
        "return is_known and claims.iss == settings.access_issuer",
        "return is_known",
        (ASSERTIONS,),
    ),
    (
        "an assertion ends",
        "assertions.py",
        " <= now_s < claims.exp + LEEWAY_S",
        " <= now_s",
        (ASSERTIONS,),
    ),
    (
        "an assertion begins",
        "assertions.py",
        "begins_s - LEEWAY_S <= now_s < claims.exp",
        "now_s < claims.exp",
        (ASSERTIONS,),
    ),
    (
        "a common name is never taken for an e-mail address",
        "assertions.py",
        'return None if "@" in name else listed.get(name)',
        "return listed.get(name)",
        (ASSERTIONS,),
    ),
    (
        "an e-mail address has one domain",
        "assertions.py",
        'is_address = local and "@" not in local',
        "is_address = local",
        (ASSERTIONS,),
    ),
    (
        "an Authorization header counts alone",
        "assertions.py",
        ' or header("authorization") is not None',
        "",
        (ASSERTIONS,),
    ),
    (
        "another site changes nothing by way of a browser",
        "assertions.py",
        "fetched_from not in _OWN_SITES",
        "False",
        (ASSERTIONS,),
    ),
    (
        "keys are asked for once in a while",
        "keyring.py",
        "since_ms >= (PAUSE_MS if is_any_held else RETRY_MS)",
        "True",
        (KEYRING,),
    ),
    (
        "one asks at a time",
        "keyring.py",
        "if ring.is_asking and since_ms is not None",
        "if False and since_ms is not None",
        (KEYRING,),
    ),
    (
        "keys are held for a day at most",
        "keyring.py",
        "is_any_held = age_ms < HELD_MS_MAX",
        "is_any_held = ring.given_at_ms is not None",
        (KEYRING,),
    ),
    (
        "the pause after an asking that failed begins at its end",
        "keyring.py",
        "return replace(self, asked_at_ms=now_ms, is_asking=False)",
        "return replace(self, is_asking=False)",
        (KEYRING,),
    ),
    # What is purged, who asks too fast, and which head is skipped.
    (
        "a sweep keeps what is younger than the retention",
        "retention.py",
        "until_ms = now_ms - retention_ms",
        "until_ms = now_ms",
        (RETENTION,),
    ),
    (
        "what is owed to others is told before it is purged",
        "ledger.py",
        """" AND sequence NOT IN ({_OWED}) ORDER BY""",
        """" ORDER BY""",
        (RETENTION,),
    ),
    (
        "what is owed to others is not looked for again and again",
        "ledger.py",
        """ FILTER (WHERE coalesce(host_sequence, sequence) NOT IN ({_OWED}))""",
        "",
        (RETENTION,),
    ),
    (
        "a host is purged with what had joined it",
        "retention.py",
        "if settled.host_sequence is not None:",
        "if False:",
        (RETENTION,),
    ),
    (
        "what is kept of a callback URL is its digest",
        "ledger.py",
        "None if url is None else digest(url)",
        "url",
        (RETENTION,),
    ),
    (
        "an old key is answered by its tombstone",
        "admission.py",
        "if found.purged_at_ms is not None:",
        "if False:",
        (RETENTION,),
    ),
    (
        "a purged submission is gone for whoever asks",
        "lane.py",
        "if found.purged_at_ms is not None:",
        "if False:",
        (RETENTION,),
    ),
    (
        "an empty bucket refuses",
        "rates.py",
        "if bucket.tokens < 1:",
        "if False:",
        (RATES,),
    ),
    (
        "a bucket holds no more than its burst",
        "rates.py",
        "min(settings.rate_burst, self.tokens + gained)",
        "self.tokens + gained",
        (RATES,),
    ),
    (
        "the emptiest bucket is not the one that is forgotten",
        "rates.py",
        "fullest = max(",
        "fullest = min(",
        (RATES,),
    ),
    (
        "only the head can be skipped",
        "commands.py",
        "if found.sequence != conversation_log.tail(storage).head:",
        "if False:",
        (HEADS,),
    ),
    (
        "only what waits for its next attempt is hastened",
        "commands.py",
        "elif found.owner is None and (found.not_before_ms or 0) > now_ms:",
        "elif found.owner is None:",
        (HEADS,),
    ),
    (
        "a pass yields when it has recorded so much",
        "drain.py",
        "if claimed.submission.claimed_tail - (work.tail_before or 0) >= PASS_RECORDS_MAX:",
        "if False:",
        (DRAIN, "-k", "what_it_has_recorded"),
    ),
    (
        "a call that a reconciler lets be made again spends an attempt",
        "repair.py",
        "                _spend_an_attempt(lane, submission, now_ms)",
        "                pass",
        (TOOLS, "-k", "spend_one"),
    ),
    (
        "what an attempt leaves behind begins nothing",
        "attempt.py",
        'fence.unwind(UnwindReason.FENCED, "the attempt has ended")',
        "pass",
        (RUNS, "-k", "left_behind"),
    ),
]

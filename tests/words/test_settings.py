"""Every limit and cadence: its default, its bounds at both edges, and what must hold together.

Not tested: that each limit is kept; that is told where it is.
"""

import re

import pytest

from quiesce.settings import AccessCaller, Settings, Token, parse_settings

DEFAULTS = {
    "backoff_base_ms": 100,
    "backoff_cap_ms": 60_000,
    "alarm_delay_min_ms": None,
    "pass_submissions_max": 64,
    "pass_ms_max": 60_000,
    "attempt_ms_max": 300_000,
    "attempts_max": 8,
    "interruptions_max": 8,
    "interruption_window_ms": 600_000,
    "idle_wakes_max": 64,
    "parked_wake_ms": 3_600_000,
    "queue_depth_max": 256,
    "input_bytes_max": 1_000_000,
    "value_bytes_max": 1_900_000,
    "database_bytes_max": 9_000_000_000,
    "operations_max": 10_000,
    "children_max": 64,
    "signals_pending_max": 64,
    "waiters_max": 256,
    "wait_seconds_max": 25,
    "events_seconds_max": 55,
    "export_seconds_max": 3_600,
    "streams_max": 64,
    "retention_ms": None,
    "rate_per_second": 1_000,
    "rate_burst": 2_000,
    "tokens": {},
    "callback_origins": (),
    "callback_secret": "",
    "callback_private": False,
    "access_keys_url": "",
    "access_issuer": "",
    "access_audiences": (),
    "access_callers": {},
}
BOUNDS = {
    # setting: the least, the greatest, and what must be set with it so that no relation decides
    "BACKOFF_BASE_MS": (1, 60_000, {"BACKOFF_CAP_MS": "60000"}),
    "BACKOFF_CAP_MS": (1, 3_600_000, {"BACKOFF_BASE_MS": "1"}),
    "ALARM_DELAY_MIN_MS": (1, 50, {}),
    "PASS_SUBMISSIONS_MAX": (1, None, {}),
    "PASS_MS_MAX": (1, 540_000, {}),
    "ATTEMPT_MS_MAX": (1, 780_000, {}),
    "ATTEMPTS_MAX": (1, 100, {}),
    "INTERRUPTIONS_MAX": (1, 100, {}),
    "INTERRUPTION_WINDOW_MS": (0, None, {}),
    "IDLE_WAKES_MAX": (8, None, {}),
    "PARKED_WAKE_MS": (1, None, {"BACKOFF_CAP_MS": "1", "BACKOFF_BASE_MS": "1"}),
    "QUEUE_DEPTH_MAX": (1, 100_000, {}),
    "INPUT_BYTES_MAX": (1, 1_900_000, {}),
    "VALUE_BYTES_MAX": (1, 1_934_464, {"INPUT_BYTES_MAX": "1"}),
    "DATABASE_BYTES_MAX": (1, 10_000_000_000, {}),
    "OPERATIONS_MAX": (1, None, {}),
    "CHILDREN_MAX": (1, None, {}),
    "SIGNALS_PENDING_MAX": (1, None, {}),
    "WAITERS_MAX": (1, None, {}),
    "WAIT_SECONDS_MAX": (0, 55, {}),
    "EVENTS_SECONDS_MAX": (1, 300, {}),
    "EXPORT_SECONDS_MAX": (1, 86_400, {}),
    "STREAMS_MAX": (1, None, {}),
    "RETENTION_MS": (1_000, 3_660 * 86_400_000, {}),
    "RATE_PER_SECOND": (1, 1_000_000, {}),
    "RATE_BURST": (1, 1_000_000, {}),
}
ACCESS = {
    "ACCESS_KEYS_URL": "https://team.cloudflareaccess.com/cdn-cgi/access/certs",
    "ACCESS_ISSUER": "https://team.cloudflareaccess.com",
    "ACCESS_AUDIENCES": '["tag"]',
    "ACCESS_CALLERS": '{"ann@example.com":{"roles":["observe"]}}',
}
OTHERS = {"tokens", "callback_origins", "callback_secret", "callback_private"} | {
    name.lower() for name in ACCESS
}
"""Settings that are no numbers."""
ORIGINS = '["https://example.com"]'
RELATIONS = {
    "CALLBACK_ORIGINS needs a CALLBACK_SECRET of 16 characters or more": (
        {"CALLBACK_ORIGINS": ORIGINS, "CALLBACK_SECRET": "s" * 16},
        {"CALLBACK_ORIGINS": ORIGINS, "CALLBACK_SECRET": "s" * 15},
    ),
    "ACCESS_KEYS_URL, ACCESS_ISSUER, ACCESS_AUDIENCES and ACCESS_CALLERS: all of them or none": (
        ACCESS,
        {name: text for name, text in ACCESS.items() if name != "ACCESS_AUDIENCES"},
    ),
    "BACKOFF_BASE_MS <= BACKOFF_CAP_MS": (
        {"BACKOFF_BASE_MS": "100", "BACKOFF_CAP_MS": "100"},
        {"BACKOFF_BASE_MS": "101", "BACKOFF_CAP_MS": "100"},
    ),
    "ALARM_DELAY_MIN_MS <= ceil(BACKOFF_BASE_MS / 2)": (
        {"ALARM_DELAY_MIN_MS": "51", "BACKOFF_BASE_MS": "101"},
        {"ALARM_DELAY_MIN_MS": "52", "BACKOFF_BASE_MS": "101"},
    ),
    "PASS_MS_MAX + ATTEMPT_MS_MAX + 60000 <= 900000": (
        {"PASS_MS_MAX": "400000", "ATTEMPT_MS_MAX": "440000"},
        {"PASS_MS_MAX": "400000", "ATTEMPT_MS_MAX": "440001"},
    ),
    "PARKED_WAKE_MS >= BACKOFF_CAP_MS": (
        {"PARKED_WAKE_MS": "5000", "BACKOFF_CAP_MS": "5000"},
        {"PARKED_WAKE_MS": "4999", "BACKOFF_CAP_MS": "5000"},
    ),
    "INPUT_BYTES_MAX <= VALUE_BYTES_MAX": (
        {"INPUT_BYTES_MAX": "1000", "VALUE_BYTES_MAX": "1000"},
        {"INPUT_BYTES_MAX": "1001", "VALUE_BYTES_MAX": "1000"},
    ),
    "VALUE_BYTES_MAX + 65536 <= 2000000": (
        {"VALUE_BYTES_MAX": "1934464"},
        {"VALUE_BYTES_MAX": "1934465"},
    ),
}
DIGEST = "a" * 64


def parse(variables: dict[str, str]) -> Settings:
    return parse_settings({f"QUIESCE_{name}": text for name, text in variables.items()})


@pytest.mark.parametrize(("field", "default"), DEFAULTS.items())
def test_a_setting_that_is_not_given_has_its_default(field: str, default: object) -> None:
    assert getattr(parse({}), field) == default


def test_every_setting_is_in_the_tables_of_this_module() -> None:
    assert DEFAULTS.keys() == Settings.model_fields.keys()
    assert {name.lower() for name in BOUNDS} == Settings.model_fields.keys() - OTHERS


@pytest.mark.parametrize(("name", "least", "others"), [(n, b[0], b[2]) for n, b in BOUNDS.items()])
def test_a_setting_may_be_its_least_and_not_less(
    name: str, least: int, others: dict[str, str]
) -> None:
    # The base decides the least alarm delay, so the greatest base stands beside the least cap alone.
    assert getattr(parse({**others, name: str(least)}), name.lower()) == least
    with pytest.raises(ValueError, match=f"QUIESCE_{name}: .*greater than"):
        parse({**others, name: str(least - 1)})


@pytest.mark.parametrize(
    ("name", "greatest", "others"), [(n, b[1], b[2]) for n, b in BOUNDS.items() if b[1] is not None]
)
def test_a_setting_may_be_its_greatest_and_not_more(
    name: str, greatest: int, others: dict[str, str]
) -> None:
    assert getattr(parse({**others, name: str(greatest)}), name.lower()) == greatest
    with pytest.raises(ValueError, match=name):
        parse({**others, name: str(greatest + 1)})


@pytest.mark.parametrize("name", [name for name, bounds in BOUNDS.items() if bounds[1] is None])
def test_a_setting_without_a_greatest_may_be_any_number(name: str) -> None:
    others = BOUNDS[name][2]
    assert getattr(parse({**others, name: str(2**60)}), name.lower()) == 2**60


def test_the_backoff_bounds_hold_for_base_and_cap_alike() -> None:
    widest = {"BACKOFF_BASE_MS": "3600000", "BACKOFF_CAP_MS": "3600000"}
    assert parse(widest).backoff_base_ms == 3_600_000
    for name in widest:
        with pytest.raises(ValueError, match=f"QUIESCE_{name}: .*less than or equal to 3600000"):
            parse({**widest, name: "3600001"})


@pytest.mark.parametrize(("relation", "holds", "breaks"), [(r, *p) for r, p in RELATIONS.items()])
def test_two_settings_must_hold_together(
    relation: str, holds: dict[str, str], breaks: dict[str, str]
) -> None:
    assert parse(holds)
    with pytest.raises(ValueError, match="must hold together") as refused:
        parse(breaks)
    assert relation in str(refused.value)


@pytest.mark.parametrize(("base_ms", "delay_ms"), [(1, 1), (2, 1), (3, 2), (100, 50), (101, 51)])
def test_the_nearest_alarm_is_half_of_the_backoff_base_unless_set(
    base_ms: int, delay_ms: int
) -> None:
    assert parse({"BACKOFF_BASE_MS": str(base_ms)}).alarm_delay_ms == delay_ms
    assert parse({"BACKOFF_BASE_MS": "100", "ALARM_DELAY_MIN_MS": "7"}).alarm_delay_ms == 7


@pytest.mark.parametrize("name", ["QUEUE_DEPTH", "TOKEN", "PREFIX", "BACKOFF_BASE_MS_"])
def test_a_misspelt_variable_is_an_error_that_names_it(name: str) -> None:
    """A misspelt limit would be no limit."""
    with pytest.raises(ValueError, match=f"QUIESCE_{name}: "):
        parse({name: "1"})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "RATE_BRUST",
            "QUIESCE_RATE_BRUST: there is no such setting (QUIESCE_RATE_BURST may be meant)",
        ),
        ("ZZZ", "QUIESCE_ZZZ: there is no such setting"),
    ],
)
def test_of_a_misspelt_variable_it_is_said_which_one_may_be_meant(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"wrong: {re.escape(said)}$"):
        parse({name: "1"})


def test_variables_of_others_are_left_alone() -> None:
    assert parse_settings({"OTHER": "x", "quiesce_queue_depth_max": "1"}) == Settings()


def test_an_empty_variable_is_no_variable() -> None:
    assert parse({"QUEUE_DEPTH_MAX": ""}) == Settings()


def test_every_wrong_variable_is_named_at_once() -> None:
    with pytest.raises(ValueError, match="settings of this deployment") as refused:
        parse({"QUEUE_DEPTH_MAX": "many", "ATTEMPTS_MAX": "0"})
    assert "QUIESCE_QUEUE_DEPTH_MAX: " in str(refused.value)
    assert "QUIESCE_ATTEMPTS_MAX: " in str(refused.value)


@pytest.mark.parametrize("text", ["1.5", "many", "true", "0x10", "[1]", "1e3", " "])
def test_a_number_is_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="QUIESCE_QUEUE_DEPTH_MAX: "):
        parse({"QUEUE_DEPTH_MAX": text})


def test_tokens_are_json_from_a_digest_to_a_principal_and_its_roles() -> None:
    text = f'{{"{DIGEST}":{{"principal":"alice","roles":["submit","observe"],"prefix":"team-"}}}}'
    expected = Token(principal="alice", roles=("submit", "observe"), prefix="team-")
    assert parse({"TOKENS": text}).tokens == {DIGEST: expected}


def test_a_token_has_no_roles_and_no_prefix_unless_they_are_given() -> None:
    tokens = parse({"TOKENS": f'{{"{DIGEST}":{{"principal":"alice"}}}}'}).tokens
    assert tokens == {DIGEST: Token(principal="alice", roles=(), prefix="")}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("nope", id="not-json"),
        pytest.param('{"a":', id="cut-short"),
        pytest.param("[" * 100_000, id="too-deep"),
        pytest.param("[]", id="no-object"),
        pytest.param(f'{{"{DIGEST}":"alice"}}', id="no-token"),
        pytest.param(f'{{"{DIGEST}":{{"roles":[]}}}}', id="no-principal"),
        pytest.param(f'{{"{DIGEST}":{{"principal":""}}}}', id="empty-principal"),
        pytest.param(f'{{"{DIGEST}":{{"principal":"{"p" * 256}"}}}}', id="long-principal"),
        pytest.param(f'{{"{DIGEST}":{{"principal":"p","roles":"submit"}}}}', id="roles-no-list"),
        pytest.param(f'{{"{DIGEST}":{{"principal":"p","rules":[]}}}}', id="misspelt"),
        pytest.param(f'{{"{DIGEST}":{{"principal":"p","roles":["obverse"]}}}}', id="no-role"),
    ],
)
def test_tokens_that_are_not_lawful_are_an_error_that_names_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match="QUIESCE_TOKENS"):
        parse({"TOKENS": text})


def test_callback_origins_are_a_json_list() -> None:
    settings = parse({"CALLBACK_ORIGINS": ORIGINS, "CALLBACK_SECRET": "s" * 16})
    assert settings.callback_origins == ("https://example.com",)
    for text in ("https://example.com", '"https://example.com"', "{}", "[1]"):
        with pytest.raises(ValueError, match="QUIESCE_CALLBACK_ORIGINS"):
            parse({"CALLBACK_ORIGINS": text, "CALLBACK_SECRET": "s" * 16})


@pytest.mark.parametrize("missing", ACCESS)
def test_access_is_set_as_a_whole_or_not_at_all(missing: str) -> None:
    assert parse(ACCESS).takes_access
    assert not parse({}).takes_access
    for variables in ({**ACCESS, missing: ""}, {missing: ACCESS[missing]}):
        with pytest.raises(ValueError, match="all of them or none"):
            parse(variables)


@pytest.mark.parametrize("name", ["ACCESS_AUDIENCES", "ACCESS_CALLERS"])
def test_a_list_of_nobody_is_no_list(name: str) -> None:
    with pytest.raises(ValueError, match="all of them or none"):
        parse({**ACCESS, name: "[]" if name == "ACCESS_AUDIENCES" else "{}"})


@pytest.mark.parametrize(
    ("url", "is_lawful"),
    [
        ("https://team.cloudflareaccess.com", True),
        ("https://keys.example.com:8443", True),
        ("http://127.0.0.1:9", True),
        ("http://localhost:9", True),
        ("http://[::1]:9", True),
        ("http://team.cloudflareaccess.com", False),
        ("http://127.0.0.1.example.com", False),
        ("http://localhost@example.com", False),
        ("https://user:secret@example.com", False),
        ("https://example.com\n", False),
        ("ftp://example.com", False),
        ("team.cloudflareaccess.com", False),
    ],
)
def test_keys_come_by_https_or_from_this_very_machine(url: str, *, is_lawful: bool) -> None:
    for name, text in (("ACCESS_KEYS_URL", f"{url}/certs?x=1"), ("ACCESS_ISSUER", url)):
        if is_lawful:
            assert getattr(parse({**ACCESS, name: text}), name.lower()) == text
        else:
            with pytest.raises(ValueError, match=f"QUIESCE_{name}: "):
                parse({**ACCESS, name: text})


def test_an_issuer_has_no_path() -> None:
    """With a slash at its end it would equal no token's issuer, and nobody would be let in."""
    with pytest.raises(ValueError, match="QUIESCE_ACCESS_ISSUER: "):
        parse({**ACCESS, "ACCESS_ISSUER": ACCESS["ACCESS_ISSUER"] + "/"})


def test_callers_are_json_from_a_name_to_a_principal_roles_and_a_prefix() -> None:
    ann, domain = (
        '"Ann@Example.com":{"roles":["submit"]}',
        '"*@EXAMPLE.com":{"principal":"staff","prefix":"s-"}',
    )
    text = f'{{{ann},{domain},"Ci.access":{{}}}}'
    assert parse({**ACCESS, "ACCESS_CALLERS": text}).access_callers == {
        "ann@example.com": AccessCaller(roles=("submit",)),
        "*@example.com": AccessCaller(principal="staff", prefix="s-"),
        "Ci.access": AccessCaller(),
    }


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("nope", id="not-json"),
        pytest.param("[" * 100_000, id="too-deep"),
        pytest.param("[]", id="no-object"),
        pytest.param('{"":{}}', id="empty-name"),
        pytest.param('{"*":{}}', id="everybody"),
        pytest.param('{"*@*":{}}', id="every-domain"),
        pytest.param('{"a*@example.com":{}}', id="half-a-pattern"),
        pytest.param('{"@example.com":{}}', id="nobody-of-a-domain"),
        pytest.param('{"a@b@example.com":{}}', id="two-ats"),
        pytest.param(f'{{"{"n" * 256}":{{}}}}', id="long-name"),
        pytest.param('{"a@b.c":{},"A@b.c":{}}', id="twice"),
        pytest.param('{"a@b.c":{"principal":""}}', id="empty-principal"),
        pytest.param('{"a@b.c":{"roles":["obverse"]}}', id="misspelt-role"),
        pytest.param('{"a@b.c":{"rules":[]}}', id="misspelt"),
    ],
)
def test_callers_that_are_not_lawful_are_an_error_that_names_the_variable(text: str) -> None:
    with pytest.raises(ValueError, match="QUIESCE_ACCESS_CALLERS"):
        parse({**ACCESS, "ACCESS_CALLERS": text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ACCESS_CALLERS", '{"x":{},"boss@example.com":{"roles":["admin"]}}'),
        ("ACCESS_CALLERS", '{"x":{},"boss@example.com@":{}}'),
        ("ACCESS_CALLERS", '{"boss@example.com":{},"Boss@example.com":{}}'),
        ("TOKENS", f'{{"x":{{"principal":"p"}},"{DIGEST}":{{"principal":"p","roles":["admin"]}}}}'),
    ],
)
def test_what_is_wrong_with_a_caller_is_told_by_its_place_and_never_by_its_name(
    name: str, text: str
) -> None:
    """Whoever asks a deployment whose settings are wrong is answered with this, token or none."""
    with pytest.raises(ValueError, match=f"QUIESCE_{name}(.2|: .*name 2)") as raised:
        parse({**ACCESS, name: text})
    assert "boss" not in str(raised.value).lower()
    assert DIGEST not in str(raised.value)


@pytest.mark.parametrize("text", ["tag", '"tag"', '[""]', "[1]", "{}"])
def test_audiences_are_a_json_list_of_tags(text: str) -> None:
    with pytest.raises(ValueError, match="QUIESCE_ACCESS_AUDIENCES"):
        parse({**ACCESS, "ACCESS_AUDIENCES": text})


def test_the_key_of_a_deployments_objects_depends_on_its_secrets_alone() -> None:
    """Every incarnation of one deployment has the same key; another set of tokens or secret has another."""
    first, second = ({"TOKENS": f'{{"{each * 64}":{{"principal":"p"}}}}'} for each in "ab")
    keys = {parse(each).port_key for each in ({}, first, second, {"CALLBACK_SECRET": "s"})}
    assert len(keys) == 4
    assert parse({**first, "QUEUE_DEPTH_MAX": "7"}).port_key == parse(first).port_key


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Settings().queue_depth_max = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="frozen"):
        Token(principal="p").principal = "q"  # type: ignore[misc]

from __future__ import annotations

import json

import pytest

from mm2mgr.connect.errors import (
    AlreadyExists,
    Answer,
    Call,
    ConnectAuthError,
    ConnectBusy,
    ConnectError,
    Invalid,
    NotFound,
    OutcomeUnknown,
    Unsupported,
    WrongBody,
    error_of,
)
from mm2mgr.secrets import remember
from tests.fake_connect import FORWARD_CUT, FORWARDING, NO_LEADER, REBALANCE, STALE, STARTING_PAGE, TIMED_OUT

READ = Call("east", "GET", "/connectors/a/status", connector="a", credentials="HTTP basic credentials")
WRITE = Call("east", "PUT", "/connectors/a/config", connector="a", write=True)


def answer(status: int, message: str) -> Answer:
    return Answer(status, json.dumps({"error_code": status, "message": message}))


@pytest.mark.parametrize(
    ("status", "message", "of_read", "of_write"),
    [
        (400, "Configuration 'topics' values must not be null.", Invalid, Invalid),
        (401, "User cannot access the resource.", ConnectAuthError, ConnectAuthError),
        (403, "Forbidden", ConnectAuthError, ConnectAuthError),
        (403, "Topic tracking is disabled.", Unsupported, Unsupported),
        (404, "Connector a not found", NotFound, NotFound),
        (404, "No status found for connector a", NotFound, NotFound),
        (404, "HTTP 404 Not Found", Unsupported, Unsupported),
        (405, "HTTP 405 Method Not Allowed", Unsupported, Unsupported),
        (409, "Connector a already exists", AlreadyExists, AlreadyExists),
        (409, STALE, ConnectBusy, ConnectBusy),
        (409, NO_LEADER, ConnectBusy, ConnectBusy),
        (
            409,
            "Cannot complete request because of a conflicting operation (e.g. worker rebalance)",
            ConnectBusy,
            ConnectBusy,
        ),
        (429, "slow down", ConnectBusy, ConnectBusy),
        (500, REBALANCE, ConnectBusy, ConnectBusy),
        (500, FORWARDING, ConnectBusy, ConnectBusy),
        (500, FORWARD_CUT, ConnectBusy, OutcomeUnknown),
        (500, TIMED_OUT, ConnectBusy, OutcomeUnknown),
        (500, "Invalid value abc for configuration linger.ms: Not a number of type LONG", ConnectError, ConnectError),
        (500, 'Unrecognized field "initial_state"', ConnectError, Unsupported),
        (502, "bad gateway", ConnectBusy, OutcomeUnknown),
        (503, "starting", ConnectBusy, ConnectBusy),
        (504, "gateway timeout", ConnectBusy, OutcomeUnknown),
        (418, "teapot", ConnectError, ConnectError),
    ],
)
def test_what_an_answer_means(
    status: int, message: str, of_read: type[ConnectError], of_write: type[ConnectError]
) -> None:
    for call, kind in ((READ, of_read), (WRITE, of_write)):
        error = error_of(answer(status, message), call)
        assert type(error) is kind
        assert "'east'" in str(error)
        assert "connector 'a'" in str(error)
        assert error.hint


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_success(status: int) -> None:
    assert error_of(Answer(status), WRITE) is None


def test_a_starting_workers_page_is_not_a_missing_connector() -> None:
    assert type(error_of(Answer(404, STARTING_PAGE), READ)) is ConnectBusy


def test_the_lines_of_a_400_without_their_frame() -> None:
    text = "Connector configuration is invalid and contains the following 2 error(s):\none\ntwo\nYou can also find the above"
    error = error_of(answer(400, text + " list of errors at the endpoint"), WRITE)
    assert isinstance(error, Invalid)
    assert error.lines == ("one", "two")


def test_a_secret_is_masked_before_the_text_is_cut() -> None:
    secret = "s3cr3t" * 20
    remember({"x.password": secret})
    call = Call("east", "PUT", "/connectors/a/config")
    for offset in range(380, 500, 7):
        error = error_of(answer(400, "x" * offset + secret), call)
        assert "s3cr3t" not in str(error)


def test_a_page_that_echoes_the_request_is_masked_and_cut() -> None:
    remember({"x.password": "pa55"})
    call = Call("east", "PUT", "/connectors/a/config")
    with pytest.raises(WrongBody) as caught:
        Answer(200, "<html>pa55" + "x" * 10_000).json(call)
    assert "pa55" not in str(caught.value)
    assert len(str(caught.value)) < 700


def test_auth_errors_name_the_kind_of_credentials() -> None:
    error = error_of(Answer(401, "<html>login</html>"), READ)
    assert error is not None
    assert "HTTP basic credentials" in str(error.hint)


def test_a_redirect_names_the_host_only() -> None:
    error = error_of(Answer(307, "", location="https://elsewhere/x?token=hunter2"), READ)
    assert "https://elsewhere," in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "an empty body"),
        ("<html>Sign in</html>", "Sign in"),
        ('{"sasl.jaas.config": "password=\\"hunter2', "characters"),
        pytest.param("[" * 200_000, "200000 characters", id="nested deeply"),
    ],
)
def test_a_body_that_is_no_json(text: str, says: str) -> None:
    with pytest.raises(WrongBody, match=says) as caught:
        Answer(200, text).json(READ)
    assert "hunter2" not in str(caught.value)
    assert "'east'" in str(caught.value)

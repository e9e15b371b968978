"""Channels, signatures, addresses and waits, each on its own."""

import base64
import logging
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specpilot.alerts import Channel, ChannelKind, make_client
from specpilot.alerts.addresses import AddressRefusedError, allowed_addresses, refusal
from specpilot.alerts.backoff import read_retry_after
from specpilot.alerts.signing import signature_headers

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


def channel(**values: object) -> Channel:
    base = {"name": "oncall", "kind": ChannelKind.WEBHOOK, "url": "https://hooks.example/T0/secret"}
    return Channel(**{**base, **values})


def test_the_signature_is_that_of_the_specification() -> None:
    """The example that libraries of Standard Webhooks are tested with."""
    made = channel(secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature_headers(
        message_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=datetime.fromtimestamp(1614265330, tz=UTC),
        body=b'{"test": 2432232314}',
        key=made.signing_key,
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_a_secret_is_base64_after_the_prefix_and_raw_otherwise() -> None:
    encoded = base64.b64encode(b"thirty-two bytes of randomness..").decode()
    assert channel(secret=f"whsec_{encoded}").signing_key == b"thirty-two bytes of randomness.."
    assert channel(secret="plain text").signing_key == b"plain text"
    assert channel().signing_key == b""


@pytest.mark.parametrize(
    ("values", "words", "reason"),
    [
        ({"secret": "whsec_not base64!"}, "must be base64; make one with", "a broken secret"),
        ({"secret": "whsec_"}, "must be base64", "an empty one would sign with nothing"),
        ({"url": "ftp://hooks.example/"}, "must be http.*not ftp", "another scheme"),
        ({"url": "hooks.example/x"}, "must be http.*not nothing", "no scheme"),
        ({"url": "https:///path"}, "must be http", "no host"),
        ({"url": "http://[::1/"}, "is not a URL", "no URL"),
        ({"headers": {"X": "a\nInjected: b"}}, "header 'X' must be printable", "a line end"),
    ],
)
def test_a_wrong_channel_is_refused_in_words(
    values: dict[str, object], words: str, reason: str
) -> None:
    with pytest.raises(ValueError, match=f"channel oncall: .*{words}") as caught:
        channel(**values)
    assert "not base64!" not in str(caught.value), reason


def test_secrets_stay_out_of_reprs_and_logs() -> None:
    made = channel(secret="hush", headers={"Authorization": "Bearer hush"})
    assert "hush" not in repr(made)
    assert "T0/secret" not in repr(made), "the URL of a Slack channel is its password"
    make_client().close()
    assert not logging.getLogger("httpx").isEnabledFor(logging.INFO), "it would log every URL"


@pytest.mark.parametrize(
    ("address", "public", "private", "reason"),
    [
        ("93.184.216.34", True, True, "public"),
        ("2606:2800:220:1::1", True, True, "public, IPv6"),
        ("127.0.0.1", False, True, "loopback, for one machine"),
        ("::1", False, True, "loopback, IPv6"),
        ("10.0.0.7", False, True, "private"),
        ("172.16.3.4", False, True, "private"),
        ("192.168.1.1", False, True, "private"),
        ("100.64.0.1", False, True, "carrier-grade NAT"),
        ("fd12:3456::1", False, True, "unique local"),
        ("fec0::1", False, True, "site-local, deprecated"),
        ("::7f00:1", False, True, "IPv4-compatible, deprecated"),
        ("::ffff:10.0.0.7", False, True, "private inside IPv6"),
        ("169.254.169.254", False, False, "metadata"),
        ("169.254.0.9", False, False, "link-local"),
        ("fe80::1", False, False, "link-local, IPv6"),
        ("fe80::1%eth0", False, False, "link-local with a zone"),
        ("::ffff:169.254.169.254", False, False, "metadata inside IPv6"),
        ("64:ff9b::a9fe:a9fe", False, False, "metadata through NAT64"),
        ("2002:a9fe:a9fe::1", False, False, "metadata through 6to4"),
        ("fd00:ec2::254", False, False, "metadata of AWS over IPv6"),
        ("100.100.100.200", False, False, "metadata of Alibaba"),
        ("168.63.129.16", False, False, "Azure's wire server"),
        ("0.0.0.0", False, False, "unspecified: means this host"),
        ("::", False, False, "unspecified"),
        ("224.0.0.1", False, False, "multicast"),
        ("ff02::1", False, False, "multicast"),
        ("255.255.255.255", False, True, "broadcast: reserved, and TCP cannot reach it"),
    ],
)
def test_addresses(address: str, *, public: bool, private: bool, reason: str) -> None:
    assert (refusal(address, allow_private=False) == "") is public, reason
    assert (refusal(address, allow_private=True) == "") is private, reason


def test_a_host_with_one_good_address_uses_that() -> None:
    def allowed(*found: str) -> tuple[str, ...]:
        return allowed_addresses(
            "hooks.example", port=443, allow_private=False, resolve=lambda _host, _port: found
        )

    assert allowed("10.0.0.1", "93.184.216.34") == ("93.184.216.34",)
    with pytest.raises(AddressRefusedError, match=r"hooks.example is refused: 10.0.0.1 is private"):
        allowed("10.0.0.1")
    with pytest.raises(AddressRefusedError, match="no address"):
        allowed()


def test_retry_after_in_the_past_is_now() -> None:
    past = read_retry_after("Wed, 04 Mar 2020 05:08:07 GMT", now=AT)
    assert past == timedelta(0)


@given(st.text(max_size=40))
def test_no_retry_after_header_is_an_error(header: str) -> None:
    found = read_retry_after(header, now=AT)
    assert found is None or found >= timedelta(0)

"""Tells people and programs what was changed and why: Slack and signed webhooks."""

from specpilot.alerts.backoff import Backoff
from specpilot.alerts.channels import Channel, ChannelKind
from specpilot.alerts.dispatcher import Dispatched, Dispatcher, make_client
from specpilot.alerts.messages import Message, compose

__all__ = [
    "Backoff",
    "Channel",
    "ChannelKind",
    "Dispatched",
    "Dispatcher",
    "Message",
    "compose",
    "make_client",
]

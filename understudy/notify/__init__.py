"""Notices to people of what agents ask: by webhook, by mail, in Slack, or by your own function.

`slack_actions` needs the extra `web`: `pip install 'understudy[web]'`.
"""

import typing

from understudy._base.lazy_names import load_lazily as _load_lazily
from understudy.notify.channels import Channel, DeliveryFailed
from understudy.notify.deliveries import Notify
from understudy.notify.mail import Email
from understudy.notify.notice import Notice
from understudy.notify.rules import Rule
from understudy.notify.slack import Slack
from understudy.notify.webhook import Webhook, verify_webhook

if typing.TYPE_CHECKING:
    from understudy.notify.slack_actions import slack_actions as slack_actions
else:
    __getattr__, __dir__ = _load_lazily(
        "understudy.notify", {"understudy.notify.slack_actions": ["slack_actions"]}
    )

__all__ = [
    "Channel",
    "DeliveryFailed",
    "Email",
    "Notice",
    "Notify",
    "Rule",
    "Slack",
    "Webhook",
    "slack_actions",
    "verify_webhook",
]

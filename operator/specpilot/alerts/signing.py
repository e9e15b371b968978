"""Signatures by the Standard Webhooks specification 1.0, which receivers have libraries for."""

import base64
import hashlib
import hmac
from datetime import datetime


def signature_headers(*, message_id: str, at: datetime, body: bytes, key: bytes) -> dict[str, str]:
    """Return the headers of a message; without a key it carries no signature.

    Args:
        message_id: Stable over all attempts; what receivers tell duplicates by.
        at: Time of this attempt; receivers refuse old ones.
        body: The very bytes that are sent.
        key: The shared secret, decoded.
    """
    seconds = str(int(at.timestamp()))
    headers = {"webhook-id": message_id, "webhook-timestamp": seconds}
    if key:
        signed = b".".join([message_id.encode(), seconds.encode(), body])
        digest = hmac.new(key, signed, hashlib.sha256).digest()
        headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
    return headers

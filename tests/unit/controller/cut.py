"""A fleet that may be cut in three."""


class Cut:
    """So many portions; which namespace is in which is nobody's question."""

    most = 3

    def __init__(self, count: int) -> None:
        self.count = count

    def of(self, namespace: str) -> int:
        raise NotImplementedError

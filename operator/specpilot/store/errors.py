"""What can go wrong in the store, as types, each with the words that its reader needs."""


class StoreError(Exception):
    """The store could not do what was asked; nothing was written."""


class DatabaseUnusableError(StoreError):
    """The database cannot be opened, reached or used as it stands."""


class DatabaseTooNewError(StoreError):
    """The database was written by a newer release."""


class StoreBusyError(StoreError):
    """Another writer held the database for longer than the busy timeout. Try again."""


class DeposedError(StoreError):
    """Another process leads by now. This one is to end."""


class ConcurrentUpdateError(StoreError):
    """Somebody else wrote the flag change since it was read. Read it again and decide again."""


class TargetBusyError(StoreError):
    """The target already has a flag change that has not ended."""


class DuplicateChangeError(StoreError):
    """A flag change with this id exists."""


class DuplicateStepError(StoreError):
    """This step of the flag change has its audit record already."""


class RuleSetOwnedError(StoreError):
    """The rule set belongs to another owner, who alone may change it."""


class NoSuchResourceError(StoreError):
    """There is no resource of this kind and name."""

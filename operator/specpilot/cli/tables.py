"""Tables of text that comes from engines and users, in which square brackets are only brackets."""

from rich.table import Table
from rich.text import Text


def add_row(table: Table, *cells: object) -> None:
    """Add a row; nothing in a cell is read as markup."""
    table.add_row(*(c if isinstance(c, Text) else Text(str(c)) for c in cells))

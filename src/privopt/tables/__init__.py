"""Tables from files: declared columns, one encoder that learns nothing, reading and writing."""

from privopt.tables.encoder import DeclaredColumns
from privopt.tables.files import column_types, count_rows, read_table, write_table
from privopt.tables.learn import presumed
from privopt.tables.schema import Column, Schema, Target
from privopt.tables.template import template

__all__ = [
    "Column",
    "DeclaredColumns",
    "Schema",
    "Target",
    "column_types",
    "count_rows",
    "presumed",
    "read_table",
    "template",
    "write_table",
]

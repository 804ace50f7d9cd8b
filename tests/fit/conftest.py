"""Commands that are run here are held against their documents as those of `tests/cli` are."""

from tests.cli.conftest import documents_keep_their_schema, tables_say_what_documents_say

__all__ = ["documents_keep_their_schema", "tables_say_what_documents_say"]

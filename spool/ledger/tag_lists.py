"""
The lists of tags by which the totals were counted: the current `[ledger] tags`, and earlier values.

All reports of a call are counted by the list that applied to the call, so that a correction subtracts from
the right sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from spool.ledger.ledger_rows import LedgerRows, TagList, new_data_version

TAGGED = "tagged"  # state key: change mark of the tag lists (see `new_data_version`), 0 without any

# limit of stored lists, because gateways with different settings may take turns in adding lists
MOST_LISTS = 100


class TagLists:
    """
    The tag lists at one moment, oldest first. `mark`: a number in the ledger's state that changes with them.
    """

    def __init__(self, mark: int = 0, lists: Sequence[TagList] = ()) -> None:
        self.mark = mark
        self.lists = lists

    def tags_at(self, record_number: int, hour: int) -> tuple[str, ...]:
        for each in reversed(self.lists):
            if record_number >= each.first and hour >= each.since:
                return each.tags
        return self.lists[0].tags if self.lists else ()

    def tag_list_to_add(self, tags: tuple[str, ...], *, first_record_number: int) -> TagList | None:
        """
        Return a list of `tags` for records from `first_record_number` on, or None if the newest list already has
        these tags.
        """
        newest = self.lists[-1] if self.lists else TagList(first_record_number, 0, ())
        return (
            None if self.lists and newest.tags == tags else TagList(first_record_number, newest.since, tags)
        )

    def with_list(self, tag_list: TagList) -> TagLists:
        """
        Return the tag lists with `tag_list` added as the newest. Lists that it replaces for every record
        are left out.
        """
        if not tag_list.since and self.lists and all(each.tags == tag_list.tags for each in self.lists):
            return TagLists(self.mark, [tag_list._replace(first=0)])
        older = [each for each in self.lists if each.first < tag_list.first or each.since < tag_list.since]
        return TagLists(self.mark, [*older, tag_list][-MOST_LISTS:])


def read_tag_lists(ledger_rows: LedgerRows) -> TagLists:
    return TagLists(ledger_rows.state_values().get(TAGGED, 0), ledger_rows.tag_lists())


def store_tag_list(ledger_rows: LedgerRows, tag_list: TagList) -> None:
    ledger_rows.replace_tag_lists(read_tag_lists(ledger_rows).with_list(tag_list).lists)
    ledger_rows.set_state(**{TAGGED: new_data_version()})


def apply_newest_tag_list_from(ledger_rows: LedgerRows, first_record_number: int) -> None:
    if lists := ledger_rows.tag_lists():
        store_tag_list(ledger_rows, TagList(first_record_number, 0, lists[-1].tags))

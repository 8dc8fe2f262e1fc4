"""Cells made from cells: functions Spec -> Spec, offered in Python by `rnnspec.transform` and in a
file by `apply`."""
